"""The hook for a query whose offsets are in a checkpoint: the correction is a copy, made once.

From then on the copy is the job's checkpoint: it is checked before every start, and its path is passed to the command
in ``CHECKPOINT_VARIABLE``. The original does not change.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from reconciler.config.file import Config, Job
from reconciler.core.errors import ConfigError, NeedsPerson, NotCreated, ReconcilerError
from reconciler.failover.check import Checked
from reconciler.failover.outside import Outside
from reconciler.formats.json_fields import FieldError, integer, string
from reconciler.spark.handoff.options import CHECKPOINT_VARIABLE
from reconciler.stores.registry import checkpoint_at, checkpoint_path, traits

log = logging.getLogger("reconciler.hook")


@dataclass(frozen=True, slots=True)
class Original:
    """A job's checkpoint and the path of its copy; ``copied``: the copy exists and is checked instead."""

    path: str
    copy: str | None
    copied: bool = False

    @property
    def path_now(self) -> str:
        return self.copy if self.copied and self.copy is not None else self.path

    def now(self, config: Config, job: Job) -> tuple[Config, Job]:
        """The configuration and the job with the checkpoint to check: the copy, once it exists."""
        current = replace(job, store=checkpoint_at(self.path_now))
        return replace(config, jobs=tuple(current if each.name == job.name else each for each in config.jobs)), current

    @property
    def new_copy(self) -> str:
        """Where a copy goes that is made now. Raises NeedsPerson if there can be none."""
        if self.copied:
            raise NeedsPerson(
                f"The copy {self.copy} needs correcting itself, which is done in another copy.",
                hint=f'Let the job\'s store name it, store = "{checkpoint_at(self.path_now)}", and give another'
                " --clone-to.",
            )
        if self.copy is None:
            raise NeedsPerson(
                f"The checkpoint {self.path} needs correcting, which is done in a copy.",
                hint="Say where it goes with --clone-to NEW_PATH; the command finds its path in "
                f"{CHECKPOINT_VARIABLE}.",
            )
        return self.copy

    def corrected(self, config: Config, job: Job, checked: Checked, outside: Outside) -> Original:
        """Make the copy, if anything needs correcting. Raises as ``clone`` and ``new_copy`` do."""
        if not checked.to_write:
            return self
        copy = self.new_copy
        from reconciler.checkpoints.clone import clone

        made = clone(self.path, copy, checked.plan, job=job.name, config=config, outside=outside)
        again = ", again" if made.repeats else ""
        log.info("%s is ready: its query runs batch %d%s; %s was only read", copy, made.batch, again, self.path)
        for sentence in made.warnings:
            log.warning("%s", sentence)
        if not made.sinks:
            log.info("no sink was compared: never start the query on %s again, once it has run on the copy", self.path)
        return replace(self, copied=True)


def of(job: Job, clone_to: str | None) -> Original | None:
    """The job's checkpoint, None for a job that keeps its offsets elsewhere.

    Raises ConfigError if ``clone_to`` is given for such a job, or holds anything but a copy of the checkpoint.
    """
    if not traits(job.store).corrected_in_copy:
        if clone_to is not None:
            raise ConfigError(
                f'--clone-to is for jobs whose offsets are in a checkpoint, and those of "{job.name}" are elsewhere.',
                hint="Leave it out.",
            )
        return None
    path = checkpoint_path(job.store)
    if clone_to is None:
        return Original(path, None)
    from reconciler.checkpoints.files import Tree

    if Tree(clone_to).is_empty():
        return Original(path, clone_to)
    came_from = _came_from(clone_to)
    if came_from is None or not Tree(path).is_at(came_from):
        raise ConfigError(
            f"{clone_to} is there, and is no copy of {path}" + (f" but of {came_from}." if came_from else "."),
            hint="Choose another --clone-to.",
        )
    _refuse_run_on(path, clone_to)
    return Original(path, clone_to, copied=True)


def _came_from(copy: str) -> str | None:
    """The folder of which a copy was made; None for what is no copy, and where a file or another folder is."""
    from reconciler.checkpoints.reading import read_folder, read_manifest
    from reconciler.folder import open_folder

    folder = open_folder(copy)
    if not folder.exists():  # it is not free: a file
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
            f"The query was started on {path} after the copy {copy} was made of it: {done}. The copy would read again, "
            "uncounted, what was read there.",
            hint="If the original's work counts, give another --clone-to, for a new copy of it. If the copy's does, "
            f'stop the query on the original, write store = "{checkpoint_at(copy)}" for the job, and leave out '
            "--clone-to. reconciler audit tells what was put out twice, or by neither.",
        )


def _run_since(path: str, copy: str) -> str | None:
    """The work of the original at ``path`` since it was copied to ``copy``, as the end of a sentence, or None.

    The copy's manifest says which batch its query runs first. None also where the original or the manifest cannot be
    read; an original on another file system than its copy may be lost, and is not read.
    """
    from reconciler.checkpoints.reading import read_checkpoint, read_manifest
    from reconciler.folder import open_folder

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
