"""Whether offset syncs can be those of the mirror to this cluster, or are another mirror's of the same topic name.

A mirror from here to the source keeps its syncs here, in a topic of the same name and with the same keys. Taken for the
source's, its pairs can skip. MirrorMaker 2 since 3.5 writes a sync at every jump of the source's numbers, and when it
starts (``MirrorSourceTask``, ``PartitionState``). So behind its last sync (u, d) the numbers follow one another:

K   A checkpoint is written from the newest sync that MirrorMaker knew then, if that is not behind the group's offset
    (``OffsetSyncStore`` always keeps the newest). If the newest sync here is surely older than the checkpoint, and not
    behind the group's offset, and did not give the checkpoint's place, then the mirror reads its syncs elsewhere.
N   The last number that Connect committed is at most u + (end - 1 - d): the records behind d have one number each.
E   The record at d was there when the pair was written, so d is in front of the log's end.
F   What neither K nor N confirms must at least reach the log's end as closely as its pairs do one another.

K, N and E contradict. F is no proof, so it leaves out what may be true, and never lets in what the others leave out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from reconciler.core.unanchored.pairs import MirrorCheckpoint, Pairs, Sync

SETTLED_MS = 60_000
"""A sync that is older than a checkpoint by more than this was known to the task that wrote the checkpoint."""
NEAR = 10_000
"""Records behind the last sync of a mirror that was killed while it delivered fast, in any case."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """What tells whose the syncs of one partition are.

    ``last`` is the newest sync, ``step`` the largest distance of two that follow one another, in records here.
    ``delivered`` is the last number that Connect committed. ``explained``: whether a sync gave the newest checkpoint of
    which that can be said; None if there is no such checkpoint, ``checkpoint`` else.
    """

    last: Sync
    step: int
    delivered: int | None = None
    explained: bool | None = None
    checkpoint: MirrorCheckpoint | None = None

    def doubt(self, end: int) -> str:
        """Why the syncs may be another mirror's, for a log that ends at ``end``; empty if nothing says so."""
        last, behind = self.last, end - 1 - self.last.downstream
        if behind < 0:
            return f"the sync {last} names a place behind the log's end"
        if self.delivered is not None and self.delivered - last.upstream > behind:
            return f"the mirror has delivered up to {self.delivered:,}, which does not follow from the sync {last}"
        if self.explained is not None:
            return "" if self.explained else f"the checkpoint {self.checkpoint} comes from none of them"
        if self.delivered is not None and self.delivered - last.upstream == behind:
            return ""
        if behind > max(NEAR, 2 * self.step):
            return f"{behind:,} records follow the last sync {last}, and nothing else confirms it"
        return ""


def doubt(pairs: Pairs, end: int) -> str:
    """Why the syncs may be another mirror's, for a log that ends at ``end``; empty if nothing says so."""
    return ownership(pairs).doubt(end) if pairs.syncs else ""


def ownership(pairs: Pairs) -> Ownership:
    """Raises ValueError without syncs."""
    if not pairs.syncs:
        raise ValueError("no syncs")
    step = max((late.downstream - early.downstream for early, late in pairwise(pairs.syncs)), default=0)
    newest = sorted(
        (each for each in pairs.checkpoints if each.written_ms is not None), key=lambda each: -(each.written_ms or 0)
    )
    for checkpoint in newest:
        if (explained := _is_explained(checkpoint, pairs.syncs)) is not None:
            return Ownership(pairs.syncs[-1], step, pairs.delivered, explained, checkpoint)
    return Ownership(pairs.syncs[-1], step, pairs.delivered)


def _is_explained(checkpoint: MirrorCheckpoint, syncs: Sequence[Sync]) -> bool | None:
    """None where the newest sync that is surely older is behind the group's offset, or another may have come since."""
    written = checkpoint.written_ms or 0
    times = [sync.written_ms or 0 for sync in syncs]
    older = [at for at, time in enumerate(times) if time < written - SETTLED_MS]
    if not older or syncs[older[-1]].upstream > checkpoint.upstream:
        return None
    at = older[-1]
    if any(sync.upstream <= checkpoint.upstream and _gives(sync, checkpoint) for sync in syncs[at:]):
        return True
    return None if any(time <= written + SETTLED_MS for time in times[at + 1 :]) else False


def _gives(sync: Sync, checkpoint: MirrorCheckpoint) -> bool:
    """MirrorMaker before 3.5 added the whole distance, and since then one at most."""
    distance, added = checkpoint.upstream - sync.upstream, checkpoint.downstream - sync.downstream
    return added in (min(distance, 1), distance)
