"""The records before a checkpoint's numbers: one point read a partition, as a reader of its isolation level sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import NamedTuple

from reconciler.core.anchors import Identity, Record, StoredOffset
from reconciler.core.errors import NotRead, ReconcilerError
from reconciler.core.probes import Search
from reconciler.jobs.tracking.lookback import LookbackResult, TrackedOffset, last_in, look_back
from reconciler.kafka.engine import EngineSettings, Inquiry, run
from reconciler.ports import ClusterInfo, LogReader, TopicPartition

TIMEOUT_S = 10.0
FROM_OUTSIDE = "Or track the job from outside of its driver, where that login is: reconciler track"


class Place(NamedTuple):
    """A number of a partition."""

    at: TopicPartition
    number: int


class SourceLog:
    """The log that a query reads. ``open_reader`` opens it for an isolation level: True for committed records only.

    ``is_committed_only`` says which level a topic is read with. ``advice``: a further sentence for the hint of an
    error. All methods raise Unreachable and Refused.
    """

    def __init__(
        self,
        open_reader: Callable[[bool], LogReader],
        is_committed_only: Callable[[str], bool],
        identity: Identity,
        advice: str = "",
    ) -> None:
        self._open_reader = open_reader
        self._is_committed_only = is_committed_only
        self._identity = identity
        self._advice = advice
        self._readers: dict[bool, LogReader] = {}

    def describe(self, topics: Iterable[str]) -> ClusterInfo:
        """The cluster's id and the topics' ids."""
        with self._advised():
            return self._reader(next(iter(self._readers), False)).describe(topics)

    def before(self, places: Mapping[Place, int | None], cluster: ClusterInfo) -> dict[Place, LookbackResult]:
        """The record before each number. A partition that the cluster does not have is left out.

        Each number comes with a lower one that is known, if there is one: between the two, one read finds the record.
        """
        found: dict[Place, LookbackResult] = {}
        for level in (False, True):
            asked = {
                place: Inquiry(place.at, self._search(place, below, cluster))
                for place, below in places.items()
                if _has(cluster, place.at) and self._is_committed_only(place.at.topic) is level
            }
            if asked:
                with self._advised():
                    answers = run(self._reader(level), asked, clock=monotonic, settings=EngineSettings(TIMEOUT_S)).found
                found |= {place: answer.finding for place, answer in answers.items()}
        return found

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _search(self, place: Place, below: int | None, cluster: ClusterInfo) -> Callable[[], Search[LookbackResult]]:
        topic, number = cluster.topics[place.at.topic], place.number
        nearby = None if below is None else last_in(below, number)
        tracked = TrackedOffset(number, cluster.cluster_id, topic.topic_id, topic.compacted)

        def search() -> Search[LookbackResult]:
            last = (yield from _unless_unread(nearby())) if nearby is not None else None
            if last is None:
                return (yield from look_back(tracked, self._identity))
            made_for = number if topic.compacted is False else last.offset + 1
            anchor = self._identity.anchor_of(last, cluster_id=cluster.cluster_id, topic_id=topic.topic_id)
            return LookbackResult(StoredOffset(made_for, anchor))

        return search

    def _reader(self, level: bool) -> LogReader:
        if level not in self._readers:
            self._readers[level] = self._open_reader(level)
        return self._readers[level]

    @contextmanager
    def _advised(self) -> Iterator[None]:
        try:
            yield
        except ReconcilerError as error:
            if not self._advice:
                raise
            hint = f"{error.hint} {self._advice}" if error.hint else self._advice
            raise type(error)(error.message, hint=hint) from error


def _has(cluster: ClusterInfo, at: TopicPartition) -> bool:
    return at.topic in cluster.topics and cluster.topics[at.topic].has(at.partition)


def _unless_unread(search: Search[Record | None]) -> Search[Record | None]:
    try:
        return (yield from search)
    except NotRead:
        return None
