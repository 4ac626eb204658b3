"""Moves jobs to another cluster: checks all of them there, shows one line a job, asks, and records which may go. Each
job's hook then moves it at its next start. A job that must not start there is not moved: decide with --set or --accept,
and give its hook the same once. The way back is the same command. --cancel takes back a move that has not ended, and
puts back offsets that are written already.

For jobs that ran before this product was installed, --to HOME records once that they live at home, and shows whether
their offsets hold there.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reconciler import written
from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import confirm, say, show
from reconciler.cli.terminal.report import plan_text, starts_text, why_job_stops
from reconciler.clock import stamp
from reconciler.config.file import Config, Job
from reconciler.core.errors import ExitCode, ReconcilerError, worst
from reconciler.core.text import command, counted
from reconciler.failover import inputs
from reconciler.failover.apart import check_each
from reconciler.failover.check import Checked
from reconciler.failover.inputs import refuse_wrong
from reconciler.failover.whereabouts import located, toward_place
from reconciler.failover.writing.moves import cancel, finish
from reconciler.plan.start import accepting
from reconciler.state import locations, moving
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location, Phase
from reconciler.state.moving import Place

EXAMPLE = "reconciler move -c reconciler.toml --to b"
HELP = Help(
    __doc__,
    [
        ("cluster a is lost: move all jobs to b, then restart them", EXAMPLE),
        ("only one, in a script", f"{EXAMPLE} --job clicks --yes"),
        ("a job whose unread records are gone from b", f"{EXAMPLE} --job clicks --accept lost"),
        ("take back a move that has not ended", "reconciler move -c reconciler.toml --cancel"),
        ("move back, once a is up again", "reconciler move -c reconciler.toml --to a"),
    ],
    {
        ExitCode.OK: "all chosen jobs move; with --cancel: none does",
        ExitCode.USAGE: "",
        ExitCode.NEEDS_PERSON: "a job must not start there, or its offsets are being written: it stays where it was",
        ExitCode.CHANGED: "somebody else moved a job meanwhile",
        ExitCode.UNREACHABLE: "a cluster or a store could not be reached, or refused: nothing was recorded",
        ExitCode.UNKNOWN_OUTCOME: "it is unknown whether a location was recorded: run it again",
    },
    environment=CONFIG_ENVIRONMENT,
    see_also=("reconciler status", "reconciler hook", "docs/how-to/move-jobs.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--to", metavar="CLUSTER", help="the cluster that the jobs move to")
    way.add_argument("--cancel", action="store_true", help="the jobs stay where they live")
    arguments.add_jobs(parser)
    arguments.add_decisions(parser)
    arguments.add_yes(parser)
    parser.add_argument("--details", action="store_true", help="show the partitions, too")


@dataclass(frozen=True, slots=True)
class _Found:
    """A job's line, its exit code, and whether it moves."""

    job: Job
    line: str
    code: ExitCode = ExitCode.OK
    goes: bool = False
    judged: bool = False
    accept: Sequence[str] = ()
    """The words of --accept with which the job may start."""


def run(options: argparse.Namespace) -> ExitCode:
    config = context.read_config(options)
    jobs = config.chosen(*options.job)
    states = inputs.job_states(config, jobs)
    now = {name: state.location() for name, state in states.items()}
    if options.cancel:
        return _cancel(config, jobs, states, now)
    found = _look(config, jobs, now, options)
    for each in found:
        say(f"{each.job.name}: {each.line}")
    going = [each.job for each in found if each.goes]
    codes = [each.code for each in found]
    _say_decisions([each for each in found if each.code is ExitCode.NEEDS_PERSON and each.judged], options)
    if going:
        confirm(f"{counted(len(going), 'job')} to {options.to}?", yes=options.yes)
        codes.append(_record(going, states, now, options))
    return worst([ExitCode.OK, *codes])


# ---------------------------------------------------------------- to a cluster


def _say_decisions(stopped: Sequence[_Found], options: argparse.Namespace) -> None:
    """How to look at what must be decided, of the first job that stopped; and all words that accept it."""
    if not stopped:
        return
    words = ("-c", options.config, "--to", options.to, "--job", stopped[0].job.name)
    look = command("reconciler", "plan", *words)
    say(f"What to decide: {look}. Then move the job with the same --set or --accept.")
    if accept := [word for finding in stopped[0].accept for word in ("--accept", finding)]:
        say(f"To accept what was found: {command('reconciler', 'move', *words, *accept)}")


def _look(
    config: Config, jobs: Sequence[Job], now: Mapping[str, Location | None], options: argparse.Namespace
) -> list[_Found]:
    config.toward(options.to)  # raises for an unknown cluster
    waiting = {job.name: found for job in jobs if (found := _on_the_way(job, now[job.name], options)) is not None}
    left = [job for job in jobs if job.name not in waiting]
    if not left:
        return list(waiting.values())
    config = inputs.with_topics(config, left, now, options.to)
    left = list(config.chosen(*(job.name for job in left)))
    there = located(config, left, now, options.to, inputs.plans_of(config, left, now))
    asked = there.chosen(*(job.name for job in left))
    refuse_wrong(there, asked, sinks=True)
    with context.outside(there) as outside:
        checked = check_each(there, asked, outside, arguments.decisions(options))
    if options.details:
        show(plan_text(checked.shown(there.policy.start), there.policy.start))
    return [waiting.get(job.name) or _judged(job, now[job.name], checked, there, options.to) for job in jobs]


