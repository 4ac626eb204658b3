"""The next steps after a plan, as commands to copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.cli.terminal.report import place_name
from reconciler.core.verdicts import Position, Verdict
from reconciler.core.visible import command
from reconciler.failover.decisions import is_placed
from reconciler.fileio import name_for
from reconciler.formats.decimal_text import some
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan, StartPolicy, raise_or_accept, why_stopped
from reconciler.formats.plan_sinks import why_sink_stops
from reconciler.stores.registry import checkpoint_path, end_of_batch, traits

MOST_SETS = 8
"""Partitions that one command names; the others are named in their rows only."""

MOST_JOBS = 5
"""Jobs that have their commands among the next steps; those of the others stand in their rows only."""

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
    """The options for one partition that must not start, each as a ``check`` to try first.

    Of the end of a batch a person decides only that it may be missing; every other decision is about the start.
    """
    if row.position == Position.END and row.verdict is not Verdict.MISSING:
        return []
    check = ("reconciler", "check", "-c", files.config, "--job", job.name)
    if row.skips is not None:
        return [
            NextStep("Skip these records:", command(*check, "--set", _set(row), "--accept", "skips")),
            NextStep("Or see what is proven without that offset:", command(*check)),
        ]
    steps = []
    if row.verdict is not Verdict.UNRESOLVED:
        text = f"Let every {row.verdict.value} partition of this job start where it can:"
        if row.verdict is Verdict.MISSING:
            text = "Leave every missing partition of this job out:"
        steps.append(NextStep(text, command(*check, "--accept", row.verdict.value)))
    if row.verdict is not Verdict.MISSING:
        text = "This one only, at an offset of the destination that you choose:"
        if row.resume_offset is not None:
            text = "This one only, at the offset that was found:"
        steps.append(NextStep(text, command(*check, "--set", _set(row))))
    return steps


def _set(row: PartitionPlan) -> str:
    return f"{row.topic}:{row.partition}={UNDECIDED if row.resume_offset is None else row.resume_offset}"


def next_steps(plan: Plan, policy: StartPolicy, files: Files) -> list[NextStep]:
    """The next steps for the whole plan, in order."""
    forbidden = {job.name: why for job in plan.jobs if (why := _why_forbidden(job, policy)) is not None}
    free = [job for job in plan.jobs if job.name not in forbidden]
    stopped = [
        (job, row, why)
        for job in free
        for row in job.partitions
        if (why := why_stopped(row, policy)) is not None and row.position != Position.END
    ]
    steps = _to_decide(plan, free, stopped, policy, files) if stopped else _to_write(free, files)
    named = [NextStep(f"Job {name} must not start: {why}.") for name, why in forbidden.items()]
    return [*_to_mend(plan, files), *named, *steps]


def _why_forbidden(job: JobPlan, policy: StartPolicy) -> str | None:
    """Why a job must not start, where no decision on where it starts would help; else None.

    That is because of a sink, or of the end of the batch that a copy of its checkpoint would repeat.
    """
    if (sink := job.stopped_by) is not None:
        return why_sink_stops(sink)
    stopped = [(row, why) for row in job.partitions if (why := why_stopped(row, policy)) is not None]
    if any(row.position != Position.END for row, _ in stopped):
        return None
    return next((f"{place_name(row)} is {row.verdict.value}: {why}" for row, why in stopped), None)


def _to_mend(plan: Plan, files: Files) -> list[NextStep]:
    """The jobs that were not judged; ``apply`` leaves them alone."""
    steps = []
    for job in plan.not_judged:
        steps.append(NextStep(f"Job {job.name} was not judged, and this plan does not hold it: {job.reason}"))
        again = command("reconciler", "check", "-c", files.config, "--job", job.name)
        steps.append(NextStep(f"Do not start job {job.name}. Once its cause is fixed, check it:", again))
    return steps


def _to_write(jobs: Sequence[JobPlan], files: Files) -> list[NextStep]:
    steps = []
    if any(traits(job.store).corrected_by_apply for job in jobs):
        apply = apply_command(files)
        steps.append(NextStep("See what would be written, without writing:", f"{apply} --dry-run"))
        steps.append(NextStep("Write it, with compare-and-set and read-back; it asks first:", apply))
    return [*steps, *_ways_of_their_own(jobs, files)]


def _ways_of_their_own(jobs: Sequence[JobPlan], files: Files) -> list[NextStep]:
    """The steps for the jobs whose stores no command writes. A copy brings the ends of its batch, too."""
    steps = []
    ends = {end_of_batch(job.store) for job in jobs if traits(job.store).corrected_in_copy}
    for job in jobs:
        if job.store in ends:
            continue
        if traits(job.store).corrected_in_copy:
            text = f"Copy the checkpoint of job {job.name}; the copy continues at the plan's offsets:"
            steps.append(NextStep(text, clone_command(job, files)))
        elif traits(job.store).corrected_by_job:
            text = f"Start job {job.name} by the hook, which hands it the offsets; the job stores them itself:"
            steps.append(NextStep(text, hook_command(job, files)))
    return steps


def job_commands(jobs: Sequence[JobPlan], files: Files) -> list[str]:
    """The commands that correct these jobs: ``apply`` for all whose stores it writes, and one for each other job."""
    by_apply = [apply_command(files)] if any(traits(job.store).corrected_by_apply for job in jobs) else []
    return [*by_apply, *(step.command for step in _ways_of_their_own(jobs, files) if step.command)]


def apply_command(files: Files) -> str:
    """Writes the plan's offsets into the stores that it writes."""
    return command("reconciler", "apply", files.plan, "-c", files.config)


