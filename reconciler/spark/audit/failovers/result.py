"""The result of an audit over several failovers, as values and as JSON, format ``reconciler.audit-stays/1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.core.errors import ExitCode
from reconciler.formats.json_fields import canonical
from reconciler.formats.plan import digest
from reconciler.spark.audit.result import CLEAN, UNCLEAN, UNKNOWN

FORMAT = "reconciler.audit-stays/1"
TOTALS = (
    "lost",
    "lost_unread",
    "possibly_lost",
    "doubled",
    "doubled_read_again",
    "doubled_as_announced",
    "doubled_beyond",
    "possibly_doubled",
    "unknown_rows",
)


@dataclass(frozen=True, slots=True)
class Range:
    """What one stay read of a partition: [start, end)."""

    topic: str
    partition: int
    start: int
    end: int

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Side:
    """One side: ``records`` that could be compared, and ``nameless`` ones that could not.

    ``name`` is the cluster's id, or the sink's address. ``read`` are the stays' ranges on a cluster.
    """

    name: str
    records: int
    nameless: int
    read: tuple[Range, ...] = ()

    def to_json(self) -> dict[str, Any]:
        ranges = [each.to_json() for each in self.read]
        return {"name": self.name, "records": self.records, "nameless": self.nameless, "read": ranges}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a log has a record first."""

    cluster_id: str
    topic: str
    partition: int
    offset: int

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Finding:
    """One name with a finding: ``kind``, how often, and the record's first place on each cluster that has it."""

    kind: str
    count: int
    id_hash: str | None
    places: tuple[Place, ...]

    def to_json(self) -> dict[str, Any]:
        places = [place.to_json() for place in self.places]
        return {"kind": self.kind, "count": self.count, "id_hash": self.id_hash, "places": places}


@dataclass(frozen=True, slots=True)
class StaysResult:
    """A whole audit. ``order``: the cluster of each stay. ``logs_are_whole``: no log lacks its first records, so that a
    row must be in one of them. ``unanswered``: a cluster was given and did not answer.
    """

    tool_version: str
    created_at: str
    plans: tuple[str, ...]
    job: str
    told_apart_by: str
    unique: bool
    semantics: str
    since_ms: int | None
    order: tuple[str, ...]
    clusters: tuple[Side, ...]
    sink: Side
    totals: Mapping[str, int]
    examples: tuple[Finding, ...]
    compared: tuple[str, ...]
    unknown: tuple[str, ...]
    logs_are_whole: bool
    unanswered: bool

    @property
    def verdict(self) -> str:
        """``clean``, ``unclean``, or ``unknown`` where a side was not there, or nothing of it could be compared."""
        bad = ["lost", "possibly_lost", "doubled_beyond", *(["unknown_rows"] if self.logs_are_whole else [])]
        if any(self.totals[name] for name in bad):
            return UNCLEAN
        return UNKNOWN if self.unanswered or not all(side.records for side in (*self.clusters, self.sink)) else CLEAN

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK if self.verdict == CLEAN else ExitCode.NEEDS_PERSON

    def to_json(self) -> dict[str, Any]:
        """The audit as JSON values, ``sha256`` included. No payloads, and no ids."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "tool_version": self.tool_version,
            "created_at": self.created_at,
            "plans": list(self.plans),
            "job": self.job,
            "told_apart_by": self.told_apart_by,
            "unique": self.unique,
            "semantics": self.semantics,
            "since_ms": self.since_ms,
            "stays": list(self.order),
            "clusters": [side.to_json() for side in self.clusters],
            "sink": {"name": self.sink.name, "records": self.sink.records, "nameless": self.sink.nameless},
            "verdict": self.verdict,
            "compared": list(self.compared),
            "unknown": list(self.unknown),
            "totals": {name: self.totals[name] for name in TOTALS},
            "examples": [each.to_json() for each in self.examples],
        }
        return {**content, "sha256": digest(content)}

    def to_text(self) -> str:
        """The canonical JSON, as a file's text."""
        return canonical(self.to_json()).decode() + "\n"


def empty_sides(clusters: tuple[Side, ...], sink: Side) -> list[str]:
    """A sentence for each side of which nothing could be compared."""
    found = [f"Nothing was read of cluster {side.name}: it shows nothing." for side in clusters if not side.records]
    if not sink.records:
        found.append(f"Nothing was read of {sink.name}: it has no row with a name.")
    return found
