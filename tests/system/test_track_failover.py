"""Jobs that know nothing of this product, tracked from the outside, and failed over to the record behind their last."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bare_store import BareStore, bare_scheme
from world import ROOT

from reconciler.cli.main import main
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Refused
from reconciler.lab.kafka import KafkaCluster, start_all
from reconciler.lab.mirror import MirrorMaker, Policy
from reconciler.ports import Change, TopicPartition
from reconciler.stores.paired import read_kept
from reconciler.stores.paired_rules import pair
from reconciler.stores.registry import open_store

pytestmark = pytest.mark.system

TOPIC, GROUP, PARTITIONS, RECORDS = "events", "readers", 2, 120
FIRST, OFFSET_OF_FIRST = 25, 30
"""The oldest record left of a partition when the mirror begins: five transactions with a marker each are gone."""

__all__ = ["bare_scheme"]


# ---------------------------------------------------------------- jobs that only know numbers


def produce(cluster: KafkaCluster) -> None:
    """Records in transactions of five: a marker stands behind each, and makes a gap in the numbers."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "writer"})
    producer.init_transactions(30)
    for first in range(0, RECORDS, 5):
        producer.begin_transaction()
        for number in range(first, first + 5):
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, b"%d of %d" % (number, partition), partition=partition)
        producer.commit_transaction(30)


