"""The pairs of offsets that MirrorMaker 2 leaves at the destination, and the choice for one stored offset.

A *sync* (u, d) says that the source record u was written to the destination at d: at some copy, not always the first.
A *checkpoint* (u, d) says that a group had committed u, and d is the place of a sync's record at or before u, or one
past it (KIP-382; since Kafka 3.5 ``OffsetSyncStore`` never adds more than one). MirrorMaker before 3.5 added the whole
distance, and before 3.3 wrote d = u where it knew no sync.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, takewhile

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
    def description(self) -> str:
        return f'MirrorMaker\'s checkpoint {self} of group "{self.group}"'


@dataclass(frozen=True, slots=True)
class Pairs:
    """The known pairs of one partition, syncs and checkpoints each in the order of their topic, and the last source
    offset that Connect committed as delivered.

    ``is_one_way``: the syncs are known to be of the mirror to this cluster.
    """

    syncs: tuple[Sync, ...] = ()
    checkpoints: tuple[MirrorCheckpoint, ...] = ()
    delivered: int | None = None
    is_one_way: bool = True


@dataclass(frozen=True, slots=True)
class Existed:
    """The times by which the source's records existed: a sync of a larger number was written then.

    Checkpoints do not show it: a group can commit a number that has no record yet.

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
        """A time at which a record behind ``upstream`` existed; None if no such time is known."""
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
    """Pairs of syncs in which the later has no larger number than the earlier; the later is not behind the offset."""
    existed: Existed | None = None
    """When records of some numbers existed at the latest."""
    returns: tuple[MirrorCheckpoint, ...] = ()
    """Checkpoints of small numbers that were written after syncs of larger ones."""
    too_far: tuple[MirrorCheckpoint, ...] = ()
    """Checkpoints that MirrorMaker since 3.5 would not have made of the syncs here, if they are its own."""
    doubtful: Pairs | None = None
    """All that is known of the partition, where its syncs may be another mirror's."""


def is_dated_after(record: Record, written_ms: int | None) -> bool:
    """True if the record is dated later than a pair that was written at ``written_ms``."""
    return record.timestamp_ms is not None and written_ms is not None and record.timestamp_ms > written_ms


MOST_BELOW = 3
MOST_ABOVE = 2
MOST_CHECKPOINTS = 4
MOST_TURNS = 4
PROVES_NOTHING = (
    "proves nothing: its two numbers are equal, and MirrorMaker before 3.3 copied the group's own number where it knew "
    "no offset sync"
)
SETTLED_MS = 60_000
"""A sync that is older than a checkpoint by more than this was known to the task that wrote the checkpoint."""


def evidence_for(
    offset: int, pairs: Pairs, *, own: int | None = None, local_writers: bool = False, note: str = ""
) -> MirrorEvidence:
    """Choose the pairs that are closest to the source's ``offset``."""
    syncs = usable_syncs(pairs.syncs)
    below, above = closest(offset, syncs)
    usable = [each for each in usable_checkpoints(pairs.checkpoints, pairs.syncs) if each.upstream <= offset]
    copied = copied_checkpoints(pairs.checkpoints, syncs if pairs.is_one_way else ())
    before = _best([each for each in usable if each not in copied])
    existed, given = Existed.of(pairs), Given(pairs.syncs)
    returns = _returns([each for each in pairs.checkpoints if each not in copied], existed)
    if copy := next((each for each in reversed(usable) if each in copied), None):
        note = "; ".join(filter(None, (f"{copy.description} {PROVES_NOTHING}", note)))
    return MirrorEvidence(
        offset=offset,
        below=below,
        above=above,
        checkpoints=tuple(before),
        too_far=tuple(each for each in (*before, *returns) if given.leads_too_far(each)),
        own=own,
        local_writers=local_writers,
        note=note,
        turns=tuple(_turns(syncs, offset)),
        existed=existed,
        returns=tuple(returns),
        doubtful=pairs if pairs.syncs and not pairs.is_one_way else None,
    )


def closest(offset: int, syncs: Sequence[Sync]) -> tuple[tuple[Sync, ...], tuple[Sync, ...]]:
    """The syncs before the offset, and those at or behind it, that are closest to it."""
    place: dict[int, Sync] = {}
    for sync in syncs:  # of several copies the first one in the log is the closest to the first that there was
        place.setdefault(sync.upstream, sync)
    below = sorted((sync for sync in place.values() if sync.upstream < offset), key=lambda sync: -sync.upstream)
    above = sorted((sync for sync in place.values() if sync.upstream >= offset), key=lambda sync: sync.upstream)
    return tuple(below[:MOST_BELOW]), tuple(above[:MOST_ABOVE])


def _turns(syncs: Sequence[Sync], offset: int) -> list[tuple[Sync, Sync]]:
    """Where the numbers go back: there the mirror sent again, or the source's topic is another. The smallest are
    taken, and of equal ones the latest: a topic that was recreated begins with its first number."""
    back = [step for step in pairwise(syncs) if step[1].upstream <= step[0].upstream and step[0] != step[1]]
    near = [(before, turn) for before, turn in back if turn.upstream <= offset]
    return sorted(near, key=lambda step: (step[1].upstream, -step[1].downstream))[:MOST_TURNS]


