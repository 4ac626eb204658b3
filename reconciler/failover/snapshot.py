"""The plan's sidecar: what ``apply`` replaced, so that ``rollback`` can put it back.

One JSON file beside the plan, written whole before the first write to a store and never overwritten with less: a
second ``apply`` after a partial one keeps the first snapshot. It holds raw ids, as the stores do: readable by its
owner only.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Changed, ConfigError
from reconciler.formats.anchor_lines import AnchorLine, dump_line, load_lines
from reconciler.ports import Row, TopicPartition

FORMAT = "reconciler.snapshot/1"

Key = tuple[str, TopicPartition]
"""Job name, and the row's topic and partition."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """One row before and after ``apply``. ``before`` None: there was no row.

    ``text`` is what the store kept beside the offset before, to the byte, where it keeps a text.
    """

    group: str
    before: StoredOffset | None
    after: StoredOffset
    text: str | None = None

    @classmethod
    def of(cls, group: str, now: Row | None, after: StoredOffset) -> Replaced:
        """What replacing the row that is there ``now`` means."""
        return cls(group, now.stored if now else None, after, now.text if now else None)


def same(one: StoredOffset | None, other: StoredOffset | None) -> bool:
    """The same offset and the same anchor's record; a store may round a time, or leave out an id too long for it."""
    if one is None or other is None:
        return one is other
    return one.offset == other.offset and _names(one) == _names(other)


def _names(stored: StoredOffset) -> tuple[int | None, str | None] | None:
    return None if stored.anchor is None else (stored.anchor.offset, stored.anchor.cluster_id)


@contextmanager
def alone(plan_path: Path) -> Iterator[None]:
    """Let one process at a time write a plan and its sidecar; others wait. A process that is killed holds up nobody.

    Where a file system has no such locks nobody waits, and only the stores' compare-and-set stands between the two.
    """
    with ExitStack() as held:
        with suppress(OSError):
            fcntl.flock(held.enter_context(plan_path.open("rb")), fcntl.LOCK_EX)
        yield


def path_for(plan_path: Path) -> Path:
    """Where a plan's sidecar lies."""
    return plan_path.with_name(plan_path.name + ".applied.json")


def save(path: Path, plan_sha256: str, rows: Mapping[Key, Replaced]) -> None:
    """Write the sidecar in one piece. Raises ``ConfigError`` if the place cannot be written to."""
    content = {
        "format": FORMAT,
        "plan_sha256": plan_sha256,
        "rows": [
            {
                "job": job,
                "before": None if row.before is None else _line(row.group, tp, row.before) | {"text": row.text},
                "after": _line(row.group, tp, row.after),
            }
            for (job, tp), row in sorted(rows.items())
        ],
    }
    write_whole(path, json.dumps(content, indent=1) + "\n")


def load(path: Path, plan_sha256: str) -> dict[Key, Replaced]:
    """The sidecar's rows; empty if there is none. Raises ``Changed`` for another plan's or a damaged one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        if content["plan_sha256"] != plan_sha256:
            raise Changed(f"{path} belongs to another plan.", hint="Move it away; it is that plan's only way back.")
        return dict(_row(row) for row in content["rows"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ConfigError) as error:
        raise Changed(f"The snapshot {path} cannot be read: {error}.", hint="Restore the file it was.") from error


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never a part. Mode 0600."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
            sync_name(path.parent)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}.", hint="Choose another place."
        ) from error


def sync_name(folder: Path) -> None:
    """After a power cut, a file that was renamed may bear its old name until its folder has reached the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems cannot do it
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _line(group: str, tp: TopicPartition, stored: StoredOffset) -> dict[str, object]:
    line = json.loads(dump_line(AnchorLine(group, tp.topic, tp.partition, stored)))
    return {"written_at_ms": stored.written_at_ms, "line": line}


def _row(row: dict[str, object]) -> tuple[Key, Replaced]:
    before, after = row["before"], row["after"]
    group, tp, stored_after = _stored(after)
    if before is None:
        return (str(row["job"]), tp), Replaced(group, None, stored_after)
    stored_before = _stored(before)[2]
    return (str(row["job"]), tp), Replaced(group, stored_before, stored_after, _text(before))


def _text(before: object) -> str | None:
    text = before.get("text") if isinstance(before, dict) else None
    if not isinstance(text, str | None):
        raise ValueError("a row's text is not a text")
    return text


def _stored(part: object) -> tuple[str, TopicPartition, StoredOffset]:
    if not isinstance(part, dict):
        raise ValueError("a row is not an object")
    (line,) = load_lines([json.dumps(part["line"])])
    stored = StoredOffset(line.stored.offset, line.stored.anchor, part["written_at_ms"])
    return line.group, TopicPartition(line.topic, line.partition), stored
