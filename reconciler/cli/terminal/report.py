"""A plan in words and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from reconciler.cli.terminal.table import Cell, render
from reconciler.cli.terminal.text import fold, visible
from reconciler.core.verdicts import Verdict
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan, StartPolicy, why_stopped

_TONES = {Verdict.MATCH: "good", Verdict.MOVED: "good", Verdict.NEW: "good", Verdict.TIED: "warn"}
HEADS = ("PARTITION", "VERDICT", "STORED", "RESUME", "REPLAY", "EVIDENCE")
RIGHT = frozenset({2, 3, 4})


def plan_text(plan: Plan, policy: StartPolicy, *, columns: int, colour: bool, most: int | None = None) -> str:
    """All jobs of a plan as tables, worst partitions first where ``most`` rows a job are shown, then what to do."""
    parts = []
    for job in plan.jobs:
        parts.append(_headline(job, columns))
        rows: Sequence[PartitionPlan] = job.partitions
        if most is not None and len(rows) > most:
            rows = sorted(rows, key=lambda row: -row.verdict.badness)[:most]
        if rows:
            parts.append(
                render(HEADS, [_cells(row, policy) for row in rows], right=RIGHT, columns=columns, colour=colour)
            )
        if len(rows) < len(job.partitions):
            parts.append(f"… and {len(job.partitions) - len(rows):,} more; `reconciler show PLAN` lists all.")
        parts.append(_details(rows, policy, columns))
    return "\n".join(part for part in parts if part)


def _headline(job: JobPlan, columns: int) -> str:
    counts = Counter(row.verdict for row in job.partitions)
    found = ", ".join(
        f"{count:,} {verdict.value}" for verdict, count in sorted(counts.items(), key=lambda item: item[0])
    )
    who = visible(f"job {job.name} · group {job.group} · {job.store}")
    return "\n" + "\n".join(fold(line, columns, indent="  ") for line in (who, found or "no partitions"))


def _cells(row: PartitionPlan, policy: StartPolicy) -> tuple[Cell, ...]:
    verdict = row.verdict.value + (" (by hand)" if row.set_by_hand else "")
    return (
        Cell(place_name(row)),
        Cell(verdict, tone_of(row, policy)),
        Cell(number_text(row.stored_offset)),
        Cell(number_text(row.resume_offset)),
        Cell(replay_text(row)),
        Cell(evidence_text(row), "dim"),
    )


def tone_of(row: PartitionPlan, policy: StartPolicy) -> str:
    """bad: needs a person; warn: may start, and is worth a look; good."""
    return "bad" if why_stopped(row, policy) else _TONES.get(row.verdict, "warn")


def place_name(row: PartitionPlan) -> str:
    """A partition, and which end of a batch that is repeated, where a plan has both."""
    name = f"{row.topic}-{row.partition}"
    return name if row.position == "next" else f"{name} {row.position}"


def number_text(value: int | None) -> str:
    """An offset as a person reads it."""
    return "-" if value is None else f"{value:,}"


def replay_text(row: PartitionPlan) -> str:
    """The replay as a person reads it: exact, or a bound."""
    if row.replay_at_most is None:
        return "-"
    return f"{row.replay_exact:,}" if row.replay_exact is not None else f"≤ {row.replay_at_most:,}"


def evidence_text(row: PartitionPlan) -> str:
    """What the resume offset rests on, in a few words where a record was found."""
    if row.matched_by and row.record_offset is not None and row.matched_by != "timestamp":
        return f"{row.matched_by} of record {row.record_offset:,}"
    return row.detail


def stop_text(name: str, detail: str, why: str) -> str:
    """The sentence on a partition that must not start: what was found, then whose move it is."""
    return visible(f"{name} must not start: {detail}. {why[:1].upper()}{why[1:]}.")


def _details(rows: Sequence[PartitionPlan], policy: StartPolicy, columns: int) -> str:
    """A sentence for every partition that must not start."""
    stops = [(row, why_stopped(row, policy)) for row in rows]
    return "\n".join(
        fold("  " + stop_text(place_name(row), row.detail, why), columns, indent="    ") for row, why in stops if why
    )


def replay_total(plan: Plan) -> str:
    """How many records will be read again, over all partitions. The end of a repeated batch adds nothing to it."""
    return replay_sum(row for job in plan.jobs for row in job.partitions)


def replay_sum(rows: Iterable[PartitionPlan]) -> str:
    """The same for some partitions."""
    counted = [row for row in rows if row.replay_at_most is not None and row.position != "end"]
    at_most = sum(row.replay_at_most or 0 for row in counted)
    noun = "record" if at_most == 1 else "records"
    exact = all(row.replay_exact is not None for row in counted)
    return f"{at_most:,} {noun}" if exact else f"at most {at_most:,} {noun}"
