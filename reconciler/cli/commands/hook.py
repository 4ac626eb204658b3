"""Runs before a job's command at every start, on either cluster, and replaces itself with the command. The command
finds in its environment which cluster it reads, and from which offsets.

The state store records where the job lives. A job that was never moved starts with its own stored offsets, and no
cluster is contacted. A job that was moved is checked where it lives, and wrong offsets are corrected. A job that is
moving (reconciler move --to) is checked on the cluster that it moves to; its offsets are written there, and it lives
there from then on. If a partition needs a decision, the command is not run. The hook moves no job by itself.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NoReturn

from reconciler import written
from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import can_rewrite, is_read, show, show_text, wants_colour, width
from reconciler.cli.terminal.progress import WaitDisplay
from reconciler.config.file import Config, Job
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.jobs.hook import figures as hook_figures
from reconciler.jobs.hook import kept
from reconciler.jobs.hook.figures import HookRun
from reconciler.jobs.hook.starting import Request, begin, refuse_wait
from reconciler.plan.document import Plan, StartPolicy
from reconciler.state.start import (
    CHECKPOINT_VARIABLE,
    DIGEST_VARIABLE,
    OFFSETS_VARIABLE,
    PLAN_VARIABLE,
    START_VARIABLE,
)

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
    see_also=("reconciler move", "docs/how-to/hook.md", "deploy/README.md"),
)
START_VARIABLES = frozenset({PLAN_VARIABLE, OFFSETS_VARIABLE, START_VARIABLE, DIGEST_VARIABLE, CHECKPOINT_VARIABLE})
"""Removed from the environment first, so that nothing of an earlier start is inherited."""
MOST_ROWS = 20
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores them from its start, and a command would inherit that (``subprocess``'s restore_signals)."""

log = logging.getLogger("reconciler.jobs.hook")


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
        kept.forget(options.env_file)
        raise
    with hook_figures.record_run(config.metrics, job) as figures:
        kept.forget(options.env_file)
        refuse_wait("--wait", options.wait)
        program = _program(options.command)
        request = Request("hook", arguments.decisions(options), options.wait, options.cluster, options.plans)
        variables = _begin(config, job, request, figures, options)
        written.check()
        kept.hand_over(options.env_file, variables)
    if program is None:
        show_text(kept.lines(variables))
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
        kept.forget(options.env_file)
        hook_figures.deliver(config.metrics, figures, ExitCode.USAGE)
        raise ConfigError(f"{program} cannot be run: {error.strerror}.") from error


def _begin(config: Config, job: Job, request: Request, figures: HookRun, options: argparse.Namespace) -> dict[str, str]:
    show = partial(_show, config.policy.start, options)
    display = WaitDisplay(terminal=options.log_format == "text" and can_rewrite())
    try:
        return begin(config, job, request, figures, outside=context.outside, show=show, tell=display)
    finally:
        display.clear()


def _program(command: list[str]) -> str | None:
    """The command's executable. A command that cannot start must fail before anything is corrected."""
    if not command:
        return None
    found = shutil.which(command[0])
    if found is None:
        raise ConfigError(f"The command {command[0]} was not found or cannot be run.", hint="Nothing was checked.")
    return found


def _show(policy: StartPolicy, options: argparse.Namespace, plan: Plan) -> None:
    """Print the plan on stderr: stdout belongs to the command, or to its variables."""
    # Imported here: a job whose offsets are right shows no plan.
    from reconciler.cli.terminal.report import plan_text
    from reconciler.plan.start import stop_sentences, stopping_sink_sentences

    if options.log_format == "json":  # only lines of JSON: why the job stops
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
    finally:  # this process continues, and a reader that is gone must not kill it
        for number, handler in before.items():
            signal.signal(number, handler)
