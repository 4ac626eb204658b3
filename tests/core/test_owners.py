"""Whose offset syncs these are: the mirror's to this cluster, or those of one from here with a topic that is gone."""

from __future__ import annotations

import pytest

from reconciler.core.mirrored.pairs import SETTLED_MS, MirrorCheckpoint, Pairs, Sync
from reconciler.core.mirrored.syncs import NEAR, SHORTLY_MS, confirmed_syncs, contradiction
from tests.memory_log import MemoryRecord

EARLY, LATE = 1_000, 1_000 + 2 * SETTLED_MS
SYNCS = (Sync(500, 0, EARLY), Sync(601, 101, EARLY + 1))
END = 150
"""The log's: number 601 at 101, and 48 more."""


def checkpoint(upstream: int, downstream: int, written_ms: int = LATE) -> MirrorCheckpoint:
    return MirrorCheckpoint("others", upstream, downstream, written_ms)


def pairs(*checkpoints: MirrorCheckpoint, delivered: int | None = None, syncs: tuple[Sync, ...] = SYNCS) -> Pairs:
    return Pairs(syncs, checkpoints, delivered, is_one_way=False)


@pytest.mark.parametrize(
    "own",
    [
        pairs(),
        pairs(delivered=649),
        pairs(delivered=601),  # a mirror that was killed before Connect committed
        pairs(checkpoint(630, 102)),
        pairs(checkpoint(601, 101)),
        pairs(checkpoint(630, 130)),  # MirrorMaker before 3.5
        pairs(checkpoint(550, 1)),  # behind the newest sync: any that the mirror kept
        pairs(checkpoint(560, 45)),
        pairs(checkpoint(630, 90, EARLY + 2)),  # the newest sync may not have been known yet
        Pairs(),
    ],
)
def test_what_one_mirror_writes_is_not_contradicted(own: Pairs) -> None:
    assert not contradiction(own, END)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (pairs(checkpoint(630, 130), checkpoint(640, 33)), "the checkpoint 640→33 comes from none of them"),
        (pairs(delivered=650), "delivered up to 650, which does not follow from the sync 601→101"),
        (pairs(checkpoint(630, 102), delivered=1_200), "delivered up to 1,200"),
        (pairs(syncs=(Sync(500, END, EARLY),)), "names a place behind the log's end"),
    ],
)
def test_what_one_mirror_cannot_have_written_is_contradicted(other: Pairs, reason: str) -> None:
    assert reason in contradiction(replaced(other), END)


def replaced(found: Pairs) -> Pairs:
    """The newest checkpoint is the one that counts."""
    last = [
        MirrorCheckpoint(each.group, each.upstream, each.downstream, LATE + at)
        for at, each in enumerate(found.checkpoints)
    ]
    return Pairs(found.syncs, tuple(last), found.delivered, found.is_one_way)


def test_syncs_that_ended_long_ago_need_something_that_confirms_them() -> None:
    end = 101 + NEAR + 2
    assert "records follow the last sync 601→101, and nothing else confirms it" in contradiction(pairs(), end)
    assert not contradiction(pairs(delivered=601 + end - 102), end)
    assert not contradiction(pairs(checkpoint(9_000, 102)), end)
    assert not contradiction(pairs(syncs=(Sync(0, 0, EARLY), Sync(NEAR, NEAR, EARLY))), end + NEAR)


# ---------------------------------------------------------------- what confirms a sync


def record(place: int, made_ms: int) -> MemoryRecord:
    return MemoryRecord(place, made_ms, b"k", b"v")


def test_syncs_alone_confirm_nothing() -> None:
    assert confirmed_syncs(pairs(), END, {101: record(101, EARLY - SHORTLY_MS - 10)}) == []
    assert confirmed_syncs(pairs(delivered=648), END, {}) == []
    assert confirmed_syncs(Pairs(), END, {}) == []


@pytest.mark.parametrize("age_ms", [0, 12, SHORTLY_MS])
def test_a_record_that_was_made_shortly_before_confirms_its_sync(age_ms: int) -> None:
    apart = (Sync(500, 0, EARLY), Sync(650, 101, LATE))
    assert confirmed_syncs(pairs(syncs=apart), END, {101: record(101, LATE - age_ms)}) == [apart[1]]
    assert confirmed_syncs(pairs(syncs=apart), END, {101: record(101, LATE + 1)}) == []


def test_the_last_sync_is_confirmed_by_what_connect_committed() -> None:
    apart = (Sync(500, 0, EARLY), Sync(650, 101, LATE))
    assert confirmed_syncs(pairs(syncs=apart, delivered=698), END, {}) == [apart[1]]


def test_a_sync_is_confirmed_by_the_checkpoint_that_it_gave() -> None:
    apart = (Sync(500, 0, EARLY), Sync(650, 101, LATE))
    assert confirmed_syncs(pairs(checkpoint(660, 102, LATE + 2 * SETTLED_MS), syncs=apart), END, {}) == [apart[1]]
    assert confirmed_syncs(pairs(checkpoint(520, 1, LATE), syncs=apart), END, {}) == [apart[0]]
    assert confirmed_syncs(pairs(checkpoint(520, 20, LATE), syncs=apart), END, {}) == [], "MirrorMaker before 3.5"
    assert confirmed_syncs(pairs(checkpoint(520, 1, EARLY), syncs=apart), END, {}) == [], "it was not known yet"
    equal = (Sync(101, 101, EARLY),)
    copy, other = checkpoint(101, 101), checkpoint(60, 1, EARLY)
    assert confirmed_syncs(pairs(copy, syncs=equal), END, {}) == [], "it may be a copy of the group's own number"
    assert confirmed_syncs(pairs(other, copy, syncs=equal), END, {}) == list(equal)


def test_between_two_syncs_of_one_distance_every_number_has_its_place() -> None:
    line = (Sync(500, 0, EARLY), Sync(560, 60, EARLY + SETTLED_MS), Sync(601, 101, LATE))
    assert confirmed_syncs(pairs(syncs=line, delivered=649), END, {}) == list(line)
    behind = (*line, Sync(630, 130, LATE + 2 * SETTLED_MS))
    assert confirmed_syncs(pairs(syncs=behind), END, {101: record(101, LATE)}) == list(line), "a gap may lie in between"


def test_a_delivery_without_a_pause_is_of_one_mirror() -> None:
    """Its first records are old, and then it delivers them as they come."""
    gaps = (Sync(500, 0, EARLY), Sync(580, 60, EARLY + 5), Sync(700, 101, EARLY + 9))
    assert confirmed_syncs(pairs(syncs=gaps), END, {101: record(101, EARLY)}) == list(gaps)
