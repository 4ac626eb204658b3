"""The findings of the continuous check: one immutable set of figures for each job, replaced in one step."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from reconciler.core.errors import ExitCode, ReconcilerError
from reconciler.core.verdicts import Verdict
from reconciler.failover.checking.gather import GatheredJob, JobPartition
from reconciler.jobs.watch.readings import Readings
from reconciler.kafka.mirror.skipped import Gaps
from reconciler.plan.document import JobPlan, PartitionPlan, StartPolicy
from reconciler.plan.start import why_stopped
from reconciler.ports import Row, TopicPartition

MOST_AHEAD_MS = 600_000
"""How far the clocks of jobs and producers may be ahead. An anchor that is further ahead, for example that of a record
with a wrong time, would keep the age at 0 until the time that it names."""


OUTCOMES = ("ok", "person", "changed", "unreachable", "config", "bug")
_OUTCOME_OF = {
    ExitCode.USAGE: "config",
    ExitCode.NEEDS_PERSON: "person",
    ExitCode.CHANGED: "changed",
    ExitCode.UNREACHABLE: "unreachable",
    ExitCode.UNKNOWN_OUTCOME: "unreachable",
}


def outcome_of(error: Exception) -> str:
    """The label of a failed check, by its exit code."""
    return _OUTCOME_OF.get(error.exit_code, "bug") if isinstance(error, ReconcilerError) else "bug"


# ---------------------------------------------------------------- one job


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """Counts of one topic's partitions; ``replay`` in records.

    ``lag_s``: how far the mirror is behind the job, over all partitions at most; infinite where that is unknown.
    ``job_lag``, in records, and ``reset`` are of the logs that the job reads; None where those are unknown.
    """

    verdicts: Mapping[Verdict, int]
    own: int = 0
    mismatched: int = 0
    blocked: int = 0
    shortfall: int = 0
    replay: int = 0
    lag_s: float = 0.0
    job_lag: int | None = None
    reset: int | None = None
    wrong_times: int = 0


@dataclass(frozen=True, slots=True)
class CheckFigures:
    """The figures of one job's complete check, by the destination's topic name.

    ``anchored_ms`` is when the newest of the job's anchors was stored, epoch ms; None if it has none.
    ``blocking_sinks``: how many of the job's sinks forbid its next start; None if it names none.
    """

    topics: Mapping[str, TopicFigures]
    anchored_ms: int | None = None
    blocking_sinks: int | None = None

    @property
    def is_blocked(self) -> bool:
        """True if the job must not start without a decision."""
        return bool(self.blocking_sinks) or any(topic.blocked for topic in self.topics.values())

    @property
    def outcome(self) -> str:
        return "person" if self.is_blocked else "ok"


def figures_of(
    plan: JobPlan,
    gathered: GatheredJob,
    policy: StartPolicy,
    readings: Readings | None = None,
    *,
    now_ms: float = math.inf,
) -> CheckFigures:
    """The figures of one job in a check, by the rows that decide whether it may start (``Checked.decided``).

    A partition with two positions counts once, for whatever one of them says; its verdict is the worse of the two, its
    replay the larger.
    ``readings``: what was read beside the check.
    ``now_ms``: anchors that claim to be stored much later than this do not count as the newest.
    """
    own = {place.destination for place in gathered.places if place.own}
    rows: dict[str, dict[int, list[PartitionPlan]]] = {place.destination.topic: {} for place in gathered.places}
    for row in plan.partitions:
        rows.setdefault(row.topic, {}).setdefault(row.partition, []).append(row)
    topics = {topic: _topic(list(found.values()), own, policy, readings or Readings()) for topic, found in rows.items()}
    stored = [
        time_ms for place in gathered.places for time_ms in _stored_ms(place) if time_ms <= now_ms + MOST_AHEAD_MS
    ]
    blocking = sum(row.stops for row in plan.sinks) if plan.sinks else None
    return CheckFigures(topics, max(stored, default=None), blocking)


def _topic(
    partitions: Sequence[Sequence[PartitionPlan]],
    own: Iterable[TopicPartition],
    policy: StartPolicy,
    readings: Readings,
) -> TopicFigures:
    """The figures of one topic; ``partitions`` has the rows of each, one for every position."""
    verdicts = [max(row.finding for row in rows) for rows in partitions]
    every = [row for rows in partitions for row in rows]
    here = [row for row in every if row.key in own]
    stopped = [row for row in every if why_stopped(row, policy) is not None]
    behind = [row for row in every if row.finding is Verdict.BEHIND]
    at = [found for key in {row.key for row in every} if (found := readings.behind.get(key)) is not None]
    return TopicFigures(
        {verdict: verdicts.count(verdict) for verdict in Verdict if verdict in verdicts},
        own=_partitions(here),
        mismatched=_partitions(row for row in here if not (row.is_right or row.finding is Verdict.NEW)),
        blocked=_partitions(stopped),
        shortfall=_partitions(behind),
        replay=sum(max(row.replay_at_most or 0 for row in rows) for rows in partitions),
        lag_s=_farthest_s(behind, readings.mirror_lags_ms),
        job_lag=sum(each.records for each in at) if at else None,
        reset=sum(each.is_reset for each in at) if at else None,
        wrong_times=_partitions(row for row in every if row.key in readings.wrong_times),
    )


def _partitions(rows: Iterable[PartitionPlan]) -> int:
    return len({row.partition for row in rows})


def _farthest_s(behind: Sequence[PartitionPlan], lags_ms: Mapping[TopicPartition, int]) -> float:
    places = {row.key for row in behind}
    known = [lags_ms[place] / 1000 for place in places if place in lags_ms]
    return max(known, default=math.inf if places else 0.0)


def _stored_ms(place: JobPartition) -> list[int]:
    """When each anchor of a place was stored; without those of which that is not known."""
    selected = place.selected
    rows = [row for row in (selected.row, selected.source, selected.replaced) if row and not row.malformed]
    found = [_anchored_ms(row, lags=bool(selected.older) and row is not selected.replaced) for row in rows]
    return [time for time in found if time is not None]


def _anchored_ms(row: Row, *, lags: bool) -> int | None:
    """When the row's anchor was stored, else when its record was made; one that lags is older than the offset."""
    is_older = lags or bool(row.anchor_lag)
    anchor, at_ms = row.stored.anchor, None if is_older else row.stored.written_at_ms
    if anchor is None:
        return None
    return anchor.timestamp_ms if at_ms is None else at_ms


