"""The page's table: a row per partition, those that need a decision first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.cli.page.advice import Files, row_steps
from reconciler.cli.page.markup import Markup, escaped, fill, fill_each
from reconciler.cli.page.picture import Scale, axis, picture
from reconciler.cli.terminal.report import place_name, replay_text, skips_text, tone_of
from reconciler.clock import stamp
from reconciler.core.verdicts import MatchedBy
from reconciler.formats.decimal_text import counted
from reconciler.formats.plan import JobPlan, PartitionPlan, PlanAnchor, StartPolicy, why_stopped
from reconciler.formats.plan_sinks import why_sink_stops

LONGEST_NAME = 300
MOST_OPEN = 5
"""With at most this many partitions that need a decision, their details are open at first."""

_FOUND_BY = {MatchedBy.ID: "id", MatchedBy.FINGERPRINT: "fingerprint", MatchedBy.TIMESTAMP: "time", None: "–"}


@dataclass(frozen=True, slots=True)
class PageRow:
    """A partition of the table with its job and, if it must not start, the reason."""

    row: PartitionPlan
    job: JobPlan
    job_number: int
    stopped: str | None

    @property
    def changes(self) -> bool:
        """True if the job starts at another number than the stored one."""
        return self.row.resume_offset is not None and self.row.resume_offset != self.row.stored_offset

    @property
    def place(self) -> tuple[int, str, int]:
        """The partition of the job, the same for both positions of a repeated batch."""
        return self.job_number, self.row.topic, self.row.partition


def entries_of(jobs: Sequence[JobPlan], policy: StartPolicy) -> list[PageRow]:
    """Partitions that need a decision first, then by verdict, the worst first; else in the plan's order."""
    by_sink = {job.name: why_sink_stops(sink) for job in jobs if (sink := job.stopped_by) is not None}
    rows = [
        PageRow(row, job, number, why_stopped(row, policy) or by_sink.get(job.name))
        for number, job in enumerate(jobs)
        for row in job.partitions
    ]
    return sorted(rows, key=lambda each: (each.stopped is None, -each.row.verdict.badness))


def table(entries: Sequence[PageRow], policy: StartPolicy, files: Files, *, several_jobs: bool) -> Markup:
    """The whole table; it is complete without a script."""
    scale = Scale.of(each.row for each in entries)
    stopped = sum(each.stopped is not None for each in entries)
    rows = "\n".join(
        _row(each, files, policy, scale, is_open=each.stopped is not None and stopped <= MOST_OPEN) for each in entries
    )
    return fill("table", kind=" jobs" if several_jobs else "", axis=axis(scale, policy.max_replay), rows=Markup(rows))


def _row(each: PageRow, files: Files, policy: StartPolicy, scale: Scale, *, is_open: bool) -> Markup:
    row = each.row
    return fill(
        "row",
        kinds=" ".join(kind for kind, holds in (("p", each.stopped), ("c", each.changes)) if holds),
        badness=row.verdict.badness,
        job_number=each.job_number,
        data_stored=_data(row.stored_offset),
        data_resume=_data(row.resume_offset),
        data_replay=_data(row.replay_at_most),
        partition=escaped(place_name(row), LONGEST_NAME),
        job=escaped(each.job.name, 80),
        tone=tone_of(row, policy),
        verdict=row.verdict.value,
        by_hand=fill("by_hand") if row.set_by_hand else "",
        skips=fill("skips", count=skips_text(row)) if row.skips else "",
        stored=_number(row.stored_offset),
        resume=_number(row.resume_offset),
        replay="–" if row.replay_at_most is None else replay_text(row),
        found_by=_FOUND_BY[row.matched_by],
        picture=picture(row, scale, stopped=each.stopped is not None),
        open=" open" if is_open else "",
        detail=row.detail,
        more=_more(each, files, policy),
    )


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _data(value: int | None) -> str:
    return "" if value is None else f"{value:d}"


def _more(each: PageRow, files: Files, policy: StartPolicy) -> Markup:
    row = each.row
    stop = Markup()
    if each.stopped is not None:
        by_itself = why_stopped(row, policy) is not None  # no decision on a partition satisfies a sink
        steps = row_steps(row, each.job, files) if by_itself else []
        ways_out = [{"text": step.text, "command": command_box(step.command)} for step in steps]
        stop = fill("stop", why=each.stopped, steps=fill_each("stop_step", ways_out))
    source = f"From topic {escaped(row.source_topic, LONGEST_NAME)}. " if row.source_topic != row.topic else ""
    return Markup(
        stop
        + fill(
            "more",
            source_topic=Markup(source),
            anchor=_anchor(row.anchor, row.stored_offset),
            probes=counted(row.probes, "probe"),
            rounds=counted(row.rounds, "round"),
        )
    )


def command_box(line: str | None) -> Markup:
    """A command in a box of its own, to which the script adds a button."""
    return fill("command", line=escaped(line, 20_000)) if line else Markup()


def _anchor(anchor: PlanAnchor | None, stored: int | None) -> Markup:
    if anchor is None:
        return escaped("Nothing is stored." if stored is None else "Stored without an anchor.")
    known = []
    if anchor.offset is not None:
        known.append(escaped(f"offset {anchor.offset:,} in stored numbers"))
    if anchor.timestamp_ms is not None:
        known.append(escaped(f"time {_time(anchor.timestamp_ms)}"))
    if anchor.id_hash is not None:
        known.append(fill("anchor_hash", name="id with hash", value=anchor.id_hash))
    if anchor.fingerprint is not None:
        known.append(fill("anchor_hash", name="fingerprint", value=anchor.fingerprint))
    return Markup(f"Anchor: {', '.join(known) or 'says only whose numbers these are'}.")


def _time(epoch_ms: int) -> str:
    try:
        return f"{stamp(epoch_ms)[:-1]}.{epoch_ms % 1000:03d}Z"
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms:,} ms"
