"""The text of a checkpoint's log files, split as Spark splits it.

Sources: Spark's ``OffsetSeqLog``, ``CommitLog`` and ``MetadataVersionUtil``, and edited files that PySpark 3.5.7, 4.2.1
and 4.3.0 were started on. A line ends with ``\\n``, ``\\r`` or both. Null bytes behind the last line's JSON are
ignored. A byte order mark, a blank line in front, or blanks around the version are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.formats.json_fields import FieldError

BREAK = re.compile(r"(\r\n|\r|\n)")
_VERSION = re.compile(r"v0*([1-9][0-9]{0,8})")
_NULLS = "which a file system leaves after a power failure"


class TornError(FieldError):
    """The content ends too early, or is gone: a crash leaves such a file."""


class UnusableError(FieldError):
    """The file ``file`` is understood, and cannot be used. ``advice``: what to do."""

    def __init__(self, file: str, problem: str, advice: str) -> None:
        super().__init__(None, problem)
        self.file = file
        self.advice = advice


def decoded(data: bytes) -> str:
    """The text. Raises FieldError, and TornError where nothing is left of it."""
    if not data.strip(b"\0 \t\r\n"):
        raise TornError(None, f"has only null bytes, {_NULLS}" if b"\0" in data else "is empty")
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        raise FieldError(None, "is not text") from err


def versioned(data: bytes, known: Sequence[int]) -> tuple[int, list[str]]:
    """The version and the lines after it. Raises as ``decoded`` does, and FieldError for a version not ``known``."""
    lines = BREAK.split(decoded(data))[::2]
    if lines[-1] == "":
        lines.pop()
    lines[-1] = lines[-1].rstrip("\0") or lines[-1]
    found = _VERSION.fullmatch(lines[0])
    if found is None:
        mark = ", but with a byte order mark: save it without one" if lines[0].startswith("\ufeff") else ""
        raise FieldError(None, f"does not begin with a version{mark}")
    version = int(found.group(1))
    if version not in known:
        verb = "is" if len(known) == 1 else "are"
        raise FieldError(None, f"has version v{version}, and only {' and '.join(f'v{n}' for n in known)} {verb} known")
    return version, lines[1:]
