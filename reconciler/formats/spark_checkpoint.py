"""The files of a Structured Streaming checkpoint that hold its offsets. Pure text; nothing is opened here.

Source: Spark 4.2.0 (``OffsetSeqLog``, ``CommitLog``, ``HDFSMetadataLog``, ``KafkaSourceOffset``), compared with
checkpoints that PySpark 3.5 to 4.3 wrote. Every file begins with a line that says its version:

- ``offsets/N``: ``v1``, a line of JSON about the batch (or an empty one), and one line for each source in the order of
  the plan; ``-`` where the source has no offset. ``v2`` (4.2): each line is ``NAME:OFFSET``, in any order.
- ``commits/N``: ``v1`` or ``v2``; the batch is done if the file is there.
- ``sources/NAME/0``: where a source began. The Kafka source puts a NUL before the version. NAME is the source's number
  in the plan, or the name it was given (4.2).
- ``metadata``: ``{"id": …}``, the query's id.

Kafka's offsets are ``{"topic":{"partition":next offset}}``. Other sources' are kept as text, and not looked into.

What a restart reads: if the last batch is committed, from its offsets on. If not, that batch again: from the offsets of
the entry before (which need not be N-1: asynchronous progress tracking leaves gaps) to its own. A source without an
offset in the entry before begins where ``sources/NAME/0`` says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from reconciler.core.verdicts import Position
from reconciler.formats import json_fields
from reconciler.formats.json_fields import FieldError

VOID = "-"
NEXT, START, END = Position.NEXT, Position.START, Position.END
OFFSET_VERSIONS = (1, 2)
COMMIT_VERSIONS = (1, 2)

_VERSION = re.compile(r"v([1-9]\d{0,8})")
_BATCH = re.compile(r"0|[1-9]\d{0,18}")
_PARTITION = re.compile(r"0|[1-9]\d{0,9}")

Offsets = Mapping[tuple[str, int], int]
"""The next offset to read, by topic and partition."""


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """One source's line. ``kafka`` is None where the source is another one than Kafka, or has no offset (``-``).

    ``name``: the source's name, or its number in the plan. ``text``: the offset as the file has it.
    """

    name: str
    text: str
    kafka: Offsets | None = None

    @property
    def is_void(self) -> bool:
        return self.text == VOID


@dataclass(frozen=True, slots=True)
class OffsetEntry:
    """``offsets/N``: where every source ends in batch ``batch``. ``metadata`` is the second line, as it is."""

    batch: int
    version: int
    metadata: str
    sources: tuple[SourceOffset, ...]
    planned_at_ms: int | None = None
    """When the batch was planned, epoch ms; None where the entry does not say."""

    def source(self, name: str) -> SourceOffset | None:
        return next((source for source in self.sources if source.name == name), None)


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """Where one source goes on.

    ``start``: where a restart reads from; None where that is not in the checkpoint (a source that has not begun), or
    the source is not Kafka. ``end``: where a batch that must be repeated ends; None where the next batch is a new one.
    """

    name: str
    start: Offsets | None
    end: Offsets | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A query's checkpoint, as far as offsets go.

    ``last`` is the newest entry of the offset log, ``before`` the entry before it that is still there (None for both in
    a checkpoint of a query that has planned no batch). ``initial`` says where sources began, by name.
    """

    query_id: str | None
    last: OffsetEntry | None
    before: OffsetEntry | None
    committed: bool
    initial: Mapping[str, SourceOffset]
    positions: tuple[SourcePosition, ...]

    @property
    def repeats_a_batch(self) -> bool:
        """True if a restart runs the last batch again, up to the very same offsets."""
        return self.last is not None and not self.committed

    @property
    def numbers_missing(self) -> bool:
        """True if entries between the last two are not there (asynchronous progress tracking)."""
        return self.last is not None and self.before is not None and self.before.batch != self.last.batch - 1

    @property
    def starts_at(self) -> OffsetEntry | None:
        """The entry that a restart reads on from; None where it is the sources' beginning."""
        return self.last if self.committed else self.before


# ---------------------------------------------------------------- names


def batch_of(name: str) -> int | None:
    """The batch number in a file's name; None for temporary files, side files and all others."""
    return int(name) if _BATCH.fullmatch(name) else None


