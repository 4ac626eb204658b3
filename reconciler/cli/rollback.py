"""``reconciler rollback``: put back what ``apply`` replaced."""

from __future__ import annotations

import argparse
from pathlib import Path

from reconciler.cli import context
from reconciler.cli.table import Cell, render, wants_colour, width
from reconciler.core.errors import ExitCode
from reconciler.operations.rollback import prepare_rollback, write_rollback

EXAMPLE = "reconciler rollback failover.plan.json -c reconciler.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", type=Path, help="the plan that was applied")
    context.add_config(parser)
    context.add_yes(parser)


def run(options: argparse.Namespace) -> ExitCode:
    plan = context.read_plan(options.plan)
    config = context.read_config(options)
    with context.outside(config) as outside:
        jobs = prepare_rollback(plan, options.plan, config, outside)
        rows = [
            (
                Cell(f"{item.key.topic}-{item.key.partition}"),
                Cell(f"{item.now.stored.offset:,}" if item.now else "-"),
                Cell(f"{item.before.offset:,}" if item.before else "(no row)"),
                Cell(change.job.name),
            )
            for change in jobs
            for item in change.returns
        ]
        if not rows:
            print("Nothing to put back: every row is as it was before the plan was applied.")
            return ExitCode.OK
        heads = ("PARTITION", "NOW", "BACK TO", "JOB")
        print(render(heads, rows, right=frozenset({1, 2}), columns=width(), colour=wants_colour()))
        context.confirm(f"Put back {len(rows):,} offsets?", yes=options.yes)
        write_rollback(jobs, outside)
    print(f"{len(rows):,} offsets put back and read again.")
    return ExitCode.OK
