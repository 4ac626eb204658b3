"""A plan as one HTML page: no network, complete without its script, readable in light and dark and on paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reconciler.cli.page.advice import Files, next_steps
from reconciler.cli.page.markup import Markup, document, escaped, fill, fill_each
from reconciler.cli.page.rows import LONGEST_NAME, PageRow, command_box, entries_of, table_rows
from reconciler.cli.terminal.glossary import FINDINGS
from reconciler.cli.terminal.report import not_judged_text, short_count
from reconciler.core.text import counted, some
from reconciler.core.verdicts import Position
from reconciler.failover.corrections import outcome, replay_total, skips_sum
from reconciler.plan.document import Plan, StartPolicy


def page(plan: Plan, policy: StartPolicy, *, sha256: str, files: Files | None = None) -> str:
    """The whole page. ``sha256`` is the plan file's own, even if the page shows only one of its jobs."""
    files = files or Files()
    entries = entries_of(plan.jobs, policy)
    stopped = {each.place for each in entries if each.stopped is not None}
    headline = _headline(len({each.place for each in entries}), len(stopped), len(plan.not_judged))
    source = [escaped(name, LONGEST_NAME) for name in (plan.source_name, plan.source_cluster_id) if name is not None]
    body = fill(
        "page",
        tone="bad" if stopped or plan.not_judged else "good",
        headline=headline,
        lead=_lead(plan, [each for each in entries if each.stopped is not None]),
        figures=_figures(plan, entries, len(stopped)),
        cluster_id=plan.cluster_id,
        bootstrap_servers=plan.bootstrap_servers,
        source=Markup(" · ".join(source) or "not known"),
        created_at=escaped(plan.created_at, 40),
        tool_version=escaped(plan.tool_version, 40),
        expires_at=escaped(plan.expires_at, 40),
        sha256=sha256,
        behind=policy.behind.value,
        max_replay=f"{policy.max_replay:,}",
        **_next(plan, policy, files),
        **_kinds(entries),
        stopped=f"{sum(each.stopped is not None for each in entries):,}",
        kind=" jobs" if len(plan.jobs) > 1 else "",
        rows=table_rows(entries, policy, files),
    )
    return document(f"{headline} · {some([job.name for job in plan.jobs], 3)} · reconciler", body)


def _headline(places: int, stopped: int, not_judged: int) -> str:
    if stopped:
        return f"Do not start: {counted(stopped, 'partition')} {'needs' if stopped == 1 else 'need'} a decision"
    if not_judged:
        return f"Do not start: {counted(not_judged, 'job')} not judged"
    if not places:
        return "Nothing to start: the plan holds no partition"
    return "Every partition may start" if places > 1 else "The partition may start"


def _lead(plan: Plan, stopped: Sequence[PageRow]) -> Markup:
    total = outcome(plan)
    lead = f"{total[0].upper()}{total[1:]}."
    if stopped:
        names = list(dict.fromkeys(each.job.name for each in stopped))
        lead = f"{'Job' if len(names) == 1 else 'Jobs'} {some(names)} must not start before that is decided."
    not_judged = f" {not_judged_text(plan)}" if plan.not_judged else ""
    return Markup(escaped(lead, LONGEST_NAME) + escaped(not_judged, LONGEST_NAME) + " The plan has written nothing.")


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


def _next(plan: Plan, policy: StartPolicy, files: Files) -> dict[str, Markup]:
    steps = next_steps(plan, policy, files)
    findings = fill_each("item", ({"text": step.text} for step in steps if step.command is None))
    commands = [{"text": step.text, "command": command_box(step.command)} for step in steps if step.command]
    return {
        "findings": fill("findings", items=findings) if findings else Markup(),
        "steps": fill_each("step", commands),
    }


def _kinds(entries: Sequence[PageRow]) -> dict[str, Markup]:
    """What each finding means, and a filter for it, which works by script only and is hidden until it runs."""
    counts = Counter(each.row.finding for each in entries)
    present = [
        {"finding": each.value, "meaning": FINDINGS[each], "badness": each.badness, "count": f"{counts[each]:,}"}
        for each in sorted(counts, reverse=True)
    ]
    return {"meanings": fill_each("meaning", present), "chips": fill_each("chip", present)}
