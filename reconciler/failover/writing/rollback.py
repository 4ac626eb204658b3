"""Put back what ``apply`` replaced, as long as nothing has been built on it since.

The snapshot beside the plan says what that was, and anyone who can write to the folder can write a snapshot. So each of
its rows must be one that the plan can have written, and the row that it puts back:

- must be the one that the plan saw, where plans must be signed: the signature then covers it;
- else, if the plan did not see it, must have no anchor but one that the destination's log confirms: an anchor decides
  where the next check finds the job;
- is compared with the offset in place, unless the plan saw it and it is in the source's numbers: records that it would
  skip are counted, and a person must accept that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler import written
from reconciler.config.file import Config, Job
from reconciler.core.anchors import Names, StoredOffset
from reconciler.core.errors import Changed, ConfigError, ReconcilerError
from reconciler.core.matching import Matcher
from reconciler.core.verdicts import Skips
from reconciler.failover.outside import Outside
from reconciler.failover.selection import Selected, by_key, is_unread
from reconciler.failover.writing.apply import is_applied, name_of, one_of, opened, put_all
from reconciler.failover.writing.plan_checks import check_cluster, check_configuration, check_destination, check_stores
from reconciler.failover.writing.snapshots import check_row, load_snapshot
from reconciler.fileio import locked
from reconciler.formats import snapshot
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan
from reconciler.ports import Change, LogReader, ReadRequest, Row, TopicPartition
from reconciler.stores.registry import traits

OTHERS = "The plan's other jobs can be put back without this one: name them with --job."

MOST_READ = 10_000
"""Records of a partition that are read to count those that would be skipped."""


@dataclass(frozen=True, slots=True)
class Return:
    """One row to put back; ``before`` None deletes the row that ``apply`` made.

    ``skips`` and ``replay_at_most`` count from the offset in place, which the plan proved; ``replay_at_most`` is None
    where there is nothing to compare: no row, or one in the source's numbers. ``is_copy``: the place had no row, and
    ``before`` is the copy of the source's that was kept elsewhere: it goes back there, and the row is deleted.
    """

    key: TopicPartition
    now: Row | None
    before: StoredOffset | None
    text: str | None = None
    skips: Skips | None = None
    replay_at_most: int | None = None
    is_copy: bool = False

    @property
    def back_to(self) -> StoredOffset | None:
        """What will be at the place; None for no row."""
        return None if self.is_copy else self.before

    @property
    def change(self) -> Change:
        return Change.restoring(self.key, self.now.version if self.now else None, self.before, self.text)


@dataclass(frozen=True, slots=True)
class JobReturns:
    """The effect of rolling back on one job."""

    job: Job
    returns: tuple[Return, ...]


def prepare_rollback(
    plan: Plan, plan_path: Path, config: Config, outside: Outside, names: Collection[str] = ()
) -> list[JobReturns]:
    """Return the rows to put back: of the jobs ``names``, or without a name of all. Writes nothing.

    Raises ``ConfigError`` if the plan was never applied, or has no snapshot here. Raises ``Changed`` for another
    configuration, for a snapshot that is not of this plan, and for a row that is neither as ``apply`` left it nor as it
    was before: the job has gone on, and would lose its progress.
    """
    path = snapshot.path_for(plan_path)
    saved = load_snapshot(path, plan.sha256)
    if not saved:
        raise _without_snapshot(plan, path, config, outside)
    chosen = plan.only(names)
    check_configuration(chosen, config)
    check_stores(chosen, config, outside)
    planned = {(job.name, row.key): row for job in plan.jobs for row in job.partitions}
    groups = {job.name: job.group for job in plan.jobs}
    for key, row in saved.items():
        check_row(planned.get(key), row, key, groups, plan, path)
        if config.trust.require_signature and not _is_vouched_for(planned[key], row):
            raise _foreign(key, path, "the signed plan")
    _check_cluster(chosen, config, outside)
    jobs = []
    applied = sorted({job for job, _ in saved if job in chosen.names})
    for name in applied:
        (job,) = config.chosen(name)
        rows = {tp: row for (owner, tp), row in saved.items() if owner == name}
        with one_of(applied, OTHERS):
            returns = _returns(job, rows, outside)
            if returns:
                _check_unwritten(job, [row for row in plan.job(name).starts.partitions if row.key not in rows], outside)
        unseen = {tp for tp, row in rows.items() if not _was_seen(planned[name, tp], row)}
        for tp in unseen:
            if not _may_be_own(rows[tp], plan):
                raise _foreign((name, tp), path, "the plan")
        in_a_group = traits(job.store).holds_commits  # each number of a group counts where the group is
        compared = [
            item
            for item in returns
            if in_a_group or item.key in unseen or not _is_sources(item, planned[name, item.key], plan)
        ]
        translated = {
            item.key
            for item in returns
            if not in_a_group and item.key not in unseen and not _may_be_own(rows[item.key], plan)
        }
        counted = _counted(compared, rows, _about(plan, job, compared), translated, config, outside)
        _check_anchors(job, [item for item in compared if item.key in unseen], config, outside)
        jobs.append(JobReturns(job, tuple(counted.get(item.key, item) for item in returns)))
    return jobs


# ---------------------------------------------------------------- the snapshot, beside the plan


def _without_snapshot(plan: Plan, path: Path, config: Config, outside: Outside) -> ConfigError:
    """The error where the plan has no snapshot beside it: whether another copy of the plan was applied."""
    copied = [job.name for job in plan.jobs if traits(config.chosen(job.name)[0].store).corrected_in_copy]
    if copied and len(copied) == len(plan.jobs):
        return ConfigError(
            f"There is nothing to roll back: the checkpoints of {', '.join(copied)} were only read, and the plan's "
            "offsets are in copies.",
            hint="Where the query has run no batch on its copy (reconciler checkpoint show COPY), start it on the "
            "original again. Where it has, never do: clone the copy back (docs/how-to/stateful-failover.md).",
        )
    try:
        applied = [job.name for job in plan.jobs if _is_in_place(job, plan, config, outside)]
    except ReconcilerError as error:
        return ConfigError(
            f"There is no snapshot {path}, and whether the plan was applied is not known: {error.message}",
            hint="Run this with the copy of the plan that was applied: its snapshot lies beside it.",
        )
    if not applied:
        return ConfigError(
            f"There is nothing to roll back: {path} does not exist, and no store holds a row that this plan wrote.",
            hint="Was this plan applied? If so, the jobs have gone on since, or they are another configuration's.",
        )
    return ConfigError(
        f"There is no snapshot {path}, but the plan was applied: its offsets are in the store of "
        f"{', '.join(applied)}. Nothing was put back.",
        hint="Run this with the copy of the plan that was applied, on that machine: its snapshot lies beside it, under "
        "the same name with .applied.json. A plan that a hook applied is in the hook's folder of plans (--plans).",
    )


def _is_in_place(planned: JobPlan, plan: Plan, config: Config, outside: Outside) -> bool:
    """Whether the job's store holds a row as this plan writes it, other than the row that the plan saw."""
    topics = {topic for row in planned.partitions for topic in (row.source_topic, row.topic)}
    (job,) = config.chosen(planned.name)
    with closing(outside.open_store(job.store)) as store:
        rows = by_key(store.read(planned.group, sorted(topics)))
    return any(
        is_applied(
            row,
            Selected(rows.get(row.key) or rows.get(row.source_key), rows.get(row.key)),
            planned.group,
            plan.cluster_id,
        )
        for row in planned.partitions
    )


