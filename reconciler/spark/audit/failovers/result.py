"""The result of an audit over several failovers, as values and as JSON, format ``reconciler.audit-stays/1``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.spark.audit.result import CLEAN, UNCLEAN, UNKNOWN, AsJson, Result

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
class Range(AsJson):
    """What one stay read of a partition: [start, end)."""

    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """One side: ``records`` that could be compared, and ``nameless`` ones that could not.

    ``name`` is the cluster's id, or the sink's address. ``read`` are the stays' ranges on a cluster.
    """

    name: str
    records: int
    nameless: int
    read: tuple[Range, ...] = ()

    @property
    def is_compared(self) -> bool:
        """True if there are records, and every one of them could be compared."""
        return self.records > 0 and not self.nameless

    def to_json(self) -> dict[str, Any]:
        ranges = [each.to_json() for each in self.read]
        return {"name": self.name, "records": self.records, "nameless": self.nameless, "read": ranges}


@dataclass(frozen=True, slots=True)
class RecordPlace(AsJson):
    """Where a log has a record first."""

    cluster_id: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class RecordFinding:
    """One name with a finding: ``kind``, how often, and the record's first place on each cluster that has it."""

    kind: str
    count: int
    id_hash: str | None
    places: tuple[RecordPlace, ...]

    def to_json(self) -> dict[str, Any]:
        places = [place.to_json() for place in self.places]
        return {"kind": self.kind, "count": self.count, "id_hash": self.id_hash, "places": places}


@dataclass(frozen=True, slots=True, kw_only=True)
class StaysResult(Result):
    """A whole audit of several failovers. ``order``: the cluster of each stay. ``unanswered``: a cluster was given and
    did not answer. ``logs_are_whole``: no log lacks its first records, so that a row must be in one of them.
    """

    FORMAT = "reconciler.audit-stays/1"

    order: tuple[str, ...]
    clusters: tuple[ComparedSide, ...]
    sink: ComparedSide
    totals: Mapping[str, int]
    examples: tuple[RecordFinding, ...]
    logs_are_whole: bool
    unanswered: bool

    @property
    def verdict(self) -> str:
        bad = ["lost", "possibly_lost", "doubled_beyond", *(["unknown_rows"] if self.logs_are_whole else [])]
        if any(self.totals[name] for name in bad):
            return UNCLEAN
        is_compared = self.sink.records > 0 and all(side.is_compared for side in self.clusters)
        return CLEAN if is_compared and not (self.unanswered or self.left_out) else UNKNOWN

    def found(self) -> dict[str, Any]:
        return {
            "stays": list(self.order),
            "clusters": [side.to_json() for side in self.clusters],
            "sink": {"name": self.sink.name, "records": self.sink.records, "nameless": self.sink.nameless},
            "totals": {name: self.totals[name] for name in TOTALS},
            "examples": [each.to_json() for each in self.examples],
        }


def empty_sides(clusters: tuple[ComparedSide, ...], sink: ComparedSide) -> list[str]:
    """A sentence for each side of which nothing could be compared."""
    found = [
        f"Nothing was read of cluster {side.name} that could be compared: it shows nothing."
        for side in clusters
        if not side.records
    ]
    if not sink.records:
        found.append(f"Nothing was read of {sink.name}: it has no row with a name.")
    return found
