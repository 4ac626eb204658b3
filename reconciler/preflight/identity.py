"""Proposes how the records of a topic are identified, from a sample of them. Pure.

A proposal, never a proof: an id that differs on all sampled records need not always do so. The comments for the file
therefore say what was sampled, and ``id_order = "increasing"``, which the search would rely on, is never proposed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reconciler.config.identity import identity_from_spec, json_step
from reconciler.core.anchors import FRAME_BYTES, Record, fingerprint, is_framed, order_key, unframed
from reconciler.ports import TopicPartition

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
    increasing: bool

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
    choices: tuple[str, ...] = ()
    """Every usable id, the best first; NONE is always the last."""
    may_increase: bool = False
    framed: bool = False


def propose(sample: Sample, stored_ids: frozenset[bytes] = frozenset()) -> Proposal:
    """The best id for records like these; ``stored_ids`` are ids in the job's own anchors."""
    records = [record for each in sample.values() for record in each]
    why_time = (_STAMPED,) if any(record.append_time for record in records) else ()
    if len(records) < 2:
        seen = "No record was there to be looked at" if not records else "One record was there to be looked at"
        return Proposal(NONE, (f"{seen}: what tells them apart is not known.",), (NONE,))
    candidates = sorted((_judge(spec, sample) for spec in _specs(records)), key=_rank)
    good = [each for each in candidates if each.tells_apart]
    known = [each for each in good if _ids(each.spec, records) & stored_ids]
    best = next(iter([*known, *(each for each in good if each.is_more_than_a_fingerprint)]), None)
    named = [best] if best is not None else []
    named += [each for each in candidates if each is not best and each.present][: MOST_NAMED - len(named)]
    why = [each.words for each in named]
    if best is None:
        why.append("no id was found that is sure to stay one: a fingerprint of key and value is used, and the time")
    if best is not None and best in known:
        why.append("an id that the job recorded is among them")
    return Proposal(
        best.spec if best else NONE,
        (*why, *why_time),
        (*(each.spec for each in good), NONE),
        may_increase=best is not None and best.increasing,
        framed=are_framed(records),
    )


def are_framed(records: Sequence[Record]) -> bool:
    """Whether every value begins as a schema registry's frame does, with few different schemas. None has the id 0."""
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
    shared, increasing = False, True
    for topic in sorted({tp.topic for tp in sample}):
        contents: dict[bytes, tuple[str, int | None]] = {}
        for tp in sorted(tp for tp in sample if tp.topic == topic):
            before = None
            for record in sample[tp]:
                looked_at += 1
                found = id_of(record)
                if not found:
                    increasing = False
                    continue
                present += 1
                content = (fingerprint(record.key, record.value), record.timestamp_ms)
                shared = shared or contents.setdefault(found, content) != content
                now = order_key(found)
                increasing = increasing and (before is None or now > before)
                before = now
        different += len(contents)
    return Candidate(spec, looked_at, present, different, shared, increasing)


def _ids(spec: str, records: Iterable[Record]) -> set[bytes | None]:
    id_of = identity_from_spec(id=spec).id_of
    return {id_of(record) for record in records} if id_of is not None else set()


# ---------------------------------------------------------------- what records have


def _places(record: Record) -> Iterator[tuple[str, object]]:
    """Every header and every field of a JSON value, as the configuration names it, with its content."""
    yield from ((f"header:{name}", value) for name, value in record.headers)
    yield from ((f"json:{path}", value) for path, value in _fields(record))


def _specs(records: Sequence[Record]) -> list[str]:
    """Every possible id of these records, each once; a time is none."""
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
