"""An audit's figures and its result, also as JSON, format ``reconciler.audit/1``. Plain Python.

``judge`` computes all figures of one record's name from its counts. It is one pure function for numbers and for Spark's
columns alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, reduce
from typing import Any

from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import ExitCode
from reconciler.core.json_fields import canonical
from reconciler.plan.document import digest

FORMAT = "reconciler.audit/1"
CLEAN, UNCLEAN, UNKNOWN = "clean", "unclean", "unknown"
SPLIT = ("doubled_as_announced", "doubled_beyond")  # ``doubled`` in two


@dataclass(frozen=True, slots=True)
class Uncompared:
    """A part that was not compared: its ``reason`` for programs, its partitions if any, and a sentence for people."""

    reason: str
    partitions: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class StayRange:
    """The offsets of a partition, read in one stay: [start, end). ``stay`` is its number in ``AuditResult.stays``."""

    stay: int
    topic: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ComparedSide:
    """A cluster's log or the job's output: ``compared`` records or rows, and others, which do not identify a record.

    ``name``: the cluster's id, or the output's address. ``read``: the ranges of a log that the stays read.
    """

    name: str
    compared: int
    not_compared: int
    read: tuple[StayRange, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """The figures of one partition, by its name where the job was first; ``partition`` None: of the whole topic.

    ``topic`` None: rows of no partition. ``compared``: records in each of the clusters' logs. ``replay_at_most``: the
    bound that the plans announced.
    """

    topic: str | None
    partition: int | None
    compared: tuple[int, ...]
    not_compared: int
    rows: int
    replay_at_most: int
    figures: Mapping[str, int]

    @property
    def name(self) -> str:
        topic = self.topic or "(no partition)"
        return topic if self.partition is None else str(TopicPartition(topic, self.partition))


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """The first place of a record in a log, and the stays that read that offset."""

    cluster_id: str
    topic: str
    partition: int
    offset: int
    stays: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """One name with a finding: ``kind``, how often, and the record's first place on each cluster that has it."""

    kind: str
    count: int
    id_hash: str | None
    places: tuple[RecordPlace, ...]


@dataclass(frozen=True, kw_only=True)
class AuditResult:
    """A whole audit. ``stays``: the cluster of each. ``output`` None: judged by the records that the stays read.

    With an ``uncompared`` part the verdict is not clean. ``logs_are_whole``: all were read, with their first records.
    """

    tool_version: str
    created_at: str
    plans: tuple[str, ...]
    job: str
    told_apart_by: str
    unique: bool
    exactly_once: bool
    since_ms: int | None
    stays: tuple[str, ...]
    clusters: tuple[ComparedSide, ...]
    output: ComparedSide | None
    partitions: tuple[PartitionResult, ...]
    examples: tuple[Example, ...]
    uncompared: tuple[Uncompared, ...]
    notes: tuple[str, ...]
    logs_are_whole: bool

    @cached_property
    def totals(self) -> dict[str, int]:
        """The sum of each figure."""
        return {name: sum(each.figures[name] for each in self.partitions) for name in (*FIGURES, *SPLIT)}

    @property
    def rows_must_match(self) -> bool:
        """True if every record was compared, so that a row of no record is a finding."""
        return self.logs_are_whole and not self.uncompared

    @property
    def verdict(self) -> str:
        """``clean``, ``unclean``, or ``unknown`` if nothing was found and not everything was compared."""
        bad = ["lost", "possibly_lost", "doubled_beyond", *(["unknown_rows"] if self.rows_must_match else [])]
        if any(self.totals[name] for name in bad):
            return UNCLEAN
        return UNKNOWN if self.uncompared else CLEAN

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.OK if self.verdict == CLEAN else ExitCode.NEEDS_PERSON

    def to_json(self) -> dict[str, Any]:
        """The audit as JSON values, ``sha256`` included. No payloads, and no ids."""
        content = {"format": FORMAT, **asdict(self), "verdict": self.verdict, "totals": self.totals}
        return {**content, "sha256": digest(content)}

    def to_text(self) -> str:
        """The canonical JSON, as a file's text."""
        return canonical(self.to_json()).decode() + "\n"


def with_split(figures: Mapping[str, int], at_most: int, *, exactly_once: bool) -> dict[str, int]:
    """The figures with ``doubled`` split: the job may read again as many records as the plans announced."""
    doubled, read_again = figures["doubled"], figures["doubled_read_again"]
    announced = 0 if exactly_once else min(read_again, at_most, doubled)
    return {**figures, "doubled_as_announced": announced, "doubled_beyond": doubled - announced}


FIGURES = (
    "lost",
    "lost_unread",
    "possibly_lost",
    "doubled",
    "doubled_read_again",
    "possibly_doubled",
    "unknown_rows",
)
"""``lost_unread``: lost records that no stay read. ``doubled_read_again``: doubled records that two stays read."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How often one name occurs. Numbers, or Spark's columns.

    ``held``: in each cluster's log. ``read``: how often the job's stays read it, on all clusters. ``ahead``: copies on
    the last cluster that the job has not reached. ``rows``: in the output; without one, the same as ``read``.
    """

    held: Sequence[Any]
    read: Any
    ahead: Any
    rows: Any


@dataclass(frozen=True, slots=True)
class Rules:
    """How a name is judged.

    ``unique``: no two records share a name. ``from_first``: all records of the first log were written there, so it has
    the right number; other logs may have a mirror's second copies. ``all_read``: every cluster's log was read.
    """

    unique: bool = False
    from_first: bool = False
    all_read: bool = True


def judge(n: Counts, rules: Rules, use: Any) -> dict[str, Any]:
    """Each of ``FIGURES`` for one name. ``use`` has ``least``, ``greatest`` and ``where`` for numbers, or for columns.

    The job must have put a record out at least as often as every log has it, since a mirror may send twice, or once if
    not every log has it; and at most as often as the fullest log. A copy ahead of the job is not expected yet, unless a
    stay has read the record already.
    """

    def above(value: Any) -> Any:
        return use.greatest(value, 0)

    most = reduce(use.greatest, n.held)
    in_a_log = most > 0
    once = use.where(in_a_log, 1, 0)
    may = once if rules.unique else most
    must = once if rules.unique or len(n.held) == 1 else use.greatest(reduce(use.least, n.held), once)
    if rules.from_first and not rules.unique:
        is_known = n.held[0] > 0
        may, must = use.where(is_known, n.held[0], may), use.where(is_known, n.held[0], must)
    due_may = may - use.least(n.ahead, above(may - n.read))
    due_must = use.least(must, due_may)
    lost = above(due_must - n.rows)
    doubled = use.where(in_a_log, above(n.rows - may), 0)
    return {
        "lost": lost,
        "lost_unread": use.least(lost, above(due_must - n.read)) if rules.all_read else 0,
        "possibly_lost": above(due_may - n.rows) - lost,
        "doubled": doubled,
        # If a log is missing, it is unknown what was read there: each reading here may be the second one.
        "doubled_read_again": use.least(doubled, above(n.read - may) if rules.all_read else n.read),
        "possibly_doubled": use.where(in_a_log, above(use.least(n.rows, may) - must), 0),
        "unknown_rows": use.where(in_a_log, 0, n.rows),
    }
