"""An audit's result as text: a table, its figures in a sentence, and what was compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.cli.terminal.output import Shown, line, stack, wrap
from reconciler.cli.terminal.table import Cell, count_cell, render
from reconciler.core.anchors import TopicPartition

if TYPE_CHECKING:
    from reconciler.spark.audit.failovers.result import RecordFinding, StaysResult
    from reconciler.spark.audit.result import AuditResult, Example, PartitionResult, Result

HEADS = ("partition", "stored", "resume", "lost", "possibly", "doubled", "announced", "beyond", "reordered")
STAYS_HEADS = ("side", "stays", "compared", "not compared")
EXAMPLES_IN_TEXT = 10
_BAD = frozenset({"lost", "possibly_lost", "doubled_beyond", "reordered"})
_FIGURES = ("lost", "possibly_lost", "doubled", "doubled_as_announced", "doubled_beyond", "reordered")


@dataclass(frozen=True, slots=True)
class Report:
    """The parts of an audit shown beside its verdict: a table, and its figures in a sentence."""

    result: Result
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    sum: str
    examples: Sequence[str]

    def text(self, *, columns: int | None = None, colour: bool | None = None) -> Shown:
        """The table, then the figures, examples, what was compared and what is not known."""
        result, right = self.result, frozenset(range(1, len(self.heads)))
        table = render(self.heads, self.rows, right=right, columns=columns, colour=colour)
        examples = list(self.examples[:EXAMPLES_IN_TEXT])
        if len(self.examples) > len(examples):
            examples.append(f"… {len(self.examples) - len(examples):,} more in the JSON")
        parts = [table, line(""), wrap(f"{result.verdict}: {self.sum}", columns=columns)]
        lists = {"for example": examples, "compared": result.compared, "not known": result.unknown}
        for head, sentences in lists.items():
            if sentences or head == "compared":
                lines = (f"  {sentence}" for sentence in sentences)
                parts.append(wrap("", f"{head}:", *lines, indent="    ", columns=columns))
        return stack(*parts)


def _example(example: Example | RecordFinding, where: str) -> str:
    count = f", {example.count:,} times" if example.count > 1 else ""
    id_hash = f", id {example.id_hash}" if example.id_hash else ""
    return f"{example.kind.replace('_', ' ')}: {where}{count}{id_hash}"


# ---------------------------------------------------------------- one failover


def report_of(result: AuditResult) -> Report:
    """A row per partition."""
    return Report(
        result,
        HEADS,
        [_cells(row, result) for row in result.partitions],
        _sum(result),
        [_example(each, _where(each)) for each in result.examples],
    )


def _sum(result: AuditResult) -> str:
    totals = result.totals
    doubled = f"{totals['doubled']:,} doubled ({totals['doubled_as_announced']:,} of them announced by the plan)"
    possibly = f", {totals['possibly_lost']:,} possibly lost" if totals["possibly_lost"] else ""
    return f"{totals['lost']:,} lost{possibly}, {doubled}, {totals['reordered']:,} reordered."


def _cells(row: PartitionResult, result: AuditResult) -> list[Cell]:
    """The row's name, offsets and figures; a dash for a figure that was not compared."""
    judges_loss = result.has_output or result.source_cluster_id is not None
    judged = {
        "reordered": any(text.startswith("reordered:") for text in result.compared),
        "lost": judges_loss,
        "possibly_lost": result.has_output,
    }
    figures = []
    for name in _FIGURES:
        count = row.figures[name] if judged.get(name, True) else None
        figures.append(count_cell(count, "bad" if count and name in _BAD else None))
    offsets = [count_cell(row.stored_offset), count_cell(row.resume_offset)]
    return [Cell(row.name, "good" if row.is_clean and row.is_compared else "bad"), *offsets, *figures]


def _where(example: Example) -> str:
    places = []
    if example.source_partition is not None and example.source_offset is not None:
        at = TopicPartition(example.source_topic, example.source_partition)
        places.append(f"{at} at {example.source_offset:,} of the source")
    if example.destination_partition is not None and example.destination_offset is not None:
        at = TopicPartition(example.topic, example.destination_partition)
        places.append(f"{at} at {example.destination_offset:,} of the destination")
    return ", ".join(places) or f"of {example.source_topic}"


# ---------------------------------------------------------------- several failovers


def report_of_stays(result: StaysResult) -> Report:
    """A row per side."""
    return Report(
        result,
        STAYS_HEADS,
        _sides(result),
        _sum_of_stays(result),
        [_example(each, _places(each)) for each in result.examples],
    )


def _sides(result: StaysResult) -> list[list[Cell]]:
    rows = []
    for side in (*result.clusters, result.sink):
        is_sink = side is result.sink
        count = None if is_sink else result.order.count(side.name)
        name = Cell(side.name, "good" if side.is_compared or (is_sink and side.records) else "bad")
        rows.append([name, count_cell(count), count_cell(side.records), count_cell(side.nameless)])
    return rows


def _sum_of_stays(result: StaysResult) -> str:
    totals = result.totals
    unread = f" ({totals['lost_unread']:,} of them read by no stay)" if totals["lost_unread"] else ""
    possibly = f", {totals['possibly_lost']:,} possibly lost" if totals["possibly_lost"] else ""
    doubled = f"{totals['doubled']:,} doubled ({totals['doubled_as_announced']:,} of them announced by the plans)"
    return f"{totals['lost']:,} lost{unread}{possibly}, {doubled}, {totals['unknown_rows']:,} rows of no record."


def _places(example: RecordFinding) -> str:
    places = [
        f"{TopicPartition(at.topic, at.partition)} at {at.offset:,} of cluster {at.cluster_id}" for at in example.places
    ]
    return ", ".join(places) or "in no log"
