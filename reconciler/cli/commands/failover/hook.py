"""Runs before a job's command at every start, on either cluster, and replaces itself with the command, which finds
in its environment which cluster it reads, and from which offsets.

Where the job lives is recorded in the state store. One that was never moved starts with its own stored offsets, and
nothing is contacted for it. One that was moved is checked against the cluster where it lives, and offsets that need it
are corrected. One that is moving (reconciler move --to) is checked against the cluster that it moves to; its offsets
are written there, and it lives there from then on. If a partition needs a decision, the command is not run. So the hook
is safe before every start, and it never moves a job by itself.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

from reconciler import written
from reconciler.cli import arguments, context
from reconciler.cli.terminal.encoding import is_read
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import can_rewrite, show, show_text, wants_colour, width
from reconciler.cli.terminal.progress import WaitDisplay
from reconciler.config.file import Cluster, Config, Job
from reconciler.core.errors import ConfigError, ExitCode, NeedsPerson
from reconciler.core.verdicts import Verdict
from reconciler.core.visible import command
from reconciler.failover.addresses import refuse_wrong
from reconciler.failover.check import Checked
from reconciler.failover.outside import ByHand, Outside
from reconciler.formats.plan import Plan, StartPolicy
from reconciler.hook import environment as hook_environment
from reconciler.hook import figures as hook_figures
from reconciler.hook.running import refuse_running
from reconciler.hook.start import Start
from reconciler.hook.waiting import check_or_wait
from reconciler.hook.where import Held, Place, Side, held_by, place_of, refuse_known
from reconciler.ports import OffsetStore
from reconciler.state.jobs import JobState
from reconciler.state.locations import Phase, first
from reconciler.state.start import (
    CHECKPOINT_VARIABLE,
    DIGEST_VARIABLE,
    OFFSETS_VARIABLE,
    PLAN_VARIABLE,
    START_VARIABLE,
)
from reconciler.stores.registry import traits

EXAMPLE = "reconciler hook -c reconciler.toml --job clicks --wait 300 -- spark-submit clicks.py"
HELP = Help(
    __doc__,
    [
        ("before every start; during a move, wait up to five minutes for a mirror that is behind", EXAMPLE),
        (
            "do all this without a command, and print the variables that it would get",
            "reconciler hook -c reconciler.toml --job clicks",
        ),
    ],
    {
        ExitCode.OK: "the job may start (with a command: the command's own exit code)",
        ExitCode.USAGE: "usage or configuration, or the command cannot be run: it was not run",
        ExitCode.NEEDS_PERSON: "a partition needs a decision, the plan needs a signature, or it is not recorded where "
        "the job lives: the command was not run",
        ExitCode.CHANGED: "the store or the destination changed meanwhile, or the job's group has live members: the "
        "command was not run",
        ExitCode.UNREACHABLE: "a cluster, a store or the state store could not be reached, or refused: the "
        "command was not run",
        ExitCode.UNKNOWN_OUTCOME: "a write's outcome is unknown or partial: the command was not run; start it again",
    },
    environment={
        **CONFIG_ENVIRONMENT,
        "RECONCILER_PLANS": "the folder for plans, if there is no --plans",
        "XDG_STATE_HOME": "else plans go to its folder reconciler/plans (default: ~/.local/state)",
    },
    see_also=("reconciler move", "docs/how-to/hand-off.md", "deploy/README.md"),
)
START_VARIABLES = frozenset({PLAN_VARIABLE, OFFSETS_VARIABLE, START_VARIABLE, DIGEST_VARIABLE, CHECKPOINT_VARIABLE})
"""Removed from the environment first, so that nothing of an earlier start is inherited."""
MOST_ROWS = 20
LONGEST_WAIT_S = 7 * 86_400
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores them from its start, and a command would inherit that (``subprocess``'s restore_signals)."""

