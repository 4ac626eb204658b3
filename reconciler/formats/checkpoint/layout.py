"""The files of a Structured Streaming checkpoint that hold its offsets, as text. Nothing is opened here.

Source: Spark 4.2.0 (``OffsetSeqLog``, ``CommitLog``, ``HDFSMetadataLog``, ``KafkaSourceOffset``), compared with
checkpoints that PySpark 3.5 to 4.3 wrote. Every file begins with a line that gives its version:

- ``offsets/N``: ``v1``, a line of JSON about the batch (or an empty one), and one line for each source in the order of
  the plan; ``-`` where the source has no offset. ``v2`` (4.2): each line is ``NAME:OFFSET``, in any order.
- ``commits/N``: ``v1``, ``v2`` (with the ids of the state) or ``v3`` (4.2.1: with the sinks' names); the batch is
  done if the file exists.
- ``sources/NAME/0``: where a source began. The Kafka source puts a NUL before the version. NAME is the source's number
  in the plan, or the name it was given (4.2).
- ``metadata``: ``{"id": …}``, the query's id.

Kafka's offsets are ``{"topic":{"partition":next offset}}``. Those of other sources are kept as text and not parsed.

A restart reads on from the last batch's offsets if that batch is committed. If not, it repeats the batch: from the
offsets of the entry before (not always N-1: asynchronous progress tracking leaves gaps) to the batch's own. A source
without an offset in the entry before begins at ``sources/NAME/0``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from reconciler.core.anchors import TopicPartition, encodable
from reconciler.core.verdicts import Position
from reconciler.formats import json_fields
from reconciler.formats.checkpoint.progress import LateLog
from reconciler.formats.checkpoint.text import TornError, UnusableError, decoded, versioned
from reconciler.formats.json_fields import FieldError

VOID = "-"
NEXT, START, END = Position.NEXT, Position.START, Position.END
OFFSET_VERSIONS = (1, 2)
COMMIT_VERSIONS = (1, 2, 3)
PARTITIONS = "spark.sql.shuffle.partitions"

_BATCH = re.compile(r"0|[1-9][0-9]{0,18}")
_ODD_BATCH = re.compile(r"[+]?[0-9]{1,18}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")

Offsets = Mapping[tuple[str, int], int]
"""The next offset to read, by topic and partition."""


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """One source's line. ``kafka`` is None where the source is not Kafka, or has no offset (``-``).

    ``name``: the source's name, or its number in the plan. ``text``: the offset as in the file.
    """

    name: str
    text: str
    kafka: Offsets | None = None

    @property
    def is_void(self) -> bool:
        return self.text == VOID


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """``offsets/N``: where every source ends in batch ``batch``. ``metadata`` is the second line, unchanged."""

    batch: int
    version: int
    metadata: str
    sources: tuple[SourceOffset, ...]
    planned_at_ms: int | None = None
    """The time when the batch was planned, epoch ms; None if the entry has none."""
    partitions: str | None = None
    """The number of the state's partitions, from the entry."""

    def source(self, name: str) -> SourceOffset | None:
        return next((source for source in self.sources if source.name == name), None)


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
    ``behind``: the query may have put out more than the offset log says. ``missing``: the first and the last number of
    each gap in the offset log, the newest gap last. ``doubts``: warnings about files, without full stops.
    """

    query_id: str | None
    last: OffsetEntry | None
    before: OffsetEntry | None
    committed: bool
    initial: Mapping[str, SourceOffset]
    positions: tuple[SourcePosition, ...]
    behind: LateLog | None = None
    missing: tuple[tuple[int, int], ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def lacks_entry_before(self) -> bool:
        """True if Spark starts only with asynchronous progress tracking: else it needs the entry right before."""
        last, before = self.last, self.before
        return last is not None and last.batch > 0 and (before is None or before.batch < last.batch - 1)

    def missing_words(self, where: str = "a clone has it") -> str:
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
    """What follows where the query's id is not in the checkpoint, as the end of a sentence about it."""
    newer = ', and Spark 4.2 and later do not start ("metadata file is missing")' if begun else ""
    return f"has no metadata file: Spark {'3.5 ' if begun else ''}assigns a new id at the start{newer}"


# ---------------------------------------------------------------- names


