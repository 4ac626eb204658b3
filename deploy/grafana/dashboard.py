"""The dashboard as a table of panels: ``python deploy/grafana/dashboard.py`` writes ``dashboards/reconciler.json``.

The first row says which jobs must not start, which wait for their mirror, and where the jobs live. All other rows are
folded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JSON = Path(__file__).parent / "dashboards" / "reconciler.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
JOB = "job, from, to, owner"
CHOSEN = '{job=~"$job", owner=~"$owner"}'
LAGS = 60
"""Seconds that the mirror may lag before a job waits for it: as in the alert ReconcilerDestinationBehind."""


@dataclass(frozen=True)
class Panel:
    """A panel ``width`` of 24 columns wide. ``queries``: what a legend or a table's column is called, and its query.

    In a query, ``@`` is the choice of jobs and owners. ``alert``: the alert whose section of the runbook it links to.
    ``units``: Grafana's units of the columns that have others than ``unit``.
    """

    title: str
    description: str
    queries: Mapping[str, str]
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    unit: str = "short"
    alert: str = ""
    units: Mapping[str, str] = field(default_factory=dict)
    states: Mapping[str, tuple[str, str]] = field(default_factory=dict)


FIRST = [
    Panel(
        "Must not start",
        "Jobs that need a decision, by the number of partitions and sinks that stop them. Empty: none, if the jobs are "
        "listed at the right.",
        {
            "decision": f"max by ({JOB}) (reconciler_must_not_start@) == 1",
            "partitions": f"sum by ({JOB}) (reconciler_blocked_partitions@) > 0",
            "sinks": f"sum by ({JOB}) (reconciler_blocking_sinks@) > 0",
        },
        "table",
        8,
        alert="ReconcilerMustNotStart",
    ),
    Panel(
        "Waits for its mirror",
        f"Jobs of which the mirror is more than {LAGS} s behind. Empty: none, if the jobs are listed at the right.",
        {"behind by": f"max by ({JOB}) (reconciler_mirror_lag_seconds@) > {LAGS}"},
        "table",
        8,
        unit="s",
        alert="ReconcilerDestinationBehind",
    ),
    Panel(
        "Jobs by cluster",
        "Where the jobs live, and how many had a complete check the last time. Empty: watch does not answer.",
        {
            "jobs": "count by (from) (reconciler_up@)",
            "checked": "sum by (from) (reconciler_up@)",
        },
        "table",
        8,
        alert="ReconcilerNotChecked",
    ),
]
FOLDED = {
    "Jobs": [
        Panel(
            "Jobs",
            "The last complete check of each job.",
            {
                "must not start": f"max by ({JOB}) (reconciler_must_not_start@)",
                "mismatched": f"sum by ({JOB}) (reconciler_mismatched_partitions@)",
                "behind": f"sum by ({JOB}) (reconciler_mirror_shortfall_partitions@)",
                "partitions": f"sum by ({JOB}) (reconciler_partitions@)",
                "read again": f"sum by ({JOB}) (reconciler_replay_records@)",
                "anchors' age": f"max by ({JOB}) (reconciler_anchor_age_seconds@)",
                "last complete check": f"max by ({JOB}) (time() - reconciler_last_success_timestamp_seconds@)",
            },
            "table",
            24,
            12,
            units={"anchors' age": "s", "last complete check": "s"},
            alert="ReconcilerMismatch",
        )
    ],
    "Over time": [
        Panel(
            "Partitions by finding",
            "All partitions of the chosen jobs: exact, early, behind, new, lost, unresolved.",
            {"{{finding}}": "sum by (finding) (reconciler_partitions@)"},
            alert="ReconcilerLossDetected",
        ),
        Panel(
            "What the mirror lacks",
            "How far each job's mirror is behind the job, and the age of the newest heartbeat.",
            {
                "{{job}}": "max by (job) (reconciler_mirror_lag_seconds@)",
                "heartbeat {{from}} to {{to}}": "max by (from, to) (reconciler_mirror_heartbeat_age_seconds)",
            },
            unit="s",
            alert="ReconcilerMirrorSilent",
        ),
        Panel(
            "Records read again",
            "Records that a failover would read again at most.",
            {"{{job}}": "sum by (job) (reconciler_replay_records@)"},
        ),
        Panel(
            "Age of the newest anchor",
            "A failover goes back at least that far.",
            {"{{job}}": "max by (job) (reconciler_anchor_age_seconds@)"},
            unit="s",
            alert="ReconcilerAnchorsTooOld",
        ),
        Panel(
            "Records yet to read",
            "How far each job is behind the logs of the cluster where it lives. Gaps: that cluster cannot be asked.",
            {"{{job}}": "sum by (job) (reconciler_job_lag_records@)"},
        ),
        Panel(
            "Records skipped by the mirror",
            "At least so many records were not delivered within a day.",
            {"{{topic}} to {{to}}": "max by (topic, to) (reconciler_mirror_skipped_records)"},
            alert="ReconcilerMirrorSkipped",
        ),
        Panel(
            "Logs that began again",
            "Partitions that were reset under a job, and times that a mirror began a partition again within a day.",
            {
                "under {{job}}": "sum by (job) (reconciler_reset_partitions@)",
                "{{topic}} to {{to}}": "max by (topic, to) (reconciler_mirror_began_again)",
            },
            alert="ReconcilerTopicReset",
        ),
        Panel(
            "Anchors with wrong times",
            "Partitions whose anchor has a time that cannot be true.",
            {"{{job}}": "sum by (job) (reconciler_wrong_time_partitions@)"},
            alert="ReconcilerAnchorTimeWrong",
        ),
    ],
    "The watch": [
        Panel(
            "Last check of each job",
            "After a failed check, the job's figures are those of the last complete one.",
            {"{{job}}": "min by (job) (reconciler_up@)"},
            "state-timeline",
            alert="ReconcilerNotChecked",
            states={"0": ("failed", "red"), "1": ("complete", "green")},
        ),
        Panel(
            "How long a round takes",
            "Rounds longer than the interval check each job less often than configured. The rate limit held requests "
            "back for this part of the time.",
            {
                "round": "max(reconciler_watch_round_duration_seconds)",
                "interval": "max(reconciler_watch_interval_seconds)",
                "held back, by second": "sum(rate(reconciler_requests_held_back_seconds_total[$__rate_interval]))",
            },
            unit="s",
            alert="ReconcilerWatchDown",
        ),
    ],
    "Starts of jobs": [
        Panel(
            "Last start of each job",
            "The last run of each job's hook. Code 0: the job was started.",
            {
                "code": "max by (job) (reconciler_hook_exit_code@)",
                "ended": "max by (job) (time() - reconciler_hook_timestamp_seconds@)",
                "took": "max by (job) (reconciler_hook_duration_seconds@)",
                "corrected": "max by (job) (reconciler_hook_corrected_partitions@)",
                "blocked": "max by (job) (reconciler_hook_blocked_partitions@)",
                "read again": "max by (job) (reconciler_hook_replay_records@)",
            },
            "table",
            24,
            units={"ended": "s", "took": "s"},
            alert="ReconcilerJobNotStarted",
        )
    ],
}


def link(title: str, anchor: str) -> dict[str, Any]:
    """A link into the runbook, in a new tab."""
    return {
        "title": title,
        "type": "link",
        "icon": "external link",
        "tooltip": "",
        "url": f"${{docs}}/how-to/alerts.md{anchor}",
        "tags": [],
        "asDropdown": False,
        "targetBlank": True,
        "includeVars": False,
        "keepTime": False,
    }


def rendered(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    """The panel's JSON."""
    made = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "targets": list(targets(panel)),
        "fieldConfig": {"defaults": defaults(panel), "overrides": overrides(panel)},
        "options": {},
        "links": [link(f"Runbook: {panel.alert}", f"#{panel.alert.lower()}")] if panel.alert else [],
    }
    return made | ({"transformations": columns(panel)} if panel.kind == "table" else {})


