"""The next steps after a plan, as commands to copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.core.text import command, counted, some
from reconciler.core.verdicts import Position, Verdict
from reconciler.fileio import name_for
from reconciler.places.registry import traits
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, StartPolicy
from reconciler.plan.rows import why_sink_stops
from reconciler.plan.start import why_stopped

MOST_SETS = 8
"""Most partitions that a command names. The others have their commands in their rows."""

MOST_JOBS = 5
"""Most jobs with commands among the next steps. The others have theirs in their rows."""

UNDECIDED = "OFFSET"
"""The placeholder for an offset that could not be proven."""


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of the plan and of the configuration as given on the command line; else placeholders."""

    plan: str = "PLAN"
    config: str = "FILE"


@dataclass(frozen=True, slots=True)
class NextStep:
    """A sentence, and the command that does it."""

    text: str
    command: str | None = None


def row_steps(row: PartitionPlan, job: JobPlan, files: Files) -> list[NextStep]:
    """The options for one partition that must not start, each as a ``plan`` to try first.

    The end of a batch has one option: it may be missing. All others are about the start.
    """
    plan = ("reconciler", "plan", "-c", files.config, "--job", job.name)
    accept = ("--accept", row.finding.value)
    if row.absent:
        return [NextStep("Leave out every partition of this job that is not there:", command(*plan, *accept))]
    if row.position == Position.END:
        return []
    if row.skips is not None:
        return [NextStep("Skip these records:", command(*plan, "--set", _set(row), "--accept", "skips"))]
    this_one = NextStep("Set this one's offset:", command(*plan, "--set", _set(row)))
    if row.finding is Verdict.UNRESOLVED:
        return [this_one]
    return [NextStep(f"Accept every {row.finding.value} partition of this job:", command(*plan, *accept)), this_one]


def _set(row: PartitionPlan) -> str:
    return f"{row.topic}:{row.partition}={UNDECIDED if row.resume_offset is None else row.resume_offset}"


def next_steps(plan: Plan, policy: StartPolicy, files: Files) -> list[NextStep]:
    """The next steps for the whole plan, in order."""
    steps = []
    for failed in plan.not_judged:
        again = command("reconciler", "plan", "-c", files.config, "--job", failed.name)
        text = f"Job {failed.name} was not judged: {failed.reason} Do not start it. Once that is fixed, plan it again:"
        steps.append(NextStep(text, again))
    forbidden = {job.name: why for job in plan.jobs if (why := _why_forbidden(job, policy)) is not None}
    steps += [NextStep(f"Job {name} must not start: {why}.") for name, why in forbidden.items()]
    free = [job for job in plan.jobs if job.name not in forbidden]
    stopped = [
        (job, row, why)
        for job in free
        for row in job.partitions
        if (why := why_stopped(row, policy)) is not None and row.position != Position.END
    ]
    undecided = {job.name for job, _, _ in stopped}
    if stopped:
        steps += _to_decide(plan, stopped, files)
    return [*steps, *_to_write([job for job in free if job.name not in undecided], files, is_all=not stopped)]


def _why_forbidden(job: JobPlan, policy: StartPolicy) -> str | None:
    """Why a job must not start, if no decision on its start would help: a sink, or the end of a repeated batch. Else
    None."""
    if (sink := job.stopped_by) is not None:
        return why_sink_stops(sink)
    stopped = [(row, why) for row in job.partitions if (why := why_stopped(row, policy)) is not None]
    if any(row.position != Position.END for row, _ in stopped):
        return None
    return next((f"{row.place} is {row.finding.value}: {why}" for row, why in stopped), None)


def _to_write(jobs: Sequence[JobPlan], files: Files, *, is_all: bool) -> list[NextStep]:
    if not jobs:
        return []
    which = "" if is_all else f" for {some([job.name for job in jobs])}, which need no decision"
    copies = any(traits(job.store).corrected_in_copy for job in jobs)
    does = f"Write the offsets{which}{', and copy the checkpoints' if copies else ''}"
    return [NextStep(f"{does}. It asks first; --dry-run writes nothing:", apply_command(files))]


