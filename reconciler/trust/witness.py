"""Heads of an audit log, kept where its writer cannot change them: they vouch for the chain up to the last of them.

A head is a record's number and hash. A chain of hashes without a key can be made again by anyone who can write the
file, from any record on; a head that was noted elsewhere then no longer fits. The file of heads has a line for every
record, in the words that the commands also log, so what a log server has collected serves as well.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.core.errors import Changed, ConfigError
from reconciler.core.visible import visible
from reconciler.fileio import open_regular, sync_names

_HEAD = re.compile(r"\brecord (\d{1,18}), hash ([0-9a-f]{64})\b")
_LAST = re.compile(rb"\brecord \d{1,18}, hash [0-9a-f]{64}\Z")
_NAMED = "audit log "
_BEGINNING = _NAMED.encode()
_LONGEST = 20_000
"""Characters before a head in which its log's path is looked for: paths have 4,096 bytes, with escapes more."""
_TAIL = 64 * 1024
"""Bytes at the end of the file of heads that are read before one is appended: more than its longest line."""
LARGEST = 256 << 20
MOST_NAMES = 3


def sentence(log_path: Path, line: int, head: str) -> str:
    """A head in the words in which it is logged and kept."""
    return f"{_NAMED}{log_path}: record {line}, hash {head}"


