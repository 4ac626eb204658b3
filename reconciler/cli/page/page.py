"""A plan as one HTML page: no network, complete without its script, readable in light and dark and on paper.

``assets/page.html`` holds sections, each under a line ``<!-- template: NAME -->``. Placeholders are those of
``string.Template``; every value is escaped unless it is markup itself. Line breaks are for the reader: before a tag or
a placeholder they disappear, else they become a space; only an empty line stays as one line break.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

from reconciler.cli.page.advice import Files, next_steps, row_steps
from reconciler.cli.terminal.report import FINDINGS, replay_text, short_count, skips_text, tone_of
from reconciler.clock import stamp
from reconciler.core.text import counted, some, visible
from reconciler.core.verdicts import Position
from reconciler.plan.costs import outcome, replay_total, skips_sum
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, PlanAnchor, StartPolicy
from reconciler.plan.rows import why_sink_stops
from reconciler.plan.start import why_stopped


def page(plan: Plan, policy: StartPolicy, *, sha256: str, files: Files | None = None) -> str:
    """The whole page. ``sha256`` is the plan file's own, even if the page shows only one of its jobs."""
    files = files or Files()
    entries = entries_of(plan.jobs, policy)
    stopped = {each.place for each in entries if each.stopped is not None}
    names = [each.job.name for each in entries if each.stopped is not None] + [job.name for job in plan.not_judged]
    headline = _headline(list(dict.fromkeys(names)), len({each.place for each in entries}))
    source = [escaped(name, LONGEST_NAME) for name in (plan.source_name, plan.source_cluster_id) if name is not None]
    body = fill(
        "page",
        tone="bad" if names else "good",
        headline=headline,
        lead=_lead(plan, len(stopped)),
        figures=_figures(plan, entries, len(stopped)),
        destination=escaped(plan.destination_name, LONGEST_NAME),
        cluster_id=plan.cluster_id,
        bootstrap_servers=plan.bootstrap_servers,
        source=Markup(" · ".join(source) or "not known"),
        created_at=escaped(plan.created_at, 40),
        tool_version=escaped(plan.tool_version, 40),
        expires_at=escaped(plan.expires_at, 40),
        sha256=sha256,
        policies=escaped(_policies(plan, policy), 20 * LONGEST_NAME),
        **_next(plan, policy, files),
        **_kinds(entries),
        stopped=f"{sum(each.stopped is not None for each in entries):,}",
        kind=" jobs" if len(plan.jobs) > 1 else "",
        rows=table_rows(entries, policy, files),
    )
    return document(f"{headline} · {some([job.name for job in plan.jobs], 3)} · reconciler", body)


def _headline(stopped: Sequence[str], places: int) -> str:
    if stopped:
        return f"Must not start: {some(stopped, 3)}"
    if not places:
        return "Nothing to start: the plan holds no partition"
    return "Every partition may start" if places > 1 else "The partition may start"


def _lead(plan: Plan, stopped: int) -> Markup:
    total = outcome(plan)
    lead = f"{total[0].upper()}{total[1:]}."
    if stopped:
        lead = f"{counted(stopped, 'partition')} {'needs' if stopped == 1 else 'need'} a decision."
    if names := [job.name for job in plan.not_judged]:
        lead += f" Not judged: {some(names)}."
    return Markup(escaped(lead, LONGEST_NAME) + " The plan has written nothing.")


def _figures(plan: Plan, entries: Sequence[PageRow], stopped: int) -> Markup:
    places = {each.place for each in entries}
    starts = [each for each in entries if each.row.position != Position.END and each.row.resume_offset is not None]
    changed = {each.place for each in starts if each.row.resume_offset != each.row.stored_offset}
    figures = {
        "partition" if len(places) == 1 else "partitions": f"{len(places):,}",
        "need a decision": f"{stopped:,}",
        "start at another offset": f"{len(changed):,}",
        "records read again": short_count(replay_total(plan)),
    }
    if skipped := skips_sum(each.row.skips for each in entries):
        figures["records skipped by hand"] = short_count(skipped)
    return fill_each("figure", ({"name": name, "value": value} for name, value in figures.items()))


def _policies(plan: Plan, policy: StartPolicy) -> str:
    """The policy, and those of jobs that have their own."""
    own = [(f"; {job.name}: ", job.policy) for job in plan.jobs if job.policy is not None]
    named = [("", policy), *own]
    return "".join(f"{of}behind = {each.behind}, max_replay = {each.max_replay:,} records" for of, each in named)


def _next(plan: Plan, policy: StartPolicy, files: Files) -> dict[str, Markup]:
    steps = next_steps(plan, policy, files)
    findings = fill_each("item", ({"text": step.text} for step in steps if step.command is None))
    commands = [{"text": step.text, "command": command_box(step.command)} for step in steps if step.command]
    return {
        "findings": fill("findings", items=findings) if findings else Markup(),
        "steps": fill_each("step", commands),
    }


def _kinds(entries: Sequence[PageRow]) -> dict[str, Markup]:
    """The meaning of each finding, and a filter for it, which is hidden until the script runs."""
    counts = Counter(each.row.finding for each in entries)
    present = [
        {"finding": each.value, "meaning": FINDINGS[each], "badness": each.badness, "count": f"{counts[each]:,}"}
        for each in sorted(counts, reverse=True)
    ]
    return {"meanings": fill_each("meaning", present), "chips": fill_each("chip", present)}


# ---------------------------------------------------------------- the table: partitions that need a decision first


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
        partition=escaped(row.place, LONGEST_NAME),
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


# ---------------------------------------------------------------- markup from templates


LONGEST = 2_000
"""Characters of one text on a page. Kafka's names have at most 249; a longer text is complete in the plan's file."""


class Markup(str):
    """Text that is HTML already: ``fill`` does not escape it."""

    __slots__ = ()


def escaped(value: object, longest: int = LONGEST) -> Markup:
    """``value`` as text of a page: HTML escaped, control and invisible characters as visible escapes, at most
    ``longest`` characters (the middle is left out)."""
    text = str(value)
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]}… ({len(text) - 2 * half:,} more) …{text[-half:]}"
    return Markup(escape(visible(text)))


def fill(template: str, **values: object) -> Markup:
    """A template with its placeholders filled. Values that are not ``Markup`` are escaped."""
    safe = {name: value if isinstance(value, Markup) else escaped(value) for name, value in values.items()}
    return Markup(_templates()[template].substitute(safe))


def fill_each(template: str, items: Iterable[Mapping[str, object]]) -> Markup:
    """A template once per item, joined."""
    return join(fill(template, **item) for item in items)


def join(parts: Iterable[Markup]) -> Markup:
    return Markup("".join(parts))


def document(title: str, body: Markup) -> str:
    """The whole file. It loads nothing; its policy allows only this style and this script, by their hashes."""
    style, script = asset("page.css"), asset("page.js")
    hashes = {"style_hash": _hash(style), "script_hash": _hash(script)}
    return fill("document", title=title, body=body, style=Markup(style), script=Markup(script), **hashes)


@cache
def asset(name: str) -> str:
    return files("reconciler.cli.page").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _templates() -> Mapping[str, Template]:
    _, *sections = re.split(r"<!-- template: (\w+) -->\n", asset("page.html"))
    return dict(zip(sections[::2], map(_template, sections[1::2]), strict=True))


def _template(text: str) -> Template:
    lines = re.split(r"\n\n\s*", text.strip())
    return Template("\n".join(re.sub(r"\n\s*", " ", re.sub(r"\n\s*(?=[<$])", "", line)) for line in lines))


def _hash(content: str) -> Markup:
    return Markup(f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'")
