"""Apply a plan: check that nothing has changed since, record its numbers, write them, and read them back.

Every job's store and every planned record at the destination are read again before anything is written. Then the jobs
are written one after the other, each by its plan in the state store (``state.moving``): the next run finishes what a
killed one has begun. A job is left out, and the others are written, if a partition needs a decision, a row cannot be
read, or its offsets are in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum

from reconciler.config.file import Config, Job
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, NeedsPerson, ReconcilerError, Unreachable
from reconciler.core.text import counted
from reconciler.failover.checking.gather import JobRows, Selected
from reconciler.failover.checking.numbers import read_numbers
from reconciler.failover.checking.rows import Corrections, Planned
from reconciler.failover.outside import Outside
from reconciler.failover.writing.moves import Replaced, carry_out, numbers_of, place_of
from reconciler.failover.writing.plan_checks import (
    AGAIN,
    anchors_for,
    check_configuration,
    check_destination,
    check_in_place,
    check_time,
)
from reconciler.places.registry import traits
from reconciler.plan.document import JobPlan, PartitionPlan, Plan
from reconciler.plan.start import stops_of
from reconciler.ports import UNKNOWN_PARTITION, Change, ClusterInfo, Malformed, Row, TopicPartition
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location, Stamp
from reconciler.state.stored import Stored

Batch = tuple[Job, Sequence[Change]]
"""All changes of one job."""
Errors = tuple[type[ReconcilerError], ...]
OTHERS = "The plan's other jobs can be applied without this one: name them with --job."


class Refusal(StrEnum):
    """Why a job is not written, as a clause."""

    UNDECIDED = "a partition needs a decision"
    UNREADABLE = "a row that the plan is about can no longer be read"
    COPIED = "a checkpoint is only read, and corrected in a copy"

    @property
    def hint(self) -> str:
        """The operator's next step, in sentences."""
        return HINTS[self]


HINTS = {
    Refusal.UNDECIDED: "Decide, and make a new plan with --set or --accept.",
    Refusal.UNREADABLE: "Make a new plan once that is done.",
    Refusal.COPIED: "apply, or the job's hook, copies it to the plan's offsets.",
}


@dataclass(frozen=True, slots=True)
class Intended:
    """One planned row to write.

    ``now`` is the store's row under ``key``, ``new`` what replaces it. ``left`` is the number that the plan was made
    from, as the state store keeps it.
    """

    row: PartitionPlan
    key: TopicPartition
    now: Row | None
    new: StoredOffset
    left: Stored[Anchor] | None = None

    @property
    def prior(self) -> StoredOffset | None:
        """The offset under the key; None if there is no row."""
        return None if self.now is None else self.now.stored

    @property
    def keeps_offset(self) -> bool:
        """True if the row has this offset already, and only its anchor changes."""
        return self.prior is not None and self.prior.offset == self.new.offset


@dataclass(frozen=True, slots=True)
class JobChanges:
    """The effect of applying a plan to one job. With ``refused`` rows (each with the reason) nothing is written.

    ``refusal``: what they are refused for.
    """

    job: Job
    intended: tuple[Intended, ...] = ()
    left: tuple[Planned, ...] = ()
    """The rows that are right already."""
    refused: tuple[tuple[PartitionPlan, str], ...] = ()
    refusal: Refusal = Refusal.UNDECIDED

    @property
    def shown(self) -> str:
        """Its write in sentences."""
        return f'job "{self.job.name}" ({counted(len(self.intended) + len(self.left), "offset")})'

    @property
    def is_refused(self) -> bool:
        return bool(self.refused)

    @property
    def is_by_job(self) -> bool:
        """True where only the job writes its numbers: until it does, those of its plan in the state store count."""
        return traits(self.job.store).corrected_by_job


