"""The snapshot beside a plan: what ``apply`` and ``hook`` keep before they write, and ``rollback`` reads.

It belongs to the plan whose file it is beside. A caller that writes one holds the lock of the plan's file
(``fileio.locked``), and so does ``plan`` while it replaces a file: no snapshot comes beside another plan's file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.core.errors import Changed, ConfigError
from reconciler.fileio import LARGEST_FILE, read_regular, why, write_whole
from reconciler.formats import snapshot
from reconciler.formats.plan import PartitionPlan, Plan

if TYPE_CHECKING:
    from reconciler.failover.writing.apply import JobChanges

LARGEST_SNAPSHOT = 4 * LARGEST_FILE
"""Bytes of a snapshot that are written and read. It has two rows for each of the plan's, with their anchors."""


def keep_snapshot(writing: Sequence[JobChanges], plan: Plan, plan_path: Path) -> None:
    """Keep what the changes replace, beside the plan, in one piece. It is never overwritten with less.

    It holds raw ids, as the stores do: readable by its owner only. Raises ConfigError if it cannot be written, or would
    be too large to be read again; Changed if the plan's file is another plan's by now, or is gone.
    """
    _refuse_replaced(plan, plan_path)
    kept = load_snapshot(snapshot.path_for(plan_path), plan.sha256)
    rows = {
        (change.job.name, item.key): snapshot.Replaced(
            change.job.group,
            item.now.stored if item.now else None,
            item.new,
            item.now.text if item.now else None,
        )
        for change in writing
        for item in change.intended
    }
    # The way back leads to what an earlier run of this plan replaced, not to what that run wrote.
    first = {
        key: replace(kept[key], after=row.after)
        for key, row in rows.items()
        if key in kept and snapshot.same(row.before, kept[key].after)
    }
    text = snapshot.dump(plan.sha256, {**kept, **rows, **first})
    if len(text) > LARGEST_SNAPSHOT:  # it is ASCII
        raise ConfigError(
            f"The snapshot of what is replaced would have more than {LARGEST_SNAPSHOT >> 20} MiB, and rollback could "
            "not read it. Nothing was written.",
            hint="Make plans of fewer jobs (plan --job NAME), each in a file of its own, and apply those.",
        )
    write_whole(snapshot.path_for(plan_path), text)


def load_snapshot(path: Path, plan_sha256: str) -> dict[snapshot.Key, snapshot.Replaced]:
    """The snapshot's rows; empty if there is none.

    Raises ``Changed`` for another plan's or a damaged one, ConfigError for one that this user may not read.
    """
    try:
        text = read_regular(path, largest=LARGEST_SNAPSHOT, kind="snapshot").decode()
    except FileNotFoundError:
        return {}
    except PermissionError as error:
        raise ConfigError(
            f"The snapshot {path} cannot be read: {why(error)}.",
            hint="Run this as the user who applied the plan: the file is readable by that user alone.",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise snapshot.unreadable(path, why(error)) from error
    return snapshot.load(text, plan_sha256, path)


def check_row(
    row: PartitionPlan | None,
    saved: snapshot.Replaced,
    key: snapshot.Key,
    groups: Mapping[str, str],
    plan: Plan,
    path: Path,
) -> None:
    """Raise Changed for a row of the snapshot that the plan cannot have written, or cannot have replaced."""
    anchor = saved.after.anchor
    fits = (
        row is not None
        and (saved.group, saved.after.offset) == (groups[key[0]], row.resume_offset)
        and anchor is not None
        and (anchor.offset, anchor.cluster_id) == (row.record_offset, plan.cluster_id)
    )
    if row is None or not fits or (row.replaces is not None and saved.before is None):
        raise Changed(
            f'The snapshot {path} has {key[1]} of job "{key[0]}" otherwise than the plan.',
            hint="Restore the file it was.",
        )


def _refuse_replaced(plan: Plan, plan_path: Path) -> None:
    """Raise Changed if the plan's file does not name this plan's digest: nothing could undo what it would write.

    Its content was checked when it was read, perhaps hours ago, before a person answered.
    """
    try:
        is_there = plan.sha256.encode() in read_regular(plan_path)
    except OSError as error:
        raise Changed(
            f"The plan {plan_path} cannot be read any more: {why(error)}. Nothing was written.",
            hint="Restore the file, or make a new plan.",
        ) from error
    if not is_there:
        raise Changed(
            f"{plan_path} is another plan now than the one that was shown. Nothing was written.",
            hint="Run this again, and look at what it shows.",
        )
