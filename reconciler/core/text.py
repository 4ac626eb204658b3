"""Texts for people: what others wrote made safe for one line, and numbers read from and written as decimal text.

Names and sentences come from files, stores, records, servers and their exceptions. A line break in one would begin a
line that looks like ours, a control sequence would be executed by the terminal, and an invisible or
direction-changing character makes one name look like another. So such characters become escapes, like ``\\x1b``.

Offsets are int64 and partitions int32, in the decimal text of people and of other programs.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Sequence

_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories: controls, invisible and undefined characters, line and paragraph separators."""


def visible(text: str, *, kept: str = "") -> str:
    """``text`` with every control or invisible character as an escape, except those in ``kept``."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        character if character in kept or not is_hidden(character) else escape(character) for character in text
    )


def is_hidden(character: str) -> bool:
    """Whether a terminal would execute the character or show nothing of it."""
    return unicodedata.category(character) in _ESCAPED_CATEGORIES


def escape(character: str) -> str:
    """One character as an escape of Python and most shells."""
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def command(*words: object) -> str:
    """A command line to be copied into a shell, with invisible characters as escapes (bash, zsh, ksh)."""
    return " ".join(_quoted(str(word)) for word in words)


def _quoted(word: str) -> str:
    if visible(word) == word:
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{visible(escaped)}'"


INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INT32_MAX = 2**31 - 1

_NUMBER = re.compile(r"[ \t\r\n]*([+-]?[0-9]{1,40})[ \t\r\n]*")
_LONGEST = 40
"""Digits, also leading zeros. Python refuses to read a number of some thousands."""
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")


class NotDecimal(ValueError):
    """The text is not a whole number of 64 bits; the message is the end of a sentence about it."""


def offset_of(text: str | bytes) -> int:
    """The number in ``text``; white space around it is ignored. Raises only ``NotDecimal``, whatever the text."""
    if isinstance(text, bytes):
        try:
            text = text.decode("ascii")
        except UnicodeDecodeError:
            raise NotDecimal("is not text") from None
    found = _NUMBER.fullmatch(text)
    if found is None:
        raise NotDecimal("is empty" if not text.strip() else "is not a whole number")
    number = int(found[1])
    if not INT64_MIN <= number <= INT64_MAX:
        raise NotDecimal("does not fit into 64 bits")
    return number


def partition_of(name: str) -> int | None:
    """A partition's number from its decimal name; None for any other name (such as ``07``)."""
    if _PARTITION.fullmatch(name) is None:
        return None
    number = int(name)
    return number if number <= INT32_MAX else None


def whole_number(text: str | bytes, most: int = INT64_MAX) -> int | None:
    """The number from 0 to ``most`` in ASCII digits; None for any other text, however long."""
    found = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    if not found.isascii() or not found.isdecimal() or len(found) > _LONGEST:
        return None
    number = int(found)
    return number if number <= most else None


def counted(number: int, noun: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


MOST_NAMES = 10
"""Names in one sentence on a plan."""


def some(names: Sequence[str], most: int = 5) -> str:
    """Names for a sentence: the first ``most``, and how many more."""
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
