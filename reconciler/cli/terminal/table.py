"""The one table renderer: columns that fit the terminal, colour only on terminals that want it.

A table that is too wide shrinks in this order. The last column, if it is text, is cut at its end, and printed in full
below the table, once for all rows with the same text. The first column, a name, is cut at its beginning, since
partitions differ at the end. Then columns from the right move to a line of their own below each row. A line below the
table gives the width that avoids all this. Output that is not a terminal is
neither cut nor folded: a log keeps whole lines.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.cli.terminal.output import Shown, columns_of, cut, fold, line, listed, padded, show, wants_colour, width
from reconciler.core.anchors import TopicPartition

if TYPE_CHECKING:
    from reconciler.plan.document import PartitionPlan

_COLOURS = {"good": "32", "warn": "33", "bad": "31", "dim": "2"}
_GAP = 2
LEAST_NAME, LEAST_TEXT = 24, 18
"""Least columns of the first and the last column before others move below the row."""
MOST_IN_FULL = 20
"""Different texts of a last column that are repeated below the table."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text, escaped, and its tone: good, warn, bad, dim or none."""

    text: str
    tone: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", line(self.text))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], *, right: frozenset[int]) -> None:
    """Print a table that fits stdout."""
    show(render(heads, rows, right=right))


def count_cell(value: int | None, tone: str | None = None) -> Cell:
    """A number with thousands separators, a dash for None."""
    return Cell("-" if value is None else f"{value:,}", tone)


def partition_cell(key: TopicPartition | PartitionPlan, tone: str | None = None) -> Cell:
    return Cell(str(TopicPartition(key.topic, key.partition)), tone)


def render(
    heads: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    right: frozenset[int],
    columns: int | None = None,
    colour: bool | None = None,
    printed: Collection[str] = (),
) -> Shown:
    """Lines of a table at most ``columns`` wide (stdout's width, and in colour if it wants that).

    The columns in ``right``, such as numbers, are aligned right. ``printed``: texts of the last column that the caller
    prints in full, so that they are not repeated below the table.
    """
    columns = width() if columns is None else columns
    colour = wants_colour() if colour is None else colour
    natural = [max(columns_of(head), *(columns_of(row[i].text) for row in rows), 0) for i, head in enumerate(heads)]
    widths = _fitting(natural, right, columns)
    lines = [_line([Cell(head) for head in heads[: len(widths)]], widths, right, colour=False)]
    for row in rows:
        lines.append(_line(row[: len(widths)], widths, right, colour=colour))
        if len(widths) < len(heads):
            lines += _below(heads, row, len(widths), right, columns, colour=colour)
    texts, is_last_cut = {}, len(widths) == len(heads) > 1 and widths[-1] < natural[-1]
    if is_last_cut:
        texts = _cut_texts(rows, widths, printed)
        in_full = list(texts.items())[:MOST_IN_FULL]
        lines += [fold(f"  {listed(names)}: {text}", columns, indent="    ") for text, names in in_full]
    cut_too = zip(widths[:-1] if is_last_cut else widths, natural, strict=False)
    if len(texts) > MOST_IN_FULL or (rows and any(size < wanted for size, wanted in cut_too)):
        lines.append(f"(cut; COLUMNS={_total(natural)} shows all)")
    return Shown("\n".join(lines))


def _cut_texts(rows: Sequence[Sequence[Cell]], widths: Sequence[int], printed: Collection[str]) -> dict[str, list[str]]:
    """The texts of the last column that do not fit, each with the names of its rows as the table shows them."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        if columns_of(row[-1].text) > widths[-1] and row[-1].text not in printed:
            texts.setdefault(row[-1].text, []).append(cut(row[0].text, widths[0], keep_end=True))
    return texts


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _fitting(natural: Sequence[int], right: frozenset[int], columns: int) -> list[int]:
    """Widths of the columns that fit in one line; the others go below the row."""
    last = len(natural) - 1
    for kept in range(len(natural), 0, -1):
        widths = list(natural[:kept])
        if kept == len(natural) and last > 0 and last not in right:
            _shrink(widths, last, LEAST_TEXT, columns)
        _shrink(widths, 0, LEAST_NAME, columns)
        if _total(widths) <= columns or kept <= min(2, len(natural)):
            break
    _shrink(widths, 0, 8, columns)
    return widths


def _shrink(widths: list[int], index: int, least: int, columns: int) -> None:
    over = _total(widths) - columns
    if over > 0:
        widths[index] = max(min(least, widths[index]), widths[index] - over)


def _line(row: Sequence[Cell], widths: Sequence[int], right: frozenset[int], *, colour: bool) -> str:
    """One line, without trailing spaces."""
    last = max((index for index, cell in enumerate(row) if cell.text), default=0)
    parts = []
    for index, (cell, size) in enumerate(zip(row[: last + 1], widths, strict=False)):
        text = cut(cell.text, size, keep_end=index == 0)
        if index in right or index < last:
            text = padded(text, size, right=index in right)
        parts.append(_toned(text, cell.tone, colour=colour))
    return (" " * _GAP).join(parts)


def _below(
    heads: Sequence[str], row: Sequence[Cell], start: int, right: frozenset[int], columns: int, *, colour: bool
) -> list[str]:
    """The columns that did not fit, below their row: a single text column alone, others with their names."""
    left_over = list(zip(heads, row, strict=True))[start:]
    if len(left_over) == 1 and start not in right:
        text = left_over[0][1].text
    else:
        text = " · ".join(f"{head.lower()} {cell.text}" for head, cell in left_over if cell.text not in ("", "-"))
    if not text:
        return []
    tone = next((cell.tone for _, cell in left_over if cell.tone == "bad"), row[-1].tone)
    return [_toned(line, tone, colour=colour) for line in fold("  " + text, columns, indent="  ").split("\n")]


def _toned(text: str, tone: str | None, *, colour: bool) -> str:
    code = _COLOURS.get(tone or "")
    return f"\033[{code}m{text}\033[0m" if colour and code else text
