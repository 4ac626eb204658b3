"""The one table renderer: columns that fit the terminal, colour only where it is wanted.

What does not fit gives way in this order: the last column, if it is text, is cut at its end; the first column, a name,
at its beginning, since partitions differ at the end; then columns from the right go to a line of their own below each
row. A line below the table says that something was cut, and the width that would show it. Where the output is no
terminal, nothing is cut and nothing is folded: a log keeps whole lines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from reconciler.cli.terminal.text import columns_of, cut, fold, padded, visible

_COLOURS = {"good": "32", "warn": "33", "bad": "31", "dim": "2"}
_GAP = 2
UNLIMITED = 1_000_000
"""Columns where nobody looks at a terminal."""
UNKNOWN = 80
"""Columns of a terminal that does not say its size."""
LEAST_NAME, LEAST_TEXT = 24, 18
"""What the first and the last column are cut down to before columns go below the row."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text and its tone: good, warn, bad, dim or none. What cannot be shown as it is, is an escape."""

    text: str
    tone: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", visible(self.text))


def wants_colour(stream: TextIO | None = None) -> bool:
    """True on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width(stream: TextIO | None = None) -> int:
    """Columns to fill: COLUMNS, else the terminal's; without limit where there is none."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    stream = sys.stdout if stream is None else stream
    if not stream.isatty():
        return UNLIMITED
    try:
        return os.get_terminal_size(stream.fileno()).columns or UNKNOWN
    except (OSError, ValueError):
        return UNKNOWN


def told(sentence: str, *, indent: str = "  ", stream: TextIO | None = None) -> str:
    """A sentence as the terminal is to show it: folded to its width, and nothing in it obeyed. Line feeds stay."""
    lines = visible(sentence, kept="\n").split("\n")
    return "\n".join(fold(line, width(stream), indent=indent) for line in lines)


def render(
    heads: Sequence[str], rows: Sequence[Sequence[Cell]], *, right: frozenset[int], columns: int, colour: bool
) -> str:
    """Lines of a table at most ``columns`` wide; ``right`` are the columns that stand at the right, such as numbers."""
    natural = [max(columns_of(head), *(columns_of(row[i].text) for row in rows), 0) for i, head in enumerate(heads)]
    widths = _fitting(natural, right, columns)
    lines = [_line([Cell(head) for head in heads[: len(widths)]], widths, right, colour=False)]
    for row in rows:
        lines.append(_line(row[: len(widths)], widths, right, colour=colour))
        if len(widths) < len(heads):
            lines += _below(heads, row, len(widths), right, columns, colour=colour)
    if rows and any(size < wanted for size, wanted in zip(widths, natural, strict=False)):
        lines.append(f"(cut; COLUMNS={_total(natural)} shows all)")
    return "\n".join(lines)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _fitting(natural: Sequence[int], right: frozenset[int], columns: int) -> list[int]:
    """Widths of the columns that stand in one line; those left out go below."""
    last = len(natural) - 1
    for kept in range(len(natural), 0, -1):
        widths = list(natural[:kept])
        if kept == len(natural) and last > 0 and last not in right:
            _give_way(widths, last, LEAST_TEXT, columns)
        _give_way(widths, 0, LEAST_NAME, columns)
        if _total(widths) <= columns or kept <= min(2, len(natural)):
            break
    _give_way(widths, 0, 8, columns)
    return widths


def _give_way(widths: list[int], index: int, least: int, columns: int) -> None:
    over = _total(widths) - columns
    if over > 0:
        widths[index] = max(min(least, widths[index]), widths[index] - over)


def _line(row: Sequence[Cell], widths: Sequence[int], right: frozenset[int], *, colour: bool) -> str:
    """One line, without spaces at its end."""
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
    """The columns that did not fit, under their row: a text alone, else what there is, each with its name."""
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
