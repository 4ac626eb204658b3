"""A plan as text: a table per job, a legend of its findings, and a sentence per reason not to start.

The contract's words in plain English are here too: each finding in one clause, each term in one sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from reconciler.cli.terminal.output import Shown, line, listed, stack, wrap
from reconciler.cli.terminal.table import Cell, count_cell, render
from reconciler.core.text import counted, visible
from reconciler.core.verdicts import STOPS, MatchedBy, Verdict
from reconciler.plan.costs import has_replay, replay_sum
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, StartPolicy
from reconciler.plan.start import sink_text, skips_words, stop_sentences, why_stopped

_TONES = {Verdict.EXACT: "good", Verdict.NEW: "good", Verdict.EARLY: "warn"}
_BY_NUMBER = frozenset({Verdict.EXACT, Verdict.EARLY, Verdict.BEHIND, Verdict.LOST})
SKIPS = 5
"""The column that is left out where no row skips."""
RIGHT = frozenset({2, 3, 4, SKIPS})


def plan_text(
    plan: Plan, policy: StartPolicy, *, columns: int | None = None, colour: bool | None = None, most: int | None = None
) -> Shown:
    """All jobs of a plan, for stdout unless ``columns`` and ``colour`` say otherwise: first a line for each of several
    jobs, then their partitions. With ``most``, longer tables show only that many rows: first the rows that must not
    start, then the others, each by finding, the worst first. The sentences below a table are about all its rows."""
    parts: list[Shown] = []
    if plan.not_judged or len(plan.jobs) > 1:
        lines = [f"{each.name}: {job_text(each, policy)}" for each in plan.jobs]
        lines += [f"{each.name}: must not start: it could not be judged. {each.reason}" for each in plan.not_judged]
        parts.append(wrap(*lines, columns=columns))
    for job in plan.jobs:
        parts.append(_headline(job, columns))
        every: Sequence[PartitionPlan] = job.partitions
        if most is not None and len(every) > most:
            every = sorted(every, key=lambda row: _urgency(row, policy))
        rows = every[:most]
        if rows:
            parts.append(_table(rows, heads_of(plan, job), policy, columns=columns, colour=colour))
        if len(rows) < len(every):
            more = len(every) - len(rows)
            parts.append(line(f"… and {more:,} more; `reconciler show PLAN` lists all."))
        sentences = [*stop_sentences(every, policy, most), *_undelivered(every), *numbers_alone(every)]
        sentences += map(sink_text, job.sinks)
        parts.append(wrap(*(f"  {each}" for each in sentences), indent="    ", columns=columns))
    parts.append(_legend(plan, columns))
    return stack(*(part for part in parts if part))


def _urgency(row: PartitionPlan, policy: StartPolicy) -> tuple[bool, bool, int]:
    return why_stopped(row, policy) is None, row.skips is None, -row.finding.badness


def job_text(job: JobPlan, policy: StartPolicy) -> str:
    """Whether a job may start, and what that reads again: half a sentence."""
    why = why_job_stops(job, policy)
    return starts_text(job, policy) if why is None else f"must not start: {why}"


def why_job_stops(job: JobPlan, policy: StartPolicy, *, waits: bool = False) -> str | None:
    """Why the job must not start; None if it may. ``waits``: its hook will wait for a mirror that is behind."""
    if job.stopped_by is not None:
        return f"{job.stopped_by.sink}: {job.stopped_by.detail}"
    stopped = [(row, why) for row in job.partitions if (why := why_stopped(row, policy)) is not None]
    if waits:
        stopped = [(row, why) for row, why in stopped if row.finding is not Verdict.BEHIND]
    if not stopped:
        return None
    row, why = stopped[0]
    others = Counter(each.finding for each, _ in stopped[1:])
    found = ", ".join(f"{count:,} {finding.value}" for finding, count in sorted(others.items()))
    more = f" (also {found})" if others else ""
    fact = row.detail if row.finding in STOPS and not row.set_by_hand else why
    return f"{row.place} ({row.finding.value}): {fact}{more}"


def starts_text(job: JobPlan, policy: StartPolicy) -> str:
    """How a job that may start begins, and what it reads again."""
    again = f"{replay_sum(job.partitions)} again"
    behind = [row for row in job.partitions if row.finding is Verdict.BEHIND and not row.set_by_hand]
    if behind:
        waits = f"the mirror is behind in {counted(len(behind), 'partition')}: its hook waits for that (--wait)"
        must = any(why_stopped(row, policy) is not None for row in behind)
        return waits if must else f"{waits}, or starts early, {again}"
    return f"starts early, {again}" if has_replay(job.partitions) else "starts exactly"


def heads_of(plan: Plan, job: JobPlan) -> tuple[str, ...]:
    """The columns' names: an offset is one of a cluster."""
    clusters = f"STORED ({visible(job.lives)})", f"RESUME ({visible(plan.destination_name)})"
    return ("PARTITION", "FINDING", *clusters, "AGAIN", "SKIPS", "EVIDENCE")