def batch_of(name: str) -> int | None:
    """The batch number in a file's name; None for temporary files, side files and all others."""
    number = int(name) if _BATCH.fullmatch(name) else None
    return number if number is None or number <= json_fields.INT64_MAX else None


def odd_batch_of(name: str) -> int | None:
    """The batch for which Spark takes a name that no Spark writes, such as ``07``; None for all other names."""
    return int(name) if batch_of(name) is None and _ODD_BATCH.fullmatch(name) else None


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


# ---------------------------------------------------------------- files


def parse_offsets(batch: int, data: bytes) -> OffsetEntry:
    """Read ``offsets/N``. Raises FieldError for content that Spark would refuse or that this version does not know."""
    version, lines = versioned(data, OFFSET_VERSIONS)
    if not lines:
        raise TornError(None, "ends after its first line")
    metadata, rest = lines[0], lines[1:]
    if any(not line.strip(" \t\0") for line in rest):
        raise FieldError(None, "has a blank line, which Spark takes for one more source")
    about = _about(metadata)
    planned = json_fields.integer(about, "batchTimestampMs")
    if version == 1:
        sources = tuple(_source(str(number), line) for number, line in enumerate(rest))
    else:
        sources = tuple(_named(line) for line in rest)
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise FieldError(None, "names a source twice")
    settings = about.get("conf")
    partitions = settings.get(PARTITIONS) if isinstance(settings, dict) else None
    return OffsetEntry(batch, version, metadata, sources, planned, partitions if isinstance(partitions, str) else None)


def check_commit(data: bytes) -> None:
    """Check ``commits/N``. Raises FieldError for content that Spark would refuse or that this version does not know."""
    version, lines = versioned(data, COMMIT_VERSIONS)
    about = _about(lines[0]) if lines else {}
    sinks = about.get("sinkMetadataMap") if version == 3 else {}
    if not isinstance(sinks, dict) or (version == 3 and not sinks):
        raise FieldError("sinkMetadataMap", "names no sink")
    for name, sink in sinks.items():
        # No Spark keeps an offset there so far. One that does might go on from it, and not from the offset log.
        if not isinstance(sink, dict) or sink.get("commitOffset", VOID) != VOID:
            raise FieldError(f"sink {name[:60]}:", "has an offset of its own")


def _about(line: str) -> dict[str, object]:
    """The line of JSON about a batch, which may be empty. Raises TornError for one that is cut off."""
    try:
        return json_fields.json_object(line) if line.strip() else {}
    except FieldError as err:
        raise (TornError if err.detail else FieldError)(err.field, err.problem, err.detail) from err


def parse_initial(name: str, data: bytes) -> SourceOffset:
    """Read ``sources/NAME/0``, where a source began. For a source that is not Kafka only the text is kept."""
    if data[1:2] == b"{" and not data.startswith(b"{"):  # Spark 2.1: one byte of any value, and no version
        lines = [decoded(data[1:])]
    elif data.startswith(b"\0"):  # only the Kafka source writes a NUL, for readers older than the version line
        _, lines = versioned(data[1:], (1,))
    else:
        return SourceOffset(name, data.decode(errors="replace"))
    if len(lines) != 1:
        raise FieldError(None, f"has {len(lines)} lines after its version instead of one")
    found = _source(name, lines[0])
    if found.kafka is None:
        raise FieldError(None, "holds no Kafka offsets")
    return found


def parse_query_id(data: bytes) -> str | None:
    """The query's id, from ``metadata``. Raises FieldError."""
    return json_fields.string(json_fields.json_object(decoded(data)), "id")


# ---------------------------------------------------------------- offsets


def _named(line: str) -> SourceOffset:
    name, colon, text = line.partition(":")
    if not colon or not name:
        raise FieldError(None, "has a line without a source's name")
    return _source(name, text)


def _source(name: str, text: str) -> SourceOffset:
    if text == VOID:
        return SourceOffset(name, text)
    try:
        return SourceOffset(name, text, kafka_offsets(text, lowest=json_fields.INT64_MIN))
    except FieldError as err:
        raise type(err)(f"source {name}:", f"{err.field or 'its offset'} {err.problem}") from err