log = logging.getLogger("reconciler.hook")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    arguments.add_one_job(parser)
    arguments.add_decisions(parser)
    parser.add_argument(
        "--wait",
        metavar="SECONDS",
        type=float,
        default=0.0,
        help="wait at most this long for a mirror that is behind (default: 0)",
    )
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        help="start the job only on this cluster: for a command that does not take its cluster from the hook",
    )
    parser.add_argument(
        "--env-file",
        metavar="FILE",
        type=Path,
        help="also write the command's variables to FILE, as NAME=value lines for systemd's EnvironmentFile= or a "
        "shell; removed first, so it exists only if the job may start, unless the command line is wrong",
    )
    parser.add_argument(
        "--plans",
        metavar="DIR",
        type=Path,
        help="the folder for plans (default: $RECONCILER_PLANS, or reconciler/plans in the XDG state folder)",
    )
    parser.add_argument("command", metavar="-- COMMAND", nargs="*", help="the job's command")


def run(options: argparse.Namespace) -> ExitCode:
    try:
        config = context.read_config(options)
        job = context.one_job(config, options.job)
    except BaseException:
        hook_environment.forget(options.env_file)
        raise
    with hook_figures.record_run(config.metrics, job) as figures:
        hook_environment.forget(options.env_file)
        if not 0 <= options.wait <= LONGEST_WAIT_S:
            raise ConfigError(f"--wait {options.wait:g} is not a number of seconds from 0 to a week.")
        program = _program(options.command)
        by_hand = arguments.decisions(options)
        state = context.job_state(config, job)
        start = _start_of(config, job, state, options)
        if start.is_begun:
            _finish(start)
            start = _start_of(config, job, state, options)
        figures.goes(start.place)
        with context.outside(start.config) as outside:
            if start.place.side is Side.SOURCE:
                variables = _as_stored(start, outside, by_hand, options)
            else:
                refuse_wrong(start.config, [start.job], sinks=True)
                _refuse_running(start)
                checked = _check_or_wait(start, outside, by_hand, options)
                figures.saw(checked, config.policy.start)
                written.check()
                variables = start.correct(checked, outside, partial(_show, config.policy.start, options))
        written.check()
        hook_environment.hand_over(options.env_file, variables)
    if program is None:
        show_text(hook_environment.lines(variables))
        if options.env_file is None and not is_read(sys.stdout):
            hook_figures.deliver(config.metrics, figures, ExitCode.USAGE)
            raise ConfigError(
                f'The variables of job "{job.name}" were not read: the program that reads this output has ended.',
                hint="Do not start the job without them. Run this again; or give it --env-file, or the job's command "
                "behind --.",
            )
        return ExitCode.OK
    try:
        _become(program, options.command, variables)
    except OSError as error:
        hook_environment.forget(options.env_file)
        hook_figures.deliver(config.metrics, figures, ExitCode.USAGE)
        raise ConfigError(f"{program} cannot be run: {error.strerror}.") from error


def _start_of(config: Config, job: Job, state: JobState, options: argparse.Namespace) -> Start:
    location = state.location()
    stays = location is None or (location.phase is Phase.LIVES and location.plan is None)
    reads = (job.home if location is None else location.cluster) if stays else None
    config = context.with_topics(config, [job], {job.name: location}, reads)
    job = config.chosen(job.name)[0]
    place = place_of(config, job, location, context.plans_of(config, [job], {job.name: location}).get(job.name))
    _refuse_elsewhere(place, options.cluster)
    mark = context.stamp_now("hook")
    return Start.of(place, job, state, plans=options.plans, config_file=options.config, stamp=mark)


def _finish(start: Start) -> None:
    """Write what an earlier run of a hook, or of ``apply``, was killed at."""
    refuse_wrong(start.config, [start.job], sinks=True)
    _refuse_running(start)
    with context.outside(start.config) as outside:
        start.finish(outside)


def _refuse_elsewhere(place: Place, cluster: str | None) -> None:
    """Raise NeedsPerson if the job does not start on the cluster that its command reads."""
    if cluster is not None:
        place.config.toward(cluster)  # raises for a cluster that is none
        if place.cluster != cluster:
            move = command("reconciler", "move", "--to", cluster, "--job", place.job.name)
            raise NeedsPerson(
                f'Job "{place.job.name}" starts on {place.cluster}, and its command reads {cluster}: {place.why}.',
                hint=f"Let the command read {place.cluster}; or move the job: {move}",
            )


