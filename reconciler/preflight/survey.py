"""Finds jobs for ``init``, groups with offsets of mirrored topics; and proposes how their records are identified.

It only reads. A proposal comes from a sample of records and proves nothing: an id that differs on all sampled records
need not always do so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from reconciler.config.identity import identity_from_spec, json_step
from reconciler.config.places import has_groups
from reconciler.core.anchors import FRAME_BYTES, Record, fingerprint, is_framed, unframed
from reconciler.core.errors import ConfigError
from reconciler.core.probes import Withheld
from reconciler.core.text import counted, some
from reconciler.failover.unlisted import no_rows, topics_of
from reconciler.kafka.mirror.topics import Mirror
from reconciler.ports import Capabilities, LogReader, OffsetStore, ReadRequest, Row, TopicPartition, groups_of

MOST_PARTITIONS = 20
"""The most partitions of a topic whose records are sampled."""
MOST_GROUPS = 100
"""The most groups whose offsets are read, if none is named."""
_TRIES = 5
"""The most reads of a partition: markers and gaps make them short."""


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A group with offsets of mirrored topics, by the source's names, and the ids of its anchors.

    ``not_mirrored``: topics of which it has offsets, too, and which are not mirrored here.
    """

    group: str
    topics: tuple[str, ...]
    rows: int
    without_anchor: int
    ids: frozenset[bytes]
    not_mirrored: tuple[str, ...] = ()

    @classmethod
    def of(cls, group: str, rows: Sequence[Row], mirror: Mirror, not_mirrored: Iterable[str]) -> FoundJob:
        anchors = [row.stored.anchor for row in rows]
        return cls(
            group,
            tuple(sorted({mirror.source_of(row.key.topic) for row in rows})),
            len(rows),
            sum(anchor is None for anchor in anchors),
            frozenset(anchor.id for anchor in anchors if anchor is not None and anchor.id is not None),
            tuple(sorted(not_mirrored)),
        )


@dataclass(frozen=True, slots=True)
class FoundStore:
    """A store's address without secrets, what it can do, and the jobs whose offsets it holds.

    ``without_rows``: for each group that was named and has no offset of a mirrored topic, half a sentence on what the
    store holds instead. ``unasked``: how many groups of the cluster it was not asked for.
    """

    address: str
    able: Capabilities
    jobs: tuple[FoundJob, ...]
    without_rows: Mapping[str, str] = field(default_factory=dict)
    unasked: int = 0


def jobs_in(
    open_store: Callable[[], OffsetStore], mirror: Mirror, wanted: Sequence[str], others: Callable[[], Iterable[str]]
) -> FoundStore:
    """The jobs of a store: of the groups ``wanted``, else of all that it lists, else of ``others``.

    Groups without offsets of a mirrored topic are not jobs. Raises the store's errors, and ConfigError if no group is
    wanted of a store that has none.
    """
    with closing(open_store()) as store:
        groups, unasked = list(wanted) or groups_of(store), 0
        if groups is None and not has_groups(store.address):
            raise ConfigError(
                f"{store.address} has no groups, so it does not name its job.", hint="Name the job: --group NAME."
            )
        if groups is None:
            every = list(others())
            groups, unasked = every[:MOST_GROUPS], max(0, len(every) - MOST_GROUPS)
        names = sorted({*mirror.topics, *(mirror.source_of(topic) for topic in mirror.topics)})
        found = []
        for group in groups:
            rows = [row for row in store.read(group, names) if row.malformed is None]
            if rows:
                topics = topics_of(store, group) or set()
                found.append(FoundJob.of(group, rows, mirror, topics.difference(names)))
        with_rows = {job.group for job in found}
        without_rows = {group: no_rows(store, group) for group in wanted if group not in with_rows}
        return FoundStore(store.address, store.capabilities, tuple(found), without_rows, unasked)


def description(job: FoundJob, stored: FoundStore) -> str:
    """The rows that were found for a job, as sentences."""
    if not job.rows:
        return f"No offset of this group was found in {stored.address} yet."
    kept = job.rows - job.without_anchor
    how_many = "none" if not kept else "all" if not job.without_anchor else f"{kept:,}"
    ids = "" if not kept else " that holds an id" if job.ids else " that holds no id, but a fingerprint or a time"
    others = f" {left_out(job)}" if job.not_mirrored else ""
    return f"Found there: {counted(job.rows, 'stored offset')}, {how_many} with an anchor{ids}.{others}"


