"""The record before each of a job's numbers: one point read a partition, as a reader of its isolation level sees it.

An anchor names the last record before the stored offset: the last one processed, whatever gap a transaction marker or
compaction left after it. Compaction may have removed records in that gap which the destination still holds. Then the
anchor is kept as made for the offset right after its record, so that the gap counts as lag, and so as replay.

If no record is left before it, the record *at* the stored offset serves: it was not processed, and every record before
it was (``Names.NEXT``). It must be at that very offset, or in a log that is not compacted: else records between the two
that only the destination still holds would be skipped. For the same reason no record is named if retention has passed
the stored offset.

At offset 0 of a log without a record there, no record was processed and none can be named. Then the numbering alone is
kept (``Anchor.is_bare``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import NamedTuple

from reconciler.core.anchors import Anchor, Identity, Names, Record, StoredOffset
from reconciler.core.errors import NotRead, ReconcilerError
from reconciler.core.probes import Search, ask_edges, ask_read
from reconciler.core.scan import last_before
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


@dataclass(frozen=True, slots=True)
class TrackedOffset:
    """One stored offset in a partition of the source.

    ``compacted``: whether compaction may have removed records; None (not known) counts as yes.
    """

    offset: int
    cluster_id: str
    topic_id: str | None
    compacted: bool | None


@dataclass(frozen=True, slots=True)
class LookbackResult:
    """The anchored offset to keep, or ``why`` there is none, as the end of a sentence."""

    kept: StoredOffset | None
    why: str = ""


def look_back(place: TrackedOffset, identity: Identity) -> Search[LookbackResult]:
    """Find the record that an anchor for this place names."""
    try:
        return (yield from _look_back(place, identity))
    except NotRead as error:
        return LookbackResult(None, str(error).rstrip("."))


def last_in(begin: int, end: int) -> Callable[[], Search[Record | None]]:
    """The search for the last record from ``begin`` to before ``end``; one that starts over asks for its edges."""
    started = False

    def search() -> Search[Record | None]:
        nonlocal started
        start, again = begin, started
        started = True
        if again:
            edges = yield from ask_edges()
            if edges.end < end:
                return None  # the log was cut: its numbers are no longer those of the batch
            start = max(start, edges.start)
        return (yield from last_before(end, start))

    return search


def _look_back(place: TrackedOffset, identity: Identity) -> Search[LookbackResult]:
    edges = yield from ask_edges()
    offset, start, end = place.offset, edges.start, edges.end
    if offset > end:
        return LookbackResult(None, f"the source's log ends at {end}, before the stored offset")
    last = yield from last_before(offset, start)
    if last is not None:
        made_for = offset if place.compacted is False else last.offset + 1
        return LookbackResult(StoredOffset(made_for, _anchor(place, identity, last)))
    if offset < start:
        return LookbackResult(None, f"retention has removed the records around it: the source's log begins at {start}")
    if offset < end:
        chunk = yield from ask_read(offset, 1)
        following = chunk.records[0] if chunk.records else None
        if following is not None and (following.offset == offset or place.compacted is False):
            anchor = replace(_anchor(place, identity, following), names=Names.NEXT)
            return LookbackResult(StoredOffset(offset, anchor))
    if offset == 0:
        numbering = Anchor(cluster_id=place.cluster_id, topic_id=place.topic_id)
        return LookbackResult(StoredOffset(0, numbering))
    return LookbackResult(None, "no record is left in the source's log before it, nor at it")


def _anchor(place: TrackedOffset, identity: Identity, record: Record) -> Anchor:
    return identity.anchor_of(record, cluster_id=place.cluster_id, topic_id=place.topic_id)