def _returns(checkpoints: Sequence[MirrorCheckpoint], existed: Existed) -> list[MirrorCheckpoint]:
    """A group was behind another one there, or the numbers begin again. The smallest, and of equal ones the latest."""
    back = [
        each
        for each in checkpoints
        if each.written_ms is not None
        and (known := existed.before_ms(each.upstream)) is not None
        and known < each.written_ms
    ]
    return sorted(back, key=lambda each: (each.upstream, -each.downstream))[:MOST_TURNS]


def usable_syncs(syncs: Sequence[Sync]) -> list[Sync]:
    """The syncs that no smaller place follows: after a smaller one, the topic was deleted or cut in between.

    A place that comes again for another record says the same.
    """
    kept: list[Sync] = []
    for sync in reversed(syncs):
        following = kept[-1] if kept else None
        if following is None or sync.downstream < following.downstream or _same(sync, following):
            kept.append(sync)
    return kept[::-1]


def usable_checkpoints(checkpoints: Sequence[MirrorCheckpoint], syncs: Sequence[Sync]) -> list[MirrorCheckpoint]:
    """The checkpoints after which no sync names an earlier place.

    A checkpoint older than the oldest sync left is not usable: compaction may have removed the sync that would show it.
    """
    timed = sorted((sync.written_ms, sync.downstream) for sync in syncs if sync.written_ms is not None)
    times = [time for time, _ in timed]
    least_after = [*accumulate((place for _, place in reversed(timed)), min)][::-1]

    def is_usable(each: MirrorCheckpoint) -> bool:
        if not times or each.written_ms is None:
            return not syncs
        later = bisect_right(times, each.written_ms)
        return times[0] <= each.written_ms and (later == len(times) or least_after[later] >= each.downstream)

    return [each for each in checkpoints if is_usable(each)]


def copied_checkpoints(checkpoints: Sequence[MirrorCheckpoint], syncs: Sequence[Sync]) -> set[MirrorCheckpoint]:
    """Checkpoints whose place may be the group's offset itself: MirrorMaker before 3.3 wrote it where it knew no sync
    (KAFKA-12635), also of an empty partition. Both arguments are in the order of their topics.

    A checkpoint is no copy if a sync here gives its place, or if an earlier checkpoint has another place than its
    offset, since a sync gave that. Nothing is in front of place 0.
    """
    given = {sync.downstream for sync in syncs if sync.upstream == sync.downstream}
    given |= {sync.downstream + 1 for sync in syncs if sync.upstream <= sync.downstream}
    equal = takewhile(lambda each: each.upstream == each.downstream, checkpoints)
    return {each for each in equal if each.downstream and each.downstream not in given}


def _same(one: Sync, other: Sync) -> bool:
    return (one.upstream, one.downstream) == (other.upstream, other.downstream)


def _best(checkpoints: Sequence[MirrorCheckpoint]) -> list[MirrorCheckpoint]:
    """The furthest places, and the newest of the furthest offset; each place once, by its newest checkpoint."""
    by_place = {each.downstream: each for each in checkpoints}
    furthest = sorted(by_place.values(), key=lambda each: -each.downstream)[: MOST_CHECKPOINTS - 1]
    latest = max(checkpoints, key=lambda each: each.upstream, default=None)
    if latest is not None and all(each.downstream != latest.downstream for each in furthest):
        furthest.append(by_place[latest.downstream])
    return furthest


class Given:
    """Which syncs may have given a checkpoint its place; ``syncs`` in the order of their topic."""

    def __init__(self, syncs: Sequence[Sync]) -> None:
        self._syncs = syncs
        self._times = [*accumulate((sync.written_ms or 0 for sync in syncs), max)]

    def explains(self, checkpoint: MirrorCheckpoint) -> bool | None:
        """Whether a sync here gave the checkpoint its place. None if the newest sync that is surely older is behind the
        group's offset, or if another may have come since."""
        known = self._known(checkpoint)
        if not known:
            return None
        if self.givers(checkpoint):
            return True
        return None if len(known) > 1 else False

    def leads_too_far(self, checkpoint: MirrorCheckpoint) -> bool:
        """True if MirrorMaker knew a sync here when it wrote the checkpoint, and MirrorMaker since 3.5 would not have
        made it of any."""
        return bool(self._known(checkpoint)) and not self.exact_givers(checkpoint)

    def exact_givers(self, checkpoint: MirrorCheckpoint) -> list[Sync]:
        """The givers by the rule of MirrorMaker since 3.5."""
        return [sync for sync in self.givers(checkpoint) if checkpoint.downstream - sync.downstream <= 1]

    def givers(self, checkpoint: MirrorCheckpoint) -> list[Sync]:
        return [sync for sync in self._known(checkpoint) if _gives(sync, checkpoint)]

    def _known(self, checkpoint: MirrorCheckpoint) -> Sequence[Sync]:
        """The newest sync that is surely older than the checkpoint, and the syncs about as old. Empty if the first is
        behind the group's offset."""
        written = checkpoint.written_ms or 0
        at = bisect_left(self._times, written - SETTLED_MS) - 1
        if at < 0 or self._syncs[at].upstream > checkpoint.upstream:
            return ()
        return self._syncs[at : bisect_right(self._times, written + SETTLED_MS)]


def _gives(sync: Sync, checkpoint: MirrorCheckpoint) -> bool:
    """MirrorMaker before 3.5 added the whole distance, and since then one at most."""
    distance, added = checkpoint.upstream - sync.upstream, checkpoint.downstream - sync.downstream
    return distance >= 0 and added in (min(distance, 1), distance)
