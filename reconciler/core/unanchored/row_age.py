"""Whether the record in front of a place can be one that the job had processed when it stored its number.

Everything in front of a place that was found by a number alone was processed, so it was there when the number was
stored. A record that is newer than the store's row contradicts that: the number is of another topic of the source's
name, one that was recreated since, or the pairs are of another mirror.
"""

from __future__ import annotations

from reconciler.core.probes import Search
from reconciler.core.question import CLOCKS_MS, KAFKA_BEGAN_MS, Question
from reconciler.core.scan import record_at
from reconciler.core.verdicts import Finding, Verdict


def judged_by_row_age(question: Question, finding: Finding) -> Search[Finding]:
    """The finding; ``unresolved`` where the record in front of its place is newer than the row.

    The finding stays as it is where other writers write among the mirrored records, or where the broker dates them.
    """
    stored, at = question.stored, finding.record_offset
    written = stored.written_at_ms if stored is not None else None
    if written is None or at is None or finding.resume_offset is None:
        return finding
    if question.mirror is not None and question.mirror.local_writers:
        return finding
    record = yield from record_at(at)
    if record is None or record.timestamp_ms is None or record.append_time:
        return finding
    covered = max(written, stored.covers_until_ms or written) if stored is not None else written
    if record.timestamp_ms <= covered + CLOCKS_MS + question.limits.max_disorder_ms:
        return finding
    if written < KAFKA_BEGAN_MS <= record.timestamp_ms:
        return finding
    late = (record.timestamp_ms - written) // 1000
    detail = (
        f"record {at:,}, in front of the place, was made {late:,} s after the number was stored, so the source's topic "
        f"may have been recreated since ({finding.detail})"
    )
    return Finding(Verdict.UNRESOLVED, None, detail=detail)