# ---------------------------------------------------------------- files


def parse_offsets(batch: int, data: bytes) -> OffsetEntry:
    """``offsets/N``. Raises FieldError for what Spark would not read, or what this does not know."""
    version, lines = _versioned(data, OFFSET_VERSIONS)
    if not lines:
        raise FieldError(None, "ends after its first line")
    metadata, rest = lines[0], lines[1:]
    planned = json_fields.integer(json_fields.json_object(metadata), "batchTimestampMs") if metadata.strip() else None
    if version == 1:
        sources = tuple(_source(str(number), line) for number, line in enumerate(rest))
    else:
        sources = tuple(_named(line) for line in rest)
    names = [source.name for source in sources]
    if len(set(names)) < len(names):
        raise FieldError(None, "names a source twice")
    return OffsetEntry(batch, version, metadata, sources, planned)


def check_commit(data: bytes) -> None:
    """``commits/N``. Raises FieldError for what Spark would not read, or what this does not know."""
    _, lines = _versioned(data, COMMIT_VERSIONS)
    if lines and lines[0].strip():
        json_fields.json_object(lines[0])


def parse_initial(name: str, data: bytes) -> SourceOffset:
    """``sources/NAME/0``: where a source began. Of another source than Kafka, the text alone is kept."""
    if not data.startswith(b"\0"):  # only the Kafka source writes a NUL, for readers older than the version line
        return SourceOffset(name, data.decode(errors="replace"))
    _, lines = _versioned(data[1:], (1,))
    if len(lines) != 1:
        raise FieldError(None, f"has {len(lines)} lines after its version, and not one")
    found = _source(name, lines[0])
    if found.kafka is None:
        raise FieldError(None, "holds no Kafka offsets")
    return found


def parse_query_id(data: bytes) -> str | None:
    """``metadata``: the query's id. Raises FieldError."""
    return json_fields.string(json_fields.json_object(_text(data)), "id")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        raise FieldError(None, "is not text") from err


def _versioned(data: bytes, known: Sequence[int]) -> tuple[int, list[str]]:
    """The version and the lines after it."""
    lines = _text(data).split("\n")
    if lines[-1] == "":
        lines.pop()
    found = _VERSION.fullmatch(lines[0]) if lines else None
    if found is None:
        raise FieldError(None, "does not begin with a version" if lines else "is empty")
    version = int(found.group(1))
    if version not in known:
        raise FieldError(None, f"has version v{version}, and only {' and '.join(f'v{n}' for n in known)} is known")
    return version, lines[1:]


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
        return SourceOffset(name, text, _kafka(text))
    except FieldError as err:
        raise FieldError(f"source {name}:", f"{err.field or 'its offset'} {err.problem}") from err


