"""Signs that the mirror did not keep records in their partitions, so that partition numbers mean nothing.

MirrorMaker 2 keeps partitions. Another mirror, or a person who recreated the topic with another count, may not. Then
any record of the source can be in any partition, and only times bound what is unprocessed. The signs:

- *Fewer.* There is a stored offset for a partition that the destination lacks.
- *More.* The destination has partitions with higher numbers than all that are stored, one of them holds a record that
  is not newer than the latest anchor, and some anchor is not in the partition of its own number.
- *As many.* A partition without a stored offset holds records older than all anchors, and some anchor is not in the
  partition of its own number.

The last two are also seen where a topic grew and the job has not noticed yet. An anchor that is found in a partition of
another number proves that records were spread; else both must be reckoned with, and of the two answers the earlier one
is safe. That proof is also looked for where the partitions of higher numbers hold newer records only. Two cases show no
sign: both sides have as many partitions, and each has a row; or the source had more partitions than there are rows, and
the job had none for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from reconciler.core.anchors import Record, StoredOffset
from reconciler.core.probes import Withheld
from reconciler.core.question import Question
from reconciler.core.verdicts import Finding, MatchedBy, Verdict
from reconciler.ports import LogReader, ReadRequest, TopicPartition

FIRST_RECORDS = 16
"""Records looked at from a partition's start: one dated years ahead must not hide how old the partition is."""


@dataclass(frozen=True, slots=True)
class AnchorTimes:
    """The times of a topic's anchors, epoch ms.

    ``earliest_ms`` None: some partition was not read, or its anchor has no time, so no time bounds the unprocessed
    records. ``latest_ms`` None: no time bounds the processed records.
    """

    earliest_ms: int | None
    latest_ms: int | None


def span_of(
    stored: Mapping[int, StoredOffset | None], time_of: Callable[[StoredOffset], int | None]
) -> AnchorTimes | None:
    """The span of a topic's stored offsets by source partition; None where an offset above 0 has no anchor.

    ``time_of`` gives the time of an offset's anchor, epoch ms, or None if it bounds nothing. Partitions below the
    highest number that have no offset were not read either.
    """
    known = {number: row for number, row in stored.items() if row is not None}
    if not known:
        return None
    read = [row for row in known.values() if not (row.is_sentinel or row.is_bare_zero)]
    if any(row.anchor is None for row in read):
        return None
    times = [time_of(row) for row in read]
    timed = [time for time in times if time is not None]
    all_read = len(read) == max(known) + 1
    return AnchorTimes(
        min(timed) if timed and all_read and len(timed) == len(times) else None,
        max(timed) if timed and len(timed) == len(times) else None,
    )


def all_in_place(findings: Mapping[TopicPartition, Finding], questions: Mapping[TopicPartition, Question]) -> bool:
    """True if every stored anchor was found in the partition of its own number."""
    read_from = [tp for tp, question in questions.items() if question.stored is not None]
    return all(holds_anchor(findings[tp]) for tp in read_from)


def holds_anchor(finding: Finding) -> bool:
    """True if the anchor's record was found in this partition, also where it proves no offset, because it lags."""
    by_content = finding.matched_by in (MatchedBy.ID, MatchedBy.FINGERPRINT)
    return finding.verdict is Verdict.EXACT or (finding.verdict is Verdict.EARLY and by_content)


def beyond(stored: Iterable[int], existing: Sequence[TopicPartition]) -> list[TopicPartition]:
    """The destination's partitions with higher numbers than all that are stored; none if nothing is stored."""
    highest = max(stored, default=None)
    return [] if highest is None else [tp for tp in existing if tp.partition > highest]


def not_newer_than(
    latest_ms: int | None,
    partitions: Sequence[TopicPartition],
    questions: Mapping[TopicPartition, Question],
    reader: LogReader,
) -> dict[TopicPartition, tuple[int, int]]:
    """Those of ``partitions`` that hold a record of ``latest_ms`` or before (or any, without it), with [start, end).

    A record whose time is not known, since the destination's broker has overwritten it, may be such a one.
    A job that read the topic would have read them, unless it began at the latest, or they were numbered otherwise.
    Looks at the first records of each.
    """
    if not partitions:
        return {}
    starts, ends = reader.log_starts(partitions), reader.log_ends(partitions)
    filled = [tp for tp in partitions if starts[tp] < ends[tp]]
    chunks = reader.read([ReadRequest(tp, starts[tp], FIRST_RECORDS) for tp in filled])
    found = {}
    for tp, chunk in zip(filled, chunks, strict=True):
        if isinstance(chunk, Withheld):
            found[tp] = (starts[tp], ends[tp])  # it may hold one
            continue
        if any(latest_ms is None or _may_be_of(record, latest_ms, questions[tp]) for record in chunk.records):
            found[tp] = (starts[tp], ends[tp])
    return found


def _may_be_of(record: Record, latest_ms: int, question: Question) -> bool:
    time = question.identity.trusted_time_of(record)
    return record.append_time if time is None else time <= latest_ms


def earlier_of(own: Finding, by_time: Finding) -> Finding:
    """A finding that is safe whether or not records were spread: the earlier offset, and a bound for both cases."""
    if own.resume_offset is None or by_time.resume_offset is None or by_time.replay_at_most is None:
        return own if own.resume_offset is None else by_time
    detail = f"there are more partitions than are stored, and records may have been spread over them; {own.detail}"
    earlier_by = by_time.resume_offset - own.resume_offset
    return replace(
        own if earlier_by > 0 else by_time,
        verdict=max(Verdict.EARLY, own.verdict, by_time.verdict),
        spread=True,
        replay_at_most=by_time.replay_at_most + max(0, earlier_by),
        replay_exact=None,
        matched_by=None,
        detail=detail,
    )


def earliest_anchor_ms(questions: Sequence[Question]) -> int | None:
    """The earliest stored anchor's time less the disorder; None if one has no time to go by, or nothing is stored."""
    if any(question.latest_ms is not None for question in questions):
        return None
    anchors = [question.stored.anchor for question in questions if question.stored is not None]
    times = [anchor.timestamp_ms for anchor in anchors if anchor is not None and anchor.timestamp_ms is not None]
    if not times or len(times) < len(anchors):
        return None
    return min(times) - max(question.limits.max_disorder_ms for question in questions)
