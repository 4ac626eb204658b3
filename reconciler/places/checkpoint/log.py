"""The files of a Structured Streaming checkpoint that hold its offsets, as text: read, and with other offsets.

Source: Spark 4.2.0 (``OffsetSeqLog``, ``CommitLog``, ``HDFSMetadataLog``, ``MetadataVersionUtil``,
``KafkaSourceOffset``), compared with checkpoints that PySpark 3.5 to 4.3 wrote, and edited files that they were started
on. Every file begins with a line that gives its version:

- ``offsets/N``: ``v1``, a line of JSON about the batch (or an empty one), and one line for each source in the order of
  the plan; ``-`` where the source has no offset. ``v2`` (4.2): each line is ``NAME:OFFSET``, in any order.
- ``commits/N``: ``v1``, ``v2`` (with the ids of the state) or ``v3`` (4.2.1: with the sinks' names); the batch is
  done if the file exists.
- ``sources/NAME/0``: where a source began. The Kafka source puts a NUL before the version. NAME is the source's number
  in the plan, or the name it was given (4.2).
- ``metadata``: ``{"id": …}``, the query's id.

A line ends with ``\\n``, ``\\r`` or both. Null bytes behind the last line's JSON are ignored. A byte order mark, a
blank line in front, or blanks around the version are refused. Kafka's offsets are ``{"topic":{"partition":next
offset}}``. Those of other sources are kept as text and not parsed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from reconciler.core import json_fields
from reconciler.core.anchors import TopicPartition, encodable
from reconciler.core.json_fields import FieldError

VOID = "-"
OFFSET_VERSIONS = (1, 2)
COMMIT_VERSIONS = (1, 2, 3)
PARTITIONS = "spark.sql.shuffle.partitions"

BREAK = re.compile(r"(\r\n|\r|\n)")
_VERSION = re.compile(r"v0*([1-9][0-9]{0,8})")
_NULLS = "which a file system leaves after a power failure"
_BATCH = re.compile(r"0|[1-9][0-9]{0,18}")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")

Offsets = Mapping[tuple[str, int], int]
"""The next offset to read, by topic and partition."""


class TornError(FieldError):
    """The content ends too early, or is missing: a crash leaves such a file."""


class UnusableError(FieldError):
    """The file ``file`` is understood, and cannot be used. ``advice``: what to do."""

    def __init__(self, file: str, problem: str, advice: str) -> None:
        super().__init__(None, problem)
        self.file = file
        self.advice = advice


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


# ---------------------------------------------------------------- names


def batch_of(name: str) -> int | None:
    """The batch number in a file's name; None for temporary files, side files and all others."""
    number = int(name) if _BATCH.fullmatch(name) else None
    return number if number is None or number <= json_fields.INT64_MAX else None


# ---------------------------------------------------------------- files


def decoded(data: bytes) -> str:
    """The text. Raises FieldError, and TornError where nothing is left of it."""
    if not data.strip(b"\0 \t\r\n"):
        raise TornError(None, f"has only null bytes, {_NULLS}" if b"\0" in data else "is empty")
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        raise FieldError(None, "is not text") from err


def versioned(data: bytes, known: Sequence[int]) -> tuple[int, list[str]]:
    """The version and the lines after it. Raises as ``decoded`` does, and FieldError for a version not ``known``."""
    lines = BREAK.split(decoded(data))[::2]
    if lines[-1] == "":
        lines.pop()
    lines[-1] = lines[-1].rstrip("\0") or lines[-1]
    found = _VERSION.fullmatch(lines[0])
    if found is None:
        raise FieldError(None, "does not begin with a version")
    version = int(found.group(1))
    if version not in known:
        verb = "is" if len(known) == 1 else "are"
        raise FieldError(None, f"has version v{version}, and only {' and '.join(f'v{n}' for n in known)} {verb} known")
    return version, lines[1:]


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
        # No Spark keeps an offset there so far. One that does might continue from it, and not from the offset log.
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
    if data.startswith(b"\0"):  # only the Kafka source writes a NUL, for readers older than the version line
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

    ``lowest``: the lowest number that is read. An edited file may have -2, Kafka's name of the earliest.
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


# ---------------------------------------------------------------- other offsets


def offsets_text(offsets: Offsets, topics: Iterable[str] = ()) -> str:
    """Kafka's offsets as Spark writes them; ``topics`` come first, the others by name, partitions by number.

    Raises FieldError for a number that is not an offset: to Spark, -1 and -2 mean latest and earliest.
    """
    order = dict.fromkeys([*topics, *sorted({topic for topic, _ in offsets})])
    content: dict[str, dict[str, int]] = {topic: {} for topic in order}
    for (topic, partition), offset in sorted(offsets.items()):
        if not 0 <= offset <= json_fields.INT64_MAX:
            raise FieldError(str(TopicPartition(topic, partition)), f"would start at {offset}, which is not an offset")
        content[topic][str(partition)] = offset
    return json.dumps({topic: each for topic, each in content.items() if each}, separators=(",", ":"))


def rewritten(file: str, data: bytes, texts: Mapping[str, str]) -> bytes:
    """``offsets/N`` or ``sources/NAME/0`` with other offsets for the sources that ``texts`` names. Raises FieldError.

    Every other byte stays, unknown keys and line breaks included.
    """
    folder, _, name = file.partition("/")
    if folder == "offsets":
        return entry_with(int(name), data, texts)
    ((source, text),) = texts.items()
    return initial_with(source, data, text)


def entry_with(batch: int, data: bytes, texts: Mapping[str, str]) -> bytes:
    """``offsets/N`` with other offsets for the sources that ``texts`` names. Raises FieldError."""
    entry = parse_offsets(batch, data)
    parts = BREAK.split(data.decode())  # line breaks do not change
    places = {source.name: 2 * place for place, source in enumerate(entry.sources, start=2)}
    for name, text in texts.items():
        if name not in places:
            raise FieldError(f"source {name}:", "is not in this entry")
        parts[places[name]] = text if entry.version == 1 else f"{name}:{text}"
    changed = "".join(parts).encode()
    parse_offsets(batch, changed)
    return changed


def initial_with(name: str, data: bytes, text: str) -> bytes:
    """``sources/NAME/0`` of a Kafka source with other offsets. Raises FieldError."""
    before = parse_initial(name, data)
    if before.kafka is None:
        raise FieldError(None, "holds no Kafka offsets")
    changed = b"\0v1\n" + text.encode()  # whatever Spark or person wrote the file: every Spark since 2.2 reads this
    parse_initial(name, changed)
    return changed
