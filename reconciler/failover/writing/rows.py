"""Rows of a store that an import replaces: by compare-and-set, and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconciler import written
from reconciler.config.file import Job
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Changed, OutcomeUnknown, ReconcilerError
from reconciler.core.text import counted
from reconciler.failover.writing.plan_checks import AGAIN
from reconciler.ports import Change, OffsetStore, TopicPartition, WriteResult, by_key


def name_of(job: Job, rows: int) -> str:
    """A job's write in sentences."""
    return f'job "{job.name}" ({counted(rows, "offset")})'


def put(
    store: OffsetStore, job: Job, changes: Sequence[Change], reason: str, now_ms: int, *, any_written: bool
) -> WriteResult:
    """Compare-and-set a batch.

    Raises for a conflict: ``Changed`` if nothing was written, ``OutcomeUnknown`` if other rows were, or other jobs
    before this one (``any_written``).
    """
    try:
        with written.writing(name_of(job, len(changes))):
            result = store.write(job.group, changes, reason=reason, now_ms=now_ms)
            if not result.conflicts:
                return result
            problem = _conflict(job, result.conflicts[0])
            if result.written:
                raise OutcomeUnknown(
                    f"{problem}; {len(result.written)} of its {len(changes)} rows were written.", hint="Run this again."
                )
            raise Changed(f"{problem}.{'' if any_written else ' Nothing was written.'}", hint=AGAIN)
    except ReconcilerError as error:
        if not any_written or isinstance(error, OutcomeUnknown):
            raise
        raise OutcomeUnknown(
            f'Other jobs were written, job "{job.name}" was not: {error.message}', hint="Run this again."
        ) from error


def _conflict(job: Job, tp: TopicPartition) -> str:
    return f'The store of job "{job.name}" changed while it was being written: {tp}'


def confirm(store: OffsetStore, job: Job, expected: Mapping[TopicPartition, StoredOffset | None]) -> None:
    """Read back what was written. Raises ``OutcomeUnknown`` if it is not all there."""
    try:
        rows = by_key(store.read(job.group, sorted({tp.topic for tp in expected})))
    except ReconcilerError as error:
        raise OutcomeUnknown(
            f'Job "{job.name}" was written, and could not be read back: {error.message}', hint="Run this again."
        ) from error
    for tp, wanted in expected.items():
        if tp in rows and (bad := rows[tp].malformed) is not None:
            raise OutcomeUnknown(
                f'Job "{job.name}" was written, and does not read back: {bad.message}',
                hint=f"See what else writes this store. {bad.hint}",
            )
        found = rows[tp].stored if tp in rows else None
        if (found is None) != (wanted is None) or (found and wanted and found.offset != wanted.offset):
            raise OutcomeUnknown(
                f'{tp} of job "{job.name}" does not read back as it was written.',
                hint="See what else writes this store, then run this again.",
            )