class Witness:
    """The file of heads at ``path``, which is only appended to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Raise ConfigError if nothing can be appended now, or the file holds something else than heads."""
        self._append(b"")

    def check_existing(self) -> None:
        """Raise as ``check`` does, if there is a file; none is made."""
        with self._keeping():
            self._is_ended()

    def keep(self, text: str) -> None:
        """Append a head as a line, on the disk. Raises as ``check`` does."""
        self._append(_one_line(text).encode() + b"\n")

    def _append(self, text: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with self._keeping():
            is_new = not self.path.exists()
            with os.fdopen(open_regular(self.path, flags), "ab", buffering=0) as file:
                is_ended = self._is_ended()
                if text:
                    line = text if is_ended else b"\n" + text
                    if file.write(line) != len(line):
                        raise OSError("there was room for only a part of it")
                    os.fsync(file.fileno())
            if is_new:
                sync_names(self.path.parent)

    def _is_ended(self) -> bool:
        """True if the file's last line has an end. Raises ConfigError if it is neither a head nor a head's beginning.

        A full disk leaves a beginning, and a power cut zeros after it.
        """
        try:
            with os.fdopen(open_regular(self.path), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
                tail = file.read()
        except (FileNotFoundError, PermissionError):  # its writers need not be able to read it
            return True
        last = tail.rstrip(b"\n").rpartition(b"\n")[2].rstrip(b"\0")
        if not (_BEGINNING.startswith(last[: len(_BEGINNING)]) or _LAST.search(last)):
            raise ConfigError(
                f"{self.path} is not a file of an audit log's heads: its last line is not one. Nothing else was "
                "written.",
                hint="Give [trust] audit_heads a file of its own.",
            )
        return not tail or tail.endswith(b"\n")

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        """Raise the system's errors as ConfigError."""
        try:
            yield
        except OSError as error:
            raise ConfigError(
                f"The heads of the audit log cannot be kept in {self.path}: {error.strerror or error}. Nothing else "
                "was written.",
                hint="Check [trust] audit_heads: a change that nothing vouches for is not made.",
            ) from error


@dataclass(frozen=True, slots=True)
class KeptHead:
    """A head that was kept elsewhere; ``said``: the words before it, which end with its log's path; None without it."""

    line: int
    hash: str
    said: str | None = None

    @property
    def log(self) -> str | None:
        """The path of its log, as the message has it."""
        return None if self.said is None else self.said.rpartition(_NAMED)[2]

    def is_of(self, paths: Collection[str]) -> bool:
        return self.said is not None and any(self.said.endswith(f"{_NAMED}{path}") for path in paths)


@dataclass(frozen=True, slots=True)
class Vouched:
    """The last record that heads vouch for, and the other logs, by their paths, whose heads lie in the same file."""

    last: int
    others: tuple[str, ...] = ()

    @property
    def others_text(self) -> str:
        return _listed(self.others)


def heads_in(path: Path) -> list[KeptHead]:
    """The heads in a file of heads, or in the collected messages of the commands.

    Raises ConfigError if there is none: an empty witness vouches for nothing.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            content = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"The heads {path} cannot be read: {error.strerror or error}.") from error
    if len(content) > LARGEST:
        raise ConfigError(f"The heads {path} are larger than {LARGEST >> 20} MiB.", hint="Leave out other messages.")
    text, end = content.decode(errors="replace"), 0
    found: list[KeptHead] = []
    for each in _HEAD.finditer(text):
        begin = max(end, text.rfind("\n", end, each.start()) + 1, each.start() - _LONGEST)
        before, end = text[begin : each.start()], each.end()
        said = before[:-2] if before.endswith(": ") and _NAMED in before else None
        found.append(KeptHead(int(each[1]), each[2], said))
    if not found:
        raise ConfigError(
            f"There is no head of an audit log in {path}.",
            hint='Give the commands\' messages, with their lines "audit log …: record …, hash …".',
        )
    return found


def compare(log_path: Path, hashes: Mapping[int, str], path: Path) -> Vouched:
    """What the heads in ``path`` vouch for. Raises Changed if one of this log is not in it, or if one may be of it.

    A log server collects the messages about many logs. Where the heads name several, those count that name this one,
    and those of a log that has a head in common with it: its name before it was moved, or that of the log which this
    is a copy of. Raises ConfigError if no head is of this log.
    """
    heads = heads_in(path)
    logs = {each.log for each in heads if each.log is not None}
    ours = _of_this(log_path, hashes, heads) if len(logs) > 1 else heads
    others = tuple(sorted(logs - {each.log for each in ours}))
    if not ours:
        raise ConfigError(
            f"{path} has heads of {len(others)} audit logs, and none of {log_path}: {_listed(others)}. Nothing "
            "vouches for its records.",
            hint="Give the messages about this log, or its path as they have it. If it is one of these, or a copy of "
            "one, none of its records is left.",
        )
    for each in ours:
        if hashes.get(each.line) != each.hash:
            what = "is another one" if each.line in hashes else "is missing"
            named = "" if each.log is None or each.is_of(_spellings(log_path)) else f" (of the audit log {each.log})."
            raise Changed(
                f"Record {each.line} of the audit log {log_path} {what}: {path} has its hash {each.hash[:16]}…{named} "
                "The log was rewritten, cut off or replaced.",
                hint="Compare it with a copy. If the log was moved away and a new one begun, or another machine has "
                "a log under this path, give that log's heads.",
            )
    last = max(each.line for each in ours)
    _refuse_continuation(log_path, [each for each in heads if each.log in others], last, path)
    return Vouched(last, others)


def _refuse_continuation(log_path: Path, foreign: Sequence[KeptHead], last: int, path: Path) -> None:
    """Raise Changed for heads under another path that may be those of records that this log no longer has.

    They have this log's file name, and all of them are of later records than ``last``, up to which the heads of this
    log fit. A log with an earlier head is certainly another one, as that head would fit too.
    """
    names = {each.rpartition("/")[2] for each in _spellings(log_path)}
    for log in sorted({each.log for each in foreign if each.log is not None and each.log.rpartition("/")[2] in names}):
        first = min(each.line for each in foreign if each.log == log)
        if first > last:
            raise Changed(
                f"{path} vouches for the records of the audit log {log_path} up to {last}, and has heads from record "
                f"{first} on of the audit log {log}, which may be this log under another name: then its end was "
                "rewritten or cut off.",
                hint=f"Compare it with a copy. If {log} is another log, give the heads without its lines.",
            )


def _of_this(log_path: Path, hashes: Mapping[int, str], heads: Sequence[KeptHead]) -> list[KeptHead]:
    """The heads of this log; those that name no log were noted by hand, for this one."""
    paths = _spellings(log_path)
    known = {each.log for each in heads if each.log is not None and hashes.get(each.line) == each.hash}
    return [each for each in heads if each.log is None or each.log in known or each.is_of(paths)]


def _spellings(path: Path) -> frozenset[str]:
    """How a message may have the path: as it is, in full, with escapes, or in JSON."""
    full = {str(path), os.path.abspath(path), os.path.realpath(path)}
    shown = {text for each in full for text in (each, visible(each), _one_line(each))}
    return frozenset(
        {*shown, *(json.dumps(each, ensure_ascii=ascii)[1:-1] for each in shown for ascii in (True, False))}
    )


def _one_line(text: str) -> str:
    return text.encode(errors="backslashreplace").replace(b"\n", b"\\n").decode()


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
