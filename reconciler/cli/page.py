"""A plan as one HTML page: no network, no script, readable in light and dark."""

from __future__ import annotations

from html import escape

from reconciler.cli.report import replay_text, replay_total
from reconciler.core.plan import JobPlan, PartitionPlan, Plan, StartPolicy, why_stopped

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--good:#1a7f37;--warn:#9a6700;--bad:#cf222e}
@media(prefers-color-scheme:dark){:root{--good:#3fb950;--warn:#d29922;--bad:#f85149}}
body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.3rem .8rem;border-bottom:1px solid var(--line);vertical-align:top}
th{position:sticky;top:0;background:Canvas}td.n,th.n{text-align:right;white-space:nowrap}
.good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad);font-weight:600}
"""


def page(plan: Plan, policy: StartPolicy) -> str:
    """The whole page. Every name and sentence is escaped."""
    jobs = "".join(_job(job, policy) for job in plan.jobs)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{escape(plan.verdict.value)} · reconciler plan</title>"
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<h1>{escape(plan.verdict.value)}</h1><p>Plan of {escape(plan.created_at)}, good until "
        f"{escape(plan.expires_at)}, for cluster <code>{escape(plan.cluster_id)}</code> at "
        f"<code>{escape(plan.bootstrap_servers)}</code>. {escape(replay_total(plan))} will be read again.</p>"
        f"{jobs}</html>\n"
    )


def _job(job: JobPlan, policy: StartPolicy) -> str:
    heads = "<th>partition<th>verdict<th class=n>stored<th class=n>resume<th class=n>replay<th>what was found"
    rows = "".join(_row(row, policy) for row in job.partitions)
    return (
        f"<h2>{escape(job.name)}</h2>"
        f"<p>group <code>{escape(job.group)}</code>, store <code>{escape(job.store)}</code></p>"
        f"<table><thead><tr>{heads}<tbody>{rows}</table>"
    )


def _row(row: PartitionPlan, policy: StartPolicy) -> str:
    stopped = why_stopped(row, policy)
    tone = "bad" if stopped else ("good" if row.replay_exact == 0 else "warn")
    detail = row.detail + (f". {stopped}" if stopped else "")
    stored = "-" if row.stored_offset is None else f"{row.stored_offset:,}"
    resume = "-" if row.resume_offset is None else f"{row.resume_offset:,}"
    return (
        f"<tr><td>{escape(row.topic)}-{row.partition}<td class={tone}>{escape(row.verdict.value)}<td class=n>{stored}"
        f"<td class=n>{resume}<td class=n>{escape(replay_text(row))}<td>{escape(detail)}"
    )
