"""Reports what would happen if the jobs started on the destination now: for every partition the finding, the stored
offset, the offset to resume at, the number of records that would be read again, and the evidence. A job that cannot
be judged is listed with the cause, beside the others; the exit code is then the worst. It writes nothing, and reads
only the destination and the jobs' stores. Run it before a failover as often as you like.
"""

from __future__ import annotations

import argparse

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import show, show_json_text, width, wrap
from reconciler.cli.terminal.report import glossary, not_judged_text, plan_text
from reconciler.core.errors import ExitCode, worst
from reconciler.core.text import command
from reconciler.failover.check import Checked
from reconciler.failover.corrections import outcome
from reconciler.failover.outside import ByHand
from reconciler.places.registry import traits
from reconciler.plan.document import StartPolicy

EXAMPLE = "reconciler check -c reconciler.toml --job clicks"
HELP = Help(
    __doc__,
    [
        ("every job of the configuration", "reconciler check -c reconciler.toml"),
        ("one job, as JSON", "reconciler check -c reconciler.toml --job clicks --format json"),
        ("the result with a mirror's shortfall accepted", f"{EXAMPLE} --accept behind"),
        ("the result with one partition at an offset of your choice", f"{EXAMPLE} --set a.events:3=1200"),
        ("the result with all partitions at a time of your choice", f"{EXAMPLE} --set-time 2026-01-31T06:00:00Z"),
    ],
    {
        ExitCode.OK: "every partition may start as it is",
        ExitCode.USAGE: "",
        ExitCode.CORRECTABLE: "",
        ExitCode.NEEDS_PERSON: "",
        ExitCode.CHANGED: "a topic was recreated during the check",
        ExitCode.UNREACHABLE: "a cluster or store could not be reached, or refused",
    },
    environment=CONFIG_ENVIRONMENT,
    see_also=("reconciler plan", "docs/reference/findings.md", "docs/how-to/decide-by-hand.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    arguments.add_to(parser)
    arguments.add_jobs(parser)
    arguments.add_decisions(parser)
    arguments.add_engine(parser)
    arguments.add_format(parser, "json prints the plan (default: text)")
    parser.add_argument("--explain", action=_Explain, nargs=0, help="explain all terms and findings, and exit")


class _Explain(argparse.Action):
    """``--explain``: print the glossary and exit, like ``--help``."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        show(glossary(width()))
        parser.exit()


def run(options: argparse.Namespace) -> ExitCode:
    config = context.read_located(options)
    by_hand = arguments.decisions(options)
    checked = context.check_jobs(config, options, by_hand)
    policy = config.policy.start
    code, plan = verdict_code(checked, policy), checked.shown(policy)
    if options.format == "json":
        for piece in plan.texts():
            show_json_text(piece)
    else:
        show(plan_text(plan, policy))
        show(wrap("", *summary(checked, policy, by_hand, moves=config.state is not None)))
    return code


def verdict_code(checked: Checked, policy: StartPolicy) -> ExitCode:
    """4 if a partition needs a decision, 3 if offsets need correcting, else 0; or a job's that could not be judged."""
    return worst([judged_code(checked, policy), *(error.exit_code for error in checked.failed.values())])


def judged_code(checked: Checked, policy: StartPolicy) -> ExitCode:
    """The exit code of the jobs that could be judged."""
    if checked.stopped(policy):
        return ExitCode.NEEDS_PERSON
    return ExitCode.CORRECTABLE if checked.to_write else ExitCode.OK


def summary(checked: Checked, policy: StartPolicy, by_hand: ByHand, *, moves: bool = False) -> list[str]:
    """The last lines: the result and the next step, which is a move where it is recorded where the jobs live."""
    judged, plan = _judged(checked, judged_code(checked, policy), by_hand, moves=moves), checked.plan
    if not plan.not_judged:
        return [judged]
    of = f"{len(plan.jobs):,} of {len(plan.jobs) + len(plan.not_judged):,} jobs"
    lines = [f"Judged, {of}: {judged}"] if plan.jobs else ["Nothing was written."]
    return [*lines, f"{not_judged_text(plan)} Fix what is named above, then check again."]


def _judged(checked: Checked, code: ExitCode, by_hand: ByHand, *, moves: bool) -> str:
    starting = outcome(checked.plan)
    if code is ExitCode.NEEDS_PERSON:
        return f"Do not start: {checked.why_not}. Nothing was written."
    if code is ExitCode.CORRECTABLE:
        alone = "" if checked.plan.not_judged else " (exit code 3: nothing failed)"
        decided = "" if by_hand == ByHand() else " with the same decisions (--set, --accept)"
        move = f"{command('reconciler', 'move', '--to', checked.plan.destination_name)}{decided}"
        then = f"{move}, then start the jobs by their hooks" if moves else _then(checked, "reconciler plan" + decided)
        return f"{_to_correct(checked)}{alone}; {starting}. Next: {then}."
    return f"Every partition may start as it is; {starting}."


def _to_correct(checked: Checked) -> str:
    wrong, right = len(checked.to_write) - checked.right, checked.right
    clauses = []
    if wrong:
        clauses.append(f"{wrong:,} {'offset needs' if wrong == 1 else 'offsets need'} correcting, and can be")
    if right:
        words = "offset is right, and counts" if right == 1 else "offsets are right, and count"
        clauses.append(f"{right:,} {words} as the source's until that is done")
    return "; ".join(clauses)


def _then(checked: Checked, plan: str) -> str:
    """How the offsets are corrected; the plan names the command of each job if there is more than one way."""
    names = {name for name, _ in checked.to_write}
    ways = {traits(job.store).corrected_in_copy for job in checked.plan.jobs if job.name in names}
    if len(ways) > 1:
        return f"{plan}, then the commands that it names"
    (in_copy,) = ways
    return f"{plan}, then {'checkpoint clone' if in_copy else 'apply'}"
