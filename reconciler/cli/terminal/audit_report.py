"""An audit's result as text: a table, its figures in a sentence, and what was and was not compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.terminal.output import Shown, line, stack, wrap
from reconciler.cli.terminal.table import Cell, count_cell, render
from reconciler.core.anchors import TopicPartition

if TYPE_CHECKING:
    from reconciler.spark.audit.result import AuditResult, Example, PartitionResult

HEADS = ("partition", "records", "rows", "lost", "possibly", "doubled", "announced", "beyond", "of no record")
_FIGURES = ("lost", "possibly_lost", "doubled", "doubled_as_announced", "doubled_beyond", "unknown_rows")


def report(result: AuditResult, *, columns: int | None = None, colour: bool | None = None) -> Shown:
    """The table, then the figures, examples, what was compared and what was not."""
    rows = [_cells(each, result) for each in result.partitions]
    table = render(HEADS, rows, right=frozenset(range(1, len(HEADS))), columns=columns, colour=colour)
    parts = [table, line(""), wrap(f"{result.verdict}: {_sum(result)}", columns=columns)]
    lists = {
        "for example": [_example(each) for each in result.examples],
        "compared": [_sides(result), *result.compared],
        "not compared": [each.text for each in result.uncompared],
        "to know": result.notes,
    }
    for head, sentences in lists.items():
        if sentences:
            lines = (f"  {sentence}" for sentence in sentences)
            parts.append(wrap("", f"{head}:", *lines, indent="    ", columns=columns))
    return stack(*parts)


def _cells(row: PartitionResult, result: AuditResult) -> list[Cell]:
    bad = {"lost", "possibly_lost", "doubled_beyond", *(["unknown_rows"] if result.rows_must_match else [])}
    figures = [count_cell(row.figures[name], "bad" if row.figures[name] and name in bad else None) for name in _FIGURES]
    is_good = not row.not_compared and not any(row.figures[name] for name in bad)
    rows = row.rows if result.output is not None else None
    return [Cell(row.name, "good" if is_good else "bad"), count_cell(max(row.compared)), count_cell(rows), *figures]


def _sum(result: AuditResult) -> str:
    totals = result.totals
    unread = f" ({totals['lost_unread']:,} of them read by no stay)" if totals["lost_unread"] else ""
    possibly = f", {totals['possibly_lost']:,} possibly lost" if totals["possibly_lost"] else ""
    doubled = f"{totals['doubled']:,} doubled ({totals['doubled_as_announced']:,} of them announced by the plans)"
    return f"{totals['lost']:,} lost{unread}{possibly}, {doubled}, {totals['unknown_rows']:,} rows of no record."


def _sides(result: AuditResult) -> str:
    sides = [f"{each.compared:,} records of cluster {each.name}" for each in result.clusters]
    if result.output is not None:
        sides.append(f"{result.output.compared:,} rows of {result.output.name}")
    return f"{', '.join(sides)}, over {len(result.stays)} stays."


def _example(example: Example) -> str:
    count = f", {example.count:,} times" if example.count > 1 else ""
    id_hash = f", id {example.id_hash}" if example.id_hash else ""
    places = [
        f"{TopicPartition(at.topic, at.partition)} at {at.offset:,} of cluster {at.cluster_id}" for at in example.places
    ]
    return f"{example.kind.replace('_', ' ')}: {', '.join(places) or 'in no log'}{count}{id_hash}"