def _is_vouched_for(row: PartitionPlan, saved: snapshot.Replaced) -> bool:
    """True if the plan saw this very row, or none, under the name where it is put back."""
    if saved.before is None:
        return row.replaces is None
    return row.replaces == snapshot.seen_of(saved.group, row.key, saved.before, saved.text)


def _was_seen(row: PartitionPlan, saved: snapshot.Replaced) -> bool:
    """True also for the row that the plan was made from: a store may give it another time of writing since."""
    return _is_vouched_for(row, saved) or row.sees(saved.before)


def _foreign(key: snapshot.Key, path: Path, plan: str) -> Changed:
    return Changed(
        f'The snapshot {path} would put back a row of {key[1]} of job "{key[0]}" that {plan} does not vouch for: the '
        "snapshot was altered, or the row changed between plan and apply.",
        hint="Restore the file it was. If the row had changed, make a plan with --set instead.",
    )


def _may_be_own(saved: snapshot.Replaced, plan: Plan) -> bool:
    """True for a row without anchor, or with one in the destination's numbers, which its log can confirm."""
    anchor = None if saved.before is None else saved.before.anchor
    return anchor is None or anchor.cluster_id == plan.cluster_id


def _is_sources(item: Return, row: PartitionPlan, plan: Plan) -> bool:
    """True for a row in the source's numbers under a name that both clusters use: the source's job reads it again."""
    anchor = None if item.before is None else item.before.anchor
    return row.source_key == row.key and (anchor is None or anchor.cluster_id != plan.cluster_id)


