"""Where a restart of a query continues, from the files of its checkpoint. Nothing is opened here.

A restart reads on from the last batch's offsets if that batch is committed. If not, it repeats the batch: from the
offsets of the entry before (not always N-1: asynchronous progress tracking leaves gaps) to the batch's own. A source
without an offset in the entry before begins at ``sources/NAME/0``.

Spark writes ``offsets/N`` before batch N runs: the batch's output is bounded by that entry, and a restart repeats no
other batch. Two kinds of queries write later, and a restart reads records again that were written (``LateLog``):

- Asynchronous progress tracking writes an entry at most once an interval. The batches in between leave no file, as if
  they were lost.
- Real-time mode (4.1 and later) writes entry N when batch N *ends*. Nothing in the entry says so. But its file is as
  much younger than the time in it as the batch took, and the files of two entries are as far apart as the times in them
  (those of a restored copy are not).

Source: Spark 4.3.0 (``AsyncProgressTrackingMicroBatchExecution``, ``MicroBatchExecution.markMicroBatchEnd``), and
checkpoints that PySpark 4.2.1 and 4.3.0 wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from types import MappingProxyType

from reconciler.core.anchors import TopicPartition
from reconciler.core.json_fields import FieldError
from reconciler.core.verdicts import Position
from reconciler.places.checkpoint.log import OffsetEntry, Offsets, SourceOffset, UnusableError

NEXT, START, END = Position.NEXT, Position.START, Position.END
LATE_MS = 4_000
"""Files at least so much younger than the time in them were written at a batch's end. Real-time mode takes 5 s or more;
clocks of a driver and of its file system differ less."""
MANY = 4
"""One batch of real-time mode takes no more than so many times as long as the one before it."""
_MEANING = {-1: "Spark takes it for the latest record", -2: "Spark takes it for the earliest record"}


class Tracking(Enum):
    """The way in which a query writes its progress late."""

    ASYNCHRONOUS = "asynchronous progress tracking, or lost entries"
    REAL_TIME = "real-time mode"


@dataclass(frozen=True, slots=True)
class LateLog:
    """A log that is behind the output. ``step_ms``: the time between its last two entries, if they say it.

    ``written_ms``: in real-time mode, when the last entry was written, at its batch's end.
    """

    tracking: Tracking
    batch: int
    step_ms: int | None = None
    written_ms: int | None = None

    def words(self, records: int | None = None) -> str:
        """The part that a restart reads again. ``records``: how many offsets the last step in the log had."""
        parts = [] if self.step_ms is None else [f"{self.step_ms / 1000:,.1f} s"]
        parts += [] if records is None else [f"{records:,} offsets"]
        last = f" (the last one in its log: {', '.join(parts)})" if parts else ""
        unit = "one trigger's duration" if self.tracking is Tracking.REAL_TIME else "one interval of its log"
        return (
            f"{self.tracking.value}: what the query wrote after batch {self.batch} is in no file and is read again, "
            f"up to {unit}{last}"
        )


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """The position at which one source continues.

    ``start``: the offsets that a restart reads from; None if the checkpoint lacks them (a source that has not begun) or
    the source is not Kafka. ``end``: the end of a batch that will be repeated; None if the next batch is a new one.
    """

    name: str
    start: Offsets | None
    end: Offsets | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The offsets of a query's checkpoint.

    ``last`` is the newest entry of the offset log, ``before`` the entry before it that is still there (None for both in
    a checkpoint of a query that has planned no batch). ``initial``: the offsets at which sources began, by name.
    ``behind``: the query may have written more than the offset log says. ``missing``: the first and the last number of
    each gap in the offset log, the newest gap last.
    """

    query_id: str | None
    last: OffsetEntry | None
    before: OffsetEntry | None
    committed: bool
    initial: Mapping[str, SourceOffset]
    positions: tuple[SourcePosition, ...]
    behind: LateLog | None = None
    missing: tuple[tuple[int, int], ...] = ()

    @property
    def lacks_entry_before(self) -> bool:
        """True if Spark starts only with asynchronous progress tracking: else it needs the entry right before."""
        last, before = self.last, self.before
        return last is not None and last.batch > 0 and (before is None or before.batch < last.batch - 1)

    def missing_words(self, where: str = "a copy has it") -> str:
        """The newest gap in the offset log, what may have left it, and ``where`` Spark finds what it may need.

        Empty if there is none.
        """
        lacks = self.last.batch - 1 if self.last is not None and self.lacks_entry_before else None
        gaps = self.missing or (() if lacks is None else ((lacks, lacks),))
        if not gaps:
            return ""
        low, high = gaps[-1]
        names = f"offsets/{low}" if low == high else f"offsets/{low} to offsets/{high}"
        others = f" (and {len(gaps) - 1} earlier gaps)" if len(gaps) > 1 else ""
        needs = "" if lacks is None else f". If it was lost, Spark needs offsets/{lacks} to start: {where}"
        return f"{names}{others}: left out by asynchronous progress tracking, or lost{needs}"

    @property
    def repeats_a_batch(self) -> bool:
        """True if a restart repeats the last batch, up to the same offsets."""
        return self.last is not None and not self.committed

    @property
    def next_batch(self) -> int:
        """The batch that a restart runs."""
        return 0 if self.last is None else self.last.batch + (1 if self.committed else 0)

    @property
    def source_names(self) -> list[str]:
        """The sources by their names in the newest entry, before the first batch by those of their beginnings."""
        return sorted(self.initial) if self.last is None else [each.name for each in self.last.sources]

    @property
    def repartitions(self) -> bool:
        """True if the last batch only spreads the state over other partitions, and was not finished (4.2).

        Spark recognizes such a batch by the same sign (``OfflineStateRepartitionUtils.isRepartitionBatch``), and
        refuses to start the query until the repartitioning is run again.
        """
        if self.last is None or self.before is None or self.committed:
            return False
        now, earlier = self.last.partitions, self.before.partitions
        return now is not None and earlier is not None and now != earlier

    @property
    def starts_at(self) -> OffsetEntry | None:
        """The entry from which a restart continues; None if that is the sources' beginning."""
        return self.last if self.committed else self.before


