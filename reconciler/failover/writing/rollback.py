"""Give back what the plan of a job's stay replaced, as long as the job has processed nothing in that stay.

The state store has the plan: what it wrote, and where the job was when it left (``state.plans``). A stay that has
processed something is left by a move: what it has processed would come again, uncounted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

from reconciler.config.file import Job
from reconciler.config.streams import Naming
from reconciler.core.errors import NeedsPerson
from reconciler.failover.checking.recorded import malformed, number_in
from reconciler.failover.outside import Outside
from reconciler.failover.writing.moves import keys_left
from reconciler.places.registry import traits
from reconciler.ports import TopicPartition
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location, Phase
from reconciler.state.plans import Numbers


@dataclass(frozen=True, slots=True)
class Return:
    """One partition: the number that the plan wrote, and the one that it goes back to, under ``key``.

    ``again`` and ``skips`` count offsets, at most: what is read again, and what is left
    out that a correction on the same cluster has shown to be unread.
    """

    key: TopicPartition
    now: int
    back: int
    again: int
    skips: int


def returns(plan: Numbers, naming: Naming) -> list[Return]:
    """The effect of giving back the plan's numbers, by partition."""
    keys, found = keys_left(plan, naming), []
    for at, each in plan.rows.items():
        row, left = each.row, each.row.left
        ahead = left.number - row.number if plan.leaves == plan.to else 0  # two clusters' numbers are not compared
        found.append(Return(keys[at], row.number, left.number, max(0, -ahead) + left.again, max(0, ahead)))
    return sorted(found, key=lambda item: item.key)


def plan_to_undo(state: JobState, here: Location | None) -> Numbers | None:
    """The plan that began the stay in which the job lives; None if there is nothing to give back.

    Raises NeedsPerson for a job that is moving.
    """
    if here is None or here.plan is None:
        return None
    if here.phase is Phase.MOVING:
        raise NeedsPerson(
            f'Job "{state.job}" is moving to {here.to}.',
            hint=f"Take that back first: {state.command('move', '--cancel')}",
        )
    plan = state.plan(here.plan)
    if here.phase is Phase.WRITING and not plan.is_back:
        raise NeedsPerson(
            f'The offsets of job "{state.job}" are being written for {here.to}.',
            hint=f"Take that back: {state.command('move', '--cancel')}",
        )
    return None if plan.is_back and here.phase is Phase.LIVES else plan


def refuse_gone_on(
    state: JobState, here: Location, plan: Numbers, job: Job, outside: Outside, work_of: Callable[[str], str | None]
) -> None:
    """Raise NeedsPerson if the job has processed anything in this stay, or may have.

    ``outside``: of the cluster where it lives. ``work_of``: what a query has done on a copy of its checkpoint, as a
    clause. Raises as the job's store does.
    """
    done = next(_work_in_journal(state, here, plan), None)
    if done is None and traits(job.store).corrected_in_copy and here.checkpoint is not None:
        done = work_of(here.checkpoint)
    done = done or _work_in_place(plan, job, outside)
    if done is not None:
        raise NeedsPerson(
            f'Job "{state.job}" has continued since its offsets were written: {done}.',
            hint=f"Move it instead: {state.command('move', '--to', plan.leaves)}",
        )


def _work_in_journal(state: JobState, here: Location, plan: Numbers) -> Iterator[str]:
    """The entries of the stay's journal beyond the numbers with which it began, as clauses."""
    for entry in state.newest(here.stay):
        for at, end in entry.begun.items():
            yield f"a batch has begun that ends at {end.number:,} of partition {at.partition} of {at.topic}"
        for at, known in entry.numbers.items():
            planned = plan.rows.get(at)
            if planned is None or known.number != planned.row.number:
                yield f"it has processed partition {at.partition} of {at.topic} up to {known.number:,}"


def _work_in_place(plan: Numbers, job: Job, outside: Outside) -> str | None:
    """The first number in the job's place that is not the plan's, as a clause. None if there is none."""
    planned, by_job = {each.key: each.row for each in plan.rows.values()}, traits(job.store).corrected_by_job
    with closing(outside.open_store(job.store)) as store:
        rows = store.read(job.group, sorted({key.topic for key in planned}))
    for row in rows:
        if (bad := malformed(row)) is not None:
            return f"{row.key} cannot be read ({bad.message.rstrip('.')})"
        number, known = number_in(row), planned.get(row.key)
        there = set() if known is None else {known.number, *(known.replaced if by_job else ())}
        if number is not None and number not in there:
            return f"{row.key} is at {number:,} in {store.address}"
    return None