def _check_cluster(plan: Plan, config: Config, outside: Outside) -> None:
    """Raise Changed if rows that live at the destination would be looked for at another cluster."""
    if any(traits(config.chosen(job.name)[0].store).holds_commits for job in plan.jobs):
        check_cluster(plan, outside.patient(config.search).describe(()))


# ---------------------------------------------------------------- the rows now


def _returns(job: Job, saved: Mapping[TopicPartition, snapshot.Replaced], outside: Outside) -> list[Return]:
    with closing(outside.open_store(job.store)) as store:
        rows = by_key(store.read(job.group, sorted({tp.topic for tp in saved})))
        may_copy = store.capabilities.translated_by_mirror
    returns = []
    for tp, replaced in sorted(saved.items()):
        now = rows.get(tp)
        stored = now.stored if now else None
        if _is_as_before(stored, replaced):
            continue
        is_copy = may_copy and replaced.before is not None and replaced.text is None  # a commit has a text
        is_deleted = is_copy and now is None  # as the store asked for, where it cannot delete a single row
        if not (snapshot.same(stored, replaced.after) or is_deleted):
            raise _gone_on(tp, job)
        returns.append(Return(tp, now, replaced.before, replaced.text, is_copy=is_copy))
    return returns


def _check_unwritten(job: Job, planned: Sequence[PartitionPlan], outside: Outside) -> None:
    """Raise Changed if the job has gone on in partitions that ``apply`` left alone.

    They would stay where the job is, while the others go back: half a job on each side.
    """
    with closing(outside.open_store(job.store)) as store:
        rows = by_key(store.read(job.group, sorted({row.topic for row in planned})))
    for row in planned:
        now = rows.get(row.key)
        if now is None or now.malformed is not None or is_unread(now.stored) or row.sees(now.stored):
            continue
        if row.replaces != snapshot.seen_of(job.group, row.key, now.stored, now.text):
            raise _gone_on(row.key, job)


def _gone_on(key: TopicPartition, job: Job) -> Changed:
    return Changed(
        f'{key} of job "{job.name}" is no longer as apply left it: the job has gone on.',
        hint="Stop the job and make a new plan instead of rolling back.",
    )


def _is_as_before(now: StoredOffset | None, saved: snapshot.Replaced) -> bool:
    """True if the row is as it was before ``apply``. Where that changed the row's time alone, the time tells.

    It has to go back, too: of a partition's two rows, the later one shows where the job lives.
    """
    if not snapshot.same(now, saved.before) or now is None or saved.before is None:
        return snapshot.same(now, saved.before)
    is_applied = snapshot.same(now, saved.after) and now.written_at_ms == saved.after.written_at_ms
    return not is_applied or now.written_at_ms == saved.before.written_at_ms


# ---------------------------------------------------------------- the destination's log


