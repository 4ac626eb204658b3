"""check and plan with --engine spark, on brokers that each lead a part: the plan equals the local engine's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import distributed_ids
import pytest
from confluent_kafka import Producer

from reconciler.cli import context
from reconciler.cli.main import main
from reconciler.config.file import load_config
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import ExitCode, Unreachable
from reconciler.failover.check import check
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition
from reconciler.spark.distributed import SparkEngine
from tests import ROOT
from tests.demo.lab.kafka import KafkaCluster

pytestmark = pytest.mark.system

BEGIN = 1_780_000_000_000
BROKERS, PARTITIONS, RECORDS = 2, 36, 40
SECRET = "hunter2-of-the-destination"
TOPIC, NARROW = "a.events", "a.narrow"


def key(partition: int, number: int) -> bytes:
    return b"%d/%d" % (partition, number)


def time_of(number: int) -> int:
    """Three records share a time."""
    return BEGIN + 1_000 * (number // 3)


@pytest.fixture(scope="module")
def estate(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[KafkaCluster]:
    """Two brokers that lead a mirrored topic in turn, of which partition 0 is empty; and a topic of two partitions."""
    with KafkaCluster("b", tmp_path_factory.mktemp("estate"), kafka_jars, brokers=BROKERS) as cluster:
        cluster.create_topic(
            TOPIC, PARTITIONS, replica_assignment=[[1 + number % BROKERS] for number in range(PARTITIONS)]
        )
        cluster.create_topic(NARROW, 2, replica_assignment=[[1], [2]])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, "log_level": 0})
        for topic, partitions in ((TOPIC, range(1, PARTITIONS)), (NARROW, range(2))):
            for partition in partitions:
                for number in range(RECORDS):
                    producer.produce(topic, b"v", key(partition, number), partition, timestamp=time_of(number))
        assert producer.flush(60) == 0
        del producer
        yield cluster


@dataclass
class Jobs:
    """A configuration of one job on the estate, with its stored offsets."""

    cluster: KafkaCluster
    folder: Path

    def config(self, id: str = "python:distributed_ids:from_key", deadline: str = "60s") -> Path:
        address = f"sqlite:///{self.folder / 'offsets.db'}"
        path, password = self.folder / "reconciler.toml", self.folder / "password"
        password.write_text(SECRET)
        path.write_text(
            f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "{self.cluster.bootstrap}"\n'
            f'[clusters.b.client]\n"sasl.password" = "file:{password}"\n[search]\ndeadline = "{deadline}"\n'
            '[policy]\npython = ["distributed_ids"]\n'
            f'[[jobs]]\nhome = "a"\nname = "clicks"\ntopics = ["events", "narrow"]\noffsets = "{address}"\n'
            f'[jobs.identity]\nid = "{id}"\n'
        )
        return path

    def save(self) -> None:
        """Anchors of the source: most are found, one is not there yet, and one topic had more partitions."""
        read = [("events", partition, partition) for partition in range(1, PARTITIONS)]
        read[6] = ("events", 7, RECORDS + 500)
        read += [("narrow", partition, 10 + partition) for partition in range(4)]
        changes = []
        for topic, partition, number in read:
            name = key(partition, number)
            anchor = Anchor(9_000 + number, time_of(number), name, fingerprint(name, b"v"), "source", "topic")
            changes.append(Change(TopicPartition(topic, partition), None, StoredOffset(9_001 + number, anchor)))
        store = open_store(f"sqlite:///{self.folder / 'offsets.db'}")
        assert not store.write("clicks", changes, reason="test", now_ms=0).conflicts
        store.close()

    def planned(self, name: str, *arguments: str) -> str:
        """The plan file's text without its times, and without the number of requests to brokers.

        A broker that is slow to say where its log ends is asked once more, by either engine.
        """
        path = self.folder / name
        assert main(["plan", "-c", str(self.config()), "-o", str(path), *arguments]) == 0
        return timeless(path)


def timeless(path: Path) -> str:
    plan = json.loads(path.read_text())
    for name in ("created_at", "expires_at", "sha256"):
        assert plan.pop(name)
    for row in plan["jobs"][0]["partitions"]:
        for name in ("probes", "rounds"):
            assert row["evidence"].pop(name) >= 1
    return json.dumps(plan, indent=1)


@pytest.fixture
def jobs(estate: KafkaCluster, tmp_path: Path) -> Jobs:
    jobs = Jobs(estate, tmp_path)
    jobs.save()
    return jobs


@pytest.fixture
def with_ids(spark: Any) -> Any:
    spark.sparkContext.addPyFile(distributed_ids.__file__)
    return spark


def test_a_plan_from_spark_equals_the_local_plan_byte_for_byte(jobs: Jobs, with_ids: Any) -> None:
    local = jobs.planned("local.json")
    assert jobs.planned("spark.json", "--engine", "spark", "--per-task", "5") == local
    verdicts = [row["finding"] for row in json.loads(local)["jobs"][0]["partitions"]]
    assert Counter(verdicts) == {"exact": PARTITIONS - 2, "new": 1, "behind": 1, "early": 2}
    by_hand = ("--set", f"{TOPIC}:3=11", "--accept", "skips")
    assert jobs.planned("spark-set.json", "--engine", "spark", *by_hand) == jobs.planned("local-set.json", *by_hand)


def test_a_cluster_whose_tasks_always_die_gives_one_clear_error(
    jobs: Jobs, with_ids: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    config = jobs.config(id="python:distributed_ids:deadly")
    assert main(["plan", "-c", str(config), "--engine", "spark"]) == ExitCode.UNREACHABLE
    said = capsys.readouterr().err
    assert "Spark stopped the searches:" in said
    assert "Traceback" not in said


def test_a_broker_unreachable_for_executors_gives_the_local_engines_error(jobs: Jobs, with_ids: Any) -> None:
    """It falls silent once its partitions are known to be its; other brokers' tasks end well."""
    config = load_config(jobs.config(deadline="3s"))
    silent = jobs.cluster.broker(2)

    def session() -> Any:
        silent.pause()
        return with_ids

    engine = SparkEngine(session, config.destination.client, timeout_s=3, per_task=5)
    try:
        with context.outside(config) as outside, pytest.raises(Unreachable) as raised:
            check(config, config.jobs, replace(outside, run=engine))
    finally:
        silent.resume()
    assert type(raised.value) is Unreachable
    assert f"{silent.address}" in str(raised.value)
    assert "Spark" not in str(raised.value)


