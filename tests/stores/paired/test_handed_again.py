"""Starts between a hand-over and the job's next transaction, while the table holds an older row of that name.

Its number says nothing of the offset that was handed over: with it, the job would go past records that it never read.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.config.file import load_config
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import OutcomeUnknown, Unreachable
from reconciler.failover.check import check
from reconciler.failover.outside import ByHand
from reconciler.ports import Change, Row, TopicPartition, WriteResult
from reconciler.stores.common import JobsOwnStore, of_topics
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired import HandedPair
from tests.in_memory import GROUP, NOW, Memory, memory, stored
from tests.starting import moved, start_of, state_in_memory

__all__ = ["memory"]

THERE = TopicPartition("a.events", 0)


def own(record: int, topic_id: str = "b/2", cluster: str = "b") -> Anchor:
    """The destination's anchor of the record at an offset."""
    return Anchor(record, 5 + record, None, fingerprint(b"k", b"%d" % record), cluster, topic_id)


class Table(JobsOwnStore):
    """A table that only its job writes to. ``timed``: its rows have the times of their commits."""

    address = "delta:/t"

    def __init__(self, *, timed: bool) -> None:
        self.rows: dict[TopicPartition, StoredOffset] = {}
        self._timed = timed
        self._clock = itertools.count(NOW)

    def commit(self, offset: int) -> None:
        """The job stores an offset of ``a.events``."""
        at_ms = next(self._clock)
        self.rows[THERE] = StoredOffset(offset, None, at_ms if self._timed else None)

    def read(self, group: str, topics: Any = None) -> list[Row]:
        return of_topics((Row(key, row, f"{row.offset} {row.written_at_ms}") for key, row in self.rows.items()), topics)

    def check_writable(self, group: str) -> None:
        raise AssertionError("the job's rows are not written")


