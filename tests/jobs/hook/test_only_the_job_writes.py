"""A table that only its job writes: from a correction on, the recorded offset counts, until the job stores its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.config.file import load_config
from reconciler.core.anchors import StoredOffset
from reconciler.failover.check import check
from reconciler.failover.outside import ByHand
from reconciler.places.memory import MemoryStore
from reconciler.ports import Change, TopicPartition, WriteResult
from reconciler.state.journal import StreamPartition, opening
from reconciler.state.stored import Known
from tests.in_memory import GROUP, NOW, Memory, memory, stored
from tests.starting import placed, start_of, state_in_memory

__all__ = ["memory"]


class Table(MemoryStore):
    """Its rows have no anchors."""

    def commit(self, topic: str, offset: int) -> None:
        """The job stores an offset."""
        key = TopicPartition(topic, 0)
        versions = {each.key: each.version for each in self.read(GROUP)}
        change = Change(key, versions.get(key), StoredOffset(offset, None), undated=True)
        assert not super().write(GROUP, [change], reason="job", now_ms=NOW).conflicts

    def check_writable(self, group: str) -> None:
        raise AssertionError("only the job writes")

    def write(self, *_: object, **__: object) -> WriteResult:
        raise AssertionError("only the job writes")


class Starts:
    """A job that has processed record 5 on a, and is moving to b; its topic may have one name on both."""

    def __init__(self, memory: Memory, policy: str) -> None:
        self.memory, self.table = memory, Table(f"table of {memory.folder}")
        offsets = "delta:/t?layout=commit&number=next"
        job = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "{offsets}"\n'
        memory.config(f'[topics]\npolicy = "{policy}"\n', job)
        self.config = load_config(memory.folder / "reconciler.toml", {})
        self.there = "events" if policy == "identity" else "a.events"
        if policy == "identity":
            memory.log.create("events", 1)
        self.state = placed(state_in_memory(self.config.jobs[0]), "a", to="b")
        last = stored(5)
        at = StreamPartition("events", "a", 0)
        assert self.state.append_journal(1, 1, opening({at: Known(last.offset, last.anchor)}, "job", NOW))
        self.table.commit("events", last.offset)
        memory.deliver(range(3, 20), topic=self.there)

    def record(self, offset: int) -> None:
        """The journal gets an offset that the job has stored."""
        here = self.state.location()
        assert here is not None
        number = self.state.newest(here.stay)[-1].number + 1
        entry = opening({StreamPartition("events", "a", 0): Known(offset, None)}, "job", NOW)
        assert self.state.append_journal(here.stay, number, entry)

    def start(self, by_hand: ByHand | None = None) -> int:
        """The offset at which the job starts on b."""
        return self.start_and_again(by_hand)[0]

    def start_and_again(self, by_hand: ByHand | None = None) -> tuple[int, int]:
        """The offset at which the job starts on b, and how many records the plan says that it may read again."""
        outside = replace(self.memory.outside, open_store=lambda _: self.table, state_of=lambda _: self.state)
        start = start_of(self.config, self.memory.folder, state=self.state)
        checked = check(start.config, (start.job,), outside, by_hand)
        names = start.correct(checked, outside, lambda plan: None)
        offsets: dict[str, dict[str, int]] = json.loads(Path(names["RECONCILER_START"]).read_text())["offsets"]
        (row,) = checked.plan.job().partitions
        return offsets[self.there]["0"], row.replay_at_most or 0


@pytest.fixture(params=["default", "identity"])
def starts(memory: Memory, request: pytest.FixtureRequest) -> Starts:
    return Starts(memory, request.param)


def test_every_start_before_its_next_transaction_is_given_the_same_offset(starts: Starts) -> None:
    assert [starts.start() for _ in range(3)] == [3, 3, 3], "right behind record 5"
    assert len(starts.state.plans()) == 1
    starts.table.commit(starts.there, 9)
    starts.record(9)
    assert starts.start() == 9


@pytest.mark.parametrize("starts", ["identity"], indirect=True)
def test_a_bound_holds_after_a_restart_from_before_an_offset_that_is_not_believed(starts: Starts) -> None:
    """A driver that was not stopped may have left it; or this one was killed before its journal had it."""
    assert starts.start() == 3
    starts.table.commit("events", 9)
    assert [starts.start_and_again() for _ in range(2)] == [(3, 6), (3, 6)]
    assert len(starts.state.plans()) == 2, "the second start has nothing to record"
    starts.table.commit("events", 5)
    starts.record(5)
    assert starts.start_and_again() == (5, 4)


def test_an_offset_set_by_hand_is_given_to_every_start_before_its_next_transaction(starts: Starts) -> None:
    assert starts.start(ByHand({(starts.there, 0): 2})) == 2
    assert [starts.start(), starts.start()] == [2, 2]
    assert starts.start(ByHand({(starts.there, 0): 1})) == 1
    assert starts.start() == 1
