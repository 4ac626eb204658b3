"""A plan as one HTML page: no network, whole without its script, readable in light and dark and on paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reconciler.cli.page.advice import Files, next_steps
from reconciler.cli.page.picture import LEGEND, SHAPES
from reconciler.cli.page.rows import LONGEST_NAME, Shown, command_box, shown_rows, table
from reconciler.cli.page.style import asset, document, text
from reconciler.core.verdicts import Position, Verdict
from reconciler.failover.check import replay_sum, replay_total
from reconciler.formats.plan import JobPlan, Plan, StartPolicy, why_stopped

MEANINGS = {
    Verdict.MATCH: "the stored offset is right here",
    Verdict.MOVED: "the anchor is elsewhere, proven by id or fingerprint",
    Verdict.NEW: "nothing was stored: starts by policy",
    Verdict.TIED: "only the anchor's time is known: starts at the first record of that time",
    Verdict.BOUNDED: "not pinned: starts at an offset that skips nothing",
    Verdict.REMAPPED: "partitions do not correspond: starts by the earliest anchor's time",
    Verdict.BEHIND: "the mirror has not delivered the anchor yet",
    Verdict.LOST: "unprocessed records may be gone from the destination",
    Verdict.MISSING: "the destination has no such partition",
    Verdict.UNRESOLVED: "nothing could be proven",
}
MOST_JOBS = 12
"""More jobs than these are folded away."""


def page(plan: Plan, policy: StartPolicy, *, sha256: str, files: Files | None = None) -> str:
    """The whole page. ``sha256`` is the plan file's own, also where only one of its jobs is shown."""
    files = files or Files()
    rows = shown_rows(plan.jobs, policy)
    stopped = sum(each.stopped is not None for each in rows)
    title = f"{stopped:,} need a decision" if stopped else "may start"
    body = (
        '<a class="skip" href="#rows">Skip to the table</a>'
        f'<p id="said" class="away" role="status"></p>{SHAPES}'
        f"<header>{_verdict(plan, policy, rows)}{_facts(plan, policy, sha256)}</header>\n"
        f"<main>{_next(plan, policy, files)}{_jobs(plan, policy)}"
        f'<h2 id="partitions">Partitions</h2>{_legend(rows)}{_tools(plan.jobs, rows)}'
        f"{table(rows, policy, files, several_jobs=len(plan.jobs) > 1)}"
        '<p class="none" id="none" hidden>No partition fits the filter.</p></main>'
    )
    return document(f"{title} · {', '.join(job.name for job in plan.jobs[:3])} · reconciler", body, asset("page.js"))


# ---------------------------------------------------------------- on top


def _verdict(plan: Plan, policy: StartPolicy, rows: Sequence[Shown]) -> str:
    places = {_place(each) for each in rows}
    stopped = {_place(each) for each in rows if each.stopped is not None}
    changed = {_place(each) for each in rows if each.changes and each.row.position != Position.END}
    figures = (
        (_many(len(places), "partition")[1], f"{len(places):,}"),
        ("need a decision", f"{len(stopped):,}"),
        ("start at another offset", f"{len(changed):,}"),
        ("records read again", replay_total(plan).removesuffix("s").removesuffix(" record").replace("at most", "≤")),
    )
    shown = "".join(f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in figures)
    return (
        f'<div class="verdict {"bad" if stopped else "good"}"><h1>{_headline(places, stopped)}</h1>'
        f'<p>{_lead(plan, policy, bool(stopped))}</p></div><dl class="figures">{shown}</dl>'
    )


def _place(each: Shown) -> tuple[int, str, int]:
    return each.job_number, each.row.topic, each.row.partition


def _headline(places: set[tuple[int, str, int]], stopped: set[tuple[int, str, int]]) -> str:
    if not places:
        return "Nothing to start: the plan holds no partition"
    if stopped:
        count, noun = _many(len(stopped), "partition")
        return f"Do not start: {count} {noun} {'needs' if len(stopped) == 1 else 'need'} a decision"
    return "Every partition may start" if len(places) > 1 else "The partition may start"


def _many(count: int, noun: str) -> tuple[str, str]:
    return f"{count:,}", noun if count == 1 else f"{noun}s"


def _lead(plan: Plan, policy: StartPolicy, stopped: bool) -> str:
    if stopped:
        names = [job.name for job in plan.jobs if any(why_stopped(row, policy) for row in job.partitions)]
        more = f" and {len(names) - 5:,} more" if len(names) > 5 else ""
        noun = "Job" if len(names) == 1 else "Jobs"
        which = f"{noun} {text(', '.join(names[:5]), LONGEST_NAME)}{more}"
        return f"{which} must not start before that is decided. Nothing was written."
    return (
        f"{text(replay_total(plan))[0].upper()}{text(replay_total(plan))[1:]} will be read again. "
        "Nothing has been written yet by making this plan."
    )


def _next(plan: Plan, policy: StartPolicy, files: Files) -> str:
    steps = next_steps(plan, policy, files)
    known = "".join(f"<li>{text(step.said)}" for step in steps if step.command is None)
    done = "".join(f"<li>{text(step.said)}{command_box(step.command)}" for step in steps if step.command)
    return (
        f'<section id="next"><h2>What to do next</h2>{f"<ul>{known}</ul>" if known else ""}'
        f'<ol class="steps">{done}</ol></section>'
    )


