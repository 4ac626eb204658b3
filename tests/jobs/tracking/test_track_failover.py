"""Jobs that know nothing of this product, tracked from the outside, and failed over to the record behind their last.

One source, with two mirrors: one renames its topic at the destination, the other keeps the name. Each topic is read
by an unmodified consumer group, and by a job that keeps the same numbers in a table.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import main
from reconciler.core.anchors import StoredOffset
from reconciler.places.kafka.group import KafkaGroupStore
from reconciler.ports import Change, TopicPartition
from reconciler.state.journal import latest
from tests.demo.lab.kafka import KafkaCluster, MirrorMaker, start_all
from tests.places.bare_store import BareStore, bare_scheme
from tests.starting import state_of, with_state
from tests.waiting import LIMIT_S, wait_until
from tests.world import environment

pytestmark = [pytest.mark.system, pytest.mark.thorough]
# Each part is in every run: tables and groups there and back (tests/places), the mirror (the guide), the tracker.
__all__ = ["bare_scheme"]

RENAMED, KEPT = "events", "plain"
THERE = {RENAMED: "a.events", KEPT: "plain"}
"""The topics, and their names at the destination."""
PARTITIONS, RECORDS = 2, 120
FIRST, OFFSET_OF_FIRST = 25, 30
"""The oldest record left of a partition when the mirrors begin: five transactions with a marker each are gone."""


# ---------------------------------------------------------------- jobs that only know numbers


def produce(cluster: KafkaCluster) -> None:
    """Records in transactions of five: a marker stands behind each, and makes a gap in the numbers."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "writer", "log_level": 0})
    producer.init_transactions(30)
    for first in range(0, RECORDS, 5):
        producer.begin_transaction()
        for number in range(first, first + 5):
            for topic in THERE:
                for partition in range(PARTITIONS):
                    producer.produce(topic, b"%d of %d" % (number, partition), partition=partition)
        producer.commit_transaction(30)


def patiently(call: Callable[[], Any]) -> Any:
    """A broker that has just started is no coordinator for a moment."""
    from confluent_kafka import KafkaException
    from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

    retry = retry_if_exception_type(KafkaException)
    return Retrying(retry=retry, stop=stop_after_delay(LIMIT_S), wait=wait_fixed(0.2), reraise=True)(call)


def consume(cluster: KafkaCluster, topic: str, group: str, count: int) -> dict[int, list[bytes]]:
    """An unmodified consumer: ``count`` records of each partition, each committed. The values it processed."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as KafkaPartition

    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "enable.auto.offset.store": False})
    wanted = [KafkaPartition(topic, partition) for partition in range(PARTITIONS)]
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    try:
        consumer.assign(patiently(lambda: consumer.committed(wanted, timeout=30)))
        deadline = time.monotonic() + LIMIT_S
        while any(len(values) < count for values in found.values()):
            message = consumer.poll(1)
            assert time.monotonic() < deadline, found
            if message is None or message.error() is not None or len(found[message.partition()]) >= count:
                continue
            found[message.partition()].append(message.value())
            if len(found[message.partition()]) == count:
                last = KafkaPartition(topic, message.partition(), message.offset() + 1)
                patiently(partial(consumer.commit, offsets=[last], asynchronous=False))
    finally:
        consumer.close()
    return found


class Jobs:
    """The consumers' groups, and a table that another program fills with their numbers: all jobs have done the same."""

    def __init__(self, folder: Path) -> None:
        self.table = BareStore(str(folder / "table.db"))
        self.table.create()

    @staticmethod
    def groups(topic: str) -> tuple[str, str]:
        """The consumers' group, and the name of the table's rows."""
        return f"readers of {topic}", f"table of {topic}"

    def process(self, cluster: KafkaCluster, names: dict[str, str], count: int) -> dict[str, dict[int, list[bytes]]]:
        """``count`` records of each partition of the topics under these names."""
        found = {}
        for topic, name in names.items():
            readers, table = self.groups(topic)
            found[topic] = consume(cluster, name, readers, count)
            there = {row.key: row.version for row in self.table.read(table)}
            stored = self.stored(cluster, name, readers)
            changes = [Change(key, there.get(key), StoredOffset(offset)) for key, offset in stored.items()]
            assert not self.table.write(table, changes, reason="job", now_ms=1).conflicts
        return found

    @staticmethod
    def stored(cluster: KafkaCluster, name: str, group: str) -> dict[TopicPartition, int]:
        commits = KafkaGroupStore({"bootstrap.servers": cluster.bootstrap})
        try:
            return {row.key: row.stored.offset for row in commits.read(group, [name])}
        finally:
            commits.close()


# ---------------------------------------------------------------- the tracker, as a process


class Tracking:
    def __init__(self, config: Path, folder: Path) -> None:
        self._log, self._config = folder / "track.log", config
        self._out = self._log.open("w")
        options = ["--log-format", "json", "track", "-c", str(config), "--every", "1"]
        command = [sys.executable, "-m", "tests.places.bare_store", *options]
        self.process = subprocess.Popen(command, stdout=self._out, stderr=self._out, env=environment())

    def messages(self) -> list[str]:
        return [json.loads(line)["message"] for line in self._log.read_text().splitlines()]

    def wait_until_said(self, words: str, *, times: int = 1) -> None:
        self._wait(lambda: sum(words in line for line in self.messages()) >= times, words)

    def wait_until_follows(self, source: KafkaCluster) -> None:
        """Until the journals have all that the jobs have stored."""
        for topic in THERE:
            readers, table = Jobs.groups(topic)
            stored = Jobs.stored(source, topic, readers)
            assert len(stored) == PARTITIONS
            for group in (readers, table):
                self._wait(lambda group=group, stored=stored: self._follows(group, stored), f"{group}: {stored}")

    def _follows(self, group: str, stored: dict[TopicPartition, int]) -> bool:
        known = latest(state_of(self._config, group, "a").newest(1))
        found = {TopicPartition(at.topic, at.partition): each for at, each in known.items()}
        return all(key in found and (found[key].number, found[key].older) == (at, 0) for key, at in stored.items())

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(
            condition, lambda: f"{what}; it said {self.messages()[-5:]}", ended=lambda: self.process.poll() is not None
        )

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


