"""A failback over the rows of the first stay: a partition that stood still is given the very row that it had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.config.file import Config, load_config
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import Changed
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import prepare
from reconciler.places.memory import MemoryStore
from reconciler.plan.document import Plan
from reconciler.ports import Change, OffsetStore, Row, TopicPartition
from tests.in_memory import GROUP, NOW, content, found, on_disk, read_back, write_all
from tests.memory_log import MemoryLog

STILL, WENT_ON = TopicPartition("events", 0), TopicPartition("events", 1)
FIRST_STAY, SECOND_STAY, LATER = NOW, NOW + 1_000, NOW + 9_000


class Back:
    """The job has been at b since; its partition 0 had no record there. Both logs have the same numbers."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.now, self.plans, self.moved = folder, LATER, 0, False
        self.log = MemoryLog("a", {"events": 2})
        for partition in range(2):
            for number in range(30):
                self.log.partition("events", partition).append(*content(number, partition))
        self.own = MemoryStore(name)
        for partition, offset in ((0, 10), (1, 10)):
            self.stores(TopicPartition("events", partition), offset, "a", FIRST_STAY)
        for partition, offset in ((0, 10), (1, 20)):
            self.stores(TopicPartition("a.events", partition), offset, "b", SECOND_STAY)

    def stores(self, key: TopicPartition, offset: int, cluster: str, at_ms: int, *, topic_id: str = "") -> None:
        """The job has processed the records before ``offset``."""
        stamp, name, value = content(offset - 1, key.partition)
        digest = fingerprint(name, value)
        named = Anchor(offset - 1, stamp, None, digest, cluster, topic_id or f"{cluster}/{key.topic}")
        there = {row.key: row.version for row in self.own.read(GROUP)}
        change = Change(key, there.get(key), StoredOffset(offset, named, at_ms))
        assert self.own.write(GROUP, [change], reason="job", now_ms=at_ms).written

    @property
    def store(self) -> OffsetStore:
        return self.own

    @property
    def config(self) -> Config:
        path = self.folder / "failback.toml"
        path.write_text(
            '[clusters.b]\n[clusters.a]\nbootstrap_servers = "a"\n[topics.names.a]\n"a.events@b" = "events"\n'
            f'[[jobs]]\nhome = "b"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["a.events"]\noffsets = "memory:"\n'
        )
        config = load_config(path, {})
        return replace(config, jobs=(replace(config.jobs[0], moved=self.moved),))

    @property
    def outside(self) -> Outside:
        self.now += 1
        return Outside(self.log, lambda _: self.store, lambda: 0.0, lambda: self.now)

    def check(self) -> Checked:
        return read_back(check(self.config, self.config.jobs, self.outside))

    def plan(self) -> tuple[Plan, Path]:
        self.plans += 1
        plan = self.check().plan
        return plan, on_disk(plan, self.folder / f"{self.plans}.plan.json")

    def apply(self, plan: Plan, path: Path) -> None:
        """Apply it; then the job lives here."""
        write_all(prepare(plan, self.config, self.outside), plan, self.config, self.outside)
        self.moved = True

    def rows(self) -> dict[TopicPartition, StoredOffset]:
        return {row.key: row.stored for row in self.store.read(GROUP)}


@pytest.fixture
def back(tmp_path: Path, request: pytest.FixtureRequest) -> Back:
    return Back(tmp_path, request.node.nodeid)


def test_after_a_failback_nothing_is_left_to_correct(back: Back) -> None:
    plan, path = back.plan()
    assert [found(row) for row in plan.jobs[0].partitions] == [(Verdict.EXACT, 10), (Verdict.EXACT, 20)]
    back.apply(plan, path)
    assert not back.check().to_write


def test_a_job_that_went_on_since_the_plan_is_no_applied_plan(back: Back) -> None:
    """The first stay's row is as the plan would write it; so it was when the plan was made."""
    plan, path = back.plan()
    back.stores(TopicPartition("a.events", 0), 15, "b", SECOND_STAY + 1)
    rows: Sequence[Row] = back.store.read(GROUP)
    with pytest.raises(Changed, match="has changed since the plan: events-0 had offset 10, and has offset 15 now"):
        back.apply(plan, path)
    assert back.store.read(GROUP) == rows