def _table(
    rows: Sequence[PartitionPlan],
    names: Sequence[str],
    policy: StartPolicy,
    *,
    columns: int | None,
    colour: bool | None,
) -> Shown:
    shown = [index for index in range(len(names)) if index != SKIPS or any(row.skips for row in rows)]
    cells = [[cells[index] for index in shown] for cells in (_cells(row, policy) for row in rows)]
    right = frozenset(place for place, index in enumerate(shown) if index in RIGHT)
    heads, printed = [names[index] for index in shown], {evidence_text(row) for row in rows if why_stopped(row, policy)}
    return render(heads, cells, right=right, columns=columns, colour=colour, printed=printed)


def _headline(job: JobPlan, columns: int | None) -> Shown:
    counts = Counter(row.finding for row in job.partitions)
    verdicts = ", ".join(f"{counts[verdict]:,} {verdict.value}" for verdict in sorted(counts))
    name = f"job {job.name} · group {job.group} · {job.store}"
    return wrap("", name, verdicts or "no partitions", columns=columns)


def _legend(plan: Plan, columns: int | None) -> Shown:
    text = legend((row.finding for job in plan.jobs for row in job.partitions), columns)
    return stack(line(""), text) if text else text


def _cells(row: PartitionPlan, policy: StartPolicy) -> tuple[Cell, ...]:
    return (
        Cell(row.place),
        Cell(verdict_text(row), tone_of(row, policy)),
        count_cell(row.stored_offset),
        count_cell(row.resume_offset),
        Cell(replay_text(row)),
        Cell(skips_text(row), tone_of(row, policy)),
        Cell(evidence_text(row), "dim"),
    )


def verdict_text(row: PartitionPlan) -> str:
    """The finding, and whether the operator decided."""
    return f"{row.finding.value} (by hand)" if row.set_by_hand else row.finding.value


def tone_of(row: PartitionPlan, policy: StartPolicy) -> str:
    """bad: must not start; warn: may start, and is worth a look; good."""
    return "bad" if why_stopped(row, policy) else _TONES.get(row.finding, "warn")


def replay_text(row: PartitionPlan) -> str:
    """The replay in records, exact or as a bound."""
    if row.replay_at_most is None:
        return "-"
    return f"{row.replay_exact:,}" if row.replay_exact is not None else f"≤ {row.replay_at_most:,}"


def skips_text(row: PartitionPlan) -> str:
    """The records that the operator's offset skips: exactly, between two numbers, or as a bound."""
    if row.skips is None:
        return "-"
    bound = short_count(skips_words(row.skips))
    return f"unknown, {bound}" if row.finding is Verdict.UNRESOLVED else bound


