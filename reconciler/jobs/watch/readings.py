"""The reads of a watch beside the searches: how far jobs are behind their own logs, and anchors with wrong times.

A job's numbers are those of the cluster where it lives. While that cluster cannot be asked, its jobs have no lag.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from reconciler.core.anchors import Identity
from reconciler.core.errors import ReconcilerError
from reconciler.core.probes import Withheld
from reconciler.core.question import latest_possible_ms
from reconciler.core.verdicts import Verdict
from reconciler.failover.checking.gather import GatheredJob, JobPartition
from reconciler.kafka.mirror.delivered import MOST_ASKED, lags_ms
from reconciler.plan.document import JobPlan
from reconciler.ports import ClusterInfo, LogReader, ReadRequest, TopicPartition

LEAST_REST_S = 60.0
"""How long a cluster that failed is left alone: each try takes seconds."""
APART_MS = 30 * 86_400_000
"""Records next to one another are not that far apart in time, unless a time is wrong."""

log = logging.getLogger("reconciler.jobs.watch")


class Behind(NamedTuple):
    """Where a job is in a partition of the log that it reads: ``records`` are yet to be read.

    ``is_reset``: the topic was recreated since the job's last record, or the log ends in front of its offset.
    """

    records: int
    is_reset: bool


@dataclass(frozen=True, slots=True)
class Readings:
    """The readings of one job's check, by the destination's partitions; what is not known is left out."""

    mirror_lags_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    behind: Mapping[TopicPartition, Behind] = field(default_factory=dict)
    wrong_times: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class LogEnds:
    """The ends of a cluster's logs, with the cluster's id and its topics' ids."""

    cluster: ClusterInfo
    ends: Mapping[TopicPartition, int]


def read_ends(reader: LogReader, topics: Collection[str]) -> LogEnds | None:
    """The ends of these topics' logs; None for no topics. Raises Unreachable and Refused as the reader does."""
    if not topics:
        return None
    cluster = reader.describe(topics)
    return LogEnds(cluster, reader.log_ends([place for info in cluster.topics.values() for place in info.places]))


class LeftCluster:
    """The logs of the cluster that jobs leave, which may be lost: after a failure it is not asked for ``rest_s``."""

    def __init__(self, opened: Callable[[], LogReader] | None, clock: Callable[[], float], rest_s: float) -> None:
        self._opened = opened
        self._clock = clock
        self._rest_s = max(rest_s, LEAST_REST_S)
        self._reader: LogReader | None = None
        self._until = clock()
        self._is_failing = False

    def ends(self, topics: Collection[str]) -> LogEnds | None:
        """As ``read_ends``; None also while the cluster cannot be asked. The first failure in a row is logged."""
        if not topics or self._opened is None or self._clock() < self._until:
            return None
        try:
            if self._reader is None:
                self._reader = self._opened()
            found = read_ends(self._reader, topics)
        except ReconcilerError as error:
            self._until = self._clock() + self._rest_s
            if not self._is_failing:
                log.warning("How far jobs are behind is not known where their own cluster cannot be asked. %s", error)
            self._is_failing = True
            return None
        self._is_failing = False
        return found

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def behind(place: JobPartition, logs: LogEnds | None) -> Behind | None:
    """How far the job is behind the end of the log that it reads; None if it stores no number of that log."""
    stored, key = place.selected.stored, place.destination if place.own else place.source
    is_elsewhere = place.translated or (place.numbered_here and not place.own)
    if logs is None or stored is None or stored.is_sentinel or place.fault or is_elsewhere or key not in logs.ends:
        return None
    cluster, anchor, end = logs.cluster, stored.anchor, logs.ends[key]
    is_recreated = (
        anchor is not None
        and anchor.cluster_id == cluster.cluster_id
        and not anchor.numbered_by(cluster.cluster_id, cluster.topic_id(key.topic))
    )
    return Behind(max(0, end - stored.offset), is_recreated or end < stored.offset)


def wrong_times(
    plan: JobPlan, gathered: GatheredJob, reader: LogReader, *, now_ms: int, max_disorder_ms: int
) -> frozenset[TopicPartition]:
    """The partitions whose anchor has a time that cannot be true.

    It is later than when it was stored, or more than a month from the records next to it. Of old ones, ``MOST_ASKED``
    are compared with the records next to them. Raises Unreachable and Refused as the reader does.
    """
    wrong, old = set[TopicPartition](), dict[TopicPartition, int]()
    for place in gathered.places:
        stored = place.selected.stored
        time_ms = None if stored is None or stored.anchor is None or place.fault else stored.anchor.timestamp_ms
        if stored is None or time_ms is None:
            continue
        if time_ms > latest_possible_ms(stored, now_ms, max_disorder_ms):
            wrong.add(place.destination)
        elif time_ms < (stored.written_at_ms or now_ms) - APART_MS:
            old[place.destination] = time_ms
    exact = {row.key: row.record_offset for row in plan.starts.partitions if row.finding is Verdict.EXACT}
    asked = [(place, time_ms, at) for place, time_ms in old.items() if (at := exact.get(place)) is not None]
    return frozenset(wrong) | _among_others(asked[:MOST_ASKED], gathered.job.identity, reader)


def _among_others(
    asked: Sequence[tuple[TopicPartition, int, int]], identity: Identity, reader: LogReader
) -> set[TopicPartition]:
    """The partitions whose record, by its time and offset, is far from all records next to it."""
    requests = [ReadRequest(place, max(0, at - 1), 3) for place, _, at in asked]
    found = set[TopicPartition]()
    for (place, time_ms, at), chunk in zip(asked, reader.read(requests) if requests else (), strict=True):
        if isinstance(chunk, Withheld):
            continue
        times = [identity.trusted_time_of(record) for record in chunk.records if record.offset != at]
        known = [each for each in times if each is not None]
        if known and all(abs(each - time_ms) > APART_MS for each in known):
            found.add(place)
    return found


def read_beside(
    plan: JobPlan, gathered: GatheredJob, reader: LogReader, logs: LogEnds | None, *, now_ms: int, max_disorder_ms: int
) -> Readings:
    """The readings of one job; ``logs`` are those that it reads. Raises Unreachable and Refused as the reader does."""
    late = [row for row in plan.partitions if row.finding is Verdict.BEHIND]
    found = {place.destination: each for place in gathered.places if (each := behind(place, logs)) is not None}
    return Readings(
        lags_ms(late, gathered.job.identity, reader),
        found,
        wrong_times(plan, gathered, reader, now_ms=now_ms, max_disorder_ms=max_disorder_ms),
    )