def without_id(*, begun: bool) -> str:
    """The consequence of a missing query id, as the end of a sentence about the checkpoint."""
    newer = ', and Spark 4.2 and later do not start ("metadata file is missing")' if begun else ""
    return f"has no metadata file: Spark {'3.5 ' if begun else ''}assigns a new id at the start{newer}"


# ---------------------------------------------------------------- the files together


def checkpoint(
    query_id: str | None,
    last: OffsetEntry | None,
    before: OffsetEntry | None,
    *,
    committed: bool,
    initial: Mapping[str, SourceOffset],
) -> Checkpoint:
    """Combine the files. Raises FieldError where they do not fit together."""
    if last is not None and not committed:
        _check_before(last, before)
    found = Checkpoint(query_id, last, before, committed, MappingProxyType(dict(initial)), ())
    return replace(found, positions=tuple(_positions(found)))


def _check_before(last: OffsetEntry, before: OffsetEntry | None) -> None:
    if before is None:
        if last.batch > 0:
            raise FieldError(None, "is not committed, and the offsets of the batch before it are missing")
        return
    if last.version == before.version == 1 and len(last.sources) != len(before.sources):
        raise FieldError(None, f"has {len(last.sources)} sources, and offsets/{before.batch} has {len(before.sources)}")


def _positions(found: Checkpoint) -> Iterator[SourcePosition]:
    places = {(each.source, each.position): each.kafka for each in readings(found)}
    for name in found.source_names:
        start, end = places.get((name, START if found.repeats_a_batch else NEXT)), places.get((name, END))
        if start is None and end is not None:
            problem = "has no Kafka offsets" if name in found.initial else "is missing"
            raise UnusableError(
                f"sources/{name}/0", f"{problem}, so where source {name} began is not known", "Restore the file."
            )
        yield SourcePosition(name, None if end is None and found.repeats_a_batch else start, end)


def began(source: SourceOffset, initial: Mapping[str, SourceOffset]) -> SourceOffset | None:
    """The initial offsets of a source: by its name, else by its topics, since a v1 log names no source."""
    if source.name in initial:
        return initial[source.name]
    if source.kafka is None:
        return None
    topics = {topic for topic, _ in source.kafka}
    fitting = [each for each in initial.values() if each.kafka and {topic for topic, _ in each.kafka} == topics]
    return fitting[0] if len(fitting) == 1 else None


