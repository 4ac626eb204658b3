"""A job to another cluster and back, by ``move`` and its hook alone: nothing is skipped, and no more is read again than
was shown. The clusters, the mirrors between them and the job are in this process."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reconciler.ports import TopicPartition
from reconciler.state.start import Start
from tests.cli.starts import started
from tests.golden.corpus import BEGIN, HEAD, OFFSETS, job
from tests.golden.internals import Anchor, MemoryLog, StoredOffset, fingerprint
from tests.golden.world import DESTINATION, SOURCE, World
from tests.memory_log import MemoryRecord

CONFIG = ("-c", "reconciler.toml")
POLICY = {"default": "", "identity": '[topics]\npolicy = "identity"\n'}


@dataclass
class Estate:
    """Producers, mirrors and one job. Record n has the value ``n`` on every cluster.

    ``by``: what a stored anchor tells its record by: its fingerprint, or its time alone; or "track": rows have none.
    """

    world: World
    policy: str
    by: str = "fingerprint"
    produced: int = 0
    processed: list[int] = field(default_factory=list)
    mirrored: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        settings = '[state]\nstore = "files:state"\n' + POLICY[self.policy]
        table = job("clicks", ["events"], id="none")
        if self.by == "track":
            table = table.replace("[jobs.identity]", "single_driver = true\n[jobs.identity]")
        self.world.file("reconciler.toml", HEAD + settings + table)
        assert self.world.run("init", *CONFIG).code == 0
        for cluster in "ab":
            self.log(cluster).create(self.name(cluster), 1)

    def log(self, cluster: str) -> MemoryLog:
        return {"a": self.world.source, "b": self.world.destination}[cluster]

    def name(self, cluster: str) -> str:
        """What the topic is called on a cluster."""
        return "a.events" if self.policy == "default" and cluster == "b" else "events"

    def produce(self, cluster: str, count: int) -> None:
        """Three records share each second."""
        for number in range(self.produced, self.produced + count):
            stamp = BEGIN + 1_000 * (number // 3)
            self.log(cluster).partition(self.name(cluster), 0).append(stamp, b"k%d" % number, b"%d" % number)
        self.produced += count

    def mirror(self, origin: str, to: str, *, skip: int = 0) -> None:
        """Copy what is new, without the first records: offsets differ. What is there already is not copied back."""
        records = self.log(origin).partition(self.name(origin), 0).records
        there = self.log(to).partition(self.name(to), 0)
        known = {record.value for record in there.records}
        for record in records[self.mirrored.get((origin, to), skip) :]:
            if record.value not in known:
                there.append(record.timestamp_ms, record.key, record.value)
        self.mirrored[origin, to] = len(records)

    def start(self) -> Start:
        """What the hook hands over now."""
        self.world.now_ms += 60_000
        return started(self.world)

    def run_job(self, cluster: str, count: int | None = None) -> list[int]:
        """One run of the job: it processes ``count`` records, or all, and stores its offset; the numbers of these."""
        start, topic = self.start(), self.name(cluster)
        assert start.bootstrap_servers == {"a": SOURCE, "b": DESTINATION}[cluster]
        first = start.offsets.get(TopicPartition(topic, 0), 0)
        records = [each for each in self.log(cluster).partition(topic, 0).records if each.offset >= first][:count]
        if records:
            self.world.store(OFFSETS, "clicks", {(topic, 0): self._after(records[-1], cluster, topic)})
        if self.by == "track":
            assert self.world.run("track", *CONFIG, "--once").code == 0
        done = [int(record.value or b"") for record in records]
        self.processed += done
        return done

    def _after(self, record: MemoryRecord, cluster: str, topic: str) -> StoredOffset:
        if self.by == "track":
            return StoredOffset(record.offset + 1, None, self.world.now_ms)
        digest = fingerprint(record.key, record.value) if self.by == "fingerprint" else None
        log = self.log(cluster)
        anchor = Anchor(record.offset, record.timestamp_ms, None, digest, log.cluster_id, log.topic_ids[topic])
        return StoredOffset(record.offset + 1, anchor, self.world.now_ms)

    def move(self, to: str) -> int:
        """Move the job; the records that may be read again, as the command says."""
        ended = self.world.run("move", *CONFIG, "--to", to, "--yes")
        assert ended.code == 0, ended.out + ended.err
        line = next(line for line in ended.out.splitlines() if line.startswith("clicks: "))
        shown = re.search(r"starts early, (?:at most )?(\d+) records? again", line)
        assert (shown is None) is ("starts exactly" in line), line
        return int(shown[1]) if shown else 0


@pytest.mark.parametrize("policy", POLICY)
@pytest.mark.parametrize("by", ["fingerprint", "time", "track"])
def test_a_job_goes_there_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, by: str) -> None:
    estate = Estate(World(tmp_path, monkeypatch), policy, by)
    estate.produce("a", 40)
    estate.mirror("a", "b", skip=4)
    estate.run_job("a", 15)

    again = estate.move("b")
    first = estate.run_job("b", 5)
    assert 15 - again <= first[0] <= 15, "a is lost, and the job goes on there"
    estate.produce("b" if policy == "identity" else "a", 12)  # with one name, producers write to b meanwhile
    estate.mirror("a", "b")
    estate.run_job("b")
    assert set(estate.processed) == set(range(52))
    assert len(estate.processed) <= 52 + again

    estate.mirror("b", "a")  # a is there again
    back = estate.move("a")
    estate.run_job("a")
    estate.produce("a", 10)
    estate.run_job("a")
    assert set(estate.processed) == set(range(62)), "nothing is skipped"
    assert len(estate.processed) <= 62 + again + back, "and no more read again than was shown"
    if by != "time":
        assert (again, back, len(estate.processed)) == (0, 0, 62)
    shown = estate.world.run("status", *CONFIG).out
    assert re.search(r"clicks +a +3 ", shown), shown


def test_what_a_had_not_delivered_when_it_failed_is_read_on_the_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one name, it lies in front of what the mirror brings back."""
    estate = Estate(World(tmp_path, monkeypatch), "identity")
    estate.produce("a", 20)
    estate.mirror("a", "b", skip=4)
    estate.run_job("a", 15)
    estate.produce("a", 6)
    assert estate.move("b") == 0
    estate.produce("b", 12)
    estate.run_job("b")
    assert set(estate.processed) == {*range(20), *range(26, 38)}

    estate.mirror("b", "a")
    back = estate.move("a")
    estate.run_job("a")
    assert set(estate.processed) == set(range(38))
    assert len(estate.processed) - 38 == 12 <= back, "the records behind them come again"


@pytest.mark.parametrize("policy", POLICY)
@pytest.mark.parametrize("late", [0, 10], ids=["lost", "delivered late"])
def test_what_the_mirror_had_not_delivered_is_not_read_again_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, late: int
) -> None:
    """The job had processed it before it left. What the mirror delivers after the move comes a second time, there."""
    estate = Estate(World(tmp_path, monkeypatch), policy)
    estate.produce("a", 20)
    estate.mirror("a", "b", skip=4)
    estate.produce("a", 10)
    estate.run_job("a")
    again = estate.move("b")
    estate.run_job("b")
    if late:
        estate.mirror("a", "b")
    estate.run_job("b")
    assert len(estate.processed) <= 30 + again + late

    back = estate.move("a")
    estate.produce("a", 5)
    estate.run_job("a")
    assert set(estate.processed) == set(range(35))
    assert len(estate.processed) <= 35 + again + late + back
