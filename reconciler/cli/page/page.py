"""A plan as one HTML page: no network, complete without its script, readable in light and dark and on paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reconciler.cli.page.advice import Files, next_steps
from reconciler.cli.page.markup import Markup, asset, document, escaped, fill, fill_each
from reconciler.cli.page.rows import LONGEST_NAME, PageRow, command_box, entries_of, table
from reconciler.cli.terminal.glossary import VERDICTS
from reconciler.cli.terminal.report import not_judged_text, short_count
from reconciler.core.verdicts import Position
from reconciler.failover.totals import outcome, replay_sum, replay_total, skips_sum
from reconciler.formats.plan import JobPlan, NotJudged, Plan, StartPolicy, why_stopped

MOST_JOBS = 12
"""More judged jobs than these are folded away."""


def page(plan: Plan, policy: StartPolicy, *, sha256: str, files: Files | None = None) -> str:
    """The whole page. ``sha256`` is the plan file's own, even if the page shows only one of its jobs."""
    files = files or Files()
    entries = entries_of(plan.jobs, policy)
    places = {each.place for each in entries}
    stopped = {each.place for each in entries if each.stopped is not None}
    body = fill(
        "page",
        tone="bad" if stopped or plan.not_judged else "good",
        headline=_headline(len(places), len(stopped), len(plan.not_judged)),
        lead=_lead(plan, policy, is_stopped=bool(stopped)),
        figures=_figures(plan, entries, len(places), len(stopped)),
        cluster_id=plan.cluster_id,
        bootstrap_servers=plan.bootstrap_servers,
        source=_source(plan),
        created_at=escaped(plan.created_at, 40),
        tool_version=escaped(plan.tool_version, 40),
        expires_at=escaped(plan.expires_at, 40),
        sha256=sha256,
        behind=policy.behind.value,
        max_replay=f"{policy.max_replay:,}",
        **_next(plan, policy, files),
        jobs_heading="Job" if len(plan.jobs) + len(plan.not_judged) == 1 else "Jobs",
        jobs=_jobs(plan, policy),
        **_above_the_table(plan.jobs, entries),
        table=table(entries, policy, files, several_jobs=len(plan.jobs) > 1),
    )
    rows_stopped = sum(each.stopped is not None for each in entries)
    title = f"{rows_stopped:,} need a decision" if rows_stopped else "may start"
    if plan.not_judged and not rows_stopped:
        title = f"{len(plan.not_judged):,} not judged"
    return document(f"{title} · {', '.join(job.name for job in plan.jobs[:3])} · reconciler", body, asset("page.js"))


# ---------------------------------------------------------------- the head


def _headline(places: int, stopped: int, not_judged: int) -> str:
    if not_judged and not stopped:
        rest = "job was not judged: do not start it" if not_judged == 1 else "jobs were not judged: do not start them"
        return f"{not_judged:,} {rest}"
    if not places:
        return "Nothing to start: the plan holds no partition"
    if stopped:
        return f"Do not start: {stopped:,} {'partition needs' if stopped == 1 else 'partitions need'} a decision"
    return "Every partition may start" if places > 1 else "The partition may start"


def _lead(plan: Plan, policy: StartPolicy, *, is_stopped: bool) -> Markup:
    judged = _lead_of_judged(plan, policy, is_stopped=is_stopped)
    return Markup(f"{judged} {escaped(not_judged_text(plan), LONGEST_NAME)}") if plan.not_judged else judged


def _lead_of_judged(plan: Plan, policy: StartPolicy, *, is_stopped: bool) -> Markup:
    if is_stopped:
        names = [
            job.name for job in plan.jobs if any(why_stopped(row, policy) or job.stopped_by for row in job.partitions)
        ]
        more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        listed = escaped(", ".join(names[:5]), LONGEST_NAME)
        return Markup(
            f"{'Job' if len(names) == 1 else 'Jobs'} {listed}{more} must not start before that is decided. "
            "Nothing was written."
        )
    total = outcome(plan)
    return escaped(f"{total[0].upper()}{total[1:]}. Nothing has been written yet by making this plan.")


