"""Heads of an audit log, kept where its writer cannot change them: they vouch for the chain up to the last of them.

A head is a record's number and hash. A chain of hashes without a key can be made again by anyone who can write the
file, from any record on; a head that was noted elsewhere then no longer fits. The file of heads has a line for every
record, in the words that the commands also log, so what a log server has collected serves as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from reconciler.core.errors import Changed, ConfigError
from reconciler.fileio import open_regular, sync_names

_HEAD = re.compile(r"\brecord (\d{1,18}), hash ([0-9a-f]{64})\b")
LARGEST = 256 << 20


def sentence(log_path: Path, line: int, head: str) -> str:
    """A head in the words in which it is logged and kept."""
    return f"audit log {log_path}: record {line}, hash {head}"


class Witness:
    """The file of heads at ``path``, which is only appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Raise ConfigError if nothing can be appended now."""
        self._append(b"")

    def keep(self, text: str) -> None:
        """Append a head as a line, on the disk. Raises as ``check`` does."""
        self._append(text.encode(errors="backslashreplace").replace(b"\n", b"\\n") + b"\n")

    def _append(self, text: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        try:
            is_new = not self.path.exists()
            with os.fdopen(open_regular(self.path, flags), "ab", buffering=0) as file:
                if text:
                    if file.write(text) != len(text):
                        raise OSError("there was room for only a part of it")
                    os.fsync(file.fileno())
            if is_new:
                sync_names(self.path.parent)
        except OSError as error:
            raise ConfigError(
                f"The heads of the audit log cannot be kept in {self.path}: {error.strerror or error}. Nothing else "
                "was written.",
                hint="Check [trust] audit_heads: a change that nothing vouches for is not made.",
            ) from error


def heads_in(path: Path) -> list[tuple[int, str]]:
    """The heads in a file of heads, or in the collected messages of the commands.

    Raises ConfigError if there is none: an empty witness vouches for nothing.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"The heads {path} cannot be read: {error.strerror or error}.") from error
    if len(text) > LARGEST:
        raise ConfigError(f"The heads {path} are larger than {LARGEST >> 20} MiB.", hint="Leave out other messages.")
    found = [(int(line), head) for line, head in _HEAD.findall(text.decode(errors="replace"))]
    if not found:
        raise ConfigError(
            f"There is no head of an audit log in {path}.",
            hint='Give the commands\' messages, with their lines "audit log …: record …, hash …".',
        )
    return found


def compare(log_path: Path, hashes: Mapping[int, str], path: Path) -> int:
    """The last record that the heads in ``path`` vouch for. Raises Changed if one of them is not in the log."""
    heads = heads_in(path)
    for line, head in heads:
        if hashes.get(line) != head:
            what = "is another one" if line in hashes else "is missing"
            raise Changed(
                f"Record {line} of the audit log {log_path} {what}: {path} has its hash {head[:16]}… The log was "
                "rewritten, cut off or replaced.",
                hint="Compare it with a copy. If the log was moved away and a new one begun, give that log's heads.",
            )
    return max(line for line, _ in heads)