JOB_LABELS = ("job", "from", "to", "owner")


class Watched(NamedTuple):
    """The topics of a job that are watched, by the destination's names, and the job's labels.

    ``leaves`` is the cluster where it lives, ``to`` the one for which it is checked: the same if it lives there.
    """

    topics: Collection[str]
    leaves: str
    to: str
    owner: str = ""


UNWATCHED = Watched((), "", "")


@dataclass(frozen=True, slots=True)
class JobFigures:
    """All figures of one job; never changed, only replaced."""

    watched: Watched = UNWATCHED
    up: bool = False
    found: CheckFigures | None = None
    succeeded_ms: int | None = None
    checks: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))

    def only(self, watched: Watched) -> JobFigures:
        """These figures with other labels, and without those of other topics."""
        if self.found is None:
            return replace(self, watched=watched)
        kept = {topic: figures for topic, figures in self.found.topics.items() if topic in watched.topics}
        return replace(self, watched=watched, found=replace(self.found, topics=kept))

    def labels(self, name: str) -> tuple[str, str, str, str]:
        """The values of ``JOB_LABELS``."""
        return name, self.watched.leaves, self.watched.to, self.watched.owner

    def after(self, result: CheckFigures | Exception, now_ms: int) -> JobFigures:
        """These figures after another check."""
        outcome = result.outcome if isinstance(result, CheckFigures) else outcome_of(result)
        checks = {**self.checks, outcome: self.checks[outcome] + 1}
        if isinstance(result, CheckFigures):
            return replace(self, checks=checks, up=True, found=result, succeeded_ms=now_ms)
        return replace(self, checks=checks, up=False)


# ---------------------------------------------------------------- the process


@dataclass(frozen=True, slots=True)
class ProcessFigures:
    """Figures of the watcher: its rounds, its configuration, its requests to the brokers."""

    interval_s: float = 0.0
    rounds: int = 0
    round_s: float | None = None
    reload_ok: bool = True
    held_back_s: float = 0.0
    heartbeats_ms: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """When each mirror's newest heartbeat was sent, epoch ms, by the clusters from and to which it copies."""
    gaps: Mapping[tuple[str, str, str], Gaps] = field(default_factory=dict)
    """The records that each mirror skipped within a day, by its two clusters and the source's topic."""
