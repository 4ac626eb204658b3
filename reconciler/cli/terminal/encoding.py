"""Stdout and stderr made safe: they replace characters that their encoding lacks, and ignore a reader that has ended.

All text is composed in Unicode; a stream writes an ASCII replacement for a sign that it cannot show. One exception is
the mark of a text that was cut to a column's width: there the width counts, so ``shown`` says which mark it will be.

A pipe's reader may end before the command does, like ``head``, or a forwarder of logs that dies. The command carries on
and ends with the same exit code as without it: a hook that ended with 0 would let its job start.
"""

from __future__ import annotations

import codecs
import io
import os
import stat
import sys
from typing import TYPE_CHECKING, TextIO

from reconciler.core.text import escape

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_PLAIN = {"≤": "<=", "…": "...", "·": "|", "–": "-", "→": "->"}
_ERRORS = "reconciler.plain"


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
    """Let stdout and stderr replace characters that their encoding lacks, and ignore a reader that has ended."""
    codecs.register_error(_ERRORS, _plain)
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


def shown(sign: str) -> str:
    """``sign`` as stdout will show it."""
    return sign if can_show(sign) else "".join(_PLAIN.get(each, escape(each)) for each in sign)


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
    """The ASCII text for characters that could not be encoded, and the position to continue at."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text, at, written = error.object, error.start, ""
    while at < error.end:
        written += _PLAIN.get(text[at], escape(text[at]))
        at += 2 if text[at : at + 2] == "≤ " else 1  # a cell keeps its width
    return written, at
