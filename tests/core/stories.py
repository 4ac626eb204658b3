"""Builders of small logs: the destination's records, the job's stored offset, and the search on them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from reconciler.core.anchors import (
    Anchor,
    Identity,
    IdOrder,
    Names,
    Record,
    StoredOffset,
    fingerprint,
    record_timestamp,
)
from reconciler.core.probes import Search
from reconciler.core.question import Question
from reconciler.core.reconcile import reconcile
from reconciler.core.verdicts import Finding
from reconciler.kafka.engine import Inquiry, SearchResult, run
from reconciler.ports import TopicPartition
from tests.memory_log import MemoryLog

PLACE = TopicPartition("events", 0)
HERE, HERE_TOPIC = "destination", "destination/events"
SOURCE_OFFSET = 700
"""The default source offset of anchors: far from any offset of these small logs."""


@dataclass(frozen=True, slots=True)
class Rec:
    """A record to put into a log. The value is the name by default; the header ``id`` is ``id`` or the name."""

    name: str
    ms: int | None
    id: bytes | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] | None = None
    tombstone: bool = False
    stamped_on_arrival: bool = False

    def all_headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return (("id", self.id or self.name.encode()),) if self.headers is None else self.headers

    def payload(self) -> bytes | None:
        if self.tombstone:
            return None
        return self.name.encode() if self.value is None else self.value


@dataclass(frozen=True, slots=True)
class Marker:
    """A transaction marker: takes an offset, is never read, and carries the broker's wall-clock time."""

    ms: int


def event(name: str, event_ms: int, stamp_ms: int) -> Rec:
    """A record whose own time is in its JSON payload."""
    return Rec(name, stamp_ms, value=json.dumps({"ts": event_ms, "name": name}).encode())


def letters(names: str, start_ms: int = 100, step_ms: int = 10) -> list[Rec]:
    """One record a letter; a letter's time is the same wherever it stands, so a re-sent one is the same record."""
    return [Rec(name, start_ms + step_ms * (ord(name) - ord("a"))) for name in names if name != " "]


def log_of(
    *things: Rec | Marker, deleted_before: int = 0, compacted: Iterable[int] = (), topic_id: str | None = None
) -> MemoryLog:
    log = MemoryLog(HERE, {})
    log.create(PLACE.topic, 1, topic_id)
    part = log.partitions[PLACE]
    for thing in things:
        if isinstance(thing, Marker):
            part.append_marker(thing.ms)
        else:
            part.append(thing.ms, thing.key, thing.payload(), thing.all_headers(), append_time=thing.stamped_on_arrival)
    if gone := set(compacted):
        part.compact(gone)
    part.delete_before(deleted_before)
    return log


def header_id(record: Record) -> bytes | None:
    return next((value for name, value in record.headers if name == "id"), None)


def payload_ms(record: Record) -> int | None:
    try:
        return int(json.loads(record.value or b"")["ts"])
    except (ValueError, KeyError, TypeError):
        return None


BY_ID = Identity(record_timestamp, header_id)
BY_INCREASING_ID = Identity(record_timestamp, header_id, IdOrder.INCREASING)
BY_CONTENT = Identity(record_timestamp)
BY_EVENT_TIME = Identity(payload_ms, record_time=False)
BY_EVENT_TIME_AND_ID = replace(BY_EVENT_TIME, id_of=header_id)
BY_EVENT_TIME_AND_UNIQUE_ID = replace(BY_EVENT_TIME_AND_ID, unique_ids=True)


def anchor_of(
    record: Rec, identity: Identity = BY_ID, offset: int = SOURCE_OFFSET, names: Names = Names.LAST
) -> Anchor:
    """The anchor a job at the source would have stored for this record."""
    log = log_of(record)
    seen = log.partitions[PLACE].records[0]
    anchor = identity.anchor_of(replace(seen, append_time=False), cluster_id="source", topic_id="source/events")
    return replace(anchor, offset=offset, names=names)


def time_only(record: Rec, names: Names = Names.LAST) -> Anchor:
    return replace(anchor_of(record), id=None, fingerprint=None, names=names)


def content_only(record: Rec) -> Anchor:
    return Anchor(SOURCE_OFFSET, fingerprint=fingerprint(record.key, record.payload()), cluster_id="source")


def ask(log: MemoryLog, stored: StoredOffset | Anchor | None, identity: Identity = BY_ID, **words: Any) -> Finding:
    return ask_with_cost(log, stored, identity, **words).finding


def ask_with_cost(
    log: MemoryLog, stored: StoredOffset | Anchor | None, identity: Identity = BY_ID, **words: Any
) -> SearchResult:
    """An anchor alone means: stored right after it (or at it, where it names the next record)."""
    if isinstance(stored, Anchor):
        behind = 0 if stored.names is Names.NEXT else 1
        stored = StoredOffset((stored.offset or 0) + behind, stored)
    question = Question(stored, HERE, log.topic_ids[PLACE.topic], identity, **words)
    return answer(log, lambda: reconcile(question))


def answer(log: MemoryLog, search: Callable[[], Search[Finding]]) -> SearchResult:
    return run(log, {0: Inquiry(PLACE, search)}, clock=lambda: 0.0).found[0]


def found(finding: Finding) -> tuple[str, int | None, int | None, int | None]:
    """(verdict, resume offset, replay at most, replay exactly): what most statements are about."""
    return finding.verdict.value, finding.resume_offset, finding.replay_at_most, finding.replay_exact
