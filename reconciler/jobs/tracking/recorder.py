"""A stay's journal from the numbers that its job stores, one look at a time.

Theory of operation. A look gets where the job is: each partition's number and, of a query within a batch, the batch's
end. It finds the record before each number that the journal does not have yet, and notes both; ``append`` adds one
entry.

- R1  A number that is known with its record is never looked up again: not in the next look, not by the next driver. A
      plan may know only the offset of the record before its number: then the record is looked up once.
- R2  The cluster and the topics have the same ids before and after the reads, and as the last known record says. The
      numbers of a topic that was recreated may be the former topic's, until a new stay begins: the last known record
      stands for them, with the numbers in between as ``older``. The same holds where retention has removed the record.
- R3  The first entry of a run is full, and ends the run before it: a driver that was not stopped finds it at its next
      append, and stops its query. A run that cannot read the cluster appends nothing, so it stops no other.
- R4  An append that is refused is judged by the newest entry. It is this run's where an earlier reply was lost. Before
      the first entry of a run, an old driver's is only a race: the next number is tried.
- R5  What a plan has shown to be read again goes along, until the job has passed it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from reconciler.clock import stamp
from reconciler.config.streams import Stream
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, ConfigError
from reconciler.core.text import some
from reconciler.jobs.tracking.source import LookbackResult, Place, SourceLog
from reconciler.places.checkpoint.log import by_partition
from reconciler.places.checkpoint.restart import Checkpoint
from reconciler.ports import ClusterInfo, TopicPartition
from reconciler.state import journal
from reconciler.state.jobs import RACES, JobState
from reconciler.state.journal import Entry, StreamPartition
from reconciler.state.locations import Location, Phase
from reconciler.state.store import FIRST
from reconciler.state.stored import Known

log = logging.getLogger(__name__)

MOST_PARTITIONS = 10_000


class Moved(Changed):
    """The journal is closed, or another run's: this query must not continue."""


class Position(NamedTuple):
    """Where a job is in a partition. ``end`` is that of the batch that runs."""

    start: int | None
    end: int | None = None


Positions = Mapping[TopicPartition, Position]
NONE_GIVEN: Mapping[Place, StoredOffset] = {}


def positions_of(found: Checkpoint) -> dict[TopicPartition, Position]:
    """Each partition's position. Where two sources read a partition, the lower number counts."""
    starts = by_partition(each.start for each in found.positions)
    ends = by_partition(each.end for each in found.positions)
    return {
        at: Position(min(starts[at]) if at in starts else None, min(ends[at]) if at in ends else None)
        for at in starts.keys() | ends.keys()
    }


def refuse_many(partitions: int, most: int | None = MOST_PARTITIONS) -> None:
    """Raise ConfigError above the number of partitions that a driver records beside its batches."""
    if most is not None and partitions > most:
        raise ConfigError(
            f"The query reads {partitions:,} partitions, and its driver records at most {most:,}.",
            hint="Record this job from outside of its driver: reconciler track",
        )


