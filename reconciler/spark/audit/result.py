"""An audit's result, as values and as JSON, format ``reconciler.audit/1``; and what all audits' results share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.formats.json_fields import canonical
from reconciler.formats.plan import digest

CLEAN, UNCLEAN, UNKNOWN = "clean", "unclean", "unknown"
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"

COUNTS = (
    "source_processed",
    "source_unprocessed",
    "destination_before",
    "destination_after",
    "destination_beyond",
    "output",
)
FIGURES = (
    "lost",
    "lost_not_at_destination",
    "lost_in_front_of_resume",
    "possibly_lost",
    "doubled",
    "doubled_as_announced",
    "doubled_beyond",
    "possibly_doubled",
    "reordered",
    "order_unknown",
    "only_at_destination",
    "nameless",
    "nameless_at_source",
    "nameless_at_destination",
    "output_unknown",
)
"""Every figure counts records (of the output: rows), each as often as it occurs.

``nameless`` ones were not compared. All that are in neither log are rows of the output.
"""


class AsJson:
    """A dataclass with slots whose JSON has just its fields."""

    __slots__: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class ReadOffsets(AsJson):
    """The offsets that were read of one log: from ``start`` up to, and without, ``end``."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """One partition, or a whole topic where partitions do not correspond (``partition`` None).

    ``has_gap``: no log that was read has all records that the job should have read from the resume offset on.
    """

    source_topic: str
    topic: str
    partition: int | None
    stored_offset: int | None
    resume_offset: int | None
    until: int | None
    replay_at_most: int | None
    replay_exact: int | None
    source_read: ReadOffsets | None
    destination_read: ReadOffsets | None
    counts: Mapping[str, int]
    figures: Mapping[str, int]
    has_gap: bool = False

    @property
    def name(self) -> str:
        return self.topic if self.partition is None else str(TopicPartition(self.topic, self.partition))

    @property
    def is_clean(self) -> bool:
        return not any(self.figures[name] for name in ("lost", "possibly_lost", "doubled_beyond", "reordered"))

    @property
    def nameless_in_logs(self) -> int:
        """Records of both logs that were not compared, since they have no id."""
        return self.figures["nameless_at_source"] + self.figures["nameless_at_destination"]

    @property
    def has_no_id(self) -> bool:
        """True if the logs have records, and none of them could be compared."""
        in_logs = sum(count for name, count in self.counts.items() if name != "output")
        return 0 < in_logs == self.nameless_in_logs

    @property
    def is_compared(self) -> bool:
        """True if every record of the logs was compared."""
        return not self.has_gap and not self.nameless_in_logs

    def to_json(self) -> dict[str, Any]:
        return {
            "source_topic": self.source_topic,
            "topic": self.topic,
            "partition": self.partition,
            "stored_offset": self.stored_offset,
            "resume_offset": self.resume_offset,
            "until": self.until,
            "replay": {"at_most": self.replay_at_most, "exact": self.replay_exact},
            "read": {
                "source": self.source_read.to_json() if self.source_read else None,
                "destination": self.destination_read.to_json() if self.destination_read else None,
            },
            "records": {name: self.counts[name] for name in COUNTS},
            "figures": {name: self.figures[name] for name in FIGURES},
        }


@dataclass(frozen=True, slots=True)
class Example(AsJson):
    """One finding. Offsets are the first of that record on each side; ``id_hash`` is made as in plans."""

    kind: str
    source_topic: str
    topic: str
    source_partition: int | None
    source_offset: int | None
    destination_partition: int | None
    destination_offset: int | None
    id_hash: str | None
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(ABC):
    """What every audit's result holds. ``compared``: what each figure compares; ``unknown``: what cannot be known.

    ``left_out``: a partition, or records that no log has any more, could not be compared; ``unknown`` names them.
    """

    FORMAT: ClassVar[str]

    tool_version: str
    created_at: str
    plans: tuple[str, ...]
    job: str
    told_apart_by: str
    unique: bool
    semantics: str
    since_ms: int | None
    compared: tuple[str, ...]
    unknown: tuple[str, ...]
    left_out: bool = False

    @property
    @abstractmethod
    def verdict(self) -> str:
        """``clean``, ``unclean``, or ``unknown`` where nothing was found and not all of the logs could be compared."""

    @abstractmethod
    def found(self) -> dict[str, Any]:
        """The JSON values that only this kind of audit has."""

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK if self.verdict == CLEAN else ExitCode.NEEDS_PERSON

    def to_json(self) -> dict[str, Any]:
        """The audit as JSON values, ``sha256`` included. No payloads, and no ids."""
        content: dict[str, Any] = {
            "format": self.FORMAT,
            "tool_version": self.tool_version,
            "created_at": self.created_at,
            "plans": list(self.plans),
            "job": self.job,
            "told_apart_by": self.told_apart_by,
            "unique": self.unique,
            "semantics": self.semantics,
            "since_ms": self.since_ms,
            "verdict": self.verdict,
            "compared": list(self.compared),
            "unknown": list(self.unknown),
            **self.found(),
        }
        return {**content, "sha256": digest(content)}

    def to_text(self) -> str:
        """The canonical JSON, as a file's text."""
        return canonical(self.to_json()).decode() + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult(Result):
    """A whole audit of one failover."""

    FORMAT = "reconciler.audit/1"

    source_cluster_id: str | None
    destination_cluster_id: str
    has_output: bool
    partitions: tuple[PartitionResult, ...]
    examples: tuple[Example, ...]
    output_elsewhere: int = 0
    """Rows of the output that match no record, and belong to no partition of the plan."""
    nameless_elsewhere: int = 0
    """Rows of the output that do not identify a record, and belong to no partition of the plan."""

    @property
    def totals(self) -> dict[str, int]:
        """The sum of each figure over all partitions, with the rows that belong to none."""
        sums = {name: sum(row.figures[name] for row in self.partitions) for name in FIGURES}
        elsewhere = {"output_unknown": self.output_elsewhere, "nameless": self.nameless_elsewhere}
        return {**sums, **{name: sums[name] + count for name, count in elsewhere.items()}}

    @property
    def verdict(self) -> str:
        if not all(row.is_clean for row in self.partitions):
            return UNCLEAN
        is_compared = self.has_output or self.source_cluster_id is not None
        is_whole = not self.left_out and all(row.is_compared for row in self.partitions)
        return CLEAN if is_compared and is_whole and not self.empty_sides else UNKNOWN

    @property
    def nameless_rows(self) -> int:
        """Rows of the output that do not identify a record."""
        return self.totals["nameless"] - sum(row.nameless_in_logs for row in self.partitions)

    @property
    def empty_sides(self) -> tuple[str, ...]:
        """What was compared, and of which nothing that could be compared was read: it proves nothing."""
        sums = {name: sum(row.counts[name] for row in self.partitions) for name in COUNTS}
        totals = self.totals
        at_destination = sum(sums[name] for name in COUNTS if name.startswith("destination"))
        read = {"the destination's log": at_destination - totals["nameless_at_destination"]}
        if self.source_cluster_id is not None:
            at_source = sums["source_processed"] + sums["source_unprocessed"]
            read["the source's log"] = at_source - totals["nameless_at_source"]
        if self.has_output:
            rows = sums["output"] + self.output_elsewhere + self.nameless_elsewhere
            read["the output"] = rows - self.nameless_rows
            if totals["order_unknown"]:
                read["the output's order"] = read["the output"] - totals["output_unknown"] - totals["order_unknown"]
        return tuple(side for side, count in read.items() if count <= 0)

    def found(self) -> dict[str, Any]:
        return {
            "source": {"alive": self.source_cluster_id is not None, "cluster_id": self.source_cluster_id},
            "destination": {"cluster_id": self.destination_cluster_id},
            "output": {
                "given": self.has_output,
                "elsewhere": self.output_elsewhere,
                "elsewhere_nameless": self.nameless_elsewhere,
            },
            "totals": self.totals,
            "partitions": [row.to_json() for row in self.partitions],
            "examples": [example.to_json() for example in self.examples],
        }


def require_known(semantics: str) -> None:
    """Raise ConfigError for semantics that no audit knows."""
    if semantics not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise ConfigError(f'semantics = "{semantics}" is not known: use {AT_LEAST_ONCE} or {EXACTLY_ONCE}.')


def split_doubled(doubled: int, read_again: int, at_most: int | None, semantics: str) -> tuple[int, int]:
    """(as announced, beyond): at-least-once jobs may read again as many records as the plan announced."""
    announced = min(read_again, at_most or 0, doubled) if semantics == AT_LEAST_ONCE else 0
    return announced, doubled - announced
