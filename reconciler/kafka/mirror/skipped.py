"""Records that a mirror skipped, and partitions that it began again, by its offset syncs at the destination.

MirrorMaker 2 since 3.5 writes a sync at every jump of the source's numbers. Between two syncs, each transaction marker
follows a delivered record of its transaction. So of the numbers without a record here, as many as there are delivered
records may be markers. The others were skipped. Records of aborted transactions are among them if the mirror reads
committed records only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from reconciler.core.mirrored.pairs import Sync
from reconciler.kafka.mirror.records import NewRecords, UnreadableRecord, read_sync
from reconciler.ports import LogReader, TopicPartition

WITHIN_MS = 86_400_000
"""Only what happened within a day is reported: nothing undoes it, so an alert would never end."""
FIRST_SYNCS = 50_000
"""Syncs that the first reading looks at."""


class Gaps(NamedTuple):
    """At least so many records were skipped, and so many times a partition was begun again."""

    skipped: int
    began_again: int


NO_GAPS = Gaps(0, 0)


def gaps_between(one: Sync, other: Sync) -> Gaps:
    """``other`` is the next sync of the same partition.

    The mirror began again if the copies here lost their end (the topic was cut or recreated), or if it delivered the
    source's record 0 a second time (the topic was recreated there, or the mirror lost its positions).
    """
    numbers, delivered = other.upstream - one.upstream, other.downstream - one.downstream
    if numbers == delivered == 0:
        return NO_GAPS  # the same one again
    if delivered <= 0 or other.upstream == 0:
        return Gaps(0, 1)
    return Gaps(max(0, numbers - 2 * delivered), 0)


class MirrorGaps:
    """Follows the syncs of these topics of the source. ``names`` are candidates for the syncs' topic."""

    def __init__(self, names: Sequence[str], topics: Collection[str]) -> None:
        self._new = NewRecords(names, FIRST_SYNCS)
        self._topics = topics
        self._last: dict[TopicPartition, Sync] = {}
        self._found: list[tuple[int, str, Gaps]] = []

    def read(self, reader: LogReader, now_ms: int) -> None:
        """Read what was written since the last call. Raises Unreachable and Refused as the reader does."""
        for records in self._new.read(reader).values():
            for record in records:
                try:
                    decoded = read_sync(record)
                except UnreadableRecord:
                    continue
                if decoded is not None and decoded[0].topic in self._topics:
                    self._add(*decoded, now_ms)
        self._found = [each for each in self._found if each[0] > now_ms - WITHIN_MS]

    def _add(self, place: TopicPartition, sync: Sync, now_ms: int) -> None:
        before, self._last[place] = self._last.get(place), sync
        gaps = NO_GAPS if before is None else gaps_between(before, sync)
        if gaps != NO_GAPS:
            self._found.append((sync.written_ms or now_ms, place.topic, gaps))

    @property
    def by_topic(self) -> Mapping[str, Gaps]:
        """The gaps of the last day, by the source's topic; a topic without syncs is left out."""
        found = dict.fromkeys((place.topic for place in self._last), NO_GAPS)
        for _, topic, gaps in self._found:
            before = found[topic]
            found[topic] = Gaps(before.skipped + gaps.skipped, before.began_again + gaps.began_again)
        return found
