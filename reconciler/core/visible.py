"""Text of others, made safe for a line of ours: control and invisible characters as escapes, like ``\\x1b``.

Names and sentences come from files, stores, records, servers and their exceptions. A line break in one would begin a
line that looks like ours, a control sequence would be executed by the terminal, and an invisible or
direction-changing character makes one name look like another.
"""

from __future__ import annotations

import shlex
import unicodedata

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
