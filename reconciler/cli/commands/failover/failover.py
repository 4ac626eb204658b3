"""Tells the hooks of jobs that the source is lost. start marks the jobs: from then on, their hooks move them to the
destination, each at its next start. Without --job it shows all jobs of the configuration, and asks. end removes the
marks: a job that was moved stays at the destination, and one that was not starts at the source again. status shows
where each job is, and where it starts next.

The marks are files in a folder that all hooks of the jobs must read: [failover] state. None of the three stops or
starts a job, or writes to a store. To take jobs back to the source, end the failover and follow the failback.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from reconciler import written
from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import say
from reconciler.cli.terminal.prompts import confirm
from reconciler.cli.terminal.table import Cell, print_table
from reconciler.clock import clock_ms, stamp
from reconciler.config.addresses import without_secrets
from reconciler.config.file import Config, Job
from reconciler.core.errors import ExitCode, NeedsPerson, ReconcilerError, worst
from reconciler.failover.addresses import refuse_wrong
from reconciler.failover.outside import Outside
from reconciler.formats.decimal_text import counted, some
from reconciler.formats.start import Side
from reconciler.hook.marks import Mark, Marks, who
from reconciler.hook.side import Chosen, choose, refuse_without_rows
from reconciler.stores.registry import traits

EXAMPLE = "reconciler failover start -c reconciler.toml"
MOST_TOPICS = 3
HELP = Help(
    __doc__,
    [
        ("the source is lost: move all jobs of the configuration, then restart them", EXAMPLE),
        ("only one", f"{EXAMPLE} --job clicks"),
        ("in a script, without a prompt", f"{EXAMPLE} --yes"),
        ("where is each job?", "reconciler failover status -c reconciler.toml"),
        ("the failover is over", "reconciler failover end -c reconciler.toml"),
    ],
    {
        ExitCode.OK: "done; or every job's side is shown",
        ExitCode.USAGE: "",
        ExitCode.NEEDS_PERSON: "end, status: a job's offsets do not tell on which side it is to start, or it has none",
        ExitCode.UNREACHABLE: "a store, the destination or the marks could not be reached, or refused; end leaves that "
        "job marked",
        ExitCode.UNKNOWN_OUTCOME: "it is unknown whether a mark was written: run it again",
    },
    environment=CONFIG_ENVIRONMENT,
    see_also=("reconciler hook", "docs/how-to/failover.md", "docs/how-to/failback.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(dest="way", metavar="start|end|status", required=True)
    for name, summary in (
        ("start", "from now on, the jobs' hooks move them to the destination"),
        ("end", "the jobs' hooks leave each job where it is"),
        ("status", "where each job is, and where it starts next"),
    ):
        way = ways.add_parser(name, help=summary, description=summary)
        arguments.add_config(way)
        arguments.add_jobs(way)
        if name == "start":
            arguments.add_yes(way)


def run(options: argparse.Namespace) -> ExitCode:
    config = context.read_config(options)
    jobs = config.chosen(*options.job)
    marks = Marks(config)
    if options.way != "start":
        refuse_wrong(config, jobs)
    if options.way == "status":
        return _status(config, jobs, marks)
    if options.way == "start" and not options.job and not options.yes:
        _confirm(jobs)
    return _start(jobs, marks) if options.way == "start" else _end(config, jobs, marks)


def _confirm(jobs: Sequence[Job]) -> None:
    """Show the jobs, and ask. Raises ConfigError where nobody can answer, or the answer is no."""
    for job in jobs:
        topics, store = some(job.topics, MOST_TOPICS), without_secrets(job.store)
        say(f"{job.name}: topics {topics}; group {job.group} in {store}")
    confirm(f"Move {counted(len(jobs), 'job')} to the destination, each at its next start?", yes=False)


def _start(jobs: Sequence[Job], marks: Marks) -> ExitCode:
    codes = [ExitCode.OK]
    written.intend(*map(_name_of, jobs))
    for job in jobs:
        try:
            with written.writing(_name_of(job)):
                is_new = marks.set(job.name, Mark(stamp(clock_ms()), who()))
            if is_new:
                say(f"{job.name}: moves to the destination at its next start")
            elif mark := marks.of(job.name):
                say(f"{job.name}: marked already, by {mark.by} at {mark.since}")
        except ReconcilerError as error:
            say(f"{job.name}: not marked. {error}")
            codes.append(error.exit_code)
    if len(codes) <= len(jobs):
        say(f"Restart the jobs that move. Their hooks must read {marks.place}.")
    return worst(codes)


def _name_of(job: Job) -> str:
    return f'the mark of job "{job.name}"'


def _end(config: Config, jobs: Sequence[Job], marks: Marks) -> ExitCode:
    with context.outside(config) as outside:
        ended = [_end_one(job, _side(config, job, outside), marks) for job in jobs]
    if any(each.is_moved for each in ended):
        say("To take jobs back to the source: docs/how-to/failback.md")
    return worst([ExitCode.OK, *(each.exit_code for each in ended)])


@dataclass(frozen=True, slots=True)
class _Ended:
    """The end of one job's failover, and whether the job stays at the destination."""

    exit_code: ExitCode
    is_moved: bool = False


