"""Apply a plan: check that nothing has moved since, take a snapshot, compare-and-set, read back.

The order matters. Nothing is written before every job's store and every planned record at the destination has been read
again. The snapshot is on disk before the first write. A second run finds what the first one wrote and continues there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from reconciler import written
from reconciler.config.file import Config, Job
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, NeedsPerson, OutcomeUnknown, ReconcilerError, Unreachable
from reconciler.failover.numbers import JobRows, read_numbers
from reconciler.failover.outside import Outside
from reconciler.failover.selection import Corrections, Planned, Selected, by_key, is_own, is_unread
from reconciler.failover.writing import refusals
from reconciler.failover.writing.moves import Replaced
from reconciler.failover.writing.plan_checks import (
    AGAIN,
    check_configuration,
    check_destination,
    check_time,
)
from reconciler.failover.writing.refusals import Refusal
from reconciler.failover.writing.reread import anchors_for, check_in_place
from reconciler.failover.writing.snapshots import keep_snapshot
from reconciler.fileio import locked
from reconciler.formats.decimal_text import counted
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan, why_stopped
from reconciler.formats.plan_sinks import why_sink_stops
from reconciler.formats.snapshot import seen_of
from reconciler.ports import UNKNOWN_PARTITION, Change, ClusterInfo, OffsetStore, Row, TopicPartition, WriteResult
from reconciler.state.stored import Stored
from reconciler.stores.registry import traits

Batch = tuple[Job, Sequence[Change]]
"""All changes of one job."""
Errors = tuple[type[ReconcilerError], ...]
OTHERS = "The plan's other jobs can be applied without this one: name them with --job."


@dataclass(frozen=True, slots=True)
class Intended:
    """One planned row to write.

    ``now`` is the store's row under ``key``, ``new`` what replaces it, ``speaks`` the row that the plan was made from.
    ``left`` is its number as the state store keeps it.
    """

    row: PartitionPlan
    key: TopicPartition
    now: Row | None
    new: StoredOffset
    speaks: Row | None
    left: Stored[Anchor] | None = None

    @property
    def prior(self) -> StoredOffset | None:
        """What is at the place; None for no row."""
        return None if self.now is None or self.now.is_copy else self.now.stored

    @property
    def keeps_offset(self) -> bool:
        """True if the row has this offset already, and only its anchor changes."""
        return self.prior is not None and self.prior.offset == self.new.offset

    @property
    def begins_a_stay(self) -> bool:
        """False where the offset was right, and only its anchor changes."""
        return not (self.keeps_offset and self.row.is_right)

    @property
    def change(self) -> Change:
        found_from = self.speaks.stored if self.speaks else None
        expected = None if self.now is None else self.now.version or None  # a row of another cluster alone has none
        return Change(self.key, expected, self.new, found_from=found_from)


@dataclass(frozen=True, slots=True)
class JobChanges:
    """The effect of applying a plan to one job. With ``refused`` rows (each with the reason) nothing is written.

    ``refusal``: what they are refused for.
    """

    job: Job
    intended: tuple[Intended, ...] = ()
    already: tuple[PartitionPlan, ...] = ()
    left: tuple[Planned, ...] = ()
    """The rows that are right as they are, or written already."""
    refused: tuple[tuple[PartitionPlan, str], ...] = ()
    refusal: Refusal = Refusal.UNDECIDED

    @property
    def is_refused(self) -> bool:
        return bool(self.refused)

    @property
    def is_by_job(self) -> bool:
        """True where only the job writes its numbers: until it does, those of its plan in the state store count."""
        return traits(self.job.store).corrected_by_job


def prepare(plan: Plan, config: Config, outside: Outside) -> list[JobChanges]:
    """Read stores and destination again, and return the rows to write. Writes nothing.

    Raises ``Changed`` if the plan has expired or is for another configuration, or if the destination or a store is no
    longer as it was when the plan was made.
    """
    check_time(plan, config.policy, outside.now_ms())
    check_configuration(plan, config)
    topics = {row.topic for job in plan.jobs for row in job.partitions}
    outside = replace(outside, reader=outside.patient(config.search))
    cluster = outside.reader.describe(topics)
    check_destination(plan, cluster)
    changes = []
    for job_plan in plan.jobs:
        with one_of(plan.jobs, OTHERS, (Changed,)):
            change = _prepare_job(job_plan, plan, config, cluster, outside)
        changes.append(_without_copied(change))
    # A topic that was recreated in between may hold such a record too, or no record was read.
    check_destination(plan, outside.reader.describe(topics))
    return changes


def check_still(changes: Sequence[JobChanges], plan: Plan, config: Config, outside: Outside) -> None:
    """Raise Changed if the plan would not be applied any more as it was shown: a person may answer hours later."""
    now = prepare(plan, config, outside)
    for shown, again in zip(changes, now, strict=True):
        if _to_write(shown) != _to_write(again):
            raise Changed(
                f'Job "{shown.job.name}" is not as it was shown any more. Nothing was written.',
                hint="Run this again, and look at what it shows.",
            )


def replaced_by(changes: Sequence[JobChanges], cluster_id: str) -> dict[TopicPartition, Replaced]:
    """What the plan's rows replace, for the plan that the state store keeps."""
    found: dict[TopicPartition, Replaced] = {}
    for change in changes:
        for row, selected in change.left:
            found[row.key] = Replaced.nothing(selected, cluster_id)
        for item in change.intended:
            under = None if item.prior is None else item.prior.offset
            found[item.key] = Replaced(under, item.left, item.new.anchor)
    return found


