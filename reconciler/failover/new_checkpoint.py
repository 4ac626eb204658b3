"""What is said of a streaming query that begins with a new checkpoint while no sink of it is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from reconciler.config.file import Config
from reconciler.core.text import command, some
from reconciler.places.registry import traits
from reconciler.plan.document import JobPlan


def begin_anew(config: Config, jobs: Iterable[JobPlan], corrected: Iterable[str]) -> list[JobPlan]:
    """The jobs that have processed records, are corrected, and then begin a new checkpoint, and that name no sink.

    ``corrected`` has the names of the jobs of which anything is to be written. A known sink is compared by itself.
    """
    names = set(corrected)
    return [
        job
        for job in jobs
        if job.name in names
        and not config.chosen(job.name)[0].sinks
        and not traits(config.chosen(job.name)[0].store).corrected_in_copy
        and not traits(config.chosen(job.name)[0].store).holds_commits  # a consumer group: no checkpoint, no batches
        and any((row.stored_offset or 0) > 0 for row in job.partitions)
    ]


def new_checkpoint_warning(jobs: Sequence[JobPlan], plan: Path, config_file: Path) -> str:
    """Two sentences about the jobs of ``begin_anew``, of which there is at least one; with the command of a copy."""
    one = len(jobs) == 1
    names = some([f'"{job.name}"' for job in jobs], 3)
    words = ["reconciler", "checkpoint", "clone", "CHECKPOINT", "NEW_CHECKPOINT", "--plan", plan, "-c", config_file]
    copy = command(*words, *([] if one else ["--job", "NAME"]))
    return (
        f"{'Job' if one else 'Jobs'} {names} {'names' if one else 'name'} no sink: a sink that remembers batch numbers "
        "(Hudi's, and others) drops the batches of a streaming query's new checkpoint without an error. If the query "
        f"writes to one, let it continue in a copy of its last checkpoint: {copy}"
    )
