"""Whose offset syncs these are: the mirror's to this cluster, or those of one from here with a topic that is gone."""

from __future__ import annotations

import pytest

from reconciler.core.mirror_pairs import MirrorCheckpoint, Pairs, Sync
from reconciler.core.unanchored.owners import CLOSE, NEAR, PAUSE_MS, SHORTLY_MS, confirmed, contradiction
from reconciler.core.unanchored.pairs import SETTLED_MS
from reconciler.kafka.memory import MemoryRecord

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
    assert confirmed(pairs(), END, {101: record(101, EARLY - SHORTLY_MS - 10)}) == []
    assert confirmed(pairs(delivered=648), END, {}) == []
    assert confirmed(Pairs(), END, {}) == []


@pytest.mark.parametrize("age_ms", [0, 12, SHORTLY_MS])
def test_a_record_that_was_made_shortly_before_confirms_its_sync(age_ms: int) -> None:
    apart = (Sync(500, 0, EARLY), Sync(650, 101, LATE))
    assert confirmed(pairs(syncs=apart), END, {101: record(101, LATE - age_ms)}) == [apart[1]]
    assert confirmed(pairs(syncs=apart), END, {101: record(101, LATE + 1)}) == []


def test_the_last_sync_is_confirmed_by_what_connect_committed() -> None:
    apart = (Sync(500, 0, EARLY), Sync(650, 101, LATE))
    assert confirmed(pairs(syncs=apart, delivered=698), END, {}) == [apart[1]]


def test_a_sync_is_confirmed_by_the_checkpoint_that_it_gave() -> None:
    apart = (Sync(500, 0, EARLY), Sync(650, 101, LATE))
    assert confirmed(pairs(checkpoint(660, 102, LATE + 2 * SETTLED_MS), syncs=apart), END, {}) == [apart[1]]
    assert confirmed(pairs(checkpoint(520, 1, LATE), syncs=apart), END, {}) == [apart[0]]
    assert confirmed(pairs(checkpoint(520, 20, LATE), syncs=apart), END, {}) == [], "MirrorMaker before 3.5"
    assert confirmed(pairs(checkpoint(520, 1, EARLY), syncs=apart), END, {}) == [], "it was not known yet"
    equal = (Sync(101, 101, EARLY),)
    copy, other = checkpoint(101, 101), checkpoint(60, 1, EARLY)
    assert confirmed(pairs(copy, syncs=equal), END, {}) == [], "it may be a copy of the group's own number"
    assert confirmed(pairs(other, copy, syncs=equal), END, {}) == list(equal)


def test_between_two_syncs_of_one_distance_every_number_has_its_place() -> None:
    line = (Sync(500, 0, EARLY), Sync(560, 60, EARLY + SETTLED_MS), Sync(601, 101, LATE))
    assert confirmed(pairs(syncs=line, delivered=649), END, {}) == list(line)
    behind = (*line, Sync(630, 130, LATE + 2 * SETTLED_MS))
    assert confirmed(pairs(syncs=behind), END, {101: record(101, LATE)}) == list(line), "a gap may lie in between"


def test_a_delivery_without_a_pause_is_of_one_mirror() -> None:
    """Its first records are old, and then it delivers them as they come."""
    gaps = (Sync(500, 0, EARLY), Sync(580, 60, EARLY + 5), Sync(700, 101, EARLY + 9))
    assert confirmed(pairs(syncs=gaps), END, {101: record(101, EARLY)}) == list(gaps)


@pytest.mark.parametrize(
    "other",
    [
        Sync(598, 0, EARLY + 8 - PAUSE_MS),
        Sync(690, 60, EARLY + 5),
        Sync(800, 60, EARLY + 5),
        Sync(699 - CLOSE, 60, EARLY + 5),
    ],
    ids=["a pause", "too few numbers", "a larger number", "far away"],
)
def test_what_does_not_lead_to_a_confirmed_sync_is_left_out(other: Sync) -> None:
    last = Sync(700, 101, EARLY + 9)
    assert confirmed(pairs(syncs=(other, last)), END, {101: record(101, EARLY)}) == [last]


# ---------------------------------------------------------------- a mirror that was restarted, and sends again

LIFE = (Sync(500, 0, EARLY), Sync(560, 58, EARLY + 5), Sync(620, 110, EARLY + 9))
"""Delivered in front of ``AGAIN``, with gaps."""
AGAIN = 150
SENT_AGAIN = (*LIFE, Sync(540, AGAIN, LATE), Sync(560, AGAIN + 19, LATE + 5))


def twice(begin: int = AGAIN, shift: int = 110, count: int = 40) -> dict[int, MemoryRecord]:
    """Records of which those from ``begin`` on are the ones that lie ``shift`` further in front."""

    def made(place: int) -> int:
        return place - shift if begin <= place < begin + count else place

    return {at: MemoryRecord(at, made(at), b"k", b"%d" % made(at)) for at in range(200)}


def test_a_mirror_that_sends_again_confirms_both_deliveries() -> None:
    """540 lies at 40 by 500→0, so what is at 150 must be there, too."""
    assert confirmed(pairs(syncs=SENT_AGAIN), 200, {}, twice()) == list(SENT_AGAIN)


@pytest.mark.parametrize(
    "there",
    [
        {},
        twice(shift=109),
        twice(begin=AGAIN + 1),
        twice(begin=AGAIN - 1),
        twice(count=2),
        {at: record for at, record in twice().items() if at != AGAIN - 1},
        {at: record for at, record in twice().items() if at != 40},
        {at: MemoryRecord(at, 5, b"k", b"v" if at != AGAIN - 1 else b"w") for at in range(200)},
    ],
    ids=["not read", "another number", "later", "earlier", "too few", "no record before", "compacted", "all alike"],
)
def test_a_delivery_that_begins_elsewhere_or_with_another_record_confirms_nothing(
    there: dict[int, MemoryRecord],
) -> None:
    assert confirmed(pairs(syncs=SENT_AGAIN), 200, {}, there) == []


def test_one_delivery_that_did_not_send_these_records_again_contradicts_the_others() -> None:
    once_more = (*SENT_AGAIN, Sync(560, 190, 2 * LATE))
    assert confirmed(pairs(syncs=once_more), 200, {}, twice()) == []
    gone = {at: record for at, record in twice().items() if at < 190}
    assert confirmed(pairs(syncs=once_more), 200, {}, gone) == list(SENT_AGAIN), "retention or the log's end"
    behind_a_gap = (*SENT_AGAIN, Sync(559, 190, 2 * LATE))
    assert confirmed(pairs(syncs=behind_a_gap), 200, {}, twice()) == list(SENT_AGAIN), "not known where 559 was"


def test_copies_are_told_without_times_that_the_broker_set() -> None:
    arrived = {at: MemoryRecord(at, LATE + at, each.key, each.value, append_time=True) for at, each in twice().items()}
    assert confirmed(pairs(syncs=SENT_AGAIN), 200, {}, arrived) == list(SENT_AGAIN)
