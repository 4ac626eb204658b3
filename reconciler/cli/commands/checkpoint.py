"""Shows the content of a Structured Streaming query's checkpoint. It is only read."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from reconciler.cli import arguments
from reconciler.cli.terminal.help import Help
from reconciler.cli.terminal.output import show, show_json, wrap
from reconciler.cli.terminal.table import Cell, count_cell, print_table
from reconciler.clock import stamp
from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import ExitCode
from reconciler.places.checkpoint.reading import MANIFEST
from reconciler.places.checkpoint.restart import Checkpoint, without_id
from reconciler.places.checkpoint.show import Description, describe

EXAMPLE = "reconciler checkpoint show /data/checkpoints/clicks"
HELP = Help(
    __doc__,
    [("sources, last batch, offsets, state", EXAMPLE)],
    {ExitCode.OK: "", ExitCode.UNREACHABLE: "not reachable, no checkpoint, or an unknown format in it"},
    see_also=("reconciler plan", "docs/reference/checkpoint.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="show", required=True)
    show = actions.add_parser("show", help="sources, last batch, offsets, state")
    show.add_argument("path", metavar="PATH", help="the query's checkpointLocation: a local path, or a URL")
    arguments.add_format(show)


def run(options: argparse.Namespace) -> ExitCode:
    _show(describe(options.path), options.format)
    return ExitCode.OK


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