def apply_command(files: Files) -> str:
    """Writes the plan's offsets into the stores that it writes."""
    return command("reconciler", "apply", files.plan, "-c", files.config)


def _to_decide(plan: Plan, stopped: Sequence[tuple[JobPlan, PartitionPlan, str]], files: Files) -> list[NextStep]:
    """One reason for each finding and kind of decision, then each job's commands."""
    steps, counts = [], Counter((row.finding, row.skips is not None) for _, row, _ in stopped)
    worst_last = sorted(stopped, key=lambda each: each[1].replay_at_most or 0)
    reasons = {(row.finding, row.skips is not None): why for _, row, why in worst_last}
    for kind in sorted(counts, reverse=True):
        steps.append(NextStep(f"{counted(counts[kind], 'partition')} {kind[0].value}: {reasons[kind]}."))
    jobs = [job for job in plan.jobs if any(each is job for each, _, _ in stopped)]
    for job in jobs[:MOST_JOBS]:
        rows = [row for each, row, _ in stopped if each is job]
        steps += _to_decide_for(job, rows, files, alone=len(plan.jobs) == 1)
    if len(jobs) > MOST_JOBS:
        steps.append(NextStep(f"{len(jobs) - MOST_JOBS:,} more jobs need decisions: see their rows."))
    return steps


def _to_decide_for(job: JobPlan, rows: Sequence[PartitionPlan], files: Files, *, alone: bool) -> list[NextStep]:
    """One job's decisions; where the plan has several jobs, its new plan gets a file of its own."""
    decided = dict.fromkeys([*_earlier(job), *_decisions(rows)])
    options = ["--job", job.name, *(word for pair in decided for word in pair)]
    sets = sum(_needs_offset(row) for row in rows)
    more = f" ({sets - MOST_SETS:,} more need --set: see their rows)" if sets > MOST_SETS else ""
    whose = "" if alone else f" for job {job.name}"
    text = f"Try the decisions{whose}; delete the ones that you do not make{more}:"
    path = files.plan if alone else str(path_for_job(Path(files.plan), job.name))
    plan_it = command("reconciler", "plan", "-c", files.config, "-o", path, *options)
    return [
        NextStep(text, command("reconciler", "plan", "-c", files.config, *options)),
        NextStep("Then keep the plan with the same decisions:", plan_it),
    ]


def path_for_job(path: Path, job: str) -> Path:
    """The path for the plan of one of several jobs: beside ``path``, with a prefix that is unique to the job."""
    return path.parent / f"{name_for(job)}-{path.name}"


def _needs_offset(row: PartitionPlan) -> bool:
    return row.finding is Verdict.UNRESOLVED and not row.absent and not row.set_by_hand


def _decisions(rows: Sequence[PartitionPlan]) -> list[tuple[str, str]]:
    """The options that decide these rows: --accept per finding and for skips, --set per unresolved partition."""
    decided = [row for row in rows if row.position != Position.END or row.absent]
    verdicts = {row.finding for row in decided if not _needs_offset(row) and row.skips is None}
    unresolved = dict.fromkeys(_set(row) for row in rows if _needs_offset(row))
    return _options(verdicts, list(unresolved)[:MOST_SETS], skips=any(row.skips for row in rows))


def _earlier(job: JobPlan) -> list[tuple[str, str]]:
    """The options of the decisions that the plan records for this job, since a new plan needs them again."""
    rows = [row for row in job.partitions if row.set_by_hand and row.position != Position.END]
    placed = [row for row in rows if row.is_placed and row.resume_offset is not None]
    accepted = {row.finding for row in rows if row not in placed}
    return _options(accepted, map(_set, placed), skips=any(row.skips_accepted for row in rows))


def _options(accepted: Iterable[Verdict], places: Iterable[str], *, skips: bool) -> list[tuple[str, str]]:
    words = [*(verdict.value for verdict in sorted(accepted)), *(["skips"] if skips else [])]
    return [*(("--accept", word) for word in words), *(("--set", place) for place in places)]
