"""``reconciler rollback``: put back what ``apply`` replaced."""

from __future__ import annotations

import argparse

from reconciler.cli import arguments, context
from reconciler.cli.commands.failover.apply import trusted_plan
from reconciler.cli.terminal import signals
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.prompts import confirm
from reconciler.cli.terminal.table import Cell, count_cell, partition_cell, print_table
from reconciler.config.file import Config
from reconciler.core.errors import ExitCode
from reconciler.failover.rollback import prepare_rollback, write_rollback
from reconciler.formats.plan import Plan
from reconciler.trust import command_trail
from reconciler.trust.audit_trail import Attempt

EXAMPLE = "reconciler rollback failover.plan.json -c reconciler.toml"
HELP = Help(
    """
    Puts back what apply replaced, from the snapshot beside the plan. Rows that apply created are deleted. It asks
    first, and writes nothing if a row is neither as apply left it nor as it was before, which means that another writer
    has changed it. An expired plan can be rolled back, too.
    """,
    [
        ("review, confirm, put back", EXAMPLE),
        ("in a script, without a prompt", f"{EXAMPLE} --yes"),
    ],
    {
        ExitCode.OK: "put back, or every row is as it was already",
        ExitCode.USAGE: "usage or configuration, not confirmed, or there is no snapshot: nothing was written",
        ExitCode.CHANGED: "another writer changed a row, or the plan is altered, not signed, or for another "
        "configuration: nothing was written",
        ExitCode.UNREACHABLE: "",
        ExitCode.UNKNOWN_OUTCOME: "a write's outcome is unknown or partial: run rollback again",
    },
    environment=CONFIG_ENVIRONMENT,
    files={"PLAN.applied.json": "the snapshot that apply made"},
    see_also=("reconciler apply",),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_plan(parser, "the plan that was applied")
    arguments.add_config(parser)
    arguments.add_yes(parser)


def run(options: argparse.Namespace) -> ExitCode:
    config = context.read_config(options)
    with command_trail.attempt(config.trust, "rollback", options.words) as attempt:
        plan = trusted_plan(config, options.plan, attempt)
        _roll_back(plan, config, options, attempt)
    return ExitCode.OK


def _roll_back(plan: Plan, config: Config, options: argparse.Namespace, attempt: Attempt) -> None:
    with context.outside(config) as outside:
        jobs = prepare_rollback(plan, options.plan, config, outside)
        rows = [
            (
                partition_cell(item.key),
                count_cell(item.now.stored.offset if item.now else None),
                count_cell(item.before.offset) if item.before else Cell("(no row)"),
                Cell(change.job.name),
            )
            for change in jobs
            for item in change.returns
        ]
        if not rows:
            attempt.had_nothing_to_do()
            print("Nothing to put back: every row is as it was before the plan was applied.")
            return
        heads = ("PARTITION", "NOW", "BACK TO", "JOB")
        print_table(heads, rows, right=frozenset({1, 2}))
        confirm(f"Put back {len(rows):,} offsets?", yes=options.yes)
        with signals.writing():
            attempt.intends_returns(jobs)
            write_rollback(jobs, outside)
            attempt.wrote()
    print(f"{len(rows):,} offsets put back and read again.")
