"""A destination and a store in memory, and how to check and correct a job's offsets there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from reconciler.config.file import Config, load_config
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.outside import ByHand, Outside
from reconciler.failover.writing.apply import JobChanges, prepare, write
from reconciler.places.memory import MemoryStore
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, parse_plan
from reconciler.ports import Change, OffsetStore, Row, TopicPartition, WriteResult
from tests.memory_log import MemoryLog, MemoryRecord
from tests.starting import WHO, placed, state_in_memory

NOW = 1_800_000_000_000
BEGIN = 1_700_000_000_000
BASE = 700
"""The source's offset of record 0."""
GROUP = "readers"


def content(number: int, partition: int = 0) -> tuple[int, bytes, bytes]:
    """Time, key and value of record ``number``: a second apart, except that 6 and 7 share one."""
    second = 6 if number == 7 else number
    return BEGIN + 1_000 * second, b"k%d" % number, b"v%d of %d" % (number, partition)


def anchor(number: int, partition: int = 0, cluster: str | None = "a") -> Anchor:
    stamp, key, value = content(number, partition)
    return Anchor(BASE + number, stamp, None, fingerprint(key, value), cluster, f"{cluster}/events")


def stored(number: int, partition: int = 0, written_at_ms: int | None = None) -> StoredOffset:
    return StoredOffset(BASE + number + 1, anchor(number, partition), written_at_ms)


@dataclass
class Memory:
    """A destination and a store in memory, and how to check them."""

    log: MemoryLog
    store: MemoryStore
    folder: Path
    clock: float = 0.0
    place: str = "memory:"
    """The jobs' kind of place."""
    of_job: str = ""
    """More lines of the job's table."""
    moved: bool = False
    """Whether the jobs live at the destination, as they do once a plan was applied."""

    def deliver(
        self, numbers: range, partition: int = 0, *, origin: int | None = None, topic: str = "a.events"
    ) -> None:
        """Append copies; ``origin`` is the source partition they come from, if the mirror did not keep it."""
        for number in numbers:
            stamp, key, value = content(number, partition if origin is None else origin)
            self.log.partition(topic, partition).append(stamp, key, value)

    def save(self, rows: Mapping[int, StoredOffset], topic: str = "events", group: str = GROUP) -> None:
        there = {row.key: row.version for row in self.store.read(group)}
        keys = {TopicPartition(topic, partition): row for partition, row in rows.items()}
        changes = [Change(key, there.get(key), row) for key, row in keys.items()]
        assert not self.store.write(group, changes, reason="test", now_ms=NOW).conflicts

    def own(self, offset: int, partition: int = 0) -> StoredOffset:
        """A row as a job on the destination writes it, after the record before ``offset``."""
        record: MemoryRecord = self.log.partition("a.events", partition).records[offset - 1]
        digest = fingerprint(record.key, record.value)
        own = Anchor(record.offset, record.timestamp_ms, None, digest, "b", "b/a.events")
        return StoredOffset(record.offset + 1, own, NOW)

    @property
    def outside(self) -> Outside:
        return Outside(self.log, lambda _: self.store, lambda: self.clock, lambda: NOW)

    def config(self, extra: str = "", jobs: str = "") -> Config:
        job = (
            f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "{self.place}"\n'
        )
        job += self.of_job
        text = f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "b"\n{extra}\n{jobs or job}'
        path = self.folder / "reconciler.toml"
        path.write_text(text)
        config = load_config(path, {})
        return replace(config, jobs=tuple(replace(job, moved=self.moved) for job in config.jobs))

    def check(self, extra: str = "", by_hand: ByHand | None = None) -> Checked:
        config = self.config(extra)
        return read_back(check(config, config.jobs, self.outside, by_hand))

    def job(self, extra: str = "", by_hand: ByHand | None = None) -> JobPlan:
        (job,) = self.check(extra, by_hand).plan.jobs
        return job

    def row(self, extra: str = "", by_hand: ByHand | None = None) -> PartitionPlan:
        return self.job(extra, by_hand).partitions[0]

    def apply(self, extra: str = "", by_hand: ByHand | None = None) -> None:
        checked, config = self.check(extra, by_hand), self.config(extra)
        write_all(prepare(checked.plan, config, self.outside), checked.plan, config, self.outside)
        self.clock += 1
        self.moved = True

    def rows(self) -> list[Row]:
        return self.store.read(GROUP)


class _Stayless:
    """A store whose rows have no room for a stay."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        bare = [replace(change, stay=None) for change in changes]
        return self._store.write(group, bare, reason=reason, now_ms=now_ms)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def write_all(changes: Sequence[JobChanges], plan: Plan, config: Config, outside: Outside) -> None:
    """Write the jobs that are not refused, each by a state store of its own: their rows name no stay of it."""

    def stayless(address: str) -> OffsetStore:
        return cast(OffsetStore, _Stayless(outside.open_store(address)))

    for change in changes:
        if not change.is_refused:
            state = placed(state_in_memory(change.job), config.there if change.job.moved else config.here)
            write(change, plan, config, state, replace(outside, open_store=stayless), WHO)


def read_back(checked: Checked) -> Checked:
    """The check, whose plan can be read as it was made: another would be refused by every command, and made again."""
    assert parse_plan(checked.plan.to_text()) == checked.plan
    return checked


def on_disk(plan: Plan, path: Path) -> Path:
    """The path, with the plan's file there: nothing is written for a plan whose file is gone."""
    path.write_text(plan.to_text())
    return path


def found(row: PartitionPlan) -> tuple[Verdict, int | None]:
    return row.finding, row.resume_offset


@pytest.fixture
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Memory:
    return Memory(MemoryLog("b", {"a.events": 1}), MemoryStore(request.node.nodeid), tmp_path)


@pytest.fixture
def wide(memory: Memory) -> Memory:
    """Three partitions."""
    memory.log.create("a.events", 3)
    return memory