def targets(panel: Panel) -> Iterator[dict[str, Any]]:
    is_table = panel.kind == "table"
    for letter, (legend, query) in zip("ABCDEFGH", panel.queries.items(), strict=False):
        target = {
            "refId": letter,
            "datasource": SOURCE,
            "expr": query.replace("@", CHOSEN),
            "editorMode": "code",
            "format": "table" if is_table else "time_series",
            "range": not is_table,
            "instant": is_table,
        }
        yield target if is_table else target | {"legendFormat": legend}


def defaults(panel: Panel) -> dict[str, Any]:
    mappings = [
        {"type": "value", "options": {value: {"text": text, "color": color, "index": place}}}
        for place, (value, (text, color)) in enumerate(panel.states.items())
    ]
    return {"unit": panel.unit, "min": 0, "mappings": mappings}


def overrides(panel: Panel) -> list[dict[str, Any]]:
    return [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]}
        for name, unit in panel.units.items()
    ]


def columns(panel: Panel) -> Sequence[dict[str, Any]]:
    """The queries' results as the columns of one table, without the time."""
    values = [f"Value #{letter}" for letter, _ in zip("ABCDEFGH", panel.queries, strict=False)]
    if len(values) == 1:
        values = ["Value"]
    names = dict(zip(values, panel.queries, strict=True)) | {"from": "lives on", "to": "checked for"}
    order = {name: place for place, name in enumerate(["job", "from", "to", *values, "owner"])}
    return [
        {"id": "merge", "options": {}},
        {
            "id": "organize",
            "options": {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": names},
        },
    ]


def placed(panels: Sequence[Panel], first: int, y: int) -> list[dict[str, Any]]:
    """The panels from left to right, in lines from ``y`` down, with ids from ``first`` on."""
    found, x = [], 0
    for number, panel in enumerate(panels, first):
        if x + panel.width > 24:
            x, y = 0, y + panel.height
        found.append(rendered(panel, number, x, y))
        x += panel.width
    return found


def rows() -> Iterator[dict[str, Any]]:
    """The open panels, then the folded rows with theirs."""
    yield from placed(FIRST, 1, 0)
    y, number = FIRST[0].height, len(FIRST) + 1
    for title, panels in FOLDED.items():
        inner = placed(panels, number + 1, y + 1)
        place = {"x": 0, "y": y, "w": 24, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": True, "gridPos": place, "panels": inner}
        y, number = y + 1, number + 1 + len(panels)


def variable(name: str, label: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "label": label, "type": kind, "hide": 0, "skipUrlSync": False, **more}


def choice(name: str, label: str) -> dict[str, Any]:
    """A variable that chooses among the values of a label of the jobs that are watched."""
    return variable(
        name,
        label,
        "query",
        datasource=SOURCE,
        query={"query": f"label_values(reconciler_up, {name})", "refId": name},
        refresh=2,
        sort=1,
        multi=True,
        includeAll=True,
        allValue=".*",
        regex="",
        current={"selected": True, "text": ["All"], "value": ["$__all"]},
    )


def dashboard() -> dict[str, Any]:
    docs = "https://github.com/YOUR-ORGANISATION/failover-offset-reconciler/blob/main/docs"
    return {
        "uid": "failover-offset-reconciler",
        "title": "Failover offset reconciler",
        "description": "What a failover would find now, by reconciler watch, and the starts of jobs by their hooks.",
        "tags": ["kafka", "failover"],
        "timezone": "browser",
        "editable": True,
        "graphTooltip": 1,
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "links": [link("Runbook", "")],
        "annotations": {"list": []},
        "templating": {
            "list": [
                variable("datasource", "Prometheus", "datasource", query="prometheus", refresh=1, regex=""),
                choice("owner", "Owner"),
                choice("job", "Job"),
                variable(
                    "docs",
                    "Documentation",
                    "textbox",
                    description="The address where the docs folder is published: links to the runbook begin with it.",
                    query=docs,
                    current={"selected": True, "text": docs, "value": docs},
                ),
            ]
        },
        "panels": list(rows()),
    }


def text() -> str:
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    JSON.write_text(text(), encoding="utf-8")
