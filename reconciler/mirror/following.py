"""MirrorMaker's own topics, followed for as long as a watch runs: each round reads only what is new.

The first reading begins ``FIRST`` records before a topic's end. For each watched group and partition the last ``KEPT``
checkpoints are kept, which bounds the memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence

from reconciler.core.anchors import Record
from reconciler.core.mirror_pairs import MirrorCheckpoint
from reconciler.mirror.reading import between
from reconciler.mirror.records import UnreadableRecord, read_checkpoint, read_heartbeat
from reconciler.ports import LogReader, TopicInfo, TopicPartition

FIRST = 50_000
MOST_A_ROUND = 200_000
KEPT = 8


class Following:
    """``checkpoints`` and ``heartbeats`` are candidate names for each topic; the first that exists is read.

    ``groups`` and ``topics`` (the destination's names) are the ones to keep. ``heartbeat_ms`` is the time at the source
    when the newest heartbeat was sent, None if there is none.
    """

    def __init__(
        self, checkpoints: Sequence[str], heartbeats: Sequence[str], groups: Collection[str], topics: Collection[str]
    ) -> None:
        self._checkpoints = checkpoints
        self._heartbeats = heartbeats
        self._groups = frozenset(groups)
        self._topics = frozenset(topics)
        self._next: dict[TopicPartition, int] = {}
        self._ids: dict[str, str | None] = {}
        self._kept: dict[tuple[str, TopicPartition], deque[MirrorCheckpoint]] = {}
        self.heartbeat_ms: int | None = None

    def of(self, group: str, partition: TopicPartition) -> Sequence[MirrorCheckpoint]:
        """The newest checkpoints of the group in this partition of the destination, oldest first."""
        return tuple(self._kept.get((group, partition), ()))

    def read(self, reader: LogReader) -> None:
        """Read what was written since the last call. Raises Unreachable and Refused as the reader does."""
        described = reader.describe((*self._checkpoints, *self._heartbeats)).topics
        for record in self._new(reader, described, self._checkpoints, FIRST):
            self._keep(record)
        beat = None
        for record in self._new(reader, described, self._heartbeats, 10):
            try:
                beat = read_heartbeat(record) or beat
            except UnreadableRecord:
                continue
        if beat is not None:
            self.heartbeat_ms = max(beat.timestamp_ms, self.heartbeat_ms or 0)

    def _keep(self, record: Record) -> None:
        try:
            found = read_checkpoint(record)
        except UnreadableRecord:
            return
        if found is not None and found[0].topic in self._topics and found[1].group in self._groups:
            place, checkpoint = found
            self._kept.setdefault((checkpoint.group, place), deque(maxlen=KEPT)).append(checkpoint)

    def _new(
        self, reader: LogReader, described: Mapping[str, TopicInfo], names: Sequence[str], first: int
    ) -> Sequence[Record]:
        """The new records of the first of these topics that exists, ``MOST_A_ROUND`` of a partition at most."""
        info = next((described[name] for name in names if name in described), None)
        if info is None:
            return ()
        if self._ids.get(info.name, info.topic_id) != info.topic_id:
            self._next = {place: at for place, at in self._next.items() if place.topic != info.name}
        self._ids[info.name] = info.topic_id
        places = info.places
        starts, ends = reader.log_starts(places), reader.log_ends(places)
        found: list[Record] = []
        for place in places:
            end = ends[place]
            begin = min(max(starts[place], self._next.get(place, end - first), end - MOST_A_ROUND), end)
            found += between(reader, place, begin, end)
            self._next[place] = end
        return found
