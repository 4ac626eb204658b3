"""Functions that read an id off a record, as a user's module has them: for tests whose tasks run in other processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def from_key(record: Any) -> bytes | None:
    return record.key


def once_deadly(record: Any) -> bytes | None:
    """The first process that asks for an id is gone before it has it; ``RECONCILER_TEST_MARK`` is where it notes so."""
    try:
        Path(os.environ["RECONCILER_TEST_MARK"]).touch(exist_ok=False)
    except FileExistsError:
        return record.key
    os._exit(1)


def deadly(_: Any) -> bytes | None:
    os._exit(1)