def written(folder: Path, source: KafkaCluster, there: KafkaCluster, *, deadline: str) -> Path:
    """The configuration of the four jobs, for a program that waits so long for a cluster."""
    jobs = ""
    for topic in THERE:
        stores = ("kafka-group:", f"bare:///{folder}/table.db")
        for group, store in zip(Jobs.groups(topic), stores, strict=True):
            jobs += f'[[jobs]]\nhome = "a"\nname = "{group}"\ntopics = ["{topic}"]\noffsets = "{store}"\n'
    path = folder / f"reconciler-{deadline}.toml"
    path.write_text(
        f'[clusters.a]\nbootstrap_servers = "{source.bootstrap}"\n'
        f'[clusters.b]\nbootstrap_servers = "{there.bootstrap}"\n'
        f'[topics]\npolicy = "default"\n[topics.names.b]\n"{KEPT}@a" = "{KEPT}"\n'
        f'[search]\ndeadline = "{deadline}"\n{jobs}'
    )
    return with_state(path)


@pytest.mark.usefixtures("bare_scheme")
def test_unmodified_groups_and_untouched_tables_are_failed_over_exactly(
    tmp_path: Path, kafka_jars: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, there = KafkaCluster("a", tmp_path / "a", kafka_jars), KafkaCluster("b", tmp_path / "b", kafka_jars)
    renaming = MirrorMaker(source, there, [RENAMED], tmp_path / "renaming", kafka_jars)
    own = {"policy": "identity", "connect": "keeping"}
    keeping = MirrorMaker(source, there, [KEPT], tmp_path / "keeping", kafka_jars, **own)
    start_all([source, there])
    jobs, config = Jobs(tmp_path), written(tmp_path, source, there, deadline="120s")
    hasty = written(tmp_path, source, there, deadline="2s")  # so that the tracker soon says that the source is away
    here = {topic: topic for topic in THERE}
    with source, there:
        for topic in THERE:
            source.create_topic(topic, PARTITIONS)
        produce(source)
        for topic in THERE:
            for partition in range(PARTITIONS):
                source.delete_records(topic, partition, before=OFFSET_OF_FIRST)
        with renaming, keeping, tracking(hasty, tmp_path) as tracker:
            assert jobs.process(source, here, 7)[KEPT][0][0] == b"%d of 0" % FIRST
            tracker.wait_until_follows(source)
            ends = dict.fromkeys(range(PARTITIONS), RECORDS - FIRST)
            renaming.wait_until_mirrored(RENAMED, ends=ends)
            keeping.wait_until_mirrored(KEPT, ends=ends)

            source.kill()  # a broker that goes away and comes back
            tracker.wait_until_said("Trying again every 1 s.")
            source.start()
            processed = jobs.process(source, here, 33)
            tracker.wait_until_follows(source)
            tracker.wait_until_said("answers again")

            renaming.stop()
            keeping.stop()
            source.kill()  # and now for good
            tracker.wait_until_said("Trying again every 1 s.", times=2)
            assert tracker.stop() == 0
            assert tracker.messages()[-1] == "stopped"
        capsys.readouterr()

        # Nothing but the destination, the journals and the table is left.
        plan = tmp_path / "plan.json"
        assert main(["plan", "-c", str(config), "-o", str(plan)]) == 0
        for job in json.loads(plan.read_text())["jobs"]:
            found = [(row["finding"], row["resume_offset"], row["replay"]["exact"]) for row in job["partitions"]]
            assert found == [("exact", 40, 0)] * PARTITIONS, job
        assert main(["apply", str(plan), "-c", str(config), "--yes"]) == 0
        for topic, name in THERE.items():
            rows = jobs.table.read(Jobs.groups(topic)[1], [name])
            assert [row.stored for row in rows] == [StoredOffset(40)] * PARTITIONS
        assert main(["plan", "-c", str(config), "--to", "b"]) == 0

        # The consumers go on as they always did, and so does the table.
        for topic, after in jobs.process(there, THERE, 3).items():
            for number, values in after.items():
                last = int(processed[topic][number][-1].split()[0])
                assert values == [b"%d of %d" % (last + 1 + each, number) for each in range(3)]
        capsys.readouterr()
        assert main(["plan", "-c", str(config), "--to", "b", "--format", "json"]) == 3
        stored = {
            job["name"]: {(row["stored_offset"], row["replay"]["at_most"]) for row in job["partitions"]}
            for job in json.loads(capsys.readouterr().out)["jobs"]
        }
        # Under one name, the table's number may be one of the other cluster: the last one that is recorded counts.
        kept = Jobs.groups(KEPT)[1]
        assert stored.pop(kept) == {(40, 3)}
        assert list(stored.values()) == [{(43, 0)}] * 3
