"""Characters that a terminal's encoding has not: written in ASCII, so that a bound still looks like a bound.

Every text is made with Unicode's signs; the streams write what they cannot show in another way. One exception is the
mark of a text that was cut to a column's width: there the width counts, so ``shown`` says which mark it will be.
"""

from __future__ import annotations

import codecs
import io
import sys
from typing import TextIO

from reconciler.core.visible import escape

_PLAIN = {"≤": "<=", "…": "...", "·": "|", "–": "-", "→": "->"}
_ERRORS = "reconciler.plain"


def prepare_streams() -> None:
    """Have stdout and stderr write in ASCII what their encoding does not have, instead of failing."""
    codecs.register_error(_ERRORS, _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def shown(sign: str, stream: TextIO | None = None) -> str:
    """``sign`` as the stream (stdout) will show it."""
    return sign if can_show(sign, stream) else "".join(_PLAIN.get(each, escape(each)) for each in sign)


def can_show(text: str, stream: TextIO | None = None) -> bool:
    """Whether the stream (stdout) has all characters of ``text`` in its encoding."""
    if text.isascii():
        return True
    try:
        text.encode((sys.stdout if stream is None else stream).encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _plain(error: UnicodeError) -> tuple[str, int]:
    """The ASCII text for characters that could not be encoded, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text, at, written = error.object, error.start, ""
    while at < error.end:
        written += _PLAIN.get(text[at], escape(text[at]))
        at += 2 if text[at : at + 2] == "≤ " else 1  # a cell keeps its width
    return written, at