def prepare(plan: Plan, config: Config, outside: Outside) -> list[JobChanges]:
    """Read stores and destination again, and return the rows to write. Writes nothing.

    Raises ``Changed`` if the plan has expired or is for another configuration, or if the destination or a store has
    changed since the plan was made.
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
    """Raise Changed if the plan's changes differ from the ones that were shown: the answer may come hours later."""
    now = prepare(plan, config, outside)
    for shown, again in zip(changes, now, strict=True):
        if _to_write(shown) != _to_write(again):
            raise Changed(
                f'Job "{shown.job.name}" has changed since it was shown. Nothing was written.',
                hint="Run this again, and review what it shows.",
            )


def replaced_by(change: JobChanges, cluster_id: str) -> dict[TopicPartition, Replaced]:
    """The numbers that the plan replaces, for the plan in the state store."""
    found = {row.key: Replaced.nothing(selected, cluster_id) for row, selected in change.left}
    for item in change.intended:
        under = None if item.prior is None or item.prior.is_sentinel else item.prior.offset
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
    return rows, [row for row, _ in change.refused]


def _prepare_job(job_plan: JobPlan, plan: Plan, config: Config, cluster: ClusterInfo, outside: Outside) -> JobChanges:
    (job,) = config.chosen(job_plan.name)
    job_plan = job_plan.starts.under(config.own_policy(job.name))
    refused = tuple((row, why) for row, why in stops_of(job_plan, config.policy.start) if why)
    if refused:
        return JobChanges(job, refused=refused)
    with one_of(plan.jobs, OTHERS, (Unreachable,)):
        stored = read_numbers(config, job, outside)
    _refuse_unplanned(job_plan, stored)
    found = _compare(job_plan.partitions, stored, Corrections.of(config, job, cluster.cluster_id))
    if found.unreadable:
        return JobChanges(job, refused=tuple(found.unreadable), refusal=Refusal.UNREADABLE)
    check_in_place(job, found.left, cluster, outside.reader)
    anchors = anchors_for(job, found.writing, cluster, outside.reader)
    now_ms = outside.now_ms()
    intended = tuple(_intended(row, selected, anchors[row], now_ms) for row, selected in found.writing)
    return JobChanges(job, intended, tuple(found.left))


@dataclass(frozen=True, slots=True)
class _Compared:
    """A job's planned rows by what is to be done: ``writing``, ``left`` as they are, and ``unreadable`` ones, each with
    the reason."""

    writing: list[Planned] = field(default_factory=list)
    left: list[Planned] = field(default_factory=list)
    unreadable: list[tuple[PartitionPlan, str]] = field(default_factory=list)


def _compare(planned: Iterable[PartitionPlan], stored: JobRows, corrections: Corrections) -> _Compared:
    """Compare the plan with the store's rows. Raises Changed where the store is not as the plan saw it."""
    found, job, cluster_id = _Compared(), stored.job, corrections.cluster_id
    for row in planned:
        selected = stored.selected(row.source_key, row.key, cluster_id)
        if (bad := _unreadable(row, selected, stored.rows)) is not None:
            found.unreadable.append((row, str(bad.refused).removesuffix(".")))
        elif not row.sees(selected.stored):
            raise Changed(_moved_on(job, row, selected.stored), hint=AGAIN)
        elif corrections.include(row, selected):
            found.writing.append((row, selected))
        elif row.resume_offset is not None:
            found.left.append((row, selected))
    late = corrections.rows_to_reanchor(each for each in found.left if each[0].is_right)
    begins = bool(found.writing or late) or not job.moved
    if begins and not corrections.traits.corrected_in_copy:  # its place gets all of the stay's numbers
        late += [each for each in found.left if each not in late and not _is_in_place(*each)]
    left = [each for each in found.left if each not in late]
    return replace(found, writing=found.writing + late, left=left)


def _is_in_place(row: PartitionPlan, selected: Selected) -> bool:
    there = selected.replaced
    return there is not None and there.malformed is None and there.stored.offset == row.resume_offset