@contextmanager
def one_of(jobs: Sequence[object], others: str, kinds: Errors = (Changed, Unreachable)) -> Iterator[None]:
    """An error of ``kinds`` that arises here is about one of ``jobs``: its hint gets a sentence on the others."""
    try:
        yield
    except kinds as error:
        if len(jobs) > 1:
            error.hint = f"{error.hint} {others}" if error.hint else others
        raise


def refuse(change: JobChanges) -> None:
    """Raise NeedsPerson if the job is refused: for a caller that is about this job alone."""
    if change.refused:
        (row, why), more = change.refused[0], len(change.refused) - 1
        others = f" (and {counted(more, 'other partition')})" if more else ""
        raise NeedsPerson(
            f'Job "{change.job.name}" must not start: {row.key}{others}: {why}. Nothing was written.',
            hint=None if change.refusal is Refusal.UNDECIDED else change.refusal.hint,
        )


def _to_write(change: JobChanges) -> object:
    """A job's changes, without the time of writing, and without the reasons: one says what time it is."""
    rows = [replace(item, new=replace(item.new, written_at_ms=None)) for item in change.intended]
    return rows, change.already, [row for row, _ in change.refused]


def _prepare_job(job_plan: JobPlan, plan: Plan, config: Config, cluster: ClusterInfo, outside: Outside) -> JobChanges:
    (job,) = config.chosen(job_plan.name)
    job_plan = job_plan.starts
    by_sink = job_plan.stopped_by
    forbidden = why_sink_stops(by_sink) if by_sink else None
    stops = [(row, why_stopped(row, config.policy.start) or forbidden) for row in job_plan.partitions]
    refused = tuple((row, why) for row, why in stops if why)
    if refused:
        return JobChanges(job, refused=refused)
    with one_of(plan.jobs, OTHERS, (Unreachable,)):
        stored = read_numbers(config, job, outside)
    _refuse_unplanned(job_plan, stored, cluster.cluster_id)
    found = _compare(job_plan.partitions, stored, Corrections.of(config, job, cluster.cluster_id))
    if found.unreadable:
        return JobChanges(job, refused=tuple(found.unreadable), refusal=Refusal.UNREADABLE)
    check_in_place(job, found.left, cluster, outside.reader)
    anchors = anchors_for(job, found.writing, cluster, outside.reader)
    now_ms = outside.now_ms()
    intended = tuple(_intended(row, selected, anchors[row], now_ms) for row, selected in found.writing)
    return JobChanges(job, intended, tuple(found.already), tuple(found.left))


