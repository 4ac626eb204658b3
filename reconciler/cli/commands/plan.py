"""Does what check does, and keeps the result as a file: to review, to sign, to apply later. The file lists every
partition with its finding, its evidence and the offset to resume at. It holds no payloads and no secrets. It cannot
be applied after it has expired, or if it was altered, or if the store or the destination has changed. A job that
cannot be judged is listed with the cause, and apply leaves it alone; the exit code is then the worst of all jobs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli import arguments, context
from reconciler.cli.page.advice import Files, apply_command, job_commands
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import say, show, wrap
from reconciler.cli.terminal.report import not_judged_text, plan_text
from reconciler.core.errors import ConfigError, ExitCode, worst
from reconciler.core.text import counted
from reconciler.failover.check import Checked
from reconciler.failover.corrections import begin_anew, new_checkpoint_warning, outcome
from reconciler.fileio import LARGEST_FILE, FileKind, making, refuse_unwritable, write_whole
from reconciler.plan import signing
from reconciler.plan.document import FORMAT, Plan

if TYPE_CHECKING:
    from reconciler.plan.ed25519 import PrivateKey

PLAN = FileKind.of_json("a plan", FORMAT)
"""The only kind of file that a new plan replaces."""
EXAMPLE = "reconciler plan -c reconciler.toml -o failover.plan.json"
HELP = Help(
    __doc__,
    [
        ("all jobs", EXAMPLE),
        ("one job, with a partition set by hand", f"{EXAMPLE} --job clicks --set a.events:3=1200"),
    ],
    {
        ExitCode.OK: "every job may start, corrected or not; the plan was written",
        ExitCode.USAGE: "",
        ExitCode.NEEDS_PERSON: "a partition needs a decision; the plan was written, and apply refuses that job",
        ExitCode.CHANGED: "a topic was recreated during the check",
        ExitCode.UNREACHABLE: "a cluster or store could not be reached, or refused; the plan has the other jobs",
    },
    environment=CONFIG_ENVIRONMENT,
    files={"PLAN": "the plan, readable by its owner only; an applied plan is not overwritten"},
    see_also=("reconciler show", "reconciler apply", "docs/how-to/move-jobs.md"),
)
MOST_ROWS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    arguments.add_to(parser)
    arguments.add_jobs(parser)
    arguments.add_decisions(parser)
    arguments.add_engine(parser)
    parser.add_argument("--sign", metavar="KEY", type=Path, help="sign the plan with this private key (Ed25519, PEM)")
    parser.add_argument("-o", "--output", metavar="PLAN", required=True, type=Path, help="the plan's file")


def run(options: argparse.Namespace) -> ExitCode:
    config = context.read_located(options)
    by_hand = arguments.decisions(options)
    refuse_unwritable(options.output, replaces=PLAN, stdout="check --format json prints a plan.")
    key = context.private_key(options.sign) if options.sign else None
    checked = context.check_jobs(config, options, by_hand)
    policy = config.policy.start
    code = worst(error.exit_code for error in checked.failed.values())
    if not checked.plan.jobs and checked.failed:
        show(plan_text(checked.plan, policy))
        show(wrap("", f"{not_judged_text(checked.plan)} Fix what is named above. No plan was written."))
        return code
    plan = checked.shown(policy)
    _write(plan, options.output, key)
    show(plan_text(plan, policy, most=MOST_ROWS))
    if checked.stopped(policy):
        say("", f"Do not start: {checked.why_not} (apply refuses its job).", f"Plan: {options.output}")
        code = worst([code, ExitCode.NEEDS_PERSON])
    else:
        # The command is not folded, however long its paths: it is meant to be copied.
        say("", f"{outcome(checked.plan)}.")
        if anew := begin_anew(config, plan.jobs, (name for name, _ in checked.to_write)):
            say(new_checkpoint_warning(anew, options.output, options.config))
        say(*steps_after(checked, Files(str(options.output), str(options.config))))
    if checked.failed:
        then = "Apply leaves what was not judged alone: fix what is named above, then make another plan, with --job."
        show(wrap(f"{not_judged_text(checked.plan)} {then}"))
    return code


def _write(plan: Plan, path: Path, key: PrivateKey | None) -> None:
    """Remove the signature of the file's previous plan before writing the new one."""
    with making(path):
        signing.path_for(path).unlink(missing_ok=True)
    write_whole(path, _readable(plan.texts()))
    if key is not None:
        signing.sign(path, plan.to_text().encode(), plan.sha256, key)


def _readable(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces of a plan's text. Raises ConfigError for a plan that is too large for the commands that read it."""
    size = 0
    for piece in pieces:
        size += len(piece.encode())
        if size > LARGEST_FILE:
            raise ConfigError(
                f"The plan has more than {LARGEST_FILE >> 20} MiB, and no command would read it.",
                hint="Plan fewer jobs at a time: name them with --job.",
            )
        yield piece


def steps_after(checked: Checked, files: Files) -> list[str]:
    """The commands that write what the plan would: ``apply``, and one for each job that needs its own.

    ``apply`` also gives rows that are right the destination's anchor, where range batches need it.
    """
    names = {name for name, _ in checked.to_write}
    steps = job_commands([job for job in checked.plan.jobs if job.name in names], files)
    lines = [f"{'Next' if number == 0 else 'Also'}: {step}" for number, step in enumerate(steps)]
    apply = apply_command(files)
    if checked.to_reanchor and apply not in steps:
        rows = counted(len(checked.to_reanchor), "row")
        which = "Also, range" if steps else "Nothing to correct. Range"
        lines += [f"{which} batches need {rows} with the destination's anchor too, which apply writes:", apply]
    return lines or ["Nothing to apply: every offset is right where the job will look."]