def clone_command(job: JobPlan, files: Files) -> str:
    """Copies the checkpoint that holds a job's offsets, to continue at the plan's."""
    path = checkpoint_path(job.store).partition("?")[0]
    clone = ("reconciler", "checkpoint", "clone", path, "NEW_PATH", "--plan", files.plan)
    return command(*clone, "--job", job.name, "-c", files.config)


def hook_command(job: JobPlan, files: Files) -> str:
    """Starts a job that stores the plan's offsets itself."""
    hook = ("reconciler", "hook", "-c", files.config, "--job", job.name)
    return command(*hook, "--to", "destination", "--", "COMMAND")


def _to_decide(
    plan: Plan,
    free: Sequence[JobPlan],
    stopped: Sequence[tuple[JobPlan, PartitionPlan, str]],
    policy: StartPolicy,
    files: Files,
) -> list[NextStep]:
    steps = [NextStep(text) for text in _by_verdict(stopped, policy)]
    jobs = list(dict.fromkeys(job.name for job, _, _ in stopped))
    for job in [job for job in plan.jobs if job.name in jobs][:MOST_JOBS]:
        rows = [row for each, row, _ in stopped if each.name == job.name]
        steps += _to_decide_for(job, rows, files, alone=len(plan.jobs) == 1)
    if len(jobs) > MOST_JOBS:
        steps.append(NextStep(f"{len(jobs) - MOST_JOBS:,} more jobs need decisions: see their rows."))
    ready_jobs = [job for job in free if job.name not in jobs]
    if names := [job.name for job in ready_jobs if traits(job.store).corrected_by_apply]:
        ready = f"These jobs need no decision and can be applied now ({some(names, 10)}); the others are refused:"
        steps.append(NextStep(ready, apply_command(files)))
    return [*steps, *_ways_of_their_own(ready_jobs, files)]


def _to_decide_for(job: JobPlan, rows: Sequence[PartitionPlan], files: Files, *, alone: bool) -> list[NextStep]:
    """One job's decisions; where the plan has several jobs, its new plan gets a file of its own."""
    decided = dict.fromkeys([*_earlier(job), *_decisions(rows)])
    options = ["--job", job.name, *(word for pair in decided for word in pair)]
    sets = sum(_needs_offset(row) for row in rows)
    more = f" ({sets - MOST_SETS:,} more partitions need --set: see their rows)" if sets > MOST_SETS else ""
    whose = "" if alone else f" for job {job.name}"
    text = f"Try the decisions{whose}, after deleting those that you do not make; this only reads{more}:"
    path = files.plan if alone else str(path_for_job(Path(files.plan), job.name))
    plan_it = command("reconciler", "plan", "-c", files.config, "-o", path, *options)
    return [
        NextStep(text, command("reconciler", "check", "-c", files.config, *options)),
        NextStep(f"Then make a new plan{whose} with the same decisions:", plan_it),
    ]


def path_for_job(path: Path, job: str) -> Path:
    """Where the plan of one of several jobs goes: beside ``path``, with a name for the job in front, its alone."""
    return path.parent / f"{name_for(job)}-{path.name}"


def _needs_offset(row: PartitionPlan) -> bool:
    return row.verdict is Verdict.UNRESOLVED and not row.set_by_hand


def _by_verdict(stopped: Sequence[tuple[JobPlan, PartitionPlan, str]], policy: StartPolicy) -> list[str]:
    skipping = sum(row.skips is not None for _, row, _ in stopped)
    counts = Counter(row.verdict for _, row, _ in stopped if row.skips is None)
    ends_first = sorted(stopped, key=lambda each: each[1].position != Position.END)
    advice = {row.verdict: (row, why) for _, row, why in ends_first if row.skips is None}
    sentences = []
    if skipping:
        noun = "partition skips" if skipping == 1 else "partitions skip"
        what = f"{skipping:,} {noun} records, by an offset set by hand"
        sentences.append(f"{what}: choose an earlier offset, or --accept skips.")
    for verdict, count in sorted(counts.items(), key=lambda item: -item[0].badness):
        row, why = advice[verdict]
        if verdict in (Verdict.BOUNDED, Verdict.REMAPPED):
            why = f"more records than max_replay = {policy.max_replay:,} would be read again: {raise_or_accept(row)}"
        noun = "partition" if count == 1 else "partitions"
        sentences.append(f"{count:,} {noun} {verdict.value}: {why}.")
    return sentences


def _decisions(rows: Sequence[PartitionPlan]) -> list[tuple[str, str]]:
    """The options that decide all of these: --accept per verdict and for skips, --set per unresolved partition."""
    decided = [row for row in rows if row.position != Position.END or row.verdict is Verdict.MISSING]
    verdicts = {row.verdict for row in decided if row.verdict is not Verdict.UNRESOLVED and row.skips is None}
    unresolved = dict.fromkeys(_set(row) for row in rows if _needs_offset(row))
    return _options(verdicts, list(unresolved)[:MOST_SETS], skips=any(row.skips for row in rows))


def _earlier(job: JobPlan) -> list[tuple[str, str]]:
    """The decisions recorded for this job: without them a new plan would ask again."""
    rows = [row for row in job.partitions if row.set_by_hand and row.position != Position.END]
    placed = [row for row in rows if is_placed(row) and row.resume_offset is not None]
    accepted = {row.verdict for row in rows if row not in placed}
    return _options(accepted, map(_set, placed), skips=any(row.skips_accepted for row in rows))


def _options(accepted: Iterable[Verdict], places: Iterable[str], *, skips: bool) -> list[tuple[str, str]]:
    words = [*(verdict.value for verdict in sorted(accepted)), *(["skips"] if skips else [])]
    return [*(("--accept", word) for word in words), *(("--set", place) for place in places)]
