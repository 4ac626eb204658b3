"""The part of ``anchors export`` and ``import`` that is about the state store: where jobs live, and their journals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from reconciler import written
from reconciler.clock import clock_ms
from reconciler.config.file import Config, Job
from reconciler.core.errors import ConfigError
from reconciler.core.text import counted
from reconciler.failover import inputs
from reconciler.near import known_names
from reconciler.state import lines as state_lines
from reconciler.state.jobs import JobState
from reconciler.state.lines import JobLines

Work = Sequence[tuple[JobState, JobLines]]
"""What is missing, by job."""


def exported(config: Config, jobs: Sequence[Job]) -> dict[str, list[str]]:
    """The lines of each job of which something is recorded, by its name. Raises what the state store raises."""
    states = inputs.states_if_any(config, jobs)
    found = {name: list(state_lines.dump(name, state_lines.newest(state))) for name, state in states.items()}
    return {name: lines for name, lines in found.items() if lines}


def parted(texts: Sequence[str]) -> tuple[list[str], dict[str, JobLines]]:
    """The lines of rows, with blank ones for the others; and the others, by job. Raises as ``state.lines.load``."""
    of_jobs = [_is_of_job(text) for text in texts]
    rows = ["" if is_one else text for text, is_one in zip(texts, of_jobs, strict=True)]
    return rows, state_lines.load(text if is_one else "" for text, is_one in zip(texts, of_jobs, strict=True))


def _is_of_job(text: str) -> bool:
    try:
        return '"job"' in text and "job" in json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return False  # the reader of rows says what is wrong


def missing(config: Config, jobs: Sequence[Job], lines: Mapping[str, JobLines]) -> Work:
    """What the state store lacks. Raises ConfigError for a job that was not chosen, Changed for a contradiction."""
    if not lines:
        return []
    names = [job.name for job in jobs]
    for name in lines:
        if name not in names:
            raise ConfigError(
                f'A line is of job "{name}", which is not among the chosen jobs of the configuration.',
                hint=f"These are: {known_names(name, names)}.",
            )
    inputs.open_state_store(config).close()  # raises if the configuration names none
    states = inputs.states_if_any(config, [job for job in jobs if job.name in lines])
    return [(states[name], state_lines.missing(states[name], each)) for name, each in lines.items()]


def names_of(work: Work) -> list[str]:
    """What is going to be written, for sentences."""
    return [_name(state, found) for state, found in work if found.count]


def append(work: Work) -> int:
    """Append what is missing; how many lines. Raises what the state store raises, Changed if it has changed since."""
    for state, found in work:
        if found.count:
            with written.writing(_name(state, found)):
                state_lines.append(state, found, clock_ms())
    return sum(found.count for _, found in work)


def _name(state: JobState, found: JobLines) -> str:
    return f'{counted(found.count, "record")} of job "{state.job}"'
