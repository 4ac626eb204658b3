"""Each partition's last record below an offset: one point read from Kafka each, without touching a batch's data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic

from reconciler.core.anchors import Record
from reconciler.jobs.tracking.lookback import last_in
from reconciler.kafka.engine import EngineSettings, Inquiry, run
from reconciler.ports import LogReader, TopicPartition


@dataclass(frozen=True, slots=True)
class LastRecord:
    """A batch's last record of one partition; satisfies ``core.anchors.Record``."""

    at: TopicPartition
    offset: int
    timestamp_ms: int | None
    append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @classmethod
    def of(cls, at: TopicPartition, record: Record) -> LastRecord:
        """A record that was read from the log."""
        return cls(
            at=at,
            offset=record.offset,
            timestamp_ms=record.timestamp_ms,
            append_time=record.append_time,
            key=record.key,
            value=record.value,
            headers=tuple(record.headers),
        )


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """The offsets of one partition that a batch reads, from ``start`` up to, and without, ``end``."""

    start: int
    end: int
    committed_only: bool = False


def last_records(
    reader: LogReader, spans: Mapping[TopicPartition, OffsetSpan], *, timeout_s: float
) -> dict[TopicPartition, LastRecord]:
    """The last record in each span that has one; the reader must leave out the same records as Spark does.

    Raises Unreachable and Refused.
    """
    if not spans:
        return {}
    searches = {at: Inquiry(at, last_in(span.start, span.end)) for at, span in spans.items()}
    answers = run(reader, searches, clock=monotonic, settings=EngineSettings(deadline_s=timeout_s)).found
    records = {at: answer.finding for at, answer in answers.items()}
    return {at: LastRecord.of(at, record) for at, record in records.items() if record is not None}
