"""Gives back the offsets that jobs had before their last move or correction, if they have processed nothing since. It
shows, for each partition, the offset now and the one before, and what is read again or skipped. Then it asks, and
begins a new stay. A job that has processed records since is not changed: move it instead. To take back a move that has
not ended: reconciler move --cancel.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from reconciler import written
from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import confirm, say
from reconciler.cli.terminal.table import Cell, count_cell, partition_cell, print_table
from reconciler.config.file import Config, Job
from reconciler.core.errors import ExitCode, NeedsPerson, ReconcilerError, worst
from reconciler.core.text import counted
from reconciler.failover import inputs
from reconciler.failover.whereabouts import toward_place
from reconciler.failover.writing.moves import finish, roll_back
from reconciler.failover.writing.rollback import Return, plan_to_undo, refuse_gone_on, returns
from reconciler.jobs.hook.checkpoint import work_of
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location, Phase
from reconciler.state.plans import Numbers

EXAMPLE = "reconciler rollback -c reconciler.toml --job clicks"
HELP = Help(
    __doc__,
    [
        ("review, confirm, give back", EXAMPLE),
        ("of two jobs", f"{EXAMPLE} --job orders"),
        ("in a script, without a prompt", f"{EXAMPLE} --yes"),
    ],
    {
        ExitCode.OK: "given back, or there was nothing to give back",
        ExitCode.USAGE: "",
        ExitCode.NEEDS_PERSON: "a job has continued since, is moving, or would skip records: it was not changed",
        ExitCode.CHANGED: "somebody else moved a job meanwhile",
        ExitCode.UNREACHABLE: "",
        ExitCode.UNKNOWN_OUTCOME: "a write's outcome is unknown or partial: run rollback again",
    },
    environment=CONFIG_ENVIRONMENT,
    see_also=("reconciler move", "reconciler status", "docs/how-to/move-jobs.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    parser.add_argument("--job", metavar="NAME", action="append", required=True, help="this job; may be repeated")
    parser.add_argument(
        "--accept",
        dest="accepted",
        metavar="skips",
        action="append",
        default=[],
        choices=[arguments.SKIPS],
        help="skips: give back offsets that skip records",
    )
    arguments.add_yes(parser)


@dataclass(frozen=True, slots=True)
class _Job:
    """A job whose numbers can be given back, and its configuration where it lives."""

    job: Job
    state: JobState
    here: Location
    plan: Numbers
    returns: Sequence[Return]

    @property
    def is_begun(self) -> bool:
        """True if an earlier run was killed while it gave them back."""
        return self.here.phase is Phase.WRITING


def run(options: argparse.Namespace) -> ExitCode:
    config = context.read_config(options)
    codes, found = [ExitCode.OK], []
    jobs = config.chosen(*options.job)
    states = inputs.job_states(config, jobs)
    for job in jobs:
        try:
            if (each := _look(config, job, states[job.name], options)) is not None:
                found.append(each)
        except ReconcilerError as error:
            say(f"{job.name}: not rolled back. {error}")
            codes.append(error.exit_code)
    if rows := [each for each in found if not each.is_begun]:
        _show(rows)
        confirm(f"Give back the offsets of {counted(len(rows), 'job')}?", yes=options.yes)
    written.intend(*(_name_of(each) for each in found))
    for each in found:
        try:
            with written.writing(_name_of(each)):
                here = _give_back(config, each)
            say(f"{each.job.name}: lives on {here.cluster}, with the offsets that it had before.")
        except ReconcilerError as error:
            say(f"{each.job.name}: not rolled back. {error}")
            codes.append(error.exit_code)
    return worst(codes)


def _look(config: Config, job: Job, state: JobState, options: argparse.Namespace) -> _Job | None:
    """The job; None, after saying so, if there is nothing to give back."""
    here = state.location()
    plan = plan_to_undo(state, here)
    if here is None or plan is None:
        lives = "where it lives is not recorded" if here is None else f"it lives on {here.cluster} by no plan"
        say(f"{job.name}: nothing to give back; {lives}." if here is None or here.plan is None else _is_back(job, here))
        return None
    found = _Job(job, state, here, plan, returns(plan, config.topics.naming))
    if found.is_begun:
        return found
    _refuse_gone_on(config, found)
    if any(item.skips for item in found.returns) and arguments.SKIPS not in options.accepted:
        skips = sum(item.skips for item in found.returns)
        raise NeedsPerson(
            f"Going back skips up to {counted(skips, 'record')} that the job has not processed.",
            hint="If it has processed them, add --accept skips.",
        )
    return found


def _is_back(job: Job, here: Location) -> str:
    return f"{job.name}: nothing to give back; it lives on {here.cluster} with the offsets that were given back."


def _refuse_gone_on(config: Config, each: _Job) -> None:
    there = toward_place(config, each.job, each.here, each.here.cluster)
    with context.outside(there) as outside:
        refuse_gone_on(each.state, each.here, each.plan, there.chosen(each.job.name)[0], outside, work_of)


def _give_back(config: Config, each: _Job) -> Location:
    """The location afterwards. The job is looked at once more, since the answer may have come late."""
    mark = inputs.stamp_now("rollback")
    to = (each.here.to if each.is_begun else None) or each.plan.leaves
    back = toward_place(config, each.job, each.here, to)
    job = back.chosen(each.job.name)[0]
    if not each.is_begun:
        _refuse_gone_on(config, each)
    with context.outside(back) as outside:
        if each.is_begun:
            return finish(each.state, each.here, job, outside, mark)
        return roll_back(each.state, each.here, job, back.topics.naming, outside, mark)


def _name_of(each: _Job) -> str:
    return f'job "{each.job.name}" ({counted(len(each.returns), "offset")})'


def _show(jobs: Sequence[_Job]) -> None:
    rows = [
        (
            partition_cell(item.key),
            count_cell(item.now),
            count_cell(item.back),
            Cell(f"≤ {item.again:,}" if item.again else "0"),
            Cell(f"≤ {item.skips:,}" if item.skips else "0", "bad" if item.skips else None),
            Cell(each.job.name),
        )
        for each in jobs
        for item in each.returns
    ]
    heads = ("PARTITION", "NOW", "BACK TO", "AGAIN", "SKIPS", "JOB")
    print_table(heads, rows, right=frozenset(range(1, len(heads) - 1)))
