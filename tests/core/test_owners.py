"""Whose offset syncs these are: the mirror's to this cluster, or those of one from here with a topic that is gone."""

from __future__ import annotations

import pytest

from reconciler.core.unanchored.owners import NEAR, SETTLED_MS, doubt
from reconciler.core.unanchored.pairs import MirrorCheckpoint, Pairs, Sync

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
def test_what_one_mirror_writes_is_not_doubted(own: Pairs) -> None:
    assert not doubt(own, END)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (pairs(checkpoint(630, 130), checkpoint(640, 33)), "the checkpoint 640→33 comes from none of them"),
        (pairs(delivered=650), "delivered up to 650, which does not follow from the sync 601→101"),
        (pairs(checkpoint(630, 102), delivered=1_200), "delivered up to 1,200"),
        (pairs(syncs=(Sync(500, END, EARLY),)), "names a place behind the log's end"),
    ],
)
def test_what_one_mirror_cannot_have_written_is_doubted(other: Pairs, reason: str) -> None:
    assert reason in doubt(replaced(other), END)


def replaced(found: Pairs) -> Pairs:
    """The newest checkpoint is the one that counts."""
    last = [
        MirrorCheckpoint(each.group, each.upstream, each.downstream, LATE + at)
        for at, each in enumerate(found.checkpoints)
    ]
    return Pairs(found.syncs, tuple(last), found.delivered, found.is_one_way)


def test_syncs_that_ended_long_ago_need_something_that_confirms_them() -> None:
    end = 101 + NEAR + 2
    assert "records follow the last sync 601→101, and nothing else confirms it" in doubt(pairs(), end)
    assert not doubt(pairs(delivered=601 + end - 102), end)
    assert not doubt(pairs(checkpoint(9_000, 102)), end)
    assert not doubt(pairs(syncs=(Sync(0, 0, EARLY), Sync(NEAR, NEAR, EARLY))), end + NEAR)
