"""The one table renderer: columns that fit the terminal, colour only where it is wanted."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass

_COLOURS = {"good": "32", "warn": "33", "bad": "31", "dim": "2"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell's text and its tone: good, warn, bad, dim or none."""

    text: str
    tone: str | None = None


def wants_colour(stream: object = None) -> bool:
    """True on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    stream = sys.stdout if stream is None else stream
    is_terminal = bool(getattr(stream, "isatty", lambda: False)())
    return is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width() -> int:
    """Columns to fill: the terminal's; 100 where there is none."""
    return shutil.get_terminal_size((100, 24)).columns


def render(
    heads: Sequence[str], rows: Sequence[Sequence[Cell]], *, right: frozenset[int], columns: int, colour: bool
) -> str:
    """Lines of a table ``columns`` wide. The last column takes what is left and is cut with an ellipsis."""
    widths = [max(len(head), *(len(row[i].text) for row in rows), 0) for i, head in enumerate(heads)]
    left_over = columns - sum(widths[:-1]) - 2 * (len(widths) - 1)
    widths[-1] = max(8, min(widths[-1], left_over))
    spare = columns - sum(widths) - 2 * (len(widths) - 1)
    if spare < 0:
        widths[0] = max(12, widths[0] + spare)  # long topic names give way first; their end tells partitions apart
    lines = [_line([Cell(head) for head in heads], widths, right, colour=False).rstrip()]
    lines += [_line(row, widths, right, colour=colour).rstrip() for row in rows]
    return "\n".join(lines)


def _line(row: Sequence[Cell], widths: Sequence[int], right: frozenset[int], *, colour: bool) -> str:
    parts = []
    for index, (cell, size) in enumerate(zip(row, widths, strict=True)):
        text = _cut(cell.text, size, keep_end=index == 0)
        text = text.rjust(size) if index in right else text.ljust(size)
        code = _COLOURS.get(cell.tone or "")
        parts.append(f"\033[{code}m{text}\033[0m" if colour and code else text)
    return "  ".join(parts)


def _cut(text: str, size: int, *, keep_end: bool) -> str:
    if len(text) <= size:
        return text
    return "…" + text[-(size - 1) :] if keep_end else text[: size - 1] + "…"
