"""Plans of a job's failovers between the clusters A and B."""

from __future__ import annotations

from typing import Any

from reconciler.core.anchors import fingerprint
from reconciler.core.verdicts import Verdict
from reconciler.plan.document import JobPlan, PartitionPlan, Plan
from reconciler.plan.rows import PlanAnchor

THERE, BACK, SAME = ("events", "a.events"), ("a.events", "events"), ("events", "events")


def row(
    names: tuple[str, str], partition: int, stored: int | None, resume: int | None, *, replay: int = 0, **more: Any
) -> PartitionPlan:
    """``names``: the topic's at the cluster that the job leaves, and at the other."""
    given: dict[str, Any] = {"finding": Verdict.EXACT, "topic_id": None, "anchor": None, "position": "next"}
    given |= {"matched_by": "id", "record_offset": None, "replay_exact": None, "probes": 1, "rounds": 1, "detail": ""}
    given |= {"source_topic": names[0], "topic": names[1], "partition": partition, "stored_offset": stored}
    return PartitionPlan(resume_offset=resume, replay_at_most=replay, **{**given, **more})


def plan(day: int, source: str | None, to: str, *rows: PartitionPlan, name: str = "clicks") -> Plan:
    times = (f"2026-01-{day:02}T00:00:00Z", f"2026-02-{day:02}T00:00:00Z")
    return Plan("0.1.0", *times, "a", "b", source, f"{to}:9092", to, (JobPlan(name, "clicks", "memory:", rows),))


def anchored(offset: int, key: bytes | None, value: bytes | None) -> PlanAnchor:
    """The last record that the job has processed."""
    return PlanAnchor(offset, None, fingerprint(key, value), None)
