"""The audit log: an append-only file in which each line holds the hash of the line before it.

Format ``reconciler.audit-log/1``: one object of canonical JSON a line, with a newline at its end. ``hash`` is the
SHA-256 of the object without it; ``prev`` is the hash of the record before, 64 zeros for the first.

Invariants that ``verified`` checks and ``AuditLog`` keeps:

1. A line is the canonical JSON of a record, byte for byte, or it is torn: the beginning of a line whose writing was
   cut off, which is never JSON. A record that lacks only its newline is whole: the next one ends its line.
2. A torn line is followed by a record of kind ``torn`` that gives its length and its hash, unless it ends the file.
3. Records are numbered from 1, and each names the hash of the one before.

The chain has no key. It reveals a record that was altered, removed or moved by itself; it cannot reveal that its end
was cut off, or that everything from some record on was made again: that takes heads kept elsewhere (``witness``).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reconciler.core.errors import Changed, ConfigError
from reconciler.fileio import held_too_long, open_regular, sync_names, wait_for_lock
from reconciler.formats.json_fields import FieldError, canonical, digest_without, json_value

FORMAT = "reconciler.audit-log/1"
FIRST = "0" * 64
FIELDS = (
    *("format", "line", "time", "kind", "of", "action", "by", "command", "plan", "cluster_id", "jobs"),
    *("outcome", "exit_code", "message", "torn", "prev", "hash"),
)
_TYPES = {
    **dict.fromkeys(("time", "kind", "prev", "hash"), str),
    **dict.fromkeys(("of", "action", "cluster_id", "outcome", "message"), str | None),
    **dict.fromkeys(("by", "plan", "torn"), dict | None),
    **dict.fromkeys(("command", "jobs"), list | None),
    "line": int,
}
_BLOCK = 64 * 1024
_BEGINNING = b'{"action":'
_LOOK = "Examine it with: reconciler audit-log verify. Move it away and keep it; a new log is started automatically."

Record = Mapping[str, Any]


class NotARecord(ValueError):
    """A line of JSON that is no record of this format; the message completes a sentence about the line."""


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the log: the last record's number and hash, and the torn bytes after it.

    ``unended``: the record lacks its newline.
    """

    line: int = 0
    hash: str = FIRST
    torn: bytes = b""
    unended: bool = False


class RecordInDoubt(ConfigError):
    """The disk failed after a record was written, and refused its removal; ``head``: the record, if it is there."""

    def __init__(self, path: Path, error: OSError, head: Head) -> None:
        super().__init__(
            f"The audit log {path} cannot be written: {error.strerror or error}. The record may be in it all the same, "
            "and could not be removed. Nothing else was written.",
            hint="Check the disk of [trust] audit_log. What the log holds now: reconciler audit-log show.",
        )
        self.head = head


class AuditLog:
    """The log at ``path``. Each ``append`` reads the end of the file again, as other processes write it too."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Raise ConfigError if nothing can be appended now, Changed if the end of the log was altered."""
        with self._opened() as file:
            _head(file, self.path)

    def check_existing(self) -> None:
        """Raise as ``check`` does, if there is a file; none is made, and none locked."""
        with _writing(self.path):
            try:
                file = open_regular(self.path)
            except FileNotFoundError:
                return
        try:
            with _writing(self.path):
                _head(file, self.path)
        finally:
            os.close(file)

    def append(self, fields: Record, time_text: str) -> Head:
        """Write one record to the disk, and before it a ``torn`` record if the last line is torn.

        Raises as ``check`` does; then the log holds nothing of the record, or a torn beginning of it. Raises
        RecordInDoubt where it may hold the record although the disk failed.
        """
        with self._opened() as file:
            head = _head(file, self.path)
            text = b"\n" if head.unended else b""
            if head.torn:
                torn = {"bytes": len(head.torn), "sha256": hashlib.sha256(head.torn).hexdigest()}
                head, text = _line({"kind": "torn", "torn": torn}, time_text, head)
                text = b"\n" + text
            head, line = _line(fields, time_text, head)
            with _writing(self.path):
                self._put(file, text + line, head)
            if head.line == 1:
                sync_names(self.path.parent)
        return head

    def _put(self, file: int, data: bytes, head: Head) -> None:
        """Append ``data`` and flush it, or take it out again: its reader would believe it. Needs the lock."""
        size, done = os.fstat(file).st_size, 0
        try:
            done = os.write(file, data)
            if done < len(data):
                raise OSError("there was room for only a part of it")
            os.fsync(file)
        except OSError as error:
            try:
                os.ftruncate(file, size)
            except OSError:  # a file that can only be appended to, or a disk that is now read-only
                if done < len(data) - 1:
                    raise error from None  # a torn line: the next record declares it
                raise RecordInDoubt(self.path, error, head) from error
            with suppress(OSError):
                os.fsync(file)
            raise

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with _writing(self.path):
            file = open_regular(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            with _writing(self.path):
                if not wait_for_lock(file):
                    raise held_too_long(f"the audit log {self.path}")
            yield file
        finally:
            os.close(file)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Raise the system's errors as ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"The audit log {path} cannot be written: {error.strerror or error}. Nothing else was written.",
            hint="Check [trust] audit_log: a change that cannot be logged is not made.",
        ) from error


def _line(fields: Record, time_text: str, head: Head) -> tuple[Head, bytes]:
    record = dict.fromkeys(FIELDS[:-1]) | {"format": FORMAT, "time": time_text, "line": head.line + 1}
    record |= {"prev": head.hash, **fields}
    clean = {name: _encodable(value) for name, value in record.items()}
    own = hash_of(clean)
    return Head(head.line + 1, own), canonical({**clean, "hash": own}) + b"\n"