def gaps(batches: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The first and the last number of each gap, the lowest gap first."""
    ordered = sorted(batches)
    return tuple((low + 1, high - 1) for low, high in pairwise(ordered) if high > low + 1)


def needs_beginning(last: OffsetEntry | None, before: OffsetEntry | None, *, committed: bool) -> bool:
    """True if a restart reads where a source began: the entry from which it continues has no offset of it."""
    entry = last if committed else before
    if last is None or entry is None:
        return True
    return any((there := entry.source(each.name)) is None or there.is_void for each in last.sources)


def has_records(position: SourcePosition) -> bool:
    """True if a batch may have records of the source. A partition that came with the batch adds none at offset 0."""
    start, end = position.start, position.end
    return end is not None and (start is None or {at: to for at, to in end.items() if to or at in start} != start)


def adds_nothing(found: Checkpoint, source: str) -> bool:
    """True if the last batch ends where it starts for this source: it has no record of it."""
    position = next((each for each in found.positions if each.name == source), None)
    if position is not None and position.end is not None:
        return not has_records(position)
    now, before = (None if each is None else each.source(source) for each in (found.last, found.before))
    return now is not None and (now.is_void or (before is not None and before.text == now.text))


# ---------------------------------------------------------------- the places that a restart reads


@dataclass(frozen=True, slots=True)
class Reading:
    """One source's offsets in a file that a restart reads.

    ``name`` is the source's name in that file, ``source`` the one in the newest entry of the offset log.
    """

    file: str
    name: str
    source: str
    text: str
    kafka: Offsets | None
    position: Position


def readings(found: Checkpoint) -> tuple[Reading, ...]:
    """All places from which a restart reads offsets. Sources that have not begun have none."""
    if found.last is None:
        return tuple(_beginning(each, name, NEXT) for name, each in sorted(found.initial.items()))
    read: list[Reading] = []
    entry, position = found.starts_at, NEXT if found.committed else START
    for each in found.last.sources:
        start = None if entry is None else entry.source(each.name)
        if entry is not None and start is not None and not start.is_void:
            read.append(_end_of(entry, start, each.name, position))
        elif (first := began(each, found.initial)) is not None:
            read.append(_beginning(first, each.name, position))
        if not found.committed and not each.is_void:
            read.append(_end_of(found.last, each, each.name, END))
    return tuple(read)


def _end_of(entry: OffsetEntry, each: SourceOffset, source: str, position: Position) -> Reading:
    return Reading(f"offsets/{entry.batch}", each.name, source, each.text, each.kafka, position)


def _beginning(each: SourceOffset, source: str, position: Position) -> Reading:
    return Reading(f"sources/{each.name}/0", each.name, source, each.text, each.kafka, position)


def refuse_unusable(found: Checkpoint) -> None:
    """Raise UnusableError for a number that is no offset where a restart reads one."""
    for each in readings(found):
        for (topic, partition), offset in (each.kafka or {}).items():
            if offset < 0:
                raise UnusableError(
                    each.file,
                    f"has {offset} for {TopicPartition(topic, partition)}, which is no offset: "
                    + _MEANING.get(offset, "Spark cannot read from there"),
                    "Write the offset of the next record to read in its place, or begin a new checkpoint.",
                )


# ---------------------------------------------------------------- a log behind the output


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One entry of the offset log: the time in it, and its file's. Epoch ms; None where it is not known."""

    planned_ms: int | None
    file_ms: int | None


def behind(batch: int, last: LogEntry, before: LogEntry, *, has_gaps: bool) -> LateLog | None:
    """The log whose last two entries these are; None if it is not behind, as far as its files show.

    ``has_gaps``: numbers are missing among all its entries.
    """
    planned = _between(before.planned_ms, last.planned_ms)
    if has_gaps:
        return LateLog(Tracking.ASYNCHRONOUS, batch, planned)
    late, apart = _between(last.planned_ms, last.file_ms), _between(before.file_ms, last.file_ms)
    if planned is None or late is None or apart is None:
        return None
    at_its_end = LATE_MS <= late <= MANY * planned and planned >= LATE_MS
    is_own_file = abs(apart - planned) <= max(apart, planned) / 4
    return LateLog(Tracking.REAL_TIME, batch, planned, last.file_ms) if at_its_end and is_own_file else None


def _between(earlier: int | None, later: int | None) -> int | None:
    return None if earlier is None or later is None else later - earlier
