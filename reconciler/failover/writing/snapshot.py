"""The snapshot beside a plan: what ``apply`` replaced, so that ``rollback`` can put it back.

It is written whole before the first write to a store and never overwritten with less: a second ``apply`` after a
partial one keeps the first snapshot. It holds raw ids, as the stores do: readable by its owner only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from reconciler.core.anchors import StoredOffset
from reconciler.fileio import read_regular, write_whole
from reconciler.formats import snapshot
from reconciler.formats.snapshot import Key, Replaced, path_for, same
from reconciler.ports import Row

__all__ = ["Key", "Replaced", "load", "path_for", "replacing", "same", "save"]


def replacing(group: str, now: Row | None, after: StoredOffset) -> Replaced:
    """The snapshot's row for writing ``after`` where the store holds ``now``."""
    return Replaced(group, now.stored if now else None, after, now.text if now else None)


def save(path: Path, plan_sha256: str, rows: Mapping[Key, Replaced]) -> None:
    """Write the snapshot in one piece. Raises ``ConfigError`` if the place cannot be written to."""
    write_whole(path, snapshot.dump(plan_sha256, rows))


def load(path: Path, plan_sha256: str) -> dict[Key, Replaced]:
    """The snapshot's rows; empty if there is none. Raises ``Changed`` for another plan's or a damaged one."""
    try:
        text = read_regular(path).decode()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise snapshot.unreadable(path, str(error)) from error
    return snapshot.load(text, plan_sha256, path)