def _kafka(text: str) -> Offsets | None:
    """Kafka's offsets; None for another source's. Raises FieldError for what looks like Kafka's and is not right."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as err:
        if text.lstrip().startswith("{"):
            raise FieldError(None, "is not JSON") from err
        return None
    if not isinstance(content, dict) or not all(isinstance(each, dict) for each in content.values()):
        return None
    keys = [key for each in content.values() for key in each]
    if not all(_PARTITION.fullmatch(key) for key in keys):
        return None
    content = json_fields.json_object(text)  # strictly: without repeated keys
    offsets: dict[tuple[str, int], int] = {}
    for topic, partitions in content.items():
        if not topic or not json_fields.encodable(topic):
            raise FieldError(None, "names a topic that cannot be")
        assert isinstance(partitions, dict)
        for partition in partitions:
            number, offset = int(partition), json_fields.integer(partitions, partition, 0)
            if number > json_fields.INT32_MAX or offset is None:
                raise FieldError(f"{topic}:{partition}", "has no offset")
            offsets[topic, number] = offset
    return MappingProxyType(offsets)


# ---------------------------------------------------------------- what a restart reads


def checkpoint(
    query_id: str | None,
    last: OffsetEntry | None,
    before: OffsetEntry | None,
    *,
    committed: bool,
    initial: Mapping[str, SourceOffset],
) -> Checkpoint:
    """Put the files together. Raises FieldError where they do not fit."""
    if last is None:
        positions = tuple(SourcePosition(name, source.kafka) for name, source in sorted(initial.items()))
    elif committed:
        positions = tuple(SourcePosition(each.name, _or_initial(each, last, initial)) for each in last.sources)
    else:
        _check_before(last, before)
        positions = tuple(_repeated(each, last, before, initial) for each in last.sources)
    return Checkpoint(query_id, last, before, committed, MappingProxyType(dict(initial)), positions)


def _check_before(last: OffsetEntry, before: OffsetEntry | None) -> None:
    if before is None:
        if last.batch > 0:
            raise FieldError(None, "is not committed, and the offsets of the batch before it are missing")
        return
    if last.version == before.version == 1 and len(last.sources) != len(before.sources):
        raise FieldError(None, f"has {len(last.sources)} sources, and offsets/{before.batch} has {len(before.sources)}")


def _repeated(
    end: SourceOffset, last: OffsetEntry, before: OffsetEntry | None, initial: Mapping[str, SourceOffset]
) -> SourcePosition:
    earlier = before.source(end.name) if before else None
    if end.kafka is None:
        return SourcePosition(end.name, None)
    start = earlier.kafka if earlier is not None and not earlier.is_void else _began(end, initial)
    if start is None:
        raise FieldError(f"source {end.name}:", "where it began is not known")
    return SourcePosition(end.name, start, end.kafka)


def _or_initial(source: SourceOffset, last: OffsetEntry, initial: Mapping[str, SourceOffset]) -> Offsets | None:
    """A source without offset in a committed batch has not begun: it will where ``sources/NAME/0`` says, if it does."""
    return _began(source, initial) if source.is_void else source.kafka


def _began(source: SourceOffset, initial: Mapping[str, SourceOffset]) -> Offsets | None:
    found = began(source, initial)
    return found.kafka if found is not None else None


def began(source: SourceOffset, initial: Mapping[str, SourceOffset]) -> SourceOffset | None:
    """Where a source began, and in which file: by its name, else by its topics, since a v1 log names no source."""
    if source.name in initial:
        return initial[source.name]
    if source.kafka is None:
        return None
    topics = {topic for topic, _ in source.kafka}
    fitting = [each for each in initial.values() if each.kafka and {topic for topic, _ in each.kafka} == topics]
    return fitting[0] if len(fitting) == 1 else None


# ---------------------------------------------------------------- the files that a restart reads


@dataclass(frozen=True, slots=True)
class Reading:
    """One source's offsets in a file that a restart reads. ``position``: next; start or end of a repeated batch.

    ``name`` is the source's name in that file, ``source`` the one in the newest entry of the offset log.
    """

    file: str
    name: str
    source: str
    text: str
    kafka: Offsets | None
    position: str


def readings(found: Checkpoint) -> tuple[Reading, ...]:
    """Every place that a restart reads offsets from, in no file else. Sources that have not begun have none."""
    if found.last is None:
        return tuple(_initial_reading(name, name, each, NEXT) for name, each in sorted(found.initial.items()))
    read: list[Reading] = []
    for each in found.last.sources:
        if found.committed and not each.is_void:
            read.append(_entry_reading(found.last, each, each.name, NEXT))
        elif (earlier := _earlier(each, found)) is not None and found.before is not None:
            read.append(_entry_reading(found.before, earlier, each.name, START))
        elif (first := began(each, found.initial)) is not None:
            read.append(_initial_reading(first.name, each.name, first, NEXT if found.committed else START))
        if not found.committed and not each.is_void:
            read.append(_entry_reading(found.last, each, each.name, END))
    return tuple(read)


def _earlier(source: SourceOffset, found: Checkpoint) -> SourceOffset | None:
    earlier = found.before.source(source.name) if found.before is not None and not found.committed else None
    return None if earlier is None or earlier.is_void else earlier


def _entry_reading(entry: OffsetEntry, each: SourceOffset, source: str, position: str) -> Reading:
    return Reading(f"offsets/{entry.batch}", each.name, source, each.text, each.kafka, position)


def _initial_reading(name: str, source: str, each: SourceOffset, position: str) -> Reading:
    return Reading(f"sources/{name}/0", name, source, each.text, each.kafka, position)