def kafka_offsets(text: str, *, lowest: int = 0) -> Offsets | None:
    """Kafka's offsets; None for another source's. Raises FieldError for text that looks like Kafka's but is wrong.

    ``lowest``: the lowest number that is read. A file that a person edited may have -2, Kafka's name of the earliest.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as err:
        if text.lstrip().startswith("{"):
            raise TornError(None, "is not JSON") from err
        return None
    if not isinstance(content, dict) or not all(isinstance(each, dict) for each in content.values()):
        return None
    keys = [key for each in content.values() for key in each]
    if not all(_PARTITION.fullmatch(key) for key in keys):
        return None
    content = json_fields.json_object(text)  # strict: no repeated keys
    offsets: dict[tuple[str, int], int] = {}
    for topic, partitions in content.items():
        if not topic or not encodable(topic):
            raise FieldError(None, "names a topic that cannot exist")
        assert isinstance(partitions, dict)
        for partition in partitions:
            number, key = int(partition), str(TopicPartition(topic, int(partition)))
            offset = json_fields.integer({key: partitions[partition]}, key, lowest)
            if number > json_fields.INT32_MAX or offset is None:
                raise FieldError(key, "has no offset")
            offsets[topic, number] = offset
    return MappingProxyType(offsets)


def by_partition(sources: Iterable[Offsets | None]) -> dict[TopicPartition, list[int]]:
    """The offsets of all sources that read a partition. None: a source of another kind, or one that has not begun."""
    found: dict[TopicPartition, list[int]] = {}
    for offsets in sources:
        for (topic, partition), offset in (offsets or {}).items():
            found.setdefault(TopicPartition(topic, partition), []).append(offset)
    return found


# ---------------------------------------------------------------- the position of a restart


def checkpoint(
    query_id: str | None,
    last: OffsetEntry | None,
    before: OffsetEntry | None,
    *,
    committed: bool,
    initial: Mapping[str, SourceOffset],
) -> Checkpoint:
    """Combine the files. Raises FieldError where they do not fit together."""
    if last is None:
        positions = tuple(SourcePosition(name, source.kafka) for name, source in sorted(initial.items()))
    elif committed:
        # A source without an offset here has not begun: it will begin at ``sources/NAME/0``, if that exists.
        positions = tuple(
            SourcePosition(each.name, _began(each, initial) if each.is_void else each.kafka) for each in last.sources
        )
    else:
        _check_before(last, before)
        positions = tuple(_repeated(each, before, initial) for each in last.sources)
    return Checkpoint(query_id, last, before, committed, MappingProxyType(dict(initial)), positions)


def _check_before(last: OffsetEntry, before: OffsetEntry | None) -> None:
    if before is None:
        if last.batch > 0:
            raise FieldError(None, "is not committed, and the offsets of the batch before it are missing")
        return
    if last.version == before.version == 1 and len(last.sources) != len(before.sources):
        raise FieldError(None, f"has {len(last.sources)} sources, and offsets/{before.batch} has {len(before.sources)}")


def _repeated(end: SourceOffset, before: OffsetEntry | None, initial: Mapping[str, SourceOffset]) -> SourcePosition:
    earlier = before.source(end.name) if before else None
    if end.kafka is None:
        return SourcePosition(end.name, None)
    start = earlier.kafka if earlier is not None and not earlier.is_void else _began(end, initial)
    if start is None:
        why = f"{'has no Kafka offsets' if end.name in initial else 'is missing'}, so where source {end.name} began "
        raise UnusableError(f"sources/{end.name}/0", f"{why}is not known", "Restore the file.")
    return SourcePosition(end.name, start, end.kafka)


def _began(source: SourceOffset, initial: Mapping[str, SourceOffset]) -> Offsets | None:
    found = began(source, initial)
    return found.kafka if found is not None else None


def began(source: SourceOffset, initial: Mapping[str, SourceOffset]) -> SourceOffset | None:
    """The initial offsets of a source: by its name, else by its topics, since a v1 log names no source."""
    if source.name in initial:
        return initial[source.name]
    if source.kafka is None:
        return None
    topics = {topic for topic, _ in source.kafka}
    fitting = [each for each in initial.values() if each.kafka and {topic for topic, _ in each.kafka} == topics]
    return fitting[0] if len(fitting) == 1 else None


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