def left_out(job: FoundJob) -> str:
    """A sentence on topics that are left out: a job that reads one would skip it, and no check could show that."""
    return (
        f"The group also has offsets of topics that are not mirrored here: {some(job.not_mirrored, 10)}. If the job "
        "reads them, add them to its topics, and have them mirrored."
    )


def sample(reader: LogReader, topics: Iterable[str], records: int) -> Mapping[TopicPartition, Sequence[Record]]:
    """About ``records`` of the newest records of each topic, from up to ``MOST_PARTITIONS`` of its partitions."""
    found: dict[TopicPartition, Sequence[Record]] = {}
    described = reader.describe(topics).topics
    for name in sorted(described):
        partitions = described[name].places
        starts, ends = reader.log_starts(partitions), reader.log_ends(partitions)
        held = [tp for tp in partitions if ends[tp] > starts[tp]][:MOST_PARTITIONS]
        for tp in held:
            share = -(-records // len(held))
            found[tp] = _newest(reader, tp, max(starts[tp], ends[tp] - share), ends[tp], share)
    return found


def _newest(reader: LogReader, tp: TopicPartition, begin: int, end: int, most: int) -> list[Record]:
    records: list[Record] = []
    at = begin
    for _ in range(_TRIES):
        if at >= end or len(records) >= most:
            break
        (chunk,) = reader.read([ReadRequest(tp, at, most - len(records))])
        if isinstance(chunk, Withheld):
            break
        records += chunk.records
        at = chunk.next_offset
    return records[:most]


# ---------------------------------------------------------------- what identifies a record


MOST_FIELDS = 40
MOST_NAMED = 4
DEEPEST = 3
"""Steps of a JSON path to follow."""
MOST_SCHEMAS = 10
"""Schemas among the sampled records; more different values are no ids of schemas."""
NONE = "none"

Sample = Mapping[TopicPartition, Sequence[Record]]
"""Records by partition, in the order of their offsets."""

_NAME = re.compile(r"[A-Za-z0-9_.@-]+")
_LIKE_AN_ID = re.compile(r"(^|[-_])(id|uuid|guid|ulid)$|[a-z](Id|ID|Uuid|UUID)$", re.ASCII)
_LIKE_A_TIME = re.compile(r"(time|date|timestamp)$|^(ts|at|created|updated)$|[-_](ts|at)$", re.IGNORECASE)
_STAMPED = (
    "the destination stamps records as they arrive (LogAppendTime), so the Kafka timestamp is not the source's: name a "
    "time that the records carry, if there is one"
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible id: how many records have it, and whether different records share a value."""

    spec: str
    looked_at: int
    present: int
    different: int
    shared: bool
    """Whether records that differ in key, value or time have the same id. Equal ones may be one that was sent twice."""

    @property
    def tells_apart(self) -> bool:
        return self.present == self.looked_at and self.different > 1 and not self.shared

    @property
    def is_more_than_a_fingerprint(self) -> bool:
        """A fingerprint covers key and value; only what is called an id is likely to stay an id there."""
        kind, _, name = self.spec.partition(":")
        return kind == "header" or (kind == "json" and _LIKE_AN_ID.search(_last(name)) is not None)

    @property
    def words(self) -> str:
        kind, _, name = self.spec.partition(":")
        what = {"key": "the key", "header": f"header {name}", "json": f"{name} in the JSON value"}[kind]
        if not self.present:
            return f"{what}: on none of {self.looked_at:,} records looked at"
        difference = "all different" if self.tells_apart else f"{self.different:,} different"
        return f"{what}: present on {self.present:,} of {self.looked_at:,} records looked at, {difference}"


@dataclass(frozen=True, slots=True)
class Proposal:
    """The lines to write under ``[jobs.identity]``, and the reasons as sentences."""

    id: str = NONE
    why: tuple[str, ...] = ()
    framed: bool = False


def propose(sample: Sample) -> Proposal:
    """The best id for records like these."""
    records = [record for each in sample.values() for record in each]
    why_time = (_STAMPED,) if any(record.append_time for record in records) else ()
    if len(records) < 2:
        seen = "There was no record to look at" if not records else "There was only one record to look at"
        return Proposal(NONE, (f"{seen}, so what distinguishes them is not known.",))
    candidates = sorted((_judge(spec, sample) for spec in _specs(records)), key=_rank)
    best = next((each for each in candidates if each.tells_apart and each.is_more_than_a_fingerprint), None)
    named = [best] if best is not None else []
    named += [each for each in candidates if each is not best and each.present][: MOST_NAMED - len(named)]
    why = [each.words for each in named]
    framed = are_framed(records)
    if best is None:
        why.append("no field is certain to be an id: a fingerprint of key and value is used, with the time")
    if best is None and framed and not any(map(_fields, records)):
        why.append('the values are Avro or Protobuf: if they have an id, name it like "avro:$.id" or "protobuf:$.1"')
    return Proposal(best.spec if best else NONE, (*why, *why_time), framed=framed)


def are_framed(records: Sequence[Record]) -> bool:
    """True if every value begins as a schema registry's frame does, with few different schemas. None has the id 0."""
    values = [record.value for record in records if record.value is not None]
    frames = {value[:FRAME_BYTES] for value in values}
    few = len(frames) <= min(MOST_SCHEMAS, (len(values) + 1) // 2)
    return bool(values) and few and all(map(is_framed, values)) and bytes(FRAME_BYTES) not in frames


def _rank(candidate: Candidate) -> tuple[bool, bool, int, str]:
    """A sort key, the best first: unique ids, names like an id's, headers before values before keys."""
    kind, _, name = candidate.spec.partition(":")
    order = {"header": 0, "json": 1, "key": 2}[kind]
    return (not candidate.tells_apart, not _LIKE_AN_ID.search(_last(name)), order, candidate.spec)


def _judge(spec: str, sample: Sample) -> Candidate:
    id_of = identity_from_spec(id=spec).id_of
    assert id_of is not None
    looked_at = present = different = 0
    shared = False
    for topic in sorted({tp.topic for tp in sample}):
        contents: dict[bytes, tuple[str, int | None]] = {}
        for tp in sorted(tp for tp in sample if tp.topic == topic):
            for record in sample[tp]:
                looked_at += 1
                found = id_of(record)
                if not found:
                    continue
                present += 1
                content = (fingerprint(record.key, record.value), record.timestamp_ms)
                shared = shared or contents.setdefault(found, content) != content
        different += len(contents)
    return Candidate(spec, looked_at, present, different, shared)


# ---------------------------------------------------------------- what records have


def _places(record: Record) -> Iterator[tuple[str, object]]:
    """Every header and every field of a JSON value, as the configuration names it, with its content."""
    yield from ((f"header:{name}", value) for name, value in record.headers)
    yield from ((f"json:{path}", value) for path, value in _fields(record))


def _specs(records: Sequence[Record]) -> list[str]:
    """Every possible id of these records, each once; a time is not an id."""
    found = dict.fromkeys(
        spec
        for record in records
        for spec, value in _places(record)
        if isinstance(value, str | int | bytes)
        and value != b""
        and not isinstance(value, bool)
        and not _LIKE_A_TIME.search(_last(spec.partition(":")[2]))
    )
    if any(record.key for record in records):
        found["key"] = None
    return list(found)[:MOST_FIELDS]


def _last(path: str) -> str:
    return path.rstrip("]'").rpartition(".")[2]


def _fields(record: Record) -> list[tuple[str, object]]:
    """Paths and values of a JSON object; nothing for any other value."""
    text = (unframed(record.value) or b"").lstrip()
    if text[:1] != b"{":
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return list(_walk(value, "$", DEEPEST))[:MOST_FIELDS]


def _walk(value: Mapping[str, object], path: str, deeper: int) -> Iterator[tuple[str, object]]:
    for name, item in value.items():
        if not _NAME.fullmatch(name) or (step := json_step(name)) is None:
            continue
        here = f"{path}{step}"
        if isinstance(item, dict):
            if deeper > 1:
                yield from _walk(item, here, deeper - 1)
        else:
            yield here, item
