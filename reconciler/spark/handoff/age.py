"""Whether a start is still the newest of its job. A driver that starts again without the hook finds an earlier one.

Compared is what the driver sees: the files of later starts, corrections and rollbacks beside the start's own, the time
until which it is good, and the rows of a store that ``rows_in`` names. A start that was copied to another place has no
files beside it, and other stores are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from reconciler.clock import stamp
from reconciler.core.errors import Changed, ConfigError, ReconcilerError
from reconciler.fileio import read_regular
from reconciler.formats.start import JobStart, parse_start

_KEPT = re.compile(r"(.+-)(\d{8}T\d{6}-\d{3}-\d+)\.(.+)", re.DOTALL)
"""A file of the hook's folder: the job's prefix, a time that sorts as text, and the ending (``hook.kept``)."""
_CHANGES = {
    "plan.json.applied.json": "a correction",
    "plan.json.copied": "a corrected copy of its checkpoint",
    "rollback.json": "a rollback",
}
AGAIN = "Start the job by `reconciler hook` again, which hands over its newest start."


def refuse_left(path: Path, start: JobStart) -> None:
    """Raise Changed if a file beside the start's shows that the job has moved or was corrected since."""
    for ending, file in _later(path):
        found = _start_in(file, start) if ending == "start.json" else None
        what = _CHANGES.get(ending)
        if found is not None and _is_elsewhere(found, start):
            what = f"a start at the {found.side.value}"
        elif found is not None and found.correction > start.correction:
            what = "a correction"
        if what is not None:
            raise Changed(
                f"The start {path} is an earlier one of job {start.job}: {what} came after it ({file.name}).",
                hint=AGAIN,
            )


def why_old(path: Path, start: JobStart, now_ms: int) -> str:
    """Why the start's offsets may be old, as half a sentence; empty if nothing shows that."""
    later = [file.name for ending, file in _later(path) if ending == "start.json" and _start_in(file, start)]
    if later:
        return f"a later start of the job is {later[-1]}"
    if start.expires_at and stamp(now_ms) >= start.expires_at:
        return f"it was good until {start.expires_at} ([policy] plan_expires)"
    return _gone_on(start)


def _later(path: Path) -> Iterator[tuple[str, Path]]:
    """The job's later files beside the start's, oldest first: the ending of each, and its path."""
    own = _KEPT.fullmatch(path.name)
    if own is None:
        return
    with suppress(OSError):  # the folder may not be listed
        named = [(_KEPT.fullmatch(file.name), file) for file in sorted(path.parent.iterdir())]
        yield from ((each[3], file) for each, file in named if each and each[1] == own[1] and each[2] > own[2])


def _start_in(file: Path, start: JobStart) -> JobStart | None:
    """The start in a file; None if that is of another configuration's job, or cannot be read."""
    try:
        found = parse_start(read_regular(file).decode(), str(file))
    except (OSError, UnicodeDecodeError, ConfigError):
        return None
    return found if (found.job, found.group, found.rows_in) == (start.job, start.group, start.rows_in) else None


def _is_elsewhere(found: JobStart, start: JobStart) -> bool:
    ids = {found.cluster_id, start.cluster_id} - {None}
    return found.side is not start.side or len(ids) > 1


def _gone_on(start: JobStart) -> str:
    if start.rows_in is None:
        return ""
    from reconciler.stores.registry import open_store

    try:
        with closing(open_store(start.rows_in)) as store:
            rows = store.read(start.group, start.topics)
    except ReconcilerError:
        return ""  # the driver may run where the store is not
    for row in rows:
        at = start.offsets.get(row.key.topic, {}).get(str(row.key.partition))
        if at is not None and row.malformed is None and not row.stored.is_sentinel and row.stored.offset != at:
            return f"its offset of {row.key} is {at:,}, and the store has {row.stored.offset:,}"
    return ""