def _as_stored(start: Start, outside: Outside, by_hand: ByHand, options: argparse.Namespace) -> dict[str, str]:
    """The variables of a start at the job's own offsets: there is nothing to decide but that the job is new."""
    place = start.place
    if by_hand != ByHand(accepted=by_hand.accepted & {Verdict.NEW}):
        raise ConfigError(
            f'Job "{start.job.name}" starts on {place.cluster} ({place.why}), and decisions are about moves.',
            hint="Leave --set, --set-time and --accept out; or move the job first: reconciler move --to CLUSTER.",
        )
    _refuse_running(start)  # before its group's offsets are read: whoever leaves may commit until then
    held = _held(start, outside)
    if place.location is None:
        refuse_known(start.job, held, options.config)
    variables = start.as_stored(held, outside, may_be_new=Verdict.NEW in by_hand.accepted)
    if place.location is None:
        start.state.move_on(None, first(start.job.home, start.stamp))
    log.info('job "%s" starts on %s, at its own offsets: %s', start.job.name, place.cluster, place.why)
    return variables


def _held(start: Start, outside: Outside) -> Held:
    """The job's rows: a group's are those of the cluster where it lives."""
    config = start.config
    if traits(start.job.store).holds_commits and config.source is not None:
        return held_by(config, start.job, partial(_store_on, config, config.source))
    return held_by(config, start.job, outside.open_store)


def _refuse_running(start: Start) -> None:
    """Raise Changed for a job whose group has live members where it is to start."""
    store_on = partial(_store_on, start.config)
    refuse_running(start.config, start.job, start.place.side, store_on, monotonic=time.monotonic, pause=time.sleep)


def _store_on(config: Config, cluster: Cluster, address: str) -> OffsetStore:
    return context.stores(config, cluster.client)(address)


def _program(command: list[str]) -> str | None:
    """The command's executable. A command that cannot start must fail before anything is corrected."""
    if not command:
        return None
    found = shutil.which(command[0])
    if found is None:
        raise ConfigError(f"The command {command[0]} was not found or cannot be run.", hint="Nothing was checked.")
    return found


def _check_or_wait(start: Start, outside: Outside, by_hand: ByHand, options: argparse.Namespace) -> Checked:
    """Check until the mirror has caught up or the time is up. Nothing is written before that."""
    display = WaitDisplay(terminal=options.log_format == "text" and can_rewrite())
    try:
        return check_or_wait(start.config, start.job, outside, by_hand, options.wait, pause=time.sleep, tell=display)
    finally:
        display.clear()


def _show(policy: StartPolicy, options: argparse.Namespace, plan: Plan) -> None:
    """Print the plan on stderr: stdout belongs to the command, or to its variables."""
    # A job that is right shows no plan, and needs none of this.
    from reconciler.cli.terminal.report import plan_text, stop_sentences, stopping_sink_sentences

    if options.log_format == "json":  # nothing but lines of JSON: why the job stops; the plan has the rest
        for job in plan.jobs:
            for sentence in (*stop_sentences(job.partitions, policy), *stopping_sink_sentences(job.sinks)):
                log.error("%s", sentence)
        return
    show(
        plan_text(plan, policy, columns=width(sys.stderr), colour=wants_colour(sys.stderr), most=MOST_ROWS),
        stream=sys.stderr,
    )


def _become(program: str, words: list[str], names: Mapping[str, str]) -> NoReturn:
    """Replace this process with the command. Raises OSError if the system does not run it."""
    others = {name: value for name, value in os.environ.items() if name not in START_VARIABLES}
    sys.stdout.flush()
    sys.stderr.flush()
    before = {number: signal.signal(number, signal.SIG_DFL) for number in IGNORED_BY_PYTHON}
    try:
        os.execve(program, words, {**others, **names})
    finally:  # this process goes on, and a reader that is gone must not kill it
        for number, handler in before.items():
            signal.signal(number, handler)