@dataclass(frozen=True, slots=True)
class _Compared:
    """A job's planned rows by what is to be done: ``writing``, ``left`` as they are (among them those that are
    ``already`` written), and ``unreadable`` ones, each with the reason."""

    writing: list[Planned] = field(default_factory=list)
    left: list[Planned] = field(default_factory=list)
    already: list[PartitionPlan] = field(default_factory=list)
    unreadable: list[tuple[PartitionPlan, str]] = field(default_factory=list)


def _compare(planned: Iterable[PartitionPlan], stored: JobRows, corrections: Corrections) -> _Compared:
    """Compare the plan with the store's rows. Raises Changed where the store is not as the plan saw it."""
    found, job, cluster_id = _Compared(), stored.job, corrections.cluster_id
    for row in planned:
        selected = stored.selected(row.source_key, row.key, cluster_id)
        if (bad := refusals.unreadable(row, selected, stored.rows)) is not None:
            found.unreadable.append((row, str(bad.refused).removesuffix(".")))
        elif is_applied(row, selected, job.group, cluster_id):
            found.already.append(row)
            found.left.append((row, selected))
        elif not row.sees(selected.stored):
            raise Changed(_moved_on(job, row, selected.stored), hint=AGAIN)
        elif row.replaces is not None and selected.replaced is None:  # a rollback could not put it back
            raise Changed(f'The row of {row.key} of job "{job.name}" is gone since the plan.', hint=AGAIN)
        elif corrections.include(row, selected):
            found.writing.append((row, selected))
        elif row.is_right:
            found.left.append((row, selected))
    completing = corrections.completing(found.left)
    keys = {row.key for row, _ in completing}
    left = [each for each in found.left if each[0].key not in keys]
    return replace(found, writing=found.writing + completing, left=left)


def _intended(row: PartitionPlan, selected: Selected, anchor: Anchor, now_ms: int) -> Intended:
    assert row.resume_offset is not None, "Corrections: a row without an offset is not written"
    new = StoredOffset(row.resume_offset, anchor, now_ms)
    return Intended(row, row.key, selected.replaced, new, selected.row, selected.left)


def _without_copied(change: JobChanges) -> JobChanges:
    """The change; refused if it is of a checkpoint, which is corrected in a copy."""
    if not traits(change.job.store).corrected_in_copy or not change.intended:
        return change
    rows = tuple((each.row, Refusal.COPIED.value) for each in change.intended)
    return JobChanges(change.job, refused=rows, refusal=Refusal.COPIED)


def _refuse_unplanned(job_plan: JobPlan, stored: JobRows, cluster_id: str) -> None:
    """Raise Changed for a row that came since, of a partition without a plan: partition counts may differ.

    Two kinds of rows are left out of a plan on purpose: those of topics whose partition counts are known to differ, and
    the source's rows of a job that has been handed over.
    """
    rows = stored.rows
    for source_topic, topic in {(row.source_topic, row.topic) for row in job_plan.partitions}:
        planned = [row for row in job_plan.partitions if row.topic == topic]
        if any(row.spread for row in planned) or _is_handed_over(planned, rows, cluster_id):
            continue
        known = {row.partition for row in planned}
        for tp in rows if stored.numbers is None else stored.numbers:
            row = rows.get(tp)
            unread = row is not None and row.malformed is None and (is_unread(row.stored) or row.stored.is_bare_zero)
            if (
                tp.topic in (source_topic, topic)
                and tp.partition not in known
                and tp.partition != UNKNOWN_PARTITION
                and not unread
            ):
                raise Changed(
                    f'The store of job "{stored.job.name}" has moved on since the plan: it has a row for {tp}, which '
                    "is not in the plan.",
                    hint=AGAIN,
                )


def _is_handed_over(planned: Sequence[PartitionPlan], rows: Mapping[TopicPartition, Row], cluster_id: str) -> bool:
    found = [rows.get(row.key) for row in planned]
    return all(row is not None and is_own(row, cluster_id) for row in found)