def _intended(row: PartitionPlan, selected: Selected, anchor: Anchor, now_ms: int) -> Intended:
    assert row.resume_offset is not None, "a row without an offset is not written"
    new = StoredOffset(row.resume_offset, anchor, now_ms)
    return Intended(row, row.key, selected.replaced, new, selected.left)


def _without_copied(change: JobChanges) -> JobChanges:
    """The change; refused if it is of a checkpoint, which is corrected in a copy."""
    if not traits(change.job.store).corrected_in_copy or not change.intended:
        return change
    rows = tuple((each.row, Refusal.COPIED.value) for each in change.intended)
    return JobChanges(change.job, refused=rows, refusal=Refusal.COPIED)


def _refuse_unplanned(job_plan: JobPlan, stored: JobRows) -> None:
    """Raise Changed for a row that came since, of a partition without a plan: partition counts may differ.

    Rows of topics whose partition counts are known to differ are left out of a plan on purpose.
    """
    rows = stored.rows
    for source_topic, topic in {(row.source_topic, row.topic) for row in job_plan.partitions}:
        name = topic if stored.job.moved else source_topic  # as the numbers' keys: both clusters may have an ``events``
        planned = [row for row in job_plan.partitions if row.topic == topic]
        if any(row.spread for row in planned):
            continue
        known = {row.partition for row in planned}
        for tp in stored.numbers:
            row = rows.get(tp)
            unread = row is not None and row.malformed is None and (row.stored.is_unread or row.stored.is_bare_zero)
            if tp.topic == name and tp.partition not in known and tp.partition != UNKNOWN_PARTITION and not unread:
                raise Changed(
                    f'The store of job "{stored.job.name}" has changed since the plan: it has a row for {tp}, which '
                    "is not in the plan.",
                    hint=AGAIN,
                )


def _moved_on(job: Job, row: PartitionPlan, stored: StoredOffset | None) -> str:
    now = "no row" if stored is None else f"offset {stored.offset}"
    was = "no row" if row.stored_offset is None else f"offset {row.stored_offset}"
    return (
        f'The store of job "{job.name}" has changed since the plan: {row.key} had {was}, and has {now} now (or '
        "another anchor)."
    )


# ---------------------------------------------------------------- writing


def check_writable(changes: Sequence[JobChanges], outside: Outside) -> None:
    """Raise Refused if a job's store would refuse its write, before any is written."""
    writing = [change for change in changes if change.intended and not (change.is_refused or change.is_by_job)]
    for change in writing:
        with one_of(writing, OTHERS), closing(outside.open_store(change.job.store)) as store:
            store.check_writable(change.job.group)


def write(
    change: JobChanges,
    plan: Plan,
    config: Config,
    state: JobState,
    outside: Outside,
    stamp: Stamp,
    *,
    seen: Location | None = None,
) -> Location:
    """Write a job's numbers by its plan in the state store, and return where the job lives then.

    ``seen`` as for ``moves.begin``. Raises as ``moves.begin`` and ``moving.finish`` do: Refused and Changed with
    nothing written, OutcomeUnknown if only a part was.
    """
    here = seen or state.location()
    stay = 1 if here is None else here.stay
    numbers = numbers_of(plan, change.job, config, stay, replaced_by(change, plan.cluster_id))
    with place_of(state, change.job, outside, stamp) as place:
        return carry_out(state, config, change.job, numbers, place, stamp, seen=seen)


def _unreadable(row: PartitionPlan, selected: Selected, rows: Mapping[TopicPartition, Row]) -> Malformed | None:
    """The row that cannot be read and is, or may be, the one that the plan is about.

    The operator's offset goes beside such a row, never over it.
    """
    beside = row.set_by_hand and (selected.replaced is None or selected.replaced.malformed is None)
    if selected.row is not None or beside:
        return None
    unplaced = [rows.get(TopicPartition(topic, UNKNOWN_PARTITION)) for topic in (row.source_topic, row.topic)]
    among = (selected.malformed, *(each.malformed for each in unplaced if each is not None))
    return next((bad for bad in among if bad is not None), None)
