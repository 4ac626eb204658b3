"""The offset that MirrorMaker itself would hand out for a job's partition: by a checkpoint of its group, or synced.

It is compared with the place that was found for the stored offset, so it must be of no later moment: a job moves on,
and so do its checkpoints. Only one that is for no later offset than the stored one counts. A number under the
destination's name, in a group that MirrorMaker keeps, is one that MirrorMaker put there if a checkpoint names it.
"""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.core.anchors import Names
from reconciler.core.mirror_pairs import MirrorCheckpoint
from reconciler.failover.gather import JobPartition
from reconciler.kafka.mirror.grade import own_offset


def source_offset(at: JobPartition, checkpoints: Sequence[MirrorCheckpoint]) -> int | None:
    """The stored offset in the source's numbering; None where that is not known, or the job reads here already.

    ``checkpoints`` are those of the job's group for this partition, oldest first.
    """
    stored, row = at.selected.stored, at.selected.row
    if stored is None or row is None or stored.is_sentinel or at.own or at.fault:
        return None
    anchor = stored.anchor
    if at.translated and row.key == at.destination:
        if anchor is not None and anchor.offset is not None:
            return anchor.offset + (anchor.names is Names.LAST)
        named = [each for each in checkpoints if each.downstream == stored.offset]
        return named[-1].upstream if named else None
    return stored.offset


def handed_out(at: JobPartition, checkpoints: Sequence[MirrorCheckpoint]) -> int | None:
    """MirrorMaker's offset for the job's group in this partition; None if it has none for what is stored."""
    offset, stored, row = source_offset(at, checkpoints), at.selected.stored, at.selected.row
    if offset is None or stored is None or row is None:
        return None
    if at.translated and row.key == at.destination:
        by_place = (each for each in checkpoints if each.downstream == stored.offset and each.upstream <= offset)
        if next(by_place, None) is not None:
            return stored.offset
    found = own_offset(checkpoints, offset)
    return found.downstream if found is not None else None