def _on_the_way(job: Job, here: Location | None, options: argparse.Namespace) -> _Found | None:
    """The line of a job that is moving already; None for another job."""
    if here is None or here.phase is Phase.LIVES:
        return None
    since = f"by {here.by} since {stamp(here.at_ms)}"
    cancel = command("reconciler", "move", "-c", options.config, "--cancel", "--job", job.name)
    if here.phase is Phase.WRITING:
        line = (
            f"its offsets are being written for {here.to}: start its hook, which finishes that; or cancel it: {cancel}"
        )
        return _Found(job, line, ExitCode.NEEDS_PERSON)
    if here.to == options.to:
        return _Found(job, f"is moving to {here.to} already, {since}")
    line = f"is moving to {here.to}, {since}: cancel that first ({cancel})"
    return _Found(job, line, ExitCode.NEEDS_PERSON)


def _judged(job: Job, here: Location | None, checked: Checked, config: Config, to: str) -> _Found:
    if job.name in checked.failed:
        error = checked.failed[job.name]
        return _Found(job, f"not checked. {error}", error.exit_code)
    plan = next(checked.decided(each) for each in checked.plan.jobs if each.name == job.name)
    at_home = here is None and to == job.home
    why = why_job_stops(plan, config.policy.start, waits=True)
    if why is not None:
        accept = accepting(plan, config.policy.start)
        return _Found(job, f"must not start on {to}: {why}", ExitCode.NEEDS_PERSON, judged=True, accept=accept)
    starts = starts_text(plan, config.policy.start)
    bare = [row for row in plan.partitions if row.stored_offset and row.anchor is not None and row.anchor.is_bare]
    if bare and (at_home or (here is not None and here.cluster == to)):
        starts = f"starts as stored; {counted(len(bare), 'offset')} without an anchor not checked"
    if at_home:
        return _Found(job, f"lives on {to}, its home, from now on: {starts}", goes=True)
    to_correct = any(name == job.name for name, _ in checked.to_write)
    if here is not None and here.cluster == to and not to_correct:
        return _Found(job, f"lives on {to} already, and {starts}")
    return _Found(job, starts, goes=True)


def _record(
    going: Sequence[Job],
    states: Mapping[str, JobState],
    now: Mapping[str, Location | None],
    options: argparse.Namespace,
) -> ExitCode:
    codes = [ExitCode.OK]
    written.intend(*map(_name_of, going))
    for job in going:
        try:
            with written.writing(_name_of(job)):
                _record_one(job, states[job.name], now[job.name], options.to)
        except ReconcilerError as error:
            say(f"{job.name}: not recorded. {error}")
            codes.append(error.exit_code)
    leaving = [job for job in going if now[job.name] is not None or job.home != options.to]
    if leaving and len(codes) <= len(going):
        say(f"Restart the jobs that move: each hook moves its job at its next start{_decided(options)}.")
    return worst(codes)


def _decided(options: argparse.Namespace) -> str:
    """The half sentence on the decisions that the hooks need, too: they judge again."""
    decided = options.offsets or options.set_time is not None or options.accepted
    return ", and needs the same --set, --set-time and --accept there" if decided else ""


def _record_one(job: Job, state: JobState, here: Location | None, to: str) -> None:
    mark = inputs.stamp_now("move")
    if here is None:
        here = state.move_on(None, locations.first(job.home, mark))
        if to == job.home:
            return
    state.move_on(here, locations.moving(here, to, mark))


def _name_of(job: Job) -> str:
    return f'the location of job "{job.name}"'


# ---------------------------------------------------------------- taken back


def _cancel(
    config: Config, jobs: Sequence[Job], states: Mapping[str, JobState], now: Mapping[str, Location | None]
) -> ExitCode:
    codes = [ExitCode.OK]
    for job in jobs:
        here = now[job.name]
        try:
            if here is None or here.phase is Phase.LIVES:
                lives = "where it lives is not recorded" if here is None else f"it lives on {here.cluster}"
                say(f"{job.name}: is not moving; {lives}")
            else:
                here = _cancel_one(config, job, states[job.name], here)
                say(f"{job.name}: lives on {here.cluster}, as before")
        except ReconcilerError as error:
            say(f"{job.name}: not cancelled. {error}")
            codes.append(error.exit_code)
    return worst(codes)


def _cancel_one(config: Config, job: Job, state: JobState, here: Location) -> Location:
    mark = inputs.stamp_now("move --cancel")
    if here.phase is Phase.MOVING:
        with written.writing(_name_of(job)):
            return moving.cancel(state, here, {}, _no_place, mark)
    back = toward_place(config, job, here, here.cluster)
    placed = back.chosen(job.name)[0]
    with context.outside(back) as outside:
        if here.to == here.cluster and state.plan(here.plan or 0).leaves != here.cluster:
            return finish(state, here, placed, outside, mark)  # an earlier --cancel that was killed
        return cancel(state, here, placed, back.topics.naming, outside, mark)


def _no_place(_: str) -> Place:
    raise AssertionError("a move that has not begun to write has no place to give back to")
