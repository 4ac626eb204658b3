"""A job that reads what is produced on both clusters goes there and back, with MirrorMaker's default names: ``events``
is another topic on each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reconciler.core.anchors import RECORD_TIME_ONLY
from reconciler.jobs.tracking.recorder import Position, StayRecorder
from reconciler.jobs.tracking.source import SourceLog
from reconciler.ports import TopicPartition
from reconciler.spark.starting import without_later
from reconciler.state.jobs import JobState
from reconciler.state.start import Start
from reconciler.state.store import open_state
from tests.cli.starts import started
from tests.golden.corpus import BEGIN, HEAD, OFFSETS, job
from tests.golden.internals import Anchor, MemoryLog, StoredOffset, fingerprint
from tests.golden.world import World

CONFIG = ("-c", "reconciler.toml")
OTHER = {"a": "b", "b": "a"}


@dataclass
class Both:
    """Producers, a mirror each way, and the job. Record n of cluster a has the value ``a-n`` everywhere.

    ``anchored``: the job stores anchors; else it stores numbers, and its driver records them as ``track(query)`` does.
    """

    world: World
    anchored: bool
    produced: Counter[str] = field(default_factory=Counter)
    mirrored: Counter[str] = field(default_factory=Counter)
    processed: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        table = job("clicks", ["events"], id="none").replace('home = "a"\n', 'home = "a"\norigins = ["a", "b"]\n')
        self.world.file("reconciler.toml", f'{HEAD}[state]\nstore = "files:state"\n{table}')
        assert self.world.run("init", *CONFIG).code == 0

    def make(self, cluster: str, topic: str) -> None:
        if topic not in self.log(cluster).topic_ids:
            self.log(cluster).create(topic, 1)

    def log(self, cluster: str) -> MemoryLog:
        return {"a": self.world.source, "b": self.world.destination}[cluster]

    def produce(self, cluster: str, count: int) -> None:
        self.make(cluster, "events")
        for number in range(self.produced[cluster], self.produced[cluster] + count):
            value = f"{cluster}-{number}".encode()
            self.log(cluster).partition("events", 0).append(BEGIN + 1_000 * number, value, value)
        self.produced[cluster] += count

    def mirror(self, origin: str, *, gap: int = 0) -> None:
        """Copy what is new from ``origin``, behind ``gap`` markers of transactions: offsets differ."""
        if "events" not in self.log(origin).topic_ids:
            return
        self.make(OTHER[origin], f"{origin}.events")
        records = self.log(origin).partition("events", 0).records
        there = self.log(OTHER[origin]).partition(f"{origin}.events", 0)
        for _ in range(gap):
            there.append_marker(BEGIN)
        for record in records[self.mirrored[origin] :]:
            there.append(record.timestamp_ms, record.key, record.value)
        self.mirrored[origin] = len(records)

    def start(self) -> Start:
        self.world.now_ms += 60_000
        return started(self.world)

    def run(self, cluster: str, most: int = 1_000) -> None:
        """One run of the job, which reads ``most`` records of each topic."""
        start = self.start()
        log = self.log(cluster)
        start = without_later(start, log.describe(start.topics))  # as job() does
        names = {"events", f"{OTHER[cluster]}.events"}
        assert (start.cluster, set(start.topics)) == (cluster, names & set(log.topic_ids))
        numbers: dict[TopicPartition, int] = {}
        for topic in start.topics:
            first = start.offsets.get(TopicPartition(topic, 0), 0)
            records = [each for each in log.partition(topic, 0).records if each.offset >= first][:most]
            self.processed.update((each.value or b"").decode() for each in records)
            if records:
                last = records[-1]
                digest = fingerprint(last.key, last.value)
                ids = (log.cluster_id, log.topic_ids[topic])
                anchor = Anchor(last.offset, last.timestamp_ms, None, digest, *ids) if self.anchored else None
                stored = StoredOffset(last.offset + 1, anchor, self.world.now_ms)
                self.world.store(OFFSETS, "clicks", {(topic, 0): stored})
                numbers[TopicPartition(topic, 0)] = stored.offset
        if not self.anchored:
            self.record(start, numbers)

    def record(self, start: Start, numbers: dict[TopicPartition, int]) -> None:
        source = SourceLog(lambda _: self.log(start.cluster), lambda _: False, RECORD_TIME_ONLY)
        state = JobState(open_state(f"files:{self.world.folder}/state"), "clicks")
        recorder = StayRecorder(state, start.stay, start.topics, source, f"driver at {self.world.now_ms}")
        recorder.look({key: Position(number) for key, number in numbers.items()})
        recorder.append(self.world.now_ms)

    def move(self, to: str) -> None:
        ended = self.world.run("move", *CONFIG, "--to", to, "--yes")
        assert ended.code == 0, ended.out + ended.err

    def judge(self) -> None:
        every = {f"{cluster}-{number}" for cluster in OTHER for number in range(self.produced[cluster])}
        assert set(self.processed) == every
        assert max(self.processed.values()) == 1


@pytest.mark.parametrize("anchored", [True, False], ids=["its own anchors", "its driver's journal"])
def test_a_job_of_two_origins_goes_there_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anchored: bool
) -> None:
    both = Both(World(tmp_path, monkeypatch), anchored)
    for cluster, count, gap in (("a", 30, 4), ("b", 17, 2)):
        both.produce(cluster, count)
        both.mirror(cluster, gap=gap)
    both.run("a", 12)

    both.move("b")
    both.run("b", 3)
    for cluster in OTHER:
        both.produce(cluster, 8)
        both.mirror(cluster)
    both.run("b")
    both.judge()

    both.move("a")
    both.run("a")
    both.judge()
    for cluster in OTHER:
        both.produce(cluster, 5)
        both.mirror(cluster)
    both.run("a")
    both.judge()


def test_a_topic_that_nobody_has_produced_yet_stops_nothing_and_is_read_once_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Both(World(tmp_path, monkeypatch), anchored=True)
    both.produce("a", 20)
    both.mirror("a", gap=3)
    both.run("a", 12)

    both.move("b")
    both.run("b")
    both.produce("b", 9)
    both.run("b")
    both.judge()

    both.mirror("b", gap=1)
    both.move("a")
    both.run("a")
    both.judge()