def consume(cluster: KafkaCluster, topic: str, group: str, count: int) -> dict[int, list[bytes]]:
    """An unmodified consumer: ``count`` records of each partition, then one commit. The values it processed."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as KafkaPartition

    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.offset.store": False})
    wanted = [KafkaPartition(topic, partition) for partition in range(PARTITIONS)]
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    try:
        consumer.assign(consumer.committed(wanted, timeout=30))
        deadline = time.monotonic() + 60
        while any(len(values) < count for values in found.values()):
            message = consumer.poll(1)
            assert time.monotonic() < deadline, found
            if message is None or message.error() is not None or len(found[message.partition()]) >= count:
                continue
            found[message.partition()].append(message.value())
            if len(found[message.partition()]) == count:
                consumer.pause([KafkaPartition(topic, message.partition())])
                last = KafkaPartition(topic, message.partition(), message.offset() + 1)
                consumer.commit(offsets=[last], asynchronous=False)
    finally:
        consumer.close()
    return found


def copy_commits(cluster: KafkaCluster, table: BareStore, topic: str = TOPIC) -> dict[int, int]:
    """Another job, which keeps the same offsets in a table of its own: numbers, and nothing else."""
    rows = open_store("kafka-group:", kafka_client={"bootstrap.servers": cluster.bootstrap}).read(GROUP, [topic])
    there = {row.key: row.version for row in table.read("table")}
    changes = [Change(row.key, there.get(row.key), StoredOffset(row.stored.offset)) for row in rows]
    assert not table.write("table", changes, reason="job", now_ms=1).conflicts
    return {row.key.partition: row.stored.offset for row in rows}


# ---------------------------------------------------------------- the tracker, as a process


class Tracking:
    def __init__(self, config: Path, folder: Path) -> None:
        self._said, self._anchors = folder / "track.log", folder / "anchors.db"
        self._out = self._said.open("w")
        program = Path(__file__).with_name("bare_store.py")
        command = [
            sys.executable,
            "-X",
            "faulthandler",
            str(program),
            "--log-format",
            "json",
            "track",
            "-c",
            str(config),
            "--every",
            "1",
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(command, stdout=self._out, stderr=self._out, env=environment)

    def said(self) -> list[str]:
        lines = self._said.read_text().splitlines()
        return [json.loads(line)["message"] if line.startswith("{") else line for line in lines]

    def wait_until_said(self, words: str, *, times: int = 1) -> None:
        self._wait(lambda: sum(words in line for line in self.said()) >= times, words)

    def wait_until_follows(self, group: str, offsets: dict[int, int]) -> None:
        """Until exact pairs are kept for these stored offsets."""

        def kept() -> bool:
            try:
                found = read_kept(open_store(f"sqlite:///{self._anchors}"), group, [TOPIC])
            except Refused:  # it has not been made yet
                return False
            keys = {number: TopicPartition(TOPIC, number) for number in offsets}
            return all(key in found and pair(offsets[number], found[key]).is_exact for number, key in keys.items())

        self._wait(kept, f"anchors of {offsets}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert self.process.poll() is None, self.said()[-40:]
            assert time.monotonic() < deadline, f"waited for {what}; it said {self.said()[-5:]}"
            time.sleep(0.1)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def tracking(config: Path, folder: Path) -> Iterator[Tracking]:
    tracker = Tracking(config, folder)
    try:
        yield tracker
    finally:
        tracker.process.kill()
        tracker.process.wait()


# ---------------------------------------------------------------- the story


@pytest.mark.parametrize("policy", ["default", "identity"])
@pytest.mark.usefixtures("bare_scheme")
def test_an_unmodified_group_and_an_untouched_table_are_failed_over_exactly(
    policy: Policy, tmp_path: Path, kafka_jars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, there = KafkaCluster("a", tmp_path / "a", kafka_jars), KafkaCluster("b", tmp_path / "b", kafka_jars)
    mirror = MirrorMaker(source, there, [TOPIC], tmp_path / "mirror", kafka_jars, policy=policy)
    table, mirrored = BareStore(str(tmp_path / "table.db")), mirror.target_topic(TOPIC)
    table.create()
    start_all([source, there])
    config = written(tmp_path, policy, source, there)
    with source, there:
        source.create_topic(TOPIC, PARTITIONS)
        produce(source)
        for partition in range(PARTITIONS):
            source.delete_records(TOPIC, partition, before=OFFSET_OF_FIRST)
        with mirror, tracking(config, tmp_path) as tracker:
            assert consume(source, TOPIC, GROUP, 7)[0][0] == b"%d of 0" % FIRST
            tracker.wait_until_follows(GROUP, copy_commits(source, table))
            mirror.wait_until_mirrored(TOPIC, ends=dict.fromkeys(range(PARTITIONS), RECORDS - FIRST))
            if policy == "default":
                source.kill()
                tracker.wait_until_said("Trying again every 1 s.")
                source.start()
            processed = consume(source, TOPIC, GROUP, 33)
            stored = copy_commits(source, table)
            for group in (GROUP, "table"):
                tracker.wait_until_follows(group, stored)
            mirror.stop()
            source.kill()
            tracker.wait_until_said("Trying again every 1 s.", times=2 if policy == "default" else 1)
            assert tracker.stop() == 0
            assert tracker.said()[-1] == "stopped"
        capsys.readouterr()

        # Both jobs have processed the same. Nothing but the destination, the anchors and the table is left.
        plan = tmp_path / "plan.json"
        assert main(["plan", "-c", str(config), "-o", str(plan)]) == 0
        right = dict.fromkeys(range(PARTITIONS), 40)
        for job in json.loads(plan.read_text())["jobs"]:
            found = [(row["verdict"], row["resume_offset"], row["replay"]["exact"]) for row in job["partitions"]]
            assert found == [("moved", right[number], 0) for number in range(PARTITIONS)], job
        assert main(["apply", str(plan), "-c", str(config), "--yes"]) == 0
        assert {row.key.partition: row.stored.offset for row in table.read("table", [mirrored])} == right
        assert main(["check", "-c", str(config)]) == 0

        # The consumer goes on as it always did, and so does its row in the table; neither is pulled back.
        after = consume(there, mirrored, GROUP, 3)
        for number, values in after.items():
            last = int(processed[number][-1].split()[0])
            assert values == [b"%d of %d" % (last + 1 + each, number) for each in range(3)]
        copy_commits(there, table, mirrored)
        assert main(["check", "-c", str(config)]) == 0
        assert "2 match" in capsys.readouterr().out


def written(folder: Path, policy: Policy, source: KafkaCluster, there: KafkaCluster) -> Path:
    """The configuration of both jobs."""
    path = folder / "reconciler.toml"
    path.write_text(
        f'[source]\nalias = "a"\nbootstrap_servers = "{source.bootstrap}"\n'
        f'[destination]\nbootstrap_servers = "{there.bootstrap}"\n[topics]\npolicy = "{policy}"\n'
        f'[anchors]\nstore = "sqlite:///{folder}/anchors.db"\n[search]\ndeadline = "2s"\n'
        f'[[jobs]]\nname = "group"\ngroup = "{GROUP}"\ntopics = ["{TOPIC}"]\nstore = "kafka-group:"\n'
        f'[[jobs]]\nname = "table"\ngroup = "table"\ntopics = ["{TOPIC}"]\nstore = "bare:///{folder}/table.db"\n'
    )
    return path
