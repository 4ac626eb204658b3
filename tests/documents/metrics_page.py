"""The tables of docs/reference/metrics.md, from the metrics that the code exposes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from reconciler.config.settings import Job
from reconciler.core.anchors import RECORD_TIME_ONLY
from reconciler.core.verdicts import Verdict
from reconciler.jobs.hook.figures import HookRun
from reconciler.jobs.watch.figures import JOB_LABELS, CheckFigures, TopicFigures, Watched
from reconciler.jobs.watch.metrics import Figures
from reconciler.kafka.mirror.skipped import NO_GAPS


@dataclass(frozen=True)
class Described:
    """A metric as Prometheus shows it."""

    name: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def table(self) -> str:
        """The table that lists it."""
        if self.name.startswith("reconciler_hook_"):
            return "hooks"
        if "job" not in self.labels:
            return "watch"
        return "topics" if "topic" in self.labels else "jobs"

    @property
    def row(self) -> str:
        own = [label for label in self.labels if label not in (*JOB_LABELS, "topic") or self.table == "watch"]
        return f"|`{self.name}{'{' + ', '.join(own) + '}' if own else ''}`|{self.meaning}|"


def metrics() -> Iterator[Described]:
    """All metrics of watch and of a hook's run."""
    figures = Figures(lambda: 0)
    figures.watch_jobs({"clicks": Watched(("a.events",), "a", "b")})
    graded = TopicFigures({Verdict.EXACT: 1}, job_lag=0, reset=0)
    figures.checked({"clicks": CheckFigures({"a.events": graded}, anchored_ms=0, blocking_sinks=0)})
    figures.process = replace(figures.process, heartbeats_ms={("a", "b"): 0}, gaps={("a", "b", "events"): NO_GAPS})
    for family in figures.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label: None for sample in family.samples for label in sample.labels}
        yield Described(name, tuple(labels), family.documentation)
    job = Job("clicks", "clicks", (), "memory:", RECORD_TIME_ONLY)
    for name, (meaning, _) in HookRun(job).values(0).items():
        yield Described(f"reconciler_hook_{name}", JOB_LABELS, meaning)


def metric_parts() -> Mapping[str, str]:
    """The tables by their names in the page, ``metrics-of-TABLE``."""
    tables: dict[str, list[str]] = {}
    for each in metrics():
        tables.setdefault(each.table, ["", "|metric|meaning|", "|---|---|"]).append(each.row)
    return {f"metrics-of-{table}": "\n".join([*rows, ""]) for table, rows in tables.items()}
