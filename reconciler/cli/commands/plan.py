"""Shows what would happen if the jobs started on the destination now: for every partition the finding, the stored
offset, the offset to resume at, the number of records that would be read again, and the evidence. It reads only the
destination and the jobs' stores. A job that cannot be judged is listed with the cause, beside the others; the exit
code is then the worst of all jobs. Run it before a failover as often as you like.

With -o it keeps the result as a file: to review, to sign, to apply later. The file holds no payloads and no secrets. It
cannot be applied after it has expired, or if it was altered, or if the store or the destination has changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli import arguments, context
from reconciler.cli.page.advice import Files, apply_command
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import listed, say, show, show_json_text, wrap
from reconciler.cli.terminal.report import FINDINGS, plan_text, why_job_stops
from reconciler.config.file import Config
from reconciler.core.errors import ConfigError, ExitCode, worst
from reconciler.core.text import command, counted
from reconciler.failover.check import Checked
from reconciler.failover.outside import ByHand
from reconciler.fileio import LARGEST_FILE, FileKind, making, refuse_unwritable, write_whole
from reconciler.plan import signing
from reconciler.plan.costs import outcome
from reconciler.plan.document import FORMAT, Plan, StartPolicy

if TYPE_CHECKING:
    pass

PLAN = FileKind.of_json("a plan", FORMAT)
"""The only kind of file that a new plan replaces."""
EXAMPLE = "reconciler plan -c reconciler.toml"
KEPT = f"{EXAMPLE} -o failover.plan.json"
ONE = f"{EXAMPLE} --job clicks"
HELP = Help(
    __doc__,
    [
        ("every job of the configuration", EXAMPLE),
        ("one job, as JSON", f"{ONE} --format json"),
        ("the result with a mirror's shortfall accepted", f"{ONE} --accept behind"),
        ("the result with all partitions at a time of your choice", f"{ONE} --set-time 2026-01-31T06:00:00Z"),
        ("to keep it as a file", KEPT),
        ("one job in a file, with a partition set by hand", f"{KEPT} --job clicks --set a.events:3=1200"),
    ],
    {
        ExitCode.OK: "every partition may start at its stored offset; with -o: or can be corrected",
        ExitCode.USAGE: "",
        ExitCode.CORRECTABLE: "without -o: offsets need correcting, and can be",
        ExitCode.NEEDS_PERSON: "a partition needs a decision; with -o: the plan was written, and apply refuses it",
        ExitCode.CHANGED: "a topic was recreated during the check",
        ExitCode.UNREACHABLE: "a cluster or store could not be reached, or refused; with -o: the plan has the other "
        "jobs",
    },
    findings={finding.value: meaning for finding, meaning in FINDINGS.items()},
    environment=CONFIG_ENVIRONMENT,
    files={"PLAN": "the plan, readable by its owner only; an applied plan is not overwritten"},
    see_also=("reconciler move", "reconciler apply", "docs/reference/findings.md", "docs/how-to/decide-by-hand.md"),
)
MOST_ROWS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    arguments.add_to(parser)
    arguments.add_jobs(parser)
    arguments.add_decisions(parser)
    arguments.add_format(parser, "json prints the plan (default: text)")
    parser.add_argument("-o", "--output", metavar="PLAN", type=Path, help="keep the plan in this file")


def run(options: argparse.Namespace) -> ExitCode:
    config = context.read_located(options)
    by_hand = arguments.decisions(options)
    if options.output is not None:
        refuse_unwritable(options.output, replaces=PLAN, stdout="plan --format json prints a plan.")
    checked = context.check_jobs(config, options, by_hand)
    policy = config.policy.start
    code, plan = verdict_code(checked, policy), checked.shown(policy)
    is_kept = options.output is not None and bool(plan.jobs or not checked.failed)
    if is_kept:
        _write(plan, options.output)
    if options.format == "json":
        for piece in plan.texts():
            show_json_text(piece)
    else:
        show(plan_text(plan, policy, most=MOST_ROWS if is_kept else None))
        say("")
        if is_kept:
            _say_kept(checked, config, options)
        else:
            to = ("--to", plan.destination_name, *(word for name in options.job for word in ("--job", name)))
            move = None if config.state is None else command("reconciler", "move", "-c", options.config, *to)
            show(wrap(*summary(checked, policy, by_hand, move=move)))
    return ExitCode.OK if is_kept and code is ExitCode.CORRECTABLE else code


def verdict_code(checked: Checked, policy: StartPolicy) -> ExitCode:
    """4 if a partition needs a decision, 3 if offsets need correcting, else 0; or a job's that could not be judged."""
    judged = ExitCode.CORRECTABLE if checked.to_write else ExitCode.OK
    if checked.stopped(policy):
        judged = ExitCode.NEEDS_PERSON
    return worst([judged, *(error.exit_code for error in checked.failed.values())])