@pytest.mark.thorough
def test_separate_executors_and_one_dying_task_change_nothing(
    jobs: Jobs, tmp_path: Path, child: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Two executors in processes of their own; the event log is what Spark's pages are made of."""
    local, config = jobs.planned("local.json"), jobs.config(id="python:distributed_ids:once_deadly")
    done = child("plan", "-c", config, "-o", tmp_path / "spark.json", "--engine", "spark", "--per-task", "5")
    assert done.returncode == 0, done.stderr
    assert timeless(tmp_path / "spark.json") == local

    (log,) = [path for path in (tmp_path / "events").rglob("*") if path.is_file() and path.suffix != ".crc"]
    text = log.read_text()
    ended = [event for line in text.splitlines() if (event := json.loads(line))["Event"] == "SparkListenerTaskEnd"]
    assert "ExceptionFailure" in [event["Task End Reason"]["Reason"] for event in ended]
    assert len({event["Task Info"]["Executor ID"] for event in ended}) == 2
    assert SECRET not in text
    assert SECRET not in done.stdout + done.stderr


@pytest.fixture
def child(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``reconciler`` as a program of its own, on a small cluster of Spark's."""
    import pyspark

    home = tmp_path / "spark"  # executors' working directories would else be in the installed package
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(Path(pyspark.__file__).parent / name)
    (tmp_path / "events").mkdir()
    conf = {
        "spark.master": "local-cluster[2,1,512]",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": (tmp_path / "events").as_uri(),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    }
    settings = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    paths = [str(ROOT), str(Path(distributed_ids.__file__).parent)]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "PYTHONPATH": os.pathsep.join(paths),
        "RECONCILER_TEST_MARK": str(tmp_path / "mark"),
        "PYSPARK_PYTHON": sys.executable,
    }

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "reconciler", *map(str, arguments), *settings]
        return subprocess.run(command, capture_output=True, text=True, timeout=500, env=environment, check=False)

    return run
