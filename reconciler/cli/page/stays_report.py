"""The result of an audit over several failovers, as a text table and as one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.page.audit_report import EXAMPLES_IN_TEXT
from reconciler.cli.page.markup import document, fill, fill_each
from reconciler.cli.terminal.output import Shown, line, stack, wrap
from reconciler.cli.terminal.table import Cell, count_cell, render

if TYPE_CHECKING:
    from reconciler.spark.audit.failovers.result import Finding, StaysResult

HEADS = ("side", "stays", "compared", "not compared")


def stays_text(result: StaysResult, *, columns: int, colour: bool) -> Shown:
    """A row per side, then the figures, examples, and what is not known."""
    table = render(HEADS, _rows(result), right=frozenset(range(1, len(HEADS))), columns=columns, colour=colour)
    examples = [_example(example) for example in result.examples[:EXAMPLES_IN_TEXT]]
    if len(result.examples) > len(examples):
        examples.append(f"… {len(result.examples) - len(examples):,} more in the JSON")
    parts = [table, line(""), wrap(f"{result.verdict}: {_sum(result)}", columns=columns)]
    for head, sentences in (("for example", examples), ("compared", result.compared), ("not known", result.unknown)):
        if sentences:
            lines = (f"  {sentence}" for sentence in sentences)
            parts.append(wrap("", f"{head}:", *lines, indent="    ", columns=columns))
    return stack(*parts)


def stays_page(result: StaysResult) -> str:
    """The whole page."""
    lists = {"Compared": result.compared, "Not known": result.unknown, "Examples": map(_example, result.examples)}
    items = {head: fill_each("item", ({"text": text} for text in texts)) for head, texts in lists.items()}
    body = fill(
        "audit",
        tone="good" if result.verdict == "clean" else "bad",
        verdict=result.verdict,
        job=result.job,
        created_at=result.created_at,
        source=result.order[0],
        destination=result.order[-1],
        semantics=f"{len(result.order)} stays, {result.semantics}",
        sum=_sum(result),
        heads=fill_each(
            "audit_head", ({"kind": "n" if index else "", "head": head} for index, head in enumerate(HEADS))
        ),
        rows=fill_each("audit_row", (_html_row(row) for row in _rows(result))),
        lists=fill_each("audit_list", ({"head": head, "items": texts} for head, texts in items.items() if texts)),
    )
    return document(f"{result.verdict} · reconciler audit", body)


def _html_row(cells: list[Cell]) -> dict[str, object]:
    name, *others = cells
    figures = [{"kind": "n", "value": cell.text} for cell in others]
    return {"tone": name.tone, "name": name.text, "cells": fill_each("audit_cell", figures)}


def _rows(result: StaysResult) -> list[list[Cell]]:
    rows = []
    for side in (*result.clusters, result.sink):
        count = result.order.count(side.name) if side is not result.sink else None
        name = Cell(side.name, "good" if side.records else "bad")
        rows.append([name, count_cell(count), count_cell(side.records), count_cell(side.nameless)])
    return rows


def _sum(result: StaysResult) -> str:
    totals = result.totals
    unread = f" ({totals['lost_unread']:,} of them read by no stay)" if totals["lost_unread"] else ""
    possibly = f", {totals['possibly_lost']:,} possibly lost" if totals["possibly_lost"] else ""
    doubled = f"{totals['doubled']:,} doubled ({totals['doubled_as_announced']:,} of them announced by the plans)"
    return f"{totals['lost']:,} lost{unread}{possibly}, {doubled}, {totals['unknown_rows']:,} rows of no record."


def _example(example: Finding) -> str:
    places = [f"{at.topic}:{at.partition} at {at.offset:,} of cluster {at.cluster_id}" for at in example.places]
    where = ", ".join(places) or "in no log"
    count = f", {example.count:,} times" if example.count > 1 else ""
    id_hash = f", id {example.id_hash}" if example.id_hash else ""
    return f"{example.kind.replace('_', ' ')}: {where}{count}{id_hash}"
