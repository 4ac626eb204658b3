"""A plan in words and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reconciler.cli.table import Cell, render
from reconciler.core.plan import JobPlan, PartitionPlan, Plan, StartPolicy, why_stopped
from reconciler.core.verdicts import Verdict

_TONES = {Verdict.MATCH: "good", Verdict.MOVED: "good", Verdict.NEW: "good", Verdict.TIED: "warn"}
HEADS = ("PARTITION", "VERDICT", "STORED", "RESUME", "REPLAY", "EVIDENCE")
RIGHT = frozenset({2, 3, 4})


def plan_text(plan: Plan, policy: StartPolicy, *, columns: int, colour: bool, most: int | None = None) -> str:
    """All jobs of a plan as tables, worst partitions first where ``most`` rows a job are shown, then what to do."""
    parts = []
    for job in plan.jobs:
        parts.append(_headline(job))
        rows: Sequence[PartitionPlan] = job.partitions
        if most is not None and len(rows) > most:
            rows = sorted(rows, key=lambda row: -row.verdict.badness)[:most]
        if rows:
            parts.append(
                render(HEADS, [_cells(row, policy) for row in rows], right=RIGHT, columns=columns, colour=colour)
            )
        if len(rows) < len(job.partitions):
            parts.append(f"… and {len(job.partitions) - len(rows):,} more; `reconciler show PLAN` lists all.")
        parts.append(_details(rows, policy))
    return "\n".join(part for part in parts if part)


def _headline(job: JobPlan) -> str:
    counts = Counter(row.verdict for row in job.partitions)
    found = ", ".join(
        f"{count:,} {verdict.value}" for verdict, count in sorted(counts.items(), key=lambda item: item[0])
    )
    return f"\njob {job.name} · group {job.group} · {job.store}\n{found or 'no partitions'}"


def _cells(row: PartitionPlan, policy: StartPolicy) -> tuple[Cell, ...]:
    stopped = why_stopped(row, policy)
    tone = "bad" if stopped else _TONES.get(row.verdict, "warn")
    verdict = row.verdict.value + (" (by hand)" if row.set_by_hand else "")
    return (
        Cell(_place(row)),
        Cell(verdict, tone),
        Cell(_number(row.stored_offset)),
        Cell(_number(row.resume_offset)),
        Cell(replay_text(row)),
        Cell(_evidence(row), "dim"),
    )


def _place(row: PartitionPlan) -> str:
    """A partition, and which end of a batch that is repeated, where a plan has both."""
    name = f"{row.topic}-{row.partition}"
    return name if row.position == "next" else f"{name} {row.position}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def replay_text(row: PartitionPlan) -> str:
    """The replay as a person reads it: exact, or a bound."""
    if row.replay_at_most is None:
        return "-"
    return f"{row.replay_exact:,}" if row.replay_exact is not None else f"≤ {row.replay_at_most:,}"


def _evidence(row: PartitionPlan) -> str:
    if row.matched_by and row.record_offset is not None and row.matched_by != "timestamp":
        return f"{row.matched_by} of record {row.record_offset:,}"
    return row.detail


def _details(rows: Sequence[PartitionPlan], policy: StartPolicy) -> str:
    """A sentence for every partition that must not start."""
    lines = []
    for row in rows:
        stopped = why_stopped(row, policy)
        if stopped:
            lines.append(f"  {_place(row)} must not start: {row.detail}. {stopped[0].upper()}{stopped[1:]}.")
    return "\n".join(lines)


def replay_total(plan: Plan) -> str:
    """How many records will be read again, over all partitions. The end of a repeated batch adds nothing to it."""
    rows = [row for job in plan.jobs for row in job.partitions if row.replay_at_most is not None]
    rows = [row for row in rows if row.position != "end"]
    at_most = sum(row.replay_at_most or 0 for row in rows)
    exact = all(row.replay_exact is not None for row in rows)
    return f"{at_most:,} records" if exact else f"at most {at_most:,} records"
