"""MirrorMaker's own topics, followed for as long as a watch runs: each round reads only what is new.

The first reading of checkpoints begins ``FIRST`` records before the topic's end, that of heartbeats ``FIRST_BEATS``.
For each watched group and partition the last ``KEPT`` checkpoints are kept, which bounds the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

from reconciler.core.anchors import Record
from reconciler.core.mirror_pairs import MirrorCheckpoint
from reconciler.kafka.mirror.reading import between
from reconciler.kafka.mirror.records import UnreadableRecord, read_checkpoint, read_heartbeat
from reconciler.ports import LogReader, TopicPartition

FIRST = 50_000
FIRST_BEATS = 10
MOST_A_ROUND = 200_000
KEPT = 8


class Checkpoints:
    """Checkpoints of these ``groups`` in these ``topics`` (the destination's names).

    ``names`` are candidates for the topic that holds them; the first that exists is read.
    """

    def __init__(self, names: Sequence[str], groups: Collection[str], topics: Collection[str]) -> None:
        self._new = _NewRecords(names, FIRST)
        self._groups = frozenset(groups)
        self._topics = frozenset(topics)
        self._kept: dict[tuple[str, TopicPartition], deque[MirrorCheckpoint]] = {}

    def of(self, groups: Collection[str], partition: TopicPartition) -> Sequence[MirrorCheckpoint]:
        """The newest checkpoints of a group of such a name in this partition of the destination, oldest first."""
        return tuple(each for group in sorted(groups) for each in self._kept.get((group, partition), ()))

    def read(self, reader: LogReader) -> None:
        """Read what was written since the last call. Raises Unreachable and Refused as the reader does."""
        for records in self._new.read(reader).values():
            for record in records:
                self._keep(record)

    def _keep(self, record: Record) -> None:
        try:
            found = read_checkpoint(record)
        except UnreadableRecord:
            return
        if found is not None and found[0].topic in self._topics and found[1].group in self._groups:
            place, checkpoint = found
            self._kept.setdefault((checkpoint.group, place), deque(maxlen=KEPT)).append(checkpoint)


class Heartbeats:
    """``names`` are candidates for the heartbeats' topic; the first that exists is read.

    ``newest_ms`` is the time at the source when the newest heartbeat was sent, None if there is none. One that names a
    later time than its reading comes from a clock that is ahead, and counts as sent when it was read.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._new = _NewRecords(names, FIRST_BEATS)
        self.newest_ms: int | None = None

    def read(self, reader: LogReader, now_ms: int) -> None:
        """Read what was written since the last call. Raises Unreachable and Refused as the reader does."""
        for records in self._new.read(reader).values():
            sent_ms = _last_sent_ms(records)
            if sent_ms is not None:
                self.newest_ms = max(min(sent_ms, now_ms), self.newest_ms or 0)


def _last_sent_ms(records: Iterable[Record]) -> int | None:
    """When the last heartbeat in the log was sent, even if an earlier one has a later time."""
    sent_ms = None
    for record in records:
        try:
            beat = read_heartbeat(record)
        except UnreadableRecord:
            continue
        sent_ms = sent_ms if beat is None else beat.timestamp_ms
    return sent_ms


class _NewRecords:
    """The records of the first of the topics ``names`` that exists; at the first reading its last ``first`` ones."""

    def __init__(self, names: Sequence[str], first: int) -> None:
        self._names = names
        self._first = first
        self._next: dict[TopicPartition, int] = {}
        self._ids: dict[str, str | None] = {}

    def read(self, reader: LogReader) -> Mapping[TopicPartition, Sequence[Record]]:
        """The records since the last call, at most ``MOST_A_ROUND`` of a partition, in the order of the log."""
        described = reader.describe(self._names).topics if self._names else {}
        info = next((described[name] for name in self._names if name in described), None)
        if info is None:
            return {}
        if self._ids.get(info.name, info.topic_id) != info.topic_id:
            self._next = {place: at for place, at in self._next.items() if place.topic != info.name}
        self._ids[info.name] = info.topic_id
        places = info.places
        starts, ends = reader.log_starts(places), reader.log_ends(places)
        found: dict[TopicPartition, Sequence[Record]] = {}
        for place in places:
            end = ends[place]
            begin = min(max(starts[place], self._next.get(place, end - self._first), end - MOST_A_ROUND), end)
            found[place] = list(between(reader, place, begin, end))
        self._next.update(ends)
        return found
