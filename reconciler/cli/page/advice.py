"""The next steps after a plan, as commands to copy."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reconciler.cli.terminal.text import visible
from reconciler.core.verdicts import Position, Verdict
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan, StartPolicy, why_stopped
from reconciler.stores.registry import checkpoint_path, traits

MOST_SETS = 8
"""Partitions that one command names; the others are named in their rows only."""

UNDECIDED = "OFFSET"
"""The placeholder for an offset that could not be proven."""


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of the plan and of the configuration as given on the command line; else placeholders."""

    plan: str = "PLAN"
    config: str = "FILE"


@dataclass(frozen=True, slots=True)
class Step:
    """A sentence, and the command that does it."""

    text: str
    command: str | None = None


def command(*words: str) -> str:
    """A command line for a shell, with invisible characters as escapes (bash, zsh, ksh)."""
    return " ".join(_quoted(word) for word in words)


def _quoted(word: str) -> str:
    if visible(word) == word:
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{visible(escaped)}'"


def row_steps(row: PartitionPlan, job: JobPlan, files: Files) -> list[Step]:
    """The options for one partition that must not start, each as a ``check`` to try first."""
    check = ("reconciler", "check", "-c", files.config, "--job", job.name)
    steps = []
    if row.verdict is not Verdict.UNRESOLVED:
        text = f"Let every {row.verdict.value} partition of this job start where it can:"
        if row.verdict is Verdict.MISSING:
            text = "Leave every missing partition of this job out:"
        steps.append(Step(text, command(*check, "--accept", row.verdict.value)))
    if row.verdict is not Verdict.MISSING:
        text = "This one only, at an offset of the destination that you choose:"
        if row.resume_offset is not None:
            text = "This one only, at the offset that was found:"
        steps.append(Step(text, command(*check, "--set", _set(row))))
    return steps


def _set(row: PartitionPlan) -> str:
    return f"{row.topic}:{row.partition}={UNDECIDED if row.resume_offset is None else row.resume_offset}"


def next_steps(plan: Plan, policy: StartPolicy, files: Files) -> list[Step]:
    """The next steps for the whole plan, in order."""
    stopped = [
        (job, row, why)
        for job in plan.jobs
        for row in job.partitions
        if (why := why_stopped(row, policy)) is not None and row.position != Position.END
    ]
    steps = _to_decide(plan, stopped, policy, files) if stopped else _to_write(plan.jobs, files)
    return [*_to_mend(plan, files), *steps]


def _to_mend(plan: Plan, files: Files) -> list[Step]:
    """The jobs that were not judged; ``apply`` leaves them alone."""
    steps = []
    for job in plan.not_judged:
        steps.append(Step(f"Job {job.name} was not judged, and this plan does not hold it: {job.reason}"))
        again = command("reconciler", "check", "-c", files.config, "--job", job.name)
        steps.append(Step(f"Do not start job {job.name}. Once its cause is mended, check it:", again))
    return steps


def _to_write(jobs: Sequence[JobPlan], files: Files) -> list[Step]:
    steps = []
    if any(not traits(job.store).corrected_in_copy for job in jobs):
        apply = ("reconciler", "apply", files.plan, "-c", files.config)
        steps.append(Step("See what would be written, without writing:", command(*apply, "--dry-run")))
        steps.append(Step("Write it, with compare-and-set and read-back; it asks first:", command(*apply)))
    for job in jobs:
        if traits(job.store).corrected_in_copy:
            path = checkpoint_path(job.store).partition("?")[0]
            clone = ("reconciler", "checkpoint", "clone", path, "NEW_PATH", "--plan", files.plan, "--job", job.name)
            text = f"Copy the checkpoint of job {job.name}; the copy continues at the plan's offsets:"
            steps.append(Step(text, command(*clone, "-c", files.config)))
    return steps


def _to_decide(
    plan: Plan, stopped: Sequence[tuple[JobPlan, PartitionPlan, str]], policy: StartPolicy, files: Files
) -> list[Step]:
    steps = [Step(text) for text in _by_verdict(stopped, policy)]
    jobs = {job.name for job, _, _ in stopped}
    chosen = ["--job", plan.jobs[0].name] if len(plan.jobs) == 1 else []
    options = [*chosen, *_once([*_earlier(plan), *_decisions(row for _, row, _ in stopped)])]
    sets = sum(row.verdict is Verdict.UNRESOLVED for _, row, _ in stopped)
    more = f" ({sets - MOST_SETS:,} more partitions need --set: see their rows)" if sets > MOST_SETS else ""
    text = "Try the decisions, after deleting those that you do not make; this only reads"
    steps.append(Step(f"{text}{more}:", command("reconciler", "check", "-c", files.config, *options)))
    plan_it = command("reconciler", "plan", "-c", files.config, "-o", files.plan, *options)
    steps.append(Step("Then make a new plan with the same decisions:", plan_it))
    free = [job.name for job in plan.jobs if job.name not in jobs]
    if free:
        names = ", ".join(free[:10]) + (f" and {len(free) - 10:,} more" if len(free) > 10 else "")
        ready = f"These jobs need no decision and can be applied now ({names}); the others are refused:"
        steps.append(Step(ready, command("reconciler", "apply", files.plan, "-c", files.config)))
    return steps


def _by_verdict(stopped: Sequence[tuple[JobPlan, PartitionPlan, str]], policy: StartPolicy) -> list[str]:
    counts = Counter(row.verdict for _, row, _ in stopped)
    advice = {row.verdict: why for _, row, why in stopped}
    sentences = []
    for verdict, count in sorted(counts.items(), key=lambda item: -item[0].badness):
        why = advice[verdict]
        if verdict in (Verdict.BOUNDED, Verdict.REMAPPED):
            why = (
                f"more records than max_replay = {policy.max_replay:,} would be read again: "
                f"raise max_replay or scan_records, or --accept {verdict.value}"
            )
        noun = "partition" if count == 1 else "partitions"
        sentences.append(f"{count:,} {noun} {verdict.value}: {why}.")
    return sentences


def _decisions(rows: Iterable[PartitionPlan]) -> list[str]:
    """The options that decide all of these: --accept per verdict, --set per unresolved partition."""
    rows = list(rows)
    verdicts = sorted({row.verdict for row in rows if row.verdict is not Verdict.UNRESOLVED})
    unresolved = dict.fromkeys(_set(row) for row in rows if row.verdict is Verdict.UNRESOLVED)
    options = [word for verdict in verdicts for word in ("--accept", verdict.value)]
    return options + [word for place in list(unresolved)[:MOST_SETS] for word in ("--set", place)]


def _once(options: Sequence[str]) -> list[str]:
    """Alternating names and values, with each pair once."""
    pairs = dict.fromkeys(zip(options[::2], options[1::2], strict=True))
    return [word for pair in pairs for word in pair]


def _earlier(plan: Plan) -> list[str]:
    """The decisions recorded in this plan: without them a new one would ask again."""
    rows = [row for job in plan.jobs for row in job.partitions if row.set_by_hand and row.position != Position.END]
    accepted = {row.verdict for row in rows if not row.detail.startswith("set by hand")}
    placed = [row for row in rows if row.verdict not in accepted and row.resume_offset is not None]
    options = [word for verdict in sorted(accepted) for word in ("--accept", verdict.value)]
    return options + [word for place in dict.fromkeys(map(_set, placed)) for word in ("--set", place)]