class StayRecorder:
    """One run of a recorder. ``streams``: the job's, by their topics on this cluster. ``run`` names this run.

    All methods raise what the store and the log raise.
    """

    most_partitions: int | None = MOST_PARTITIONS

    def __init__(self, job: JobState, stay: int, streams: Mapping[str, Stream], source: SourceLog, run: str) -> None:
        self._job, self._stay, self._streams, self._source, self._run = job, stay, streams, source, run
        self._journal: journal.Recorder | None = None
        self._next = FIRST
        self._has_appended = False
        self._cluster: ClusterInfo | None = None
        self._known: dict[StreamPartition, dict[int, Known[Anchor]]] = {}
        self._furthest: dict[StreamPartition, int] = {}
        self._planned: Mapping[StreamPartition, Known[Anchor]] = {}
        """The first numbers of the stay, by the plan that began it."""
        self._looked: dict[Place, str] = {}
        """Numbers that were looked up, and why no record before them was found. They are not looked up again."""

    def look(self, found: Positions, given: Mapping[Place, StoredOffset] = NONE_GIVEN) -> bool:
        """Note where the job is. True if it has a number that was not known.

        ``given``: anchors that are kept beside their numbers, and need no look-up. Raises Moved if the journal is
        closed, ConfigError for too many partitions.
        """
        places = {at: each for at, each in found.items() if at.topic in self._streams}
        refuse_many(len(places), self.most_partitions)
        recorder = self._journal or self._begin()
        asked = {
            place
            for at, numbers in places.items()
            for number in numbers
            if number is not None and self._is_unnamed(place := Place(at, number))
        }
        if asked:
            self._find(asked, given)
        numbers, begun = {}, {}
        for at, (start, end) in places.items():
            if start is not None and (known := self._of(Place(at, start))):
                numbers[self._key(at)] = replace(known, processed=True)
            if end is not None and end != start and (known := self._of(Place(at, end))):
                begun[self._key(at)] = replace(known, processed=False)
        recorder.note(numbers, begun)
        self._forget(places)
        return bool(asked)

    def append(self, now_ms: int) -> bool:
        """Append an entry if something changed; False if nothing did. Raises Moved if it is refused (R4)."""
        if self._journal is None or (entry := self._journal.next_entry(now_ms)) is None:
            return False
        for _ in range(RACES):
            if self._job.append_journal(self._stay, self._next, entry):
                self._journal.appended(entry)
                self._has_appended, self._next = True, self._next + 1
                return True
            newest = self._job.newest(self._stay)[-1]
            if newest.closed_by is not None or (newest.run != self._run and self._has_appended):
                break
            self._next = newest.number + 1
        raise self._moved(newest)

    def require_here(self) -> None:
        """Raise Moved if the job now lives elsewhere, or its numbers are being written."""
        here = self._job.location()
        if here is not None and (here.stay != self._stay or here.phase is Phase.WRITING):
            raise self._moved(None)

    def close(self) -> None:
        """Close the connections to the cluster."""
        self._source.close()

    # ------------------------------------------------------------ the journal

    def _begin(self) -> journal.Recorder:
        entries = self._job.newest(self._stay)
        if entries and entries[-1].closed_by is not None:
            raise self._moved(entries[-1])
        self._learn(entries)
        self._journal = journal.Recorder.continuing(self._run, entries)
        return self._journal

    def _learn(self, entries: Sequence[Entry]) -> None:
        """Note the journal's content, and the number after it."""
        self._next = entries[-1].number + 1 if entries else FIRST
        for each in entries:
            if self._stay > 1 and each.number == FIRST:
                self._planned = each.numbers
            for key, known in (*each.numbers.items(), *each.begun.items()):
                self._known.setdefault(key, {})[known.number] = known
                self._furthest[key] = max(self._furthest.get(key, 0), known.number + known.again)

    def _moved(self, newest: Entry | None) -> Moved:
        here = self._job.location()
        if here is not None and (here.stay != self._stay or here.phase is Phase.WRITING):
            what = moved_words(here)
        elif newest is not None and newest.closed_by is None:
            what = f"another driver records its stay {self._stay} since {stamp(newest.at_ms)} ({newest.run})"
            what += f"; {moved_words(here)}" if here is not None else ""
        else:
            what = f"its stay {self._stay} has ended"
        return Moved(
            f'This driver of the job "{self._job.job}" must not continue: {what}.',
            hint="Its query is stopped. Start the job by its hook only. See: "
            + self._job.command("status", "--history"),
        )

    # ------------------------------------------------------------ its records

    def _find(self, asked: Collection[Place], given: Mapping[Place, StoredOffset]) -> None:
        """Find the records before these numbers (R2)."""
        before = self._cluster
        if before is None or not all(_has(before, place.at) for place in asked):  # partitions may have been added
            before = self._source.describe(self._streams)
        found = {place: LookbackResult(given[place]) for place in asked if place in given}
        found |= self._source.before({place: self._below(place) for place in asked if place not in found}, before)
        after = self._cluster = self._source.describe(self._streams)
        nameless = {}
        for place in sorted(asked):
            answer = found.get(place, LookbackResult(None, "the cluster has no such partition"))
            if not (_is_as(before, after, place.at.topic) and self._is_numbered_by(after, place)):
                answer = LookbackResult(None, answer.why or "the topic was recreated")
            known = self._named(place, answer.kept)
            self._looked[place] = answer.why if answer.kept is None else ""
            if known is not None:
                self._known.setdefault(self._key(place.at), {})[place.number] = known
            else:
                nameless[place] = answer.why
        self._tell(nameless)

    def _tell(self, nameless: Mapping[Place, str]) -> None:
        if nameless:
            names = [f"{place.at}: {why}" for place, why in nameless.items()]
            log.warning('job "%s": no record is known before some numbers: %s', self._job.job, some(names))

    def _is_unnamed(self, place: Place) -> bool:
        """True if the record before the number is not known, and was not looked up."""
        if place in self._looked:
            return False
        known = self._of(place)
        return known is None or (known.number > 0 and (known.record is None or known.record.timestamp_ms is None))

    def _named(self, place: Place, kept: StoredOffset | None) -> Known[Anchor] | None:
        key, number = self._key(place.at), place.number
        again = max(0, self._furthest.get(key, 0) - number)  # R5
        if kept is not None:
            record = None if kept.anchor is None or kept.anchor.is_bare else kept.anchor
            return Known(number, record, again, max(0, number - kept.offset))
        last = self._last(place)
        return None if last is None else Known(number, last.record, again, number - last.number + last.older)

    def _last(self, place: Place) -> Known[Anchor] | None:
        """The last known record before the number."""
        known = self._known.get(self._key(place.at), {}).values()
        below = [each for each in known if each.number <= place.number and each.record is not None]
        return max(below, key=lambda each: each.number, default=None)

    def _is_numbered_by(self, cluster: ClusterInfo, place: Place) -> bool:
        """True if the last known record is of this cluster and topic. A plan's may be of the cluster that was left."""
        last, planned = self._last(place), self._planned.get(self._key(place.at))
        record = None if last is None else last.record
        if record is None or record.cluster_id is None or (planned is not None and planned.record == record):
            return True
        return record.numbered_by(cluster.cluster_id, cluster.topic_id(place.at.topic))

    def _below(self, place: Place) -> int | None:
        numbers = self._known.get(self._key(place.at), {})
        return max((number for number in numbers if number < place.number), default=None)

    def _of(self, place: Place) -> Known[Anchor] | None:
        return self._known.get(self._key(place.at), {}).get(place.number)

    def _key(self, at: TopicPartition) -> StreamPartition:
        stream = self._streams[at.topic]
        return StreamPartition(stream.topic, stream.origin, at.partition)

    def _forget(self, places: Mapping[TopicPartition, Position]) -> None:
        """Keep the numbers where the query is, and the last one below them."""
        for at, numbers in places.items():
            known, now = self._known.get(self._key(at), {}), [number for number in numbers if number is not None]
            below = max((number for number in known if number < min(now)), default=None)
            self._known[self._key(at)] = {number: known[number] for number in (below, *now) if number in known}
        self._looked = {place: why for place, why in self._looked.items() if place.number in places.get(place.at, ())}


def _has(cluster: ClusterInfo, at: TopicPartition) -> bool:
    return at.topic in cluster.topics and cluster.topics[at.topic].has(at.partition)


def _is_as(before: ClusterInfo, after: ClusterInfo, topic: str) -> bool:
    """True if the records of the topic have the same numbers, and compaction may remove them or not, as before."""
    same = after.numbers_as(before, topic) and topic in after.topics
    return same and before.topics[topic].compacted == after.topics[topic].compacted


def moved_words(here: Location) -> str:
    """Who moved the job where and when, as a part of a sentence."""
    why = f" ({here.why})" if here.why else ""
    if here.phase is Phase.LIVES:
        return f"it lives on {here.cluster}, stay {here.stay}, by {here.by} at {stamp(here.at_ms)}{why}"
    doing = "is moving" if here.phase is Phase.MOVING else "is being moved"
    return f"it {doing} to {here.to}, by {here.by} at {stamp(here.at_ms)}{why}"