def _figures(plan: Plan, entries: Sequence[PageRow], places: int, stopped: int) -> Markup:
    changed = {each.place for each in entries if each.changes and each.row.position != Position.END}
    figures = {
        "partition" if places == 1 else "partitions": f"{places:,}",
        "need a decision": f"{stopped:,}",
        "start at another offset": f"{len(changed):,}",
        "records read again": short_count(replay_total(plan)),
    }
    if skipped := skips_sum(each.row.skips for each in entries):
        figures["records skipped by hand"] = short_count(skipped)
    return fill_each("figure", ({"name": name, "value": value} for name, value in figures.items()))


def _source(plan: Plan) -> Markup:
    names = [escaped(name, LONGEST_NAME) for name in (plan.source_alias, plan.source_cluster_id) if name is not None]
    return fill("source", source=Markup(" · ".join(names))) if names else escaped("not known")


def _next(plan: Plan, policy: StartPolicy, files: Files) -> dict[str, Markup]:
    steps = next_steps(plan, policy, files)
    findings = fill_each("item", ({"text": step.text} for step in steps if step.command is None))
    commands = [{"text": step.text, "command": command_box(step.command)} for step in steps if step.command]
    return {
        "findings": fill("findings", items=findings) if findings else Markup(),
        "steps": fill_each("step", commands),
    }


def _jobs(plan: Plan, policy: StartPolicy) -> Markup:
    failed, judged = [_not_judged(job) for job in plan.not_judged], [_job(job, policy) for job in plan.jobs]
    if len(judged) <= MOST_JOBS:
        return fill("jobs", rows=fill_each("job", [*failed, *judged]))
    in_sight = fill("jobs", rows=fill_each("job", failed)) if failed else Markup()
    jobs = fill("jobs", rows=fill_each("job", judged))
    return Markup(in_sight + fill("folded_jobs", count=f"{len(judged):,}", jobs=jobs))


def _not_judged(job: NotJudged) -> dict[str, object]:
    name = escaped(job.name, LONGEST_NAME)
    dashes = dict.fromkeys(("group", "store", "stopped", "replay"), "–")
    return {**dashes, "name": name, "verdicts": "not judged: do not start it", "tone": "bad"}


def _job(job: JobPlan, policy: StartPolicy) -> dict[str, object]:
    counts = Counter(row.verdict for row in job.partitions)
    verdicts = ", ".join(f"{counts[verdict]:,} {verdict.value}" for verdict in sorted(counts, reverse=True))
    stopped = sum(bool(why_stopped(row, policy) or job.stopped_by) for row in job.partitions)
    sinks = [f"sink {row.outcome.value}" for row in job.sinks]
    return {
        "name": escaped(job.name, LONGEST_NAME),
        "group": escaped(job.group, LONGEST_NAME),
        "store": escaped(job.store, LONGEST_NAME),
        "verdicts": " · ".join([verdicts or "no partitions", *sinks]),
        "tone": "bad" if stopped else "good",
        "stopped": f"{stopped:,}",
        "replay": replay_sum(job.partitions),
    }


# ---------------------------------------------------------------- above the table


def _above_the_table(jobs: Sequence[JobPlan], entries: Sequence[PageRow]) -> dict[str, object]:
    """The legend's verdicts, and the filters, which work by script only and are hidden until it runs."""
    counts = Counter(each.row.verdict for each in entries)
    present = [
        {
            "verdict": verdict.value,
            "meaning": VERDICTS[verdict],
            "badness": verdict.badness,
            "count": f"{counts[verdict]:,}",
        }
        for verdict in sorted(counts, reverse=True)
    ]
    options = fill_each(
        "job_option", ({"number": number, "name": escaped(job.name, 80)} for number, job in enumerate(jobs))
    )
    return {
        "meanings": fill_each("meaning", present),
        "chips": fill_each("chip", present),
        "job_filter": fill("job_filter", options=options) if len(jobs) > 1 else "",
        "stopped": f"{sum(each.stopped is not None for each in entries):,}",
        "changed": f"{sum(each.changes for each in entries):,}",
    }
