"""The one writer of the program's output. Nothing else prints: the linter refuses ``print`` everywhere but here.

Texts come from files, stores, records, servers and their exceptions. Two types keep them apart from lines of ours. A
``str`` is one line: whatever is in it, ``say`` prints one line of visible characters. ``Shown`` is text that may have
several lines and colours: only ``line``, ``wrap`` and the renderers of this folder make it, out of escaped parts.
Secrets are removed on the way. ``show`` looks at every text once more, and lets nothing pass but line feeds and this
program's own sequences.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import NewType, TextIO

from reconciler.cli.terminal.encoding import can_show
from reconciler.cli.terminal.text import cut, fold
from reconciler.config.redaction import KNOWN
from reconciler.core.errors import ConfigError
from reconciler.core.text import escape, is_hidden, visible, whole_number

Shown = NewType("Shown", str)
"""Text for a terminal: foreign text in it is escaped, so its line feeds and colours are this program's."""

UNLIMITED = 1_000_000
"""Columns of output that is not a terminal."""
UNKNOWN = 80
"""Columns of a terminal of unknown size."""
_REWRITE = "\r\033[K"
_OURS = re.compile(r"\033\[[0-9;]*m|\r\033\[K|\n")
"""The control sequences that this program sends to a terminal: colours, a line written again, line feeds."""


def line(text: str) -> Shown:
    """``text`` as one line, with control and invisible characters as escapes, without secrets."""
    return Shown(visible(KNOWN.redacted(text)))


def stack(*parts: Shown) -> Shown:
    """Each part on lines of its own."""
    return Shown("\n".join(parts))


def wrap(*sentences: str, indent: str = "  ", columns: int | None = None) -> Shown:
    """Each sentence as a line, folded to ``columns`` (stdout's width)."""
    size = width() if columns is None else columns
    return stack(*(Shown(fold(line(sentence), size, indent=indent)) for sentence in sentences))


def say(*lines: str, stream: TextIO | None = None) -> None:
    """Print each text as one line, however long: a command can be copied from it."""
    show(*map(line, lines), stream=stream)


def show(*parts: Shown, stream: TextIO | None = None, end: str = "\n") -> None:
    """Print texts on stdout, or on ``stream``, each on lines of its own."""
    print(_checked(KNOWN.redacted(stack(*parts))), end=end, file=stream or sys.stdout, flush=not end)


def _checked(text: str) -> str:
    pieces, at = [], 0
    for ours in _OURS.finditer(text):
        pieces += [visible(text[at : ours.start()], kept="\t"), ours[0]]
        at = ours.end()
    return "".join([*pieces, visible(text[at:], kept="\t")])


def can_rewrite() -> bool:
    """Whether stderr is a terminal that can show a line again, and may be sent the sequence for it."""
    return wants_colour(sys.stderr)


def rewrite(text: str = "") -> None:
    """Write ``text`` over the current line of the terminal on stderr. A line that wraps could not be rewritten."""
    show(Shown(_REWRITE + cut(line(text), width(sys.stderr) - 1)), stream=sys.stderr, end="")


def show_json(value: object, *, indent: int | None = 1, sort_keys: bool = False) -> None:
    """Print a value as JSON on stdout; a reader gets the same value, and a terminal no control characters."""
    show_json_text(json.dumps(value, indent=indent, ensure_ascii=False, sort_keys=sort_keys) + "\n")


def show_json_text(text: str) -> None:
    """Print JSON on stdout. What JSON may hold and a terminal may not stands in strings, where an escape says it."""
    print(json_line_by_line(KNOWN.redacted(text)), end="")


def show_data(text: str, *, instead: str) -> None:
    """Print JSON on stdout that a program will take for its input: whole or not at all.

    Raises ConfigError, with ``instead`` as the way out, for a text that holds a secret: without it, the text would say
    something else.
    """
    if (secret := KNOWN.first_in(text)) is not None:
        raise ConfigError(
            f"The output holds the text of a configured secret ({secret}), which stdout never shows, so nothing was "
            "printed.",
            hint=instead,
        )
    show_json_text(text)


def json_line_by_line(text: str, stream: TextIO | None = None) -> str:
    """JSON text with everything in its strings that is hidden, or that the stream (stdout) cannot show, as escapes.

    Line feeds between its tokens stay.
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    has_all = can_show(text, stream)
    return "".join(
        json.dumps(c)[1:-1] if c != "\n" and (is_hidden(c) or not (has_all or can_show(c, stream))) else c for c in text
    )


def show_text(text: str) -> None:
    """Print another program's text on stdout: its lines as they are, control characters in them as escapes.

    The escape's own backslash is escaped, as all formats that are printed here do it (TOML, metrics, shells' quotes).
    """
    kept = "\n\t"
    print("".join("\\" + escape(c) if c not in kept and is_hidden(c) else c for c in text), end="")


def wants_colour(stream: TextIO | None = None) -> bool:
    """True on a terminal, unless NO_COLOR is set (https://no-color.org), or TERM is dumb."""
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def width(stream: TextIO | None = None) -> int:
    """Columns to fill: COLUMNS, else the terminal's width, else no limit."""
    if asked := whole_number(os.environ.get("COLUMNS", ""), UNLIMITED):
        return asked
    stream = sys.stdout if stream is None else stream
    if not stream.isatty():
        return UNLIMITED
    try:
        return os.get_terminal_size(stream.fileno()).columns or UNKNOWN
    except (OSError, ValueError):
        return UNKNOWN
