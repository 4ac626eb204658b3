"""The hook for a query whose offsets are in a checkpoint: a correction is a copy, made once a stay.

The location names the copy: from then on it is the job's checkpoint, checked before every start, and its path is passed
to the command in ``CHECKPOINT_VARIABLE``. A folder that is found and that no location names is never continued.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit

from reconciler.config.file import Config, Job
from reconciler.core.errors import NeedsPerson, NotCreated, ReconcilerError
from reconciler.core.json_fields import FieldError, integer, string
from reconciler.failover.outside import Outside
from reconciler.places.registry import checkpoint_path, traits
from reconciler.plan.document import Plan

log = logging.getLogger("reconciler.jobs.hook")


@dataclass(frozen=True, slots=True)
class Original:
    """A job's checkpoint: the path in the configuration, and the one that the job uses now."""

    base: str
    path: str

    def new_copy(self) -> str:
        """The path for a new copy: ``BASE-2``, or the first number that is not in use."""
        from reconciler.places.checkpoint.files import Tree

        return next(path for number in count(2) if Tree(path := f"{self.base.rstrip('/')}-{number}").is_empty())

    def copied(self, config: Config, job: Job, plan: Plan, outside: Outside) -> str:
        """Make the copy at the plan's offsets, and return its path. Raises as ``clone`` does."""
        from reconciler.failover.checkpoint.clone import clone

        copy = self.new_copy()
        made = clone(self.path, copy, plan, job=job.name, config=config, outside=outside)
        again = ", again" if made.repeats else ""
        log.info("%s is ready: its query runs batch %d%s; %s was only read", copy, made.batch, again, self.path)
        for sentence in made.warnings:
            log.warning("%s", sentence)
        if not made.sinks:
            log.info("no sink was compared: never start the query on %s again, once it has run on the copy", self.path)
        return copy


def original_of(job: Job, now: Job) -> Original | None:
    """The job's checkpoint, None for a job that keeps its offsets elsewhere. ``now``: the job as its location says.

    Raises NeedsPerson if the query has continued on the original since.
    """
    if not traits(job.store).corrected_in_copy:
        return None
    found = Original(checkpoint_path(job.store), checkpoint_path(now.store))
    if found.path != found.base and (came_from := _came_from(found.path)) is not None:
        _refuse_run_on(came_from, found.path)
    return found


def work_of(copy: str) -> str | None:
    """The query's work on a copy since it was made, as the end of a sentence; None if there is none."""
    return _run_since(copy, copy)


def _came_from(copy: str) -> str | None:
    """The folder that was copied; None if the path is not a copy, or is a file or another folder."""
    from reconciler.places.checkpoint.reading import read_folder, read_manifest
    from reconciler.places.folder import open_folder

    folder = open_folder(copy)
    if not folder.exists():  # a file: the path is not free
        return None
    try:
        read_folder(folder)
        return string(read_manifest(folder), "from")
    except (NotCreated, FieldError):
        return None


def _refuse_run_on(path: str, copy: str) -> None:
    """Raise NeedsPerson if the original was started after it was copied: each would lack the other's later work."""
    done = _run_since(path, copy)
    if done is not None:
        raise NeedsPerson(
            f"The query was started on {path} after it was copied to {copy}: {done}. The copy would read again, "
            "uncounted, what was read there.",
            hint="If the copy's work counts, stop the query on the original, and move it aside. If the original's "
            "does, stop the query and move the copy aside; reconciler audit tells what was written twice, or by "
            "neither.",
        )


def _run_since(path: str, copy: str) -> str | None:
    """The work of the original at ``path`` since it was copied to ``copy``, as the end of a sentence, or None.

    The copy's manifest says which batch its query runs first. None also where the original or the manifest cannot be
    read; an original on another file system than its copy may be lost, and is not read.
    """
    from reconciler.places.checkpoint.reading import read_checkpoint, read_manifest
    from reconciler.places.folder import open_folder

    if _system(path) != _system(copy):
        return None
    made = read_manifest(open_folder(copy))
    try:
        first, now = integer(made, "batch", 0), read_checkpoint(path)
    except (ReconcilerError, OSError, FieldError) as error:
        log.debug("whether %s has run since its copy is not known: %s", path, error)
        return None
    if first is None or now.last is None:
        return None
    query, repeats = made.get("query_id"), made.get("repeats") is True
    if isinstance(query, str) and now.query_id is not None and now.query_id != query:
        return f"it holds another query now, which has begun batch {now.last.batch}"
    begun, known = now.last.batch, first if repeats else first - 1
    if begun > known:
        return f"it has begun batch {begun}" if begun == known + 1 else f"it has begun batches {known + 1} to {begun}"
    if begun == known and repeats and now.committed:
        return f"it has finished batch {begun}, which the copy repeats"
    return None


def _system(path: str) -> tuple[str, str]:
    """The file system of a path or URL."""
    parts = urlsplit(path)
    return ("file", "") if parts.scheme in ("", "file", "local") else (parts.scheme, parts.netloc)
