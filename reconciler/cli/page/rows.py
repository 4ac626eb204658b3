"""The page's table: a row per partition, those that need a decision first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.cli.page.advice import Files, row_steps
from reconciler.cli.page.markup import Markup, escaped, fill, fill_each
from reconciler.cli.terminal.report import replay_text, skips_text, tone_of
from reconciler.clock import stamp
from reconciler.core.text import counted
from reconciler.plan.document import JobPlan, PartitionPlan, PlanAnchor, StartPolicy, why_stopped
from reconciler.plan.sentences import place_name
from reconciler.plan.sinks import why_sink_stops

LONGEST_NAME = 300
MOST_OPEN = 5
"""With at most this many partitions that need a decision, their details are open at first."""
WIDEST = 20
"""The classes of a bar's width in ``page.css``: the page's policy forbids a style of its own."""


@dataclass(frozen=True, slots=True)
class PageRow:
    """A partition of the table with its job and, if it must not start, the reason."""

    row: PartitionPlan
    job: JobPlan
    stopped: str | None

    @property
    def place(self) -> tuple[str, str, int]:
        """The partition of the job, the same for both positions of a repeated batch."""
        return self.job.name, self.row.topic, self.row.partition


def entries_of(jobs: Sequence[JobPlan], policy: StartPolicy) -> list[PageRow]:
    """Partitions that need a decision first, then by finding, the worst first; else in the plan's order."""
    by_sink = {job.name: why_sink_stops(sink) for job in jobs if (sink := job.stopped_by) is not None}
    rows = [
        PageRow(row, job, why_stopped(row, policy) or by_sink.get(job.name)) for job in jobs for row in job.partitions
    ]
    return sorted(rows, key=lambda each: (each.stopped is None, -each.row.finding.badness))


def table_rows(entries: Sequence[PageRow], policy: StartPolicy, files: Files) -> Markup:
    """All rows; they are complete without a script."""
    most = max((each.row.replay_at_most or 0 for each in entries), default=0)
    is_open = sum(each.stopped is not None for each in entries) <= MOST_OPEN
    return Markup("\n".join(_row(each, files, policy, most, is_open=is_open) for each in entries))


def _row(each: PageRow, files: Files, policy: StartPolicy, most: int, *, is_open: bool) -> Markup:
    row, job = each.row, each.job
    words = " · ".join(["by hand"] * row.set_by_hand + [f"skips {skips_text(row)}"] * bool(row.skips))
    return fill(
        "row",
        kind="p" if each.stopped else "",
        badness=row.finding.badness,
        data_stored=_number(row.stored_offset, "d", ""),
        data_resume=_number(row.resume_offset, "d", ""),
        data_replay=_number(row.replay_at_most, "d", ""),
        partition=escaped(place_name(row), LONGEST_NAME),
        job=escaped(job.name, 80),
        group=escaped(job.group, 80),
        store=escaped(job.store, LONGEST_NAME),
        tone=tone_of(row, policy),
        finding=row.finding.value,
        by_hand=fill("by_hand", words=words) if words else "",
        stored=_number(row.stored_offset),
        resume=_number(row.resume_offset),
        replay="–" if row.replay_at_most is None else replay_text(row),
        bar=bar(row, most),
        found_by=row.matched_by or "–",
        open=" open" if is_open and each.stopped else "",
        detail=row.detail,
        stop=_stop(each, policy, files),
        anchor=_anchor(row.anchor, row.stored_offset),
        probes=counted(row.probes, "probe"),
        rounds=counted(row.rounds, "round"),
    )


def bar(row: PartitionPlan, most: int) -> str:
    """The classes of the bar for the records that are read again: its width, logarithmic, and whether it is a bound."""
    share = math.log1p(row.replay_at_most or 0) / math.log1p(max(most, 1_000))
    return f"w{math.ceil(WIDEST * share)}{'' if row.replay_exact is not None else ' bound'}"


def _number(value: int | None, how: str = ",", absent: str = "–") -> str:
    return absent if value is None else format(value, how)


def _stop(each: PageRow, policy: StartPolicy, files: Files) -> Markup:
    if each.stopped is None:
        return Markup()
    by_itself = why_stopped(each.row, policy) is not None  # no decision on a partition satisfies a sink
    steps = row_steps(each.row, each.job, files) if by_itself else []
    ways_out = fill_each("stop_step", ({"text": step.text, "command": command_box(step.command)} for step in steps))
    return fill("stop", why=each.stopped, steps=ways_out)


def command_box(line: str | None) -> Markup:
    """A command in a box of its own, to which the script adds a button."""
    return fill("command", line=escaped(line, 20_000)) if line else Markup()


def _anchor(anchor: PlanAnchor | None, stored: int | None) -> str:
    if anchor is None:
        return "Nothing is stored." if stored is None else "Stored without an anchor."
    known = {
        "offset": None if anchor.offset is None else f"{anchor.offset:,} in stored numbers",
        "time": None if anchor.timestamp_ms is None else f"{stamp(anchor.timestamp_ms)} ({anchor.timestamp_ms} ms)",
        "id with hash": anchor.id_hash,
        "fingerprint": anchor.fingerprint,
    }
    words = ", ".join(f"{name} {value}" for name, value in known.items() if value is not None)
    return f"Anchor: {words or 'says only whose numbers these are'}."