class Anchors(MemoryStore):
    """Keeps anchors. ``dies_at``: the write of this number, from 0, ends with the error; ``after`` it has happened."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.dies_at, self.after = -1, False
        self.error: Exception = OutcomeUnknown("It is not known.")

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        self.dies_at -= 1
        if self.dies_at != -1:
            return super().write(group, changes, reason=reason, now_ms=now_ms)
        if self.after:
            super().write(group, changes, reason=reason, now_ms=now_ms)
        raise self.error


class World:
    def __init__(self, name: str, *, timed: bool = True) -> None:
        self.table, self.anchors = Table(timed=timed), Anchors(name)
        self.anchors.dies_at = -1
        self.store = HandedPair(self.table, self.anchors)

    def keeps(self, kept: StoredOffset) -> None:
        self.anchors.write("g", [Change(THERE, None, kept)], reason="track", now_ms=NOW)

    def hand(self, offset: int) -> WriteResult:
        change = Change(THERE, None, StoredOffset(offset, own(offset - 1)))
        return self.store.hand_over("g", [change], reason="hook", now_ms=NOW)

    def row(self) -> tuple[int, Anchor | None, int | None]:
        (row,) = self.store.read("g")
        return row.stored.offset, row.stored.anchor, row.anchor_lag


@pytest.fixture(params=[True, False], ids=["with times", "without times"])
def world(request: pytest.FixtureRequest) -> World:
    """The job lives at the destination; its topic was recreated there since it stored 15."""
    world = World(request.node.nodeid, timed=request.param)
    world.table.commit(15)
    world.keeps(StoredOffset(15, own(14, "b/1"), NOW))
    return world


def test_until_the_job_has_stored_one_the_row_reads_as_what_was_handed_over(world: World) -> None:
    assert world.hand(9).written == (THERE,)
    assert world.row() == (9, own(8), 0)
    (row,) = world.store.read("g")
    assert "the table still holds 15" in row.note
    handed = [Change(THERE, row.version, StoredOffset(9, own(8)))]
    assert world.store.unkept("g", handed) == []
    world.table.commit(16)
    assert world.row() == (16, own(8), 7)
    world.table.commit(12)
    assert world.row()[:2] == (12, own(8))


def test_a_first_transaction_that_ends_at_the_older_number_is_bounded_and_not_skipped(world: World) -> None:
    world.hand(9)
    world.table.commit(15)
    timed = world.store.read("g")[0].stored.written_at_ms != NOW
    assert world.row() == ((15, own(8), 6) if timed else (9, own(8), 0))


def test_several_hand_overs_before_the_first_transaction_the_last_one_counts(world: World) -> None:
    for offset in (9, 12, 7, 15):
        assert world.hand(offset).written == (THERE,)
        assert world.row() == (offset, own(offset - 1), 0)
    world.table.commit(20)
    assert world.row() == (20, own(14), 5)


def test_an_older_row_that_the_table_was_set_back_to_has_no_anchor() -> None:
    world = World("set back")
    world.table.commit(12)
    older = world.table.rows[THERE]
    world.table.commit(15)
    at_the_hand_over = world.table.rows[THERE]
    world.hand(9)
    world.table.commit(20)
    world.table.rows[THERE] = older
    assert world.row() == (12, None, None)
    assert "set back: this row is older than the last hand-over" in world.store.read("g")[0].note
    world.table.rows[THERE] = at_the_hand_over
    assert world.row() == (9, own(8), 0)


def tracked(world: World, offset: int) -> None:
    """The job has stored this offset, and the anchor made for it is kept."""
    world.table.commit(offset)
    (row,) = world.store.read("g")
    change = Change(THERE, row.version, StoredOffset(offset, own(offset - 1)))
    assert world.store.write("g", [change], reason="import", now_ms=NOW).written == (THERE,)
    assert world.row() == (offset, own(offset - 1), 0)


@pytest.mark.parametrize("reached", [12, 20])
def test_after_a_later_anchor_was_kept_the_table_is_set_back_to_the_hand_over(world: World, reached: int) -> None:
    """Records 9 to ``reached`` would be skipped: the table has lost what the job did with them."""
    at_the_hand_over = world.table.rows[THERE]
    world.hand(9)
    tracked(world, reached)
    tracked(world, reached + 1)
    world.table.rows[THERE] = at_the_hand_over
    assert world.row() == (15, None, None)
    assert "the table was set back" in world.store.read("g")[0].note
    assert world.hand(10).written == (THERE,), "a person knows the offset"
    assert (world.row(), world.hand(10).written) == ((10, own(9), 0), ())
    tracked(world, 30)


KEPT = {
    "exact": StoredOffset(15, own(14, "b/1"), NOW),
    "lagging": StoredOffset(12, own(11, "b/1"), NOW),
    "of a later offset": StoredOffset(20, own(19, "b/1"), NOW),
    "none": None,
}


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_after_a_hand_over_that_was_killed_the_row_reads_as_before_or_as_handed_over(
    kept: StoredOffset | None, after: bool, timed: bool, request: pytest.FixtureRequest
) -> None:
    """Twice in a row, each killed at any of its writes; the third one is whole."""
    outcomes = set()
    for first, second in itertools.product(range(3), repeat=2):
        world = World(f"{request.node.nodeid} {first} {second}", timed=timed)
        world.table.commit(15)
        if kept is not None:
            world.keeps(kept)
        may_be = {world.row()}
        for dies_at, offset in ((first, 9), (second, 11)):
            world.anchors.dies_at, world.anchors.after = dies_at, after
            try:
                world.hand(offset)
                may_be = {(offset, own(offset - 1), 0)}
            except OutcomeUnknown:
                may_be |= {(offset, own(offset - 1), 0)}
            world.anchors.dies_at = -1
            assert world.row() in may_be
            outcomes.add(world.row()[0])
            may_be = {world.row()}
        world.hand(10)
        assert world.row() == (10, own(9), 0)
    assert len(outcomes) >= 3


def test_if_another_start_hands_over_at_the_same_time_one_of_them_says_so(world: World) -> None:
    other = HandedPair(world.table, MemoryStore(world.anchors.address.partition(":")[2]))
    write = world.anchors.write

    def write_second(group: str, changes: Sequence[Change], **more: Any) -> WriteResult:
        world.anchors.write = write  # type: ignore[method-assign]
        other.hand_over("g", [Change(THERE, None, StoredOffset(11, own(10)))], reason="hook", now_ms=NOW)
        return write(group, changes, **more)

    world.anchors.write = write_second  # type: ignore[method-assign]
    result = world.hand(9)
    assert (result.written, result.conflicts) == ((), (THERE,))
    assert world.row() == (11, own(10), 0)


def test_an_anchor_store_that_is_away_hands_nothing_over(world: World) -> None:
    before = world.row()
    world.anchors.error, world.anchors.dies_at = Unreachable("It is away."), 0
    with pytest.raises(Unreachable, match=r"^The \[anchors\] store: It is away"):
        world.hand(9)
    assert world.row() == before


# ---------------------------------------------------------------- whole starts


class Starts:
    """A job with such a table, and its starts by the hook."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.now, self.table = memory, NOW + 1000, Table(timed=True)
        self.anchors = MemoryStore(f"anchors of {memory.folder}")
        store = "delta:/t?layout=commit&number=next"
        memory.config(
            jobs=f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "{store}"\n'
        )
        self.config = load_config(memory.folder / "reconciler.toml", {})
        self.state = state_in_memory(self.config.jobs[0])

    def stored(self, topic: str, row: StoredOffset) -> None:
        key = TopicPartition(topic, 0)
        self.table.rows[key] = StoredOffset(row.offset, None, row.written_at_ms)
        self.anchors.write(GROUP, [Change(key, None, row)], reason="track", now_ms=NOW)

    def lived_here_until(self, offset: int, at_ms: int) -> None:
        record, log = self.memory.log.partition("a.events", 0).records[offset - 1], self.memory.log
        digest = fingerprint(record.key, record.value)
        last = Anchor(offset - 1, record.timestamp_ms, None, digest, log.cluster_id, log.topic_ids["a.events"])
        self.stored("a.events", StoredOffset(offset, last, at_ms))
        moved(self.state, "a", "b")

    def start(self, by_hand: ByHand | None = None) -> int:
        """The offset that the job starts at, which lives here or is moving here."""
        self.now += 60_000
        store = HandedPair(self.table, self.anchors)
        outside = replace(self.memory.outside, open_store=lambda _: store, now_ms=lambda: self.now)
        start = start_of(self.config, self.memory.folder, state=self.state)
        names = start.correct(check(start.config, (start.job,), outside, by_hand), outside, lambda plan: None)
        offsets: dict[str, dict[str, int]] = json.loads(Path(names["RECONCILER_START"]).read_text())["offsets"]
        return offsets["a.events"]["0"]


def test_every_start_before_the_first_transaction_is_given_the_offset_in_the_recreated_topic(memory: Memory) -> None:
    starts = Starts(memory)
    memory.deliver(range(20))
    starts.stored("events", stored(4, written_at_ms=NOW - 1000))
    starts.lived_here_until(15, NOW)
    assert starts.start() == 15
    memory.log.delete("a.events")
    memory.log.create("a.events", 1, "b/a.events-2")
    memory.deliver(range(6, 40))
    assert [starts.start() for _ in range(3)] == [9, 9, 9], "record 14, the last one processed, is at offset 8 now"
    starts.table.rows[THERE] = StoredOffset(13, None, starts.now)
    assert starts.start() == 13


def test_an_offset_set_by_hand_is_given_to_every_start_before_the_first_transaction(memory: Memory) -> None:
    starts = Starts(memory)
    memory.deliver(range(20))
    starts.lived_here_until(15, NOW)
    assert starts.start(by_hand=ByHand({("a.events", 0): 4})) == 4
    assert [starts.start(), starts.start()] == [4, 4]
    assert starts.start(by_hand=ByHand({("a.events", 0): 3})) == 3
    assert starts.start() == 3
