"""Text for a terminal or a page: control characters escaped, measured in columns, cut, and folded at spaces.

Names and sentences come from stores, files and other programs. A control sequence in one would be executed by the
terminal, and an invisible or direction-changing character makes one name look like another: all of these are printed
as escapes, like ``\\x1b`` and ``\\u202e``.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories: controls, invisible and undefined characters, line and paragraph separators."""

ELLIPSIS = "…"


def visible(text: str, *, kept: str = "") -> str:
    """``text`` with every control or invisible character as an escape, except those in ``kept``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character
        if character in kept or unicodedata.category(character) not in _ESCAPED_CATEGORIES
        else escape(character)
        for character in text
    )


def escape(character: str) -> str:
    """One character as an escape of Python and most shells."""
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


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
    if keep_end:
        kept = "".join(reversed(list(_fitting(reversed(text), columns - 1))))
        while kept and _width(kept[0]) == 0:  # combines with a character that was left out
            kept = kept[1:]
        return ELLIPSIS + kept
    return "".join(_fitting(iter(text), columns - 1)) + ELLIPSIS


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