def _encodable(value: Any) -> Any:
    """Escape what is not valid Unicode: a file's name may be any bytes."""
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value


def hash_of(record: Record) -> str:
    return digest_without(record, "hash")


def record_of(line: bytes) -> Record | None:
    """The record in a line; None if the line is not JSON (torn).

    Raises NotARecord for JSON that is not a record, or was altered.
    """
    try:
        found = json_value(line.decode(), fractions=False)
    except (UnicodeDecodeError, FieldError):
        return None
    if not isinstance(found, dict) or found.keys() != set(FIELDS) or found["format"] != FORMAT:
        raise NotARecord(f"is not a record of format {FORMAT}")
    try:
        whole = canonical(found) == line and found["hash"] == hash_of(found)
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise NotARecord("was altered: its hash does not fit its content")
    if not all(isinstance(found[name], kinds) for name, kinds in _TYPES.items()) or not _has_jobs(found):
        raise NotARecord("is not a record, though its hash fits: this product did not write it")
    return found


def _has_jobs(found: Record) -> bool:
    jobs = found["jobs"] or []
    return all(
        isinstance(job, dict) and isinstance(job.get("name"), str) and isinstance(job.get("rows"), list) for job in jobs
    )


def _head(file: int, path: Path) -> Head:
    """Search backward for the last record. Raises Changed for a complete line that is not a record."""
    size, block = os.fstat(file).st_size, _BLOCK
    while True:
        begin = max(0, size - block)
        data = os.pread(file, size - begin, begin)
        # A line that begins before the block is left out, unless the block is the whole file.
        *lines, rest = (data if begin == 0 else data[data.find(b"\n") + 1 :]).split(b"\n")
        for number in reversed(range(len(lines))):
            try:
                record = record_of(lines[number])
            except NotARecord as error:
                raise Changed(f"The last line of the audit log {path} {error}.", hint=_LOOK) from error
            if record is not None:
                last = Head(record["line"], record["hash"])
                return _head_of(last, b"\n".join([*lines[number + 1 :], rest]), path)
        if begin == 0:
            if data and not _may_begin(data):
                raise _foreign(path)
            return _head_of(Head(), data, path)
        block *= 4


def _may_begin(data: bytes) -> bool:
    """True if a log without a whole record can hold this: torn lines, any of which may be very short."""
    first, *_ = lines = data.split(b"\n")
    return bool(first) and all(_BEGINNING.startswith(line.rstrip(b"\0")[: len(_BEGINNING)]) for line in lines)


def _foreign(path: Path) -> ConfigError:
    return ConfigError(f"{path} is not an audit log.", hint="Give [trust] audit_log a file of its own.")


def _head_of(last: Head, rest: bytes, path: Path) -> Head:
    """The head after ``last``, which ``rest`` follows: nothing, a torn line, or a record without its newline."""
    if rest.endswith(b"\n"):  # a line whose writing was cut off has no end
        raise Changed(f"The last line of the audit log {path} is not a record.", hint=_LOOK)
    try:
        record = record_of(rest)
        if record is None:
            return Head(last.line, last.hash, rest)
        return replace(_next(record, last, path), unended=True)
    except NotARecord as error:
        raise Changed(f"The last line of the audit log {path} {error}.", hint=_LOOK) from error


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class TornLine:
    """A line whose writing was cut off. ``declared``: the record after it says so."""

    after_line: int
    bytes: int
    declared: bool


def verified(path: Path) -> Iterator[Record | TornLine]:
    """Yield the log's records as long as the chain holds.

    Raises Changed at the first line that was altered; ConfigError if the file cannot be read, or is not an audit log. A
    file without a record may still be one: an empty file, or the beginning of a first record.
    """
    head, torn = Head(), b""
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            for raw in file:
                line = raw[:-1] if raw.endswith(b"\n") else raw
                try:
                    record = record_of(line)
                except NotARecord as error:
                    raise _broken(head, path, str(error)) from error
                if record is None or line is raw:  # without its newline it looks as one that was cut off
                    torn += raw
                    continue
                if torn:
                    yield _declared(record, torn[:-1], head, path)
                    torn = b""
                elif record["kind"] == "torn":
                    raise _broken(head, path, "reports a line that was cut off, but there is none")
                head = _next(record, head, path)
                yield record
    except OSError as error:
        raise ConfigError(f"The audit log {path} cannot be read: {error.strerror or error}.") from error
    if torn.endswith(b"\n"):
        raise _broken(head, path, "is not a record")
    if torn and not head.line and not _may_begin(torn):
        raise _foreign(path)
    if torn:
        yield TornLine(head.line, len(torn), declared=False)


def _declared(record: Record, torn: bytes, head: Head, path: Path) -> TornLine:
    expected = {"bytes": len(torn), "sha256": hashlib.sha256(torn).hexdigest()}
    if record["kind"] != "torn" or record["torn"] != expected:
        raise _broken(head, path, "is not a record")
    return TornLine(head.line, len(torn), declared=True)


def _next(record: Record, head: Head, path: Path) -> Head:
    if record["prev"] != head.hash or record["line"] != head.line + 1:
        raise _broken(head, path, "does not follow from the one before it: a line was removed, moved or inserted")
    return Head(record["line"], record["hash"])


def _broken(head: Head, path: Path, what: str) -> Changed:
    where = f"The line after record {head.line}" if head.line else "The first line"
    hint = "Everything before it fits together." if head.line else None
    if not head.line and what.startswith("is not a record"):
        hint = "It was altered, or the file is no audit log."
    return Changed(f"{where} of the audit log {path} {what}.", hint=hint)
