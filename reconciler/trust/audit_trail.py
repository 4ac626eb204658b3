"""An attempt to write, as the audit log records it: an intention before the first write, a result after the last.

A process that ends between the two leaves an open intention, which lists the rows that it was about to write. An
attempt that is refused before its intention leaves one line.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from reconciler.config.addresses import without_secrets
from reconciler.config.file import Job
from reconciler.config.redaction import KNOWN
from reconciler.core.errors import ExitCode, NeedsPerson, OutcomeUnknown, ReconcilerError
from reconciler.formats.plan import Plan
from reconciler.ports import TopicPartition
from reconciler.trust.audit_log import AuditLog, RecordInDoubt
from reconciler.trust.witness import Witness, sentence

if TYPE_CHECKING:
    from reconciler.failover.writing.apply import JobChanges
    from reconciler.failover.writing.rollback import JobReturns

log = logging.getLogger("reconciler.audit")

DONE, NOTHING, PARTIAL, REFUSED, UNKNOWN = "done", "nothing", "partial", "refused", "unknown"
"""Outcomes. ``partial``: one job was refused, the others were written. ``unknown``: some rows may have been written."""


@dataclass(frozen=True, slots=True)
class WrittenRow:
    """One row: the offsets before and after; None where there was or is no row."""

    job: Job
    key: TopicPartition
    before: int | None
    after: int | None


class Attempt:
    """One command's attempt to write, used in a ``with`` block. Without a log it does nothing.

    Call ``intends`` before the first write and ``wrote`` after the last; the result follows from how the block ends.
    """

    def __init__(
        self,
        log: AuditLog | None,
        action: str,
        by: Mapping[str, Any],
        command: Sequence[str],
        now_ms: Callable[[], int],
        witness: Witness | None = None,
    ) -> None:
        self._log = log
        self._witness = witness
        self._now_ms = now_ms
        self._fields: dict[str, Any] = {"action": action, "by": dict(by), "command": list(command)}
        self._intention: str | None = None
        self._wrote = False
        self._ending: tuple[str, ExitCode] | None = None

    def __enter__(self) -> Self:
        if self._log is not None:
            self._log.check()
        if self._witness is not None:
            self._witness.check()
        return self

    def concerns(self, plan: Plan, path: Path | None, signers: Mapping[str, str | None]) -> None:
        """Note the plan, its path, and its signers: the trusted ones' names, by key id."""
        sha256 = plan.sha256 if self._log is not None else None
        place = None if path is None else str(path)
        self._fields["plan"] = {"path": place, "sha256": sha256, "signed_by": dict(signers)}
        self._fields["cluster_id"] = plan.cluster_id

    def intends(self, rows: Sequence[WrittenRow]) -> None:
        """Log the rows that will be written. Raises ConfigError or Changed if that fails; then write nothing."""
        self._append({"kind": "intention", "jobs": _jobs(rows)})

    def intends_changes(self, changes: Sequence[JobChanges]) -> None:
        """Log the rows that ``apply`` will write."""
        self.intends(
            [
                WrittenRow(change.job, item.key, item.prior.offset if item.prior else None, item.new.offset)
                for change in changes
                if not change.is_refused
                for item in change.intended
            ]
        )

    def intends_copy(self, plan: Plan, job: Job) -> None:
        """Log a checkpoint's copy that starts at the plan's offsets."""
        self.intends([WrittenRow(job, row.key, None, row.resume_offset) for row in plan.job(job.name).partitions])

    def intends_returns(self, jobs: Sequence[JobReturns]) -> None:
        """Log the rows that ``rollback`` will write."""
        self.intends(
            [
                WrittenRow(
                    change.job,
                    item.key,
                    item.now.stored.offset if item.now else None,
                    item.back_to.offset if item.back_to else None,
                )
                for change in jobs
                for item in change.returns
            ]
        )

    def intends_marks(self, jobs: Sequence[Job]) -> None:
        """Log the jobs whose side is going to change at their next start. No row is written for that."""
        self._append({"kind": "intention", "jobs": [{**_named(job), "rows": []} for job in jobs]})

    def marked(self, written: int, code: ExitCode) -> None:
        """Note how many marks were written or removed, and how the command ends, which reports each job's error."""
        if code is ExitCode.OK:
            self._ending = (DONE if written else NOTHING, code)
        elif code is ExitCode.UNKNOWN_OUTCOME:
            self._ending = (UNKNOWN, code)
        else:
            self._ending = (PARTIAL if written else REFUSED, code)

    def wrote(self) -> None:
        """Note that all intended rows are written and read back."""
        self._wrote = True

    def had_nothing_to_do(self) -> None:
        """Log that every offset was in place already."""
        self._append({"kind": "result", "outcome": NOTHING, "exit_code": int(ExitCode.OK)})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._intention is None and not isinstance(error, ReconcilerError):
            return
        record: dict[str, Any] = {"kind": "refusal" if self._intention is None else "result", "of": self._intention}
        if error is None and self._ending is not None:
            outcome, code = self._ending
            record |= {"outcome": outcome, "exit_code": int(code), "message": None}
        else:
            record |= {"outcome": self._outcome(error), **_end_of(error)}
        try:
            self._append(record)
        except ReconcilerError as unlogged:
            if error is not None:
                log.error("the audit log lacks the outcome of this command: %s", unlogged)
                return
            raise OutcomeUnknown(
                f"The offsets were written, but that cannot be logged: {unlogged.message}",
                hint="Repair the audit log, then run this again: it finds the offsets in place and logs that.",
            ) from unlogged

    def _outcome(self, error: BaseException | None) -> str:
        if self._intention is None:
            return REFUSED
        if self._wrote:
            return PARTIAL if isinstance(error, NeedsPerson) else DONE
        certain = isinstance(error, ReconcilerError) and not isinstance(error, OutcomeUnknown)
        return REFUSED if certain else UNKNOWN

    def _append(self, fields: Mapping[str, Any]) -> None:
        if self._log is None:
            return
        now = datetime.fromtimestamp(self._now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        try:
            head = self._log.append({**self._fields, **fields}, now.replace("+00:00", "Z"))
        except RecordInDoubt as error:
            if fields["kind"] == "intention":  # if it is there, it must not stay open: nothing will be written
                self._intention = error.head.hash
            raise
        if fields["kind"] == "intention":
            self._intention = head.hash
        text = sentence(self._log.path, head.line, head.hash)
        log.info("%s", text)
        if self._witness is not None:
            self._witness.keep(text)


def _end_of(error: BaseException | None) -> dict[str, Any]:
    if error is None:
        return {"exit_code": int(ExitCode.OK), "message": None}
    if isinstance(error, ReconcilerError):
        return {"exit_code": int(error.exit_code), "message": KNOWN.redacted(error.message)}
    return {"exit_code": None, "message": type(error).__name__}


def _jobs(rows: Sequence[WrittenRow]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        job = found.setdefault(row.job.name, {**_named(row.job), "rows": []})
        place = {"topic": row.key.topic, "partition": row.key.partition}
        job["rows"].append({**place, "before": row.before, "after": row.after})
    return list(found.values())


def _named(job: Job) -> dict[str, Any]:
    return {"name": job.name, "group": job.group, "store": without_secrets(job.store)}