def short_count(records: str) -> str:
    """``≤ 3`` for ``at most 3 records``."""
    return records.removesuffix("s").removesuffix(" record").replace("at most", "≤")


def evidence_text(row: PartitionPlan) -> str:
    """The evidence of the resume offset: a few words if the anchor's record was found, or is not there yet, else the
    detail."""
    if (
        row.finding is Verdict.BEHIND
        and not row.set_by_hand
        and row.anchor is not None
        and row.anchor.offset is not None
    ):
        return f"the mirror has not delivered record {row.anchor.offset:,} of {row.source_topic} yet"
    if (
        row.anchor is not None
        and row.matched_by
        and row.record_offset is not None
        and row.matched_by != MatchedBy.TIMESTAMP
    ):
        if row.stored_offset == row.resume_offset and row.record_offset + 1 < (row.resume_offset or 0):
            return f"stored here by the job itself, since record {row.record_offset:,}"
        return f"{row.matched_by} of record {row.record_offset:,}"
    return row.detail


def _undelivered(rows: Sequence[PartitionPlan]) -> list[str]:
    """A sentence on the records that the mirror has not delivered, if it lacks any that the job has processed."""
    names = [row.place for row in rows if row.finding is Verdict.BEHIND and not row.set_by_hand]
    if not names:
        return []
    what = f"The mirror has not delivered this job's last records of {listed(names)}."
    return [f"{what} They are processed already; they come twice if the mirror returns."]


def numbers_alone(rows: Sequence[PartitionPlan]) -> list[str]:
    """The assumption about rows placed by their number, which nothing at the destination proves."""
    count = sum(_is_by_number(row) for row in rows)
    if not count:
        return []
    these = "1 partition is placed by its number" if count == 1 else f"{count:,} partitions are placed by their numbers"
    return [f"{these} alone, without an anchor: right if the source's topic was not recreated meanwhile."]


def _is_by_number(row: PartitionPlan) -> bool:
    """False for offset 0, which has nothing in front of it in any topic."""
    found = row.anchor is None and bool(row.stored_offset) and row.resume_offset is not None
    return found and row.finding in _BY_NUMBER and not row.set_by_hand and not row.by_row_time


# ---------------------------------------------------------------- the words


FINDINGS = {
    Verdict.EXACT: "the job's last record is proven: it starts right behind it",
    Verdict.NEW: "the job has no offset of this partition: starts by policy",
    Verdict.EARLY: "a proven lower bound: nothing is skipped, some records come again",
    Verdict.BEHIND: "the mirror has not delivered the job's last record yet",
    Verdict.LOST: "records that the job has not processed may be gone from the destination",
    Verdict.UNRESOLVED: "nothing could be proven, or the partition is not there",
}

_BRIEF = {
    Verdict.EXACT: "the last record is proven",
    Verdict.NEW: "nothing stored",
    Verdict.EARLY: "skips nothing, some come again",
    Verdict.BEHIND: "not mirrored yet",
    Verdict.LOST: "records may be gone",
    Verdict.UNRESOLVED: "nothing proven",
}

TERMS = {
    "stored offset": "the next offset to read as the job saved it, in the source cluster's numbers",
    "anchor": "the identity of the last record that the job processed: its offset, time, id and fingerprint",
    "fingerprint": "a hash of a record's key and value",
    "resume offset": "the next offset to read in the destination's numbers",
    "again": "records already processed that will be read again: a bound (≤), or exact where that is known",
    "finding": "what was found for one partition; a run's is its worst",
    "evidence": "what the resume offset rests on",
}


def legend(found: Iterable[Verdict], columns: int | None) -> Shown:
    """The given findings in a few words each, best first, folded to ``columns``; empty if there are none."""
    present = sorted(set(found))
    if not present:
        return Shown("")
    meanings = " · ".join(f"{each.value}: {_BRIEF[each]}" for each in present)
    return wrap(f"{meanings} (more: reconciler help plan)", columns=columns)
