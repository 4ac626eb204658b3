"""Put back what ``apply`` replaced, as long as nothing has been built on it since."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from reconciler.config.file import Config, Job
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Changed, ConfigError
from reconciler.failover import snapshot
from reconciler.failover.apply import opened, put_all
from reconciler.failover.outside import Outside
from reconciler.failover.plan_checks import check_cluster, check_configuration, check_stores
from reconciler.failover.selection import by_key
from reconciler.formats.plan import Plan
from reconciler.ports import Change, Row, TopicPartition
from reconciler.stores.registry import traits


@dataclass(frozen=True, slots=True)
class Return:
    """One row to put back; ``before`` None deletes the row that ``apply`` made."""

    key: TopicPartition
    now: Row | None
    before: StoredOffset | None
    text: str | None = None

    @property
    def change(self) -> Change:
        return Change.restoring(self.key, self.now.version if self.now else None, self.before, self.text)


@dataclass(frozen=True, slots=True)
class JobReturns:
    """What rolling back means for one job."""

    job: Job
    returns: tuple[Return, ...]


def prepare_rollback(plan: Plan, plan_path: Path, config: Config, outside: Outside) -> list[JobReturns]:
    """Return the rows to put back. Writes nothing.

    Raises ``ConfigError`` if the plan was never applied. Raises ``Changed`` for another configuration, and for a row
    that is neither as ``apply`` left it nor as it was before: the job has gone on, and would lose its progress.
    """
    path = snapshot.path_for(plan_path)
    saved = snapshot.load(path, plan.sha256)
    if not saved:
        raise ConfigError(f"There is nothing to roll back: {path} does not exist.", hint="Was this plan applied here?")
    check_configuration(plan, config)
    check_stores(plan, config, outside)
    _check_rows(plan, path, saved)
    _check_cluster(plan, config, outside)
    jobs = []
    for name in sorted({job for job, _ in saved}):
        (job,) = config.chosen(name)
        rows = {tp: row for (owner, tp), row in saved.items() if owner == name}
        jobs.append(JobReturns(job, _returns(job, rows, outside)))
    return jobs


def _check_rows(plan: Plan, path: Path, saved: Mapping[snapshot.Key, snapshot.Replaced]) -> None:
    """Raise Changed for a snapshot with rows that the plan cannot have written."""
    planned = {(job.name, row.key): (job.group, row.resume_offset) for job in plan.jobs for row in job.partitions}
    for (name, tp), row in saved.items():
        if planned.get((name, tp)) != (row.group, row.after.offset):
            raise Changed(
                f'The snapshot {path} has {tp} of job "{name}" otherwise than the plan.',
                hint="Restore the file it was.",
            )


def _check_cluster(plan: Plan, config: Config, outside: Outside) -> None:
    """Raise Changed if rows that live at the destination would be looked for at another cluster."""
    if any(traits(config.chosen(job.name)[0].store).on_destination for job in plan.jobs):
        check_cluster(plan, outside.patient(config.search).describe(()))


def _returns(job: Job, saved: Mapping[TopicPartition, snapshot.Replaced], outside: Outside) -> tuple[Return, ...]:
    with closing(outside.open_store(job.store)) as store:
        rows = by_key(store.read(job.group, sorted({tp.topic for tp in saved})))
    returns = []
    for tp, replaced in sorted(saved.items()):
        now = rows.get(tp)
        stored = now.stored if now else None
        if snapshot.same(stored, replaced.before):
            continue
        if not snapshot.same(stored, replaced.after):
            raise Changed(
                f'{tp} of job "{job.name}" is no longer as apply left it: the job has gone on.',
                hint="Stop the job and make a new plan instead of rolling back.",
            )
        returns.append(Return(tp, now, replaced.before, replaced.text))
    return tuple(returns)


def write_rollback(jobs: list[JobReturns], outside: Outside) -> None:
    """Put the rows back by compare-and-set and read them back. Raises as ``write`` does."""
    batches = [(change.job, [item.change for item in change.returns]) for change in jobs if change.returns]
    with opened(batches, outside) as stores:
        put_all(batches, stores, "rollback", outside)
