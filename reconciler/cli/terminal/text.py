"""Text measured in the columns of a terminal, cut, and folded at spaces."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from reconciler.cli.terminal.encoding import shown
from reconciler.core.text import MOST_NAMES, some

ELLIPSIS = "…"


def columns_of(text: str) -> int:
    """The columns that ``text`` takes on a terminal: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def _width(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, columns: int, *, keep_end: bool = False) -> str:
    """``text`` shortened to ``columns``, with an ellipsis for the part left out (the beginning, if ``keep_end``)."""
    if columns_of(text) <= columns:
        return text
    mark = shown(ELLIPSIS)
    left = max(0, columns - len(mark))
    if keep_end:
        kept = "".join(reversed(list(_fitting(reversed(text), left))))
        while kept and _width(kept[0]) == 0:  # combines with a character that was left out
            kept = kept[1:]
        return mark + kept
    return "".join(_fitting(iter(text), left)) + mark


def _fitting(characters: Iterator[str], columns: int) -> Iterator[str]:
    for character in characters:
        columns -= _width(character)
        if columns < 0:
            return
        yield character


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """``text`` padded with spaces to ``columns``; ``right`` aligns it to the right."""
    spaces = " " * max(0, columns - columns_of(text))
    return spaces + text if right else text + spaces


def fold(text: str, columns: int, *, indent: str = "") -> str:
    """A sentence folded to ``columns``, lines after the first indented. A longer word stays whole, for copying."""
    start = len(text) - len(text.lstrip(" "))
    first, *words = text[start:].split(" ")
    lines, line = [], text[:start] + first
    for word in words:
        if columns_of(line) + 1 + columns_of(word) > columns:
            lines.append(line.rstrip(" "))
            line = indent + word
        else:
            line += " " + word
    return "\n".join([*lines, line])


def listed(names: Sequence[str]) -> str:
    """The first ``MOST_NAMES`` names, and how many more there are."""
    return some(names, MOST_NAMES)


def duration(seconds: float) -> str:
    """``45 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60:,} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60:,} h"


def in_bytes(size: int) -> str:
    """``512 bytes``, ``3.4 MiB``."""
    value, units = float(size), ["KiB", "MiB", "GiB", "TiB"]
    if size < 1024:
        return f"{size} bytes"
    while (value := value / 1024) >= 1024 and len(units) > 1:
        units.pop(0)
    return f"{value:.1f} {units[0]}"
