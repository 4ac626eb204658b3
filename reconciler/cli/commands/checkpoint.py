"""Shows the content of a Structured Streaming query's checkpoint, or copies it, with its state, so that the copy's
next batch starts at a plan's offsets under the destination's topic names. The original is only read.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path

from reconciler.cli import arguments, context
from reconciler.cli.commands.apply import trusted_plan
from reconciler.cli.terminal.help import OPTIONAL_CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import in_bytes, show, show_json, wrap
from reconciler.cli.terminal.progress import CopyDisplay
from reconciler.cli.terminal.table import Cell, count_cell, print_table
from reconciler.clock import stamp
from reconciler.config.file import Config
from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import ExitCode
from reconciler.core.text import counted
from reconciler.failover import inputs
from reconciler.failover.checkpoint.clone import Clone, clone
from reconciler.failover.inputs import refuse_wrong
from reconciler.places.checkpoint.reading import MANIFEST
from reconciler.places.checkpoint.restart import Checkpoint, without_id
from reconciler.places.checkpoint.show import Description, describe

EXAMPLE = (
    "reconciler checkpoint show /data/checkpoints/clicks\n"
    "  reconciler checkpoint clone /data/checkpoints/clicks /data/checkpoints/clicks-b --plan clicks.plan.json"
)
HELP = Help(
    __doc__,
    [
        ("sources, last batch, offsets, state", "reconciler checkpoint show /data/checkpoints/clicks"),
        (
            "a copy that continues at the plan's offsets",
            "reconciler checkpoint clone /data/checkpoints/clicks /data/checkpoints/clicks-b --plan clicks.plan.json",
        ),
    ],
    {
        ExitCode.OK: "",
        ExitCode.USAGE: "NEW_PATH exists, or the job's topics do not match",
        ExitCode.NEEDS_PERSON: "a partition needs a decision, or the job is ambiguous",
        ExitCode.CHANGED: "the plan expired or was altered, or the checkpoint or the destination changed",
        ExitCode.UNREACHABLE: "not reachable, no checkpoint, or an unknown format in it",
        ExitCode.UNKNOWN_OUTCOME: "it is unknown whether the finished copy has its name",
    },
    environment=OPTIONAL_CONFIG_ENVIRONMENT,
    see_also=("reconciler plan", "docs/reference/checkpoint.md"),
)

NO_SINK = (
    " No sink was compared: once the query has run on the copy, never start it on the original again "
    "(docs/reference/sinks.md)."
)

log = logging.getLogger("reconciler.checkpoint")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="show|clone", required=True)
    show = actions.add_parser("show", help="sources, last batch, offsets, state")
    show.add_argument("path", metavar="PATH", help="the query's checkpointLocation: a local path, or a URL")
    arguments.add_format(show)
    copy = actions.add_parser("clone", help="a copy whose next batch starts at the plan's offsets, topics renamed")
    copy.add_argument("path", metavar="PATH", help="the stopped query's checkpointLocation; it is only read")
    copy.add_argument("new_path", metavar="NEW_PATH", help="where the copy goes; must not exist")
    copy.add_argument("--plan", metavar="PLAN", type=Path, required=True, help="a file made by reconciler plan")
    arguments.add_one_job(copy, of="plan")
    arguments.add_optional_config(copy, "the plan's configuration: for the destination's login, ids and [policy]")


def run(options: argparse.Namespace) -> ExitCode:
    if options.action == "show":
        _show(describe(options.path), options.format)
        return ExitCode.OK
    if (config := context.config_if_named(options)) is not None:
        made = _clone_trusted(config, options)
    else:
        plan = context.read_plan(options.plan)
        made = clone(options.path, options.new_path, plan, job=options.job, on_copied=CopyDisplay())
    show(wrap(*_made_text(made)))
    _warn(made)
    return ExitCode.OK


def _clone_trusted(config: Config, options: argparse.Namespace) -> Clone:
    """A copy that starts at the offsets of a plan with the required signature."""
    plan = trusted_plan(config, options.plan)
    config = inputs.for_plan(config, plan)
    name = plan.job(options.job).name
    refuse_wrong(config, config.chosen(name), sinks=True)
    return clone(options.path, options.new_path, plan, job=name, config=config, on_copied=CopyDisplay())


# ---------------------------------------------------------------- show


def _show(found: Description, how: str) -> None:
    if how == "json":
        show_json(found.to_json())
        return
    for line in _lines(found):
        show(wrap(line, indent=" " * 11))
    rows = list(_rows(found.found))
    if rows:
        last = ("START", "END") if found.found.repeats_a_batch else ("NEXT",)
        print_table(("SOURCE", "PARTITION", *last), rows, right=frozenset({2, 3}))
    for source in found.found.positions:
        if source.start is None and source.end is None:
            text = (found.text_of(source.name) or "-")[:200]
            show(wrap(f"source {source.name} is not Kafka's, or has no offset: {text}"))


def _lines(described: Description) -> Iterator[str]:
    found, last = described.found, described.found.last
    yield f"checkpoint {described.path}"
    yield f"query      {found.query_id or without_id(begun=last is not None)}"
    if last is None:
        yield "batches    none planned"
    elif found.repeats_a_batch:
        yield f"batches    {last.batch} is not committed: a restart repeats it"
    else:
        yield f"batches    {last.batch} is committed: a restart runs {found.next_batch}"
    if last is not None and last.planned_at_ms is not None:
        yield f"planned    {stamp(last.planned_at_ms)}"
    if last is not None:
        yield f"format     offset log v{last.version}"
    if gaps := found.missing_words():
        yield f"missing    {gaps}"
    if found.behind is not None:
        yield f"progress   {found.behind.words()}"
    if described.is_stateful:
        yield "state      its query keeps state"
    if described.cloned_from:
        yield f"cloned     from {described.cloned_from} ({MANIFEST})"


def _rows(found: Checkpoint) -> Iterator[tuple[Cell, ...]]:
    for source in found.positions:
        starts, ends = source.start or {}, source.end or {}
        for topic, partition in sorted({*starts, *ends}):
            at = [starts.get((topic, partition))] + ([ends.get((topic, partition))] if found.repeats_a_batch else [])
            yield (Cell(source.name), Cell(str(TopicPartition(topic, partition))), *map(count_cell, at))


# ---------------------------------------------------------------- clone


def _made_text(made: Clone) -> tuple[str, ...]:
    files = ", ".join(edit.file for edit in made.edits)
    how = ""
    if made.repeats:
        part = " again, with a part of its records" if made.repeats_in_part else " again, up to the plan's end"
        how = " again, without records" if made.repeats_empty else part
    return (
        f"{made.new_path} is ready: its query runs batch {made.batch}{how}, from the plan's offsets on.",
        f"Rewritten: {files} (before and after: {MANIFEST}).",
        *_left_out(made),
        f"{made.path} was only read." + ("" if made.sinks else NO_SINK),
        "Next: start the query there, with the destination's kafka.bootstrap.servers and topics.",
    )


def _left_out(made: Clone) -> tuple[str, ...]:
    if not made.older or made.copied is None:
        return ()
    return (
        f"Copied: {made.copied.of_files:,} files, {in_bytes(made.copied.of_size)}. Not copied: {made.older:,} files of "
        f"state older than what batch {made.batch} reads.",
    )


def _warn(made: Clone) -> None:
    for sentence in made.warnings:
        log.warning("%s", sentence)
    if made.replay_at_most:
        log.warning(
            "at most %s will be read again: a query that counts or sums in its state counts them twice",
            counted(made.replay_at_most, "record"),
        )
