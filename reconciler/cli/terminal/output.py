"""The one writer of the program's output, and the texts that it writes. The linter refuses ``print`` everywhere else.

Texts come from files, stores, records, servers and their exceptions. Two types keep them apart from lines of ours. A
``str`` is one line: whatever is in it, ``say`` prints one line of visible characters. ``Shown`` is text that may have
several lines and colours: only ``line``, ``wrap`` and the renderers of this folder make it, out of escaped parts.
Secrets are removed on the way. ``show`` looks at every text once more, and lets nothing pass but line feeds and this
program's own sequences.

All text is Unicode; a stream writes an escape for a character that its encoding lacks. A pipe's
reader may end before the command does, like ``head``. The command carries on and ends with the same exit code: a hook
that ended with 0 would let its job start.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NewType, TextIO

from reconciler.config.secrets import KNOWN
from reconciler.core.errors import ConfigError
from reconciler.core.text import MOST_NAMES, escape, is_hidden, some, visible, whole_number

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

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
    """True if stderr is a terminal that can show a line again, and may be sent the sequence for it."""
    return wants_colour(sys.stderr)


def rewrite(text: str = "") -> None:
    """Write ``text`` over the current line of the terminal on stderr. A line that wraps could not be rewritten."""
    show(Shown(_REWRITE + cut(line(text), width(sys.stderr) - 1)), stream=sys.stderr, end="")


def show_json(value: object, *, indent: int | None = 1, sort_keys: bool = False) -> None:
    """Print a value as JSON on stdout; a reader gets the same value, and a terminal no control characters."""
    show_json_text(json.dumps(value, indent=indent, ensure_ascii=False, sort_keys=sort_keys) + "\n")


def show_json_text(text: str) -> None:
    """Print JSON on stdout. Characters that a terminal must not get are in strings, and are printed as escapes."""
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


# ---------------------------------------------------------------- streams made safe


_ERRORS = "backslashreplace"


class _Pipe(io.FileIO):
    """The pipe of a stream. Once its reader has ended, nothing is written.

    It keeps the stream, which would close its descriptor with it.
    """

    is_read = True

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream.fileno(), "wb", closefd=False)
        self._stream = stream

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            self.is_read = False
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return memoryview(data).nbytes


def prepare_streams() -> None:
    """Let stdout and stderr escape characters that their encoding lacks, and ignore a reader that has ended."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)
        if type(stream) is io.TextIOWrapper and not isinstance(_raw(stream), _Pipe) and _is_pipe(stream):
            setattr(sys, name, _outliving(stream))


def is_read(stream: TextIO) -> bool:
    """False once a text for the stream was lost, because its reader had ended."""
    stream.flush()
    raw = _raw(stream)
    return not isinstance(raw, _Pipe) or raw.is_read


def _is_pipe(stream: io.TextIOWrapper) -> bool:
    kind = os.fstat(stream.fileno()).st_mode
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


def _raw(stream: TextIO) -> object:
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def _outliving(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Pipe(stream)),
        encoding=stream.encoding,
        errors=_ERRORS,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def can_show(text: str, stream: TextIO | None = None) -> bool:
    """True if the stream (stdout) has all characters of ``text`` in its encoding."""
    if text.isascii():
        return True
    try:
        text.encode((sys.stdout if stream is None else stream).encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


# ---------------------------------------------------------------- text in columns


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
    left = max(0, columns - len(ELLIPSIS))
    if keep_end:
        kept = "".join(reversed(list(_fitting(reversed(text), left))))
        while kept and _width(kept[0]) == 0:  # combines with a character that was left out
            kept = kept[1:]
        return ELLIPSIS + kept
    return "".join(_fitting(iter(text), left)) + ELLIPSIS


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


def confirm(question: str, *, yes: bool) -> None:
    """Ask on the terminal unless ``yes``. Raises ConfigError if stdin is not a terminal or the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "This needs a confirmation, and stdin is not a terminal.", hint="Add --yes. Nothing was written."
        )
    show(line(f"{question} [y/N] "), stream=sys.stderr, end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("Not confirmed: nothing was written.")
