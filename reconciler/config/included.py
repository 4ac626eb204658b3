"""Settings that all jobs share, ``[defaults]``, and the jobs of the files that ``include`` names.

An estate of hundreds of jobs has one file for its clusters, and files of jobs that their teams own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reconciler.config.ownership import Doubt
from reconciler.config.table import Faults
from reconciler.core.errors import ConfigError

SHARED = ("home", "origins", "owner", "offsets", "single_driver", "sink", "sink_columns", "identity")
"""The keys of a job that ``[defaults]`` may have. The others are one job's own."""

Read = Callable[[Path], tuple[dict[str, Any], Doubt | None]]
"""Reads and parses one file. Raises ConfigError."""


def with_included(
    content: dict[str, Any], path: Path, doubt: Doubt | None, faults: Faults, read: Read
) -> tuple[dict[str, Any], Doubt | None]:
    """The file's content with the jobs of the included files behind its own, each with the defaults that it lacks.

    ``doubt``: of the file itself; that of an included one counts as much. Adds every fault to ``faults``.
    """
    content = dict(content)
    patterns, defaults = content.pop("include", []), content.pop("defaults", {})
    jobs = content.get("jobs", [])
    if not isinstance(patterns, list) or not all(isinstance(each, str) and each for each in patterns):
        faults.add("include must be a list of paths.", 'For example include = ["jobs.d/*.toml"].')
        patterns = []
    for file in _files(patterns, path, faults):
        with faults.collect():
            more, its_doubt = _jobs_of(file, read)
            doubt = doubt or its_doubt
            jobs = [*jobs, *more] if isinstance(jobs, list) else jobs
    if isinstance(jobs, list) and _are_usable(defaults, faults):
        jobs = [_with(defaults, each) for each in jobs]
    return ({**content, "jobs": jobs} if jobs else content), doubt


def _files(patterns: list[str], path: Path, faults: Faults) -> Iterator[Path]:
    """The files of all patterns, each once. A pattern without a file is a fault: nothing else shows missing jobs."""
    seen = {path.resolve()}
    for pattern in patterns:
        with faults.collect():
            try:
                found = sorted(path.absolute().parent.glob(pattern))
            except (NotImplementedError, ValueError):  # an absolute one
                found = sorted(Path("/").glob(pattern.lstrip("/")))
            if not found:
                raise ConfigError(f'include = "{pattern}" names no file.', hint="Correct the path, or leave it out.")
            new = [each for each in found if each.resolve() not in seen]
            seen |= {each.resolve() for each in new}
            yield from new


def _jobs_of(file: Path, read: Read) -> tuple[list[Any], Doubt | None]:
    try:
        found, doubt = read(file)
    except ConfigError as error:
        raise ConfigError(f"{file.name}: {error.message}", hint=error.hint) from None
    if others := sorted({*found} - {"jobs"}):
        raise ConfigError(
            f"{file.name}: an included file has [[jobs]] alone, and this one has {', '.join(others)}.",
            hint="Move that to the file that includes it.",
        )
    jobs = found.get("jobs", [])
    return (jobs if isinstance(jobs, list) else [jobs]), doubt


def _are_usable(defaults: object, faults: Faults) -> bool:
    if not isinstance(defaults, dict):
        faults.add("[defaults] must be a table.")
        return False
    wrong = [name for name in defaults if name not in SHARED]
    for name in wrong:
        faults.add(f"[defaults] has {name}, which jobs do not share.", f"They may share {', '.join(SHARED)}.")
    return not wrong


def _with(defaults: dict[str, Any], job: Any) -> Any:
    """The job's own keys count, also one by one within its identity."""
    if not isinstance(job, dict):
        return job
    both = {**defaults, **job}
    shared, own = defaults.get("identity"), job.get("identity")
    return {**both, "identity": {**shared, **own}} if isinstance(shared, dict) and isinstance(own, dict) else both