def is_applied(row: PartitionPlan, selected: Selected, group: str, cluster_id: str) -> bool:
    """True if the store already holds what this row would write, and did not when the plan was made.

    A row of an earlier stay may hold just that, and still be the one that the plan saw: then another row has changed.
    """
    ours = selected.replaced
    if ours is None or row.sees(selected.stored) or ours.stored.offset != row.resume_offset:
        return False
    if row.replaces is not None and row.replaces == seen_of(group, ours.key, ours.stored, ours.text):
        return False
    anchor = ours.stored.anchor
    return anchor is not None and anchor.cluster_id == cluster_id and anchor.offset == row.record_offset


def _moved_on(job: Job, row: PartitionPlan, stored: StoredOffset | None) -> str:
    now = "no row" if stored is None else f"offset {stored.offset}"
    was = "no row" if row.stored_offset is None else f"offset {row.stored_offset}"
    return (
        f'The store of job "{job.name}" has moved on since the plan: {row.key} had {was}, and has {now} now (or '
        "another anchor)."
    )


# ---------------------------------------------------------------- writing


def write(
    changes: Sequence[JobChanges],
    plan: Plan,
    plan_path: Path,
    outside: Outside,
    *,
    on_writing: Callable[[], None] = lambda: None,
) -> None:
    """Take a snapshot, write every job that is not refused, and read it back.

    ``on_writing`` is called right before the first write, also if there is none.

    Raises ``Refused`` before anything is written, ``Changed`` if a store has changed and nothing was written,
    ``OutcomeUnknown`` if only a part was.
    """
    writing = [change for change in changes if change.intended and not (change.is_refused or change.is_by_job)]
    batches = [(change.job, [item.change for item in change.intended]) for change in writing]
    written.intend(*(name_of(job, len(changes)) for job, changes in batches))
    with ExitStack() as closing_stores:
        with one_of(batches, OTHERS):
            stores = closing_stores.enter_context(opened(batches, outside))
        if not writing:
            on_writing()
            return
        with locked(plan_path):
            with one_of(batches, OTHERS):
                for change, store in zip(writing, stores, strict=True):
                    _check_unmoved(change, store)
            keep_snapshot(writing, plan, plan_path)
            on_writing()
            put_all(batches, stores, "apply", outside)


@contextmanager
def opened(batches: Sequence[Batch], outside: Outside) -> Iterator[list[OffsetStore]]:
    """The store of every batch. Raises ``Refused`` if one of them would refuse the write."""
    with ExitStack() as closing_stores:
        stores = [closing_stores.enter_context(closing(outside.open_store(job.store))) for job, _ in batches]
        for (job, _), store in zip(batches, stores, strict=True):
            store.check_writable(job.group)
        yield stores


def name_of(job: Job, rows: int) -> str:
    """A job's write in sentences."""
    return f'job "{job.name}" ({counted(rows, "offset")})'


def put_all(batches: Sequence[Batch], stores: Sequence[OffsetStore], reason: str, outside: Outside) -> None:
    """Write every batch and read it back. Raises as ``put`` and ``confirm`` do."""
    for number, ((job, changes), store) in enumerate(zip(batches, stores, strict=True)):
        put(store, job, changes, reason, outside.now_ms(), any_written=number > 0)
        confirm(store, job, {change.key: change.new for change in changes})


def _check_unmoved(change: JobChanges, store: OffsetStore) -> None:
    """Raise Changed for a row that has changed since ``prepare`` read it: a person was asked, another process wrote.

    The compare-and-set would find out as well, but only after a snapshot of rows that are gone.
    """
    seen = {item.key: item.now for item in change.intended}
    if not traits(change.job.store).holds_commits or change.job.moved:  # else they are on the cluster that it leaves
        seen |= {item.speaks.key: item.speaks for item in change.intended if item.speaks}
    rows = by_key(store.read(change.job.group, sorted({tp.topic for tp in seen})))
    for tp, row in seen.items():
        now = rows.get(tp)
        if (now.version or None if now else None) != (row.version or None if row else None):
            raise Changed(f"{_conflict(change.job, tp)}. Nothing was written.", hint=AGAIN)


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