def stopped_jobs(checked: Checked, policy: StartPolicy) -> list[str]:
    """The names of the jobs that must not start: a partition, a sink, or a job that could not be judged."""
    jobs = [job.name for job in checked.plan.jobs if why_job_stops(checked.decided(job), policy) is not None]
    return [*jobs, *(failed.name for failed in checked.plan.not_judged)]


# ---------------------------------------------------------------- shown


def summary(checked: Checked, policy: StartPolicy, by_hand: ByHand, *, move: str | None = None) -> list[str]:
    """The last lines: the result and the next step, which is ``move`` if the state store records the jobs."""
    stopped = stopped_jobs(checked, policy)
    lines = [f"Must not start: {listed(stopped)}. Nothing was written."] if stopped else []
    if checked.stopped(policy) or not checked.plan.jobs:
        return lines
    starting = outcome(checked.plan)
    if not checked.to_write:
        return [f"Every partition may start at its stored offset; {starting}.", *lines]
    alone = "" if stopped else " (exit code 3: nothing failed)"
    decided = "" if by_hand == ByHand() else " with the same decisions (--set, --accept)"
    then = "reconciler plan -o PLAN" + decided + ", then apply"
    if move is not None:
        then = f"{move}{decided}, then start the jobs by their hooks"
    return [f"{_to_correct(checked)}{alone}; {starting}.", f"Next: {then}.", *lines]


def _to_correct(checked: Checked) -> str:
    wrong, right = len(checked.to_write) - checked.right, checked.right
    clauses = []
    if wrong:
        clauses.append(f"{wrong:,} {'offset needs' if wrong == 1 else 'offsets need'} correcting, and can be")
    if right:
        words = "offset is right, and counts" if right == 1 else "offsets are right, and count"
        clauses.append(f"{right:,} {words} as the source's until that is done")
    return "; ".join(clauses)


# ---------------------------------------------------------------- kept


def _say_kept(checked: Checked, config: Config, options: argparse.Namespace) -> None:
    """Say what the file holds and what comes next. Commands are not folded, however long: they are meant to be
    copied."""
    policy = config.policy.start
    if stopped := stopped_jobs(checked, policy):
        say(f"Must not start: {listed(stopped)}. Apply leaves {'it' if len(stopped) == 1 else 'them'} alone.")
    if checked.stopped(policy):
        say(f"Plan: {options.output}")
        return
    say(f"{outcome(checked.plan)}.")
    say(*steps_after(checked, Files(str(options.output), str(options.config))))


def _write(plan: Plan, path: Path) -> None:
    """Remove the signature of the file's previous plan before writing the new one."""
    with making(path):
        signing.path_for(path).unlink(missing_ok=True)
    write_whole(path, _readable(plan.texts()))


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
    """The command that applies the plan: it also writes new anchors for right offsets, which range batches need."""
    apply = apply_command(files)
    if checked.to_write:
        return [f"Next: {apply}"]
    if checked.to_reanchor:
        rows = counted(len(checked.to_reanchor), "row")
        what = f"Range batches need {rows} with the destination's anchor too, which apply writes:"
        return [f"Nothing to correct. {what}", apply]
    return ["Nothing to apply: every offset is right where the job will look."]
