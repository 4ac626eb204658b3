"""Tries the sinks that a configuration names: reads each, for the query on the job's checkpoint if there is one."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.checkpoints.reading import read_checkpoint
from reconciler.config.file import Config, Job
from reconciler.core.errors import NotCreated, ReconcilerError
from reconciler.preflight.results import TrialResult, failed, ok, warn
from reconciler.sinks.registry import open_sink
from reconciler.stores.registry import checkpoint_path, traits


def job_sinks(job: Job) -> Iterator[TrialResult]:
    """One result for each sink of the job; and a warning where the end of a killed batch could not be proven."""
    subject = f"job {job.name}"
    for address in job.sinks:
        try:
            sink = open_sink(address)
            name = sink.app_id or _query_of(job)
            taken = sink.last_taken(name) if name or not sink.knows_queries else None
        except ReconcilerError as error:
            yield failed(subject, error)
            continue
        if taken is None:
            yield ok(subject, f"sink {sink.shown}: not asked, since the query that writes to it is not known here")
        elif taken.batch is None:
            yield warn(
                subject,
                f"sink {sink.shown} has no batch of this query.",
                "Right for a query that has not run yet; otherwise correct the job's sink.",
            )
        elif taken.undone:
            yield warn(
                subject,
                f"sink {sink.shown}: {taken.undone}.",
                "Set the table to a version that has this batch, or begin a new checkpoint behind the last one it has.",
            )
        else:
            yield ok(subject, f"sink {sink.shown}: the last batch that it took is {taken.batch}")


def unusable_sinks(job: Job) -> Iterator[TrialResult]:
    """A failure for each sink's address that cannot be opened. Contacts nothing."""
    for address in job.sinks:
        try:
            open_sink(address)
        except ReconcilerError as error:
            yield failed(f"job {job.name}", error)


def untracked_end(config: Config, job: Job) -> Iterator[TrialResult]:
    """A warning for a job whose sink decides a killed batch, where nothing can keep the batch's end."""
    if job.sinks and traits(job.store).corrected_in_copy and config.anchor_store is None:
        yield warn(
            f"job {job.name}",
            "there is no [anchors] store, so track cannot keep the end of its running batch: if the query is killed "
            "after a sink has taken that batch, its failover must stop.",
            'Add one, for example store = "sqlite:////srv/anchors.db", and let track run.',
        )


def _query_of(job: Job) -> str | None:
    if not traits(job.store).corrected_in_copy:
        return None
    try:
        return read_checkpoint(checkpoint_path(job.store)).query_id
    except NotCreated:
        return None
