"""An audit's result as a text table, and as one HTML page without network or script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.page.markup import document, fill, fill_each
from reconciler.cli.terminal.output import Shown, line, stack, wrap
from reconciler.cli.terminal.table import Cell, count_cell, render

if TYPE_CHECKING:
    from reconciler.spark.audit.result import AuditResult, Example, PartitionResult

HEADS = ("partition", "stored", "resume", "lost", "possibly", "doubled", "announced", "beyond", "reordered")
EXAMPLES_IN_TEXT = 10
_BAD = frozenset({"lost", "possibly_lost", "doubled_beyond", "reordered"})
_FIGURES = ("lost", "possibly_lost", "doubled", "doubled_as_announced", "doubled_beyond", "reordered")


def audit_text(result: AuditResult, *, columns: int, colour: bool) -> Shown:
    """A row per partition, then examples, then what was compared and what is not known."""
    rows = [_cells(row, result) for row in result.partitions]
    table = render(HEADS, rows, right=frozenset(range(1, len(HEADS))), columns=columns, colour=colour)
    examples = [_example(example) for example in result.examples[:EXAMPLES_IN_TEXT]]
    if len(result.examples) > len(examples):
        examples.append(f"… {len(result.examples) - len(examples):,} more in the JSON")
    parts = [table, line(""), wrap(f"{result.verdict}: {_sum(result)}", columns=columns)]
    for head, sentences in (("for example", examples), ("compared", result.compared), ("not known", result.unknown)):
        if sentences or head == "compared":
            lines = (f"  {sentence}" for sentence in sentences)
            parts.append(wrap("", f"{head}:", *lines, indent="    ", columns=columns))
    return stack(*parts)


def audit_page(result: AuditResult) -> str:
    """The whole page."""
    lists = {"Compared": result.compared, "Not known": result.unknown, "Examples": map(_example, result.examples)}
    items = {head: fill_each("item", ({"text": text} for text in texts)) for head, texts in lists.items()}
    body = fill(
        "audit",
        tone="good" if result.verdict == "clean" else "bad",
        verdict=result.verdict,
        job=result.job,
        created_at=result.created_at,
        source=result.source_cluster_id or "not compared",
        destination=result.destination_cluster_id,
        semantics=result.semantics,
        sum=_sum(result),
        heads=fill_each(
            "audit_head", ({"kind": "n" if index else "", "head": head} for index, head in enumerate(HEADS))
        ),
        rows=fill_each("audit_row", (_html_row(_cells(row, result)) for row in result.partitions)),
        lists=fill_each("audit_list", ({"head": head, "items": texts} for head, texts in items.items() if texts)),
    )
    return document(f"{result.verdict} · reconciler audit", body)


def _html_row(cells: list[Cell]) -> dict[str, object]:
    name, *others = cells
    figures = [{"kind": "n bad" if cell.tone == "bad" else "n", "value": cell.text} for cell in others]
    return {"tone": name.tone, "name": name.text, "cells": fill_each("audit_cell", figures)}


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
    name = row.topic if row.partition is None else f"{row.topic}-{row.partition}"
    offsets = [count_cell(row.stored_offset), count_cell(row.resume_offset)]
    return [Cell(name, "good" if row.is_clean else "bad"), *offsets, *figures]


def _example(example: Example) -> str:
    places = []
    if example.source_offset is not None:
        places.append(f"{example.source_topic}:{example.source_partition} at {example.source_offset:,} of the source")
    if example.destination_offset is not None:
        places.append(
            f"{example.topic}:{example.destination_partition} at {example.destination_offset:,} of the destination"
        )
    where = ", ".join(places) or f"of {example.source_topic}"
    count = f", {example.count:,} times" if example.count > 1 else ""
    id_hash = f", id {example.id_hash}" if example.id_hash else ""
    return f"{example.kind.replace('_', ' ')}: {where}{count}{id_hash}"