def _counted(
    returns: Sequence[Return],
    saved: Mapping[TopicPartition, snapshot.Replaced],
    plan: Plan,
    translated: Collection[TopicPartition],
    config: Config,
    outside: Outside,
) -> dict[TopicPartition, Return]:
    """The rows with what they skip and replay. Raises Changed for an offset that the log does not have.

    ``translated`` are rows that the plan saw with the source's anchor. Where such a number is after the log's end,
    it counts the source's records, not this log's, and goes back as it was.
    """
    offsets = {item.key: item.back_to.offset for item in returns if item.back_to and not item.back_to.is_sentinel}
    if not offsets:
        return {}
    reader = outside.patient(config.search)
    check_destination(plan, reader.describe({key.topic for key in offsets}))
    keys = sorted(offsets)
    starts, ends = reader.log_starts(keys), reader.log_ends(keys)
    found = {}
    for item in returns:
        back = offsets.get(item.key)
        if back is None:
            continue
        start, end, now = starts[item.key], ends[item.key], saved[item.key].after.offset
        if back > end:
            if item.key in translated:
                continue
            raise Changed(
                f"{item.key}: the log ends at {end}, and the snapshot would put back {back}.",
                hint="The log or the snapshot is not the one it was. Make a new plan instead.",
            )
        replay = max(0, now - max(back, start))
        found[item.key] = replace(item, replay_at_most=replay, skips=_skipped(reader, item.key, max(now, start), back))
    return found


def _about(plan: Plan, job: Job, returns: Sequence[Return]) -> Plan:
    """The plan's rows of these partitions of a job."""
    keys = {item.key for item in returns if item.before is not None}
    rows = tuple(row for row in plan.job(job.name).partitions if row.key in keys)
    return replace(plan, jobs=(replace(plan.job(job.name), partitions=rows),))


def _check_anchors(job: Job, returns: Sequence[Return], config: Config, outside: Outside) -> None:
    """Raise Changed for an anchor that is no record right before the offset, or further before it."""
    anchors = [(item, item.back_to.anchor) for item in returns if item.back_to and item.back_to.anchor]
    asked = [(item, anchor) for item, anchor in anchors if not anchor.is_bare]
    if not asked:
        return
    requests = [ReadRequest(item.key, anchor.offset or 0, 1) for item, anchor in asked]
    for (item, anchor), chunk in zip(asked, outside.patient(config.search).read(requests), strict=True):
        found = chunk.records[0] if chunk.records else None
        back = item.before.offset if item.before else 0
        is_there = (
            found is not None and found.offset == anchor.offset and Matcher(anchor, job.identity).is_anchor(found)
        )
        if anchor.offset is None or anchor.offset >= back or anchor.names is not Names.LAST or not is_there:
            raise Changed(
                f'The snapshot would put back {back} for {item.key} of job "{job.name}", with an anchor that the '
                "destination does not have there.",
                hint="Restore the file it was, or make a new plan instead.",
            )


def _skipped(reader: LogReader, key: TopicPartition, first: int, end: int) -> Skips | None:
    """The records from ``first`` to before ``end``: counted as far as they are read."""
    if end <= first:
        return None
    count = 0
    for _ in range(MOST_READ):
        (chunk,) = reader.read([ReadRequest(key, first, MOST_READ)])
        count += sum(record.offset < end for record in chunk.records)
        if chunk.next_offset <= first:
            break
        first = chunk.next_offset
        if first >= end or count >= MOST_READ:
            break
    at_most = count + max(0, end - first)
    return Skips(count, at_most) if at_most else None


# ---------------------------------------------------------------- writing


def write_rollback(
    jobs: Sequence[JobReturns],
    plan: Plan,
    plan_path: Path,
    config: Config,
    outside: Outside,
    *,
    on_writing: Callable[[], None] | None = None,
) -> None:
    """Put the rows back by compare-and-set and read them back. Raises as ``write`` does.

    Under the plan's lock the rows are prepared again: ``apply`` may be half way through them, or a person has answered
    late. ``on_writing`` is called right before the first write.
    """
    batches = [(change.job, [item.change for item in change.returns]) for change in jobs if change.returns]
    written.intend(*(name_of(job, len(changes)) for job, changes in batches))
    names = [change.job.name for change in jobs]
    with opened(batches, outside) as stores, locked(plan_path):
        now = prepare_rollback(plan, plan_path, config, outside, names)
        if _to_put_back(now) != _to_put_back(jobs):
            raise Changed(
                "The rows are not as they were shown any more. Nothing was put back.",
                hint="Run this again, and look at what it shows.",
            )
        if on_writing is not None:
            on_writing()
        put_all(batches, stores, "rollback", outside)


def _to_put_back(jobs: Sequence[JobReturns]) -> object:
    """The rows to put back, and what they skip: what a person was shown and accepted."""
    return [(change.job.name, [(item.change, item.skips) for item in change.returns]) for change in jobs]
