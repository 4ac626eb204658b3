"""``reconciler apply``: write a plan's offsets into the jobs' stores."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from reconciler.cli import context
from reconciler.cli.table import Cell, render, wants_colour, width
from reconciler.core.errors import ExitCode, NeedsPerson
from reconciler.operations.apply import JobChanges, prepare, write

EXAMPLE = "reconciler apply failover.plan.json -c reconciler.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", type=Path, help="a file made by reconciler plan")
    context.add_config(parser)
    context.add_yes(parser)
    parser.add_argument("--dry-run", action="store_true", help="look again and show what would be written, then stop")


def run(options: argparse.Namespace) -> ExitCode:
    plan = context.read_plan(options.plan)
    config = context.read_config(options)
    with context.outside(config) as outside:
        changes = prepare(plan, config, outside)
        print(changes_text(changes))
        count = sum(len(change.intended) for change in changes)
        if count and not options.dry_run:
            context.confirm(f"Write {count:,} offsets?", yes=options.yes)
            write(changes, plan, options.plan, outside)
    _say_result(changes, count, options)
    refused = [change.job.name for change in changes if change.is_refused]
    if refused:
        raise NeedsPerson(
            f"Not written for {', '.join(refused)}: a partition needs a person.",
            hint="Make a new plan with --set or --accept once it is decided.",
        )
    return ExitCode.OK


def _say_result(changes: Sequence[JobChanges], count: int, options: argparse.Namespace) -> None:
    already = sum(len(change.already) for change in changes)
    if options.dry_run:
        print(f"Dry run: {count:,} offsets would be written, nothing was.")
    elif count:
        print(
            f"{count:,} offsets written and read back. To undo: reconciler rollback {options.plan} -c {options.config}"
        )
    elif already:
        print(f"This plan was applied before: all {already:,} offsets are in place.")
    elif not any(change.is_refused for change in changes):
        print("Nothing to write: every offset is right where the job will look.")


def changes_text(changes: Sequence[JobChanges]) -> str:
    """What was stored, the row that is replaced, and the new offset side by side; or why a job is refused."""
    lines = []
    for change in changes:
        for row, why in change.refused:
            lines.append(f"{change.job.name}: {row.topic}-{row.partition} ({row.verdict.value}) must not start: {why}.")
        rows = [
            (
                Cell(f"{item.key.topic}-{item.key.partition}"),
                Cell("-" if item.row.stored_offset is None else f"{item.row.stored_offset:,}"),
                Cell(f"{item.now.stored.offset:,}" if item.now else "(no row)", "dim"),
                Cell(f"{item.new.offset:,}", "good"),
                Cell(change.job.name),
            )
            for item in change.intended
        ]
        if rows:
            heads = ("PARTITION", "STORED", "PRIOR", "NEW", "JOB")
            lines.append(render(heads, rows, right=frozenset({1, 2, 3}), columns=width(), colour=wants_colour()))
    return "\n".join(lines)