def _facts(plan: Plan, policy: StartPolicy, sha256: str) -> str:
    source = " · ".join(
        text(value, LONGEST_NAME) for value in (plan.source_alias, plan.source_cluster_id) if value is not None
    )
    until = text(plan.expires_at, 40)
    facts = (
        ("Destination", f"<code>{text(plan.cluster_id)}</code> at <code>{text(plan.bootstrap_servers)}</code>"),
        ("Source", f"<code>{source}</code>" if source else "not known"),
        ("Made", f"{text(plan.created_at, 40)} by reconciler {text(plan.tool_version, 40)}"),
        ("Good until", f'<time id="until" datetime="{until}">{until}</time><span id="left"></span>'),
        ("SHA-256", f"<code>{text(sha256)}</code>"),
        ("Judged by", f"behind = {text(policy.behind)}, max_replay = {policy.max_replay:,} records"),
    )
    return f'<dl class="facts top">{"".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts)}</dl>'


def _jobs(plan: Plan, policy: StartPolicy) -> str:
    rows = "".join(_job(job, policy) for job in plan.jobs)
    listed = (
        '<div class="wide"><table class="plain"><thead><tr><th scope="col">Job<th scope="col">Group<th scope="col">'
        'Store<th scope="col">Verdicts<th scope="col" class="n">Need a decision<th scope="col" class="n">Read again'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )
    if len(plan.jobs) > MOST_JOBS:
        listed = f"<details><summary>{len(plan.jobs):,} jobs</summary>{listed}</details>"
    return f"<h2>{'Job' if len(plan.jobs) == 1 else 'Jobs'}</h2>{listed}"


def _job(job: JobPlan, policy: StartPolicy) -> str:
    counts = Counter(row.verdict for row in job.partitions)
    found = ", ".join(f"{counts[verdict]:,} {verdict.value}" for verdict in sorted(counts, reverse=True))
    stopped = sum(why_stopped(row, policy) is not None for row in job.partitions)
    tone = "bad" if stopped else "good"
    names = "".join(f"<td>{text(name, LONGEST_NAME)}" for name in (job.name, job.group, job.store))
    return (
        f'<tr>{names}<td>{found or "no partitions"}<td class="n {tone}">{stopped:,}'
        f'<td class="n">{text(replay_sum(job.partitions))}'
    )


# ---------------------------------------------------------------- above the table


def _legend(rows: Sequence[Shown]) -> str:
    symbols = "".join(f'<li><svg viewBox="0 0 30 18" aria-hidden="true">{shape}</svg>{said}' for shape, said in LEGEND)
    present = sorted({each.row.verdict for each in rows}, reverse=True)
    verdicts = "".join(f"<dt>{verdict.value}</dt><dd>{text(MEANINGS[verdict])}</dd>" for verdict in present)
    return (
        "<details><summary>How to read the table and its pictures</summary><div class=more>"
        "<p>The lower line is the destination's log around the resume point; where the log begins and ends, a plan "
        "does not say. The upper, dotted line is in the numbers that were stored: the source's, until a partition is "
        "handed over. So a stored offset is no place in the destination's log. Both lines are laid so that the place "
        "right behind the anchor stands above the resume point. Distances are in records, on one logarithmic scale for "
        "all rows; records that are read again need not follow each other.</p>"
        f'<ul class="legend">{symbols}</ul><dl class="facts">{verdicts}</dl></div></details>'
    )


def _tools(jobs: Sequence[JobPlan], rows: Sequence[Shown]) -> str:
    """Filters. They work by script only, and are hidden until it runs."""
    counts = Counter(each.row.verdict for each in rows)
    chips = "".join(
        f'<button type="button" value="{verdict.badness}" aria-pressed="false" title="{text(MEANINGS[verdict])}">'
        f"{verdict.value} {counts[verdict]:,}</button>"
        for verdict in sorted(counts, reverse=True)
    )
    chosen = "".join(f'<option value="{number}">{text(job.name, 80)}</option>' for number, job in enumerate(jobs))
    job = ""
    if len(jobs) > 1:
        job = f'<select id="job"><option value="">all</option>{chosen}</select>'
        job = f'<span class="pick"><label for="job">Job</label>{job}</span>'
    stopped = sum(each.stopped is not None for each in rows)
    changed = sum(each.changes for each in rows)
    return (
        '<div class="tools" id="tools" role="search" aria-label="Partitions" hidden><label class="search">'
        '<span class="away">Filter by text</span><input type="search" id="filter" autocomplete="off" '
        'spellcheck="false" placeholder="Filter: topic, offset, words of what was found   ( / )" '
        'aria-keyshortcuts="/"></label>'
        f'{job}<label><input type="checkbox" id="person"> only what needs a decision ({stopped:,})</label>'
        f'<label><input type="checkbox" id="changes"> only what changes ({changed:,})</label>'
        '<button type="button" id="reset">Show all</button>'
        f'<div class="chips" id="verdicts" role="group" aria-label="Verdicts">{chips}</div>'
        '<p class="count" id="count" role="status"></p></div>'
    )
