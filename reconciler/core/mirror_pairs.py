"""The pairs of offsets that MirrorMaker 2 leaves at the destination, and those that bear on one stored offset.

A *sync* (u, d) says that the source record u was written to the destination at d: at some copy, not always the first.
A *checkpoint* (u, d) says that a group had committed u, and d is the place of a sync's record at or before u, or one
past it (KIP-382; since Kafka 3.5 ``OffsetSyncStore`` never adds more than one). MirrorMaker before 3.5 added the whole
distance, and before 3.3 wrote d = u where it knew no sync.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

from reconciler.core.anchors import Record


@dataclass(frozen=True, slots=True)
class Sync:
    """``written_ms`` is when MirrorMaker wrote the pair (epoch ms), None where the broker keeps no time."""

    upstream: int
    downstream: int
    written_ms: int | None = None

    def __str__(self) -> str:
        return f"{self.upstream:,}→{self.downstream:,}"

    def may_name(self, record: Record | None) -> bool:
        """True if ``record`` is at ``downstream`` and is not dated later than the pair, which would be of another
        topic of this name."""
        return record is not None and record.offset == self.downstream and not is_dated_after(record, self.written_ms)


@dataclass(frozen=True, slots=True)
class MirrorCheckpoint:
    """As a sync, for the committed offset ``upstream`` of ``group``."""

    group: str
    upstream: int
    downstream: int
    written_ms: int | None = None

    def __str__(self) -> str:
        return f"{self.upstream:,}→{self.downstream:,}"

    @property
    def named(self) -> str:
        return f'MirrorMaker\'s checkpoint {self} of group "{self.group}"'


@dataclass(frozen=True, slots=True)
class Pairs:
    """What is known of one partition: its syncs and checkpoints, each in the order of its topic, and the last of the
    source's offsets that Connect committed as delivered.

    ``is_one_way``: the syncs are known to be of the mirror to this cluster.
    """

    syncs: tuple[Sync, ...] = ()
    checkpoints: tuple[MirrorCheckpoint, ...] = ()
    delivered: int | None = None
    is_one_way: bool = True


@dataclass(frozen=True, slots=True)
class Existed:
    """By when the source's records were there: a sync of a larger number was written then.

    Checkpoints do not tell: a group can have committed a number that is not there yet.

    ``upstreams`` increase, and with each comes the earliest time (epoch ms) of a sync of its number or a larger one.
    """

    upstreams: tuple[int, ...]
    times_ms: tuple[int, ...]

    @classmethod
    def of(cls, pairs: Pairs) -> Existed:
        written = [(sync.upstream, sync.written_ms) for sync in pairs.syncs]
        known = sorted((upstream, time) for upstream, time in written if time is not None)
        least = [*accumulate((time for _, time in reversed(known)), min)][::-1]
        return cls(tuple(upstream for upstream, _ in known), tuple(least))

    def before_ms(self, upstream: int) -> int | None:
        """A time at which a record behind ``upstream`` was there; None if that is not known."""
        at = bisect_right(self.upstreams, upstream)
        return self.times_ms[at] if at < len(self.upstreams) else None

    def denies(self, record: Record, upstream: int, disorder_ms: int) -> bool:
        """True if ``record`` is dated after a pair of a larger number than ``upstream``, so that it is not this one."""
        known = self.before_ms(upstream)
        if known is None or record.append_time or record.timestamp_ms is None:
            return False
        return record.timestamp_ms > known + disorder_ms


@dataclass(frozen=True, slots=True)
class MirrorEvidence:
    """The pairs that bear on one stored offset.

    ``below`` are syncs before it, the closest first; ``above`` at or behind it, the closest first. ``checkpoints`` are
    at or before it. ``offset`` is the offset in the source's numbering. ``own``: what the job stored, where that may
    be in the destination's numbering already. ``local_writers``: programs other than the
    mirror may have written among its records. ``note`` says what could not be read.
    """

    offset: int
    below: tuple[Sync, ...] = ()
    above: tuple[Sync, ...] = ()
    checkpoints: tuple[MirrorCheckpoint, ...] = ()
    own: int | None = None
    local_writers: bool = False
    note: str = ""
    is_of_source: bool = True
    """False where the number is the job's own of the destination, as far as is known."""
    turns: tuple[tuple[Sync, Sync], ...] = ()
    """Syncs, not behind the offset, that follow one of no smaller number: that one, and the sync itself."""
    existed: Existed | None = None
    """When records of some numbers were there at the latest."""
    returns: tuple[MirrorCheckpoint, ...] = ()
    """Checkpoints of small numbers that were written after syncs of larger ones."""
    too_far: tuple[MirrorCheckpoint, ...] = ()
    """Checkpoints that MirrorMaker since 3.5 would not have made of the syncs here, if they are its own."""
    doubtful: Pairs | None = None
    """All that is known of the partition, where its syncs may be another mirror's."""


def is_dated_after(record: Record, written_ms: int | None) -> bool:
    """True if the record is dated later than a pair that was written at ``written_ms``."""
    return record.timestamp_ms is not None and written_ms is not None and record.timestamp_ms > written_ms