def _end_one(job: Job, found: Chosen | ReconcilerError, marks: Marks) -> _Ended:
    """Remove the job's mark and say where the job starts from now on. The mark stays if its rows could not be read."""
    code = ExitCode.OK if isinstance(found, Chosen) else found.exit_code
    if not isinstance(found, Chosen | NeedsPerson):
        say(f"{job.name}: not ended. {found}")
        return _Ended(code)
    try:
        was_marked = marks.remove(job.name)
    except ReconcilerError as error:
        say(f"{job.name}: not ended. {error}")
        return _Ended(worst([code, error.exit_code]))
    done = "ended" if was_marked else f"had no mark in {marks.place}"
    if isinstance(found, NeedsPerson):
        say(f"{job.name}: {done}. {found}")
        return _Ended(code)
    if found.side is Side.DESTINATION:
        say(f"{job.name}: {done}; it stays at the destination: {found.why}")
        return _Ended(code, is_moved=True)
    say(f"{job.name}: {done}; it starts at the source: {_why(job, found)}")
    return _Ended(code)


def _status(config: Config, jobs: Sequence[Job], marks: Marks) -> ExitCode:
    rows, codes = [], [ExitCode.OK]
    with context.outside(config) as outside:
        for job in jobs:
            found = _side(config, job, outside)
            lives, why = (_lives(job, found), _why(job, found)) if isinstance(found, Chosen) else ("?", str(found))
            codes.append(ExitCode.OK if isinstance(found, Chosen) else found.exit_code)
            try:
                mark = marks.of(job.name)
                since = f"since {mark.since} by {mark.by}" if mark else "-"
                starts = Side.DESTINATION.value if mark else lives
            except ReconcilerError as error:
                since, starts, why = "?", "?", str(error)
                codes.append(error.exit_code)
            rows.append([Cell(text) for text in (job.name, lives, starts, since, why)])
    print_table(("JOB", "IS AT", "NEXT START AT", "FAILOVER", "WHY"), rows, right=frozenset())
    return worst(codes)


def _side(config: Config, job: Job, outside: Outside) -> Chosen | ReconcilerError:
    """Where the job's rows say that it is, or why they do not: its hook does not start it then."""
    try:
        found = choose(config, job, outside, word=None, mark=None)
        if found.held is not None and job.new is None:
            refuse_without_rows(config, job, found.held)
        return found
    except ReconcilerError as error:
        return error


def _lives(job: Job, found: Chosen) -> str:
    """Where the job is, as far as that is known: it may run at the destination, on a copy that only its hook names."""
    return f"{found.side.value}, or in a copy" if _may_have_copy(job, found) else found.side.value


def _why(job: Job, found: Chosen) -> str:
    if _may_have_copy(job, found):
        return f"{found.why}, unless its hook has made the copy that --clone-to names"
    return found.why


def _may_have_copy(job: Job, found: Chosen) -> bool:
    return found.side is Side.SOURCE and traits(job.store).corrected_in_copy
