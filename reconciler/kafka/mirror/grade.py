"""How good MirrorMaker's own offset of a group is, and how far the mirror is behind, by the records' times.

MirrorMaker translates a group's offset to the place of an offset sync, one past it at most, and a sync may name a later
copy of its record. While the mirror still sends records again, the first copies between the proven place and
MirrorMaker's have no copy behind it yet: a start there would skip them. So the records are compared. Skipped records
begin at the proven place and end with the first one that was delivered before; a record with a copy at or behind
MirrorMaker's place does not count. With more than ``MOST_COMPARED`` offsets in between, every offset counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from reconciler.core.anchors import Identity, Record, fingerprint
from reconciler.core.mirror_pairs import MirrorCheckpoint
from reconciler.core.probes import Withheld
from reconciler.core.verdicts import Verdict
from reconciler.kafka.mirror.records import between
from reconciler.plan.document import PartitionPlan
from reconciler.ports import LogReader, ReadRequest, TopicPartition

MOST_COMPARED = 10_000
"""Offsets between the two places in which records are compared: as many before them are read, and twice as many behind,
where copies follow in the order of the source."""
MOST_PARTITIONS = 10
"""Partitions of one call that are compared."""


@dataclass(frozen=True, slots=True)
class Grade:
    """A start at MirrorMaker's offset would read ``replay`` records again, by offsets at most, and skip ``skips``.

    ``is_counted``: the records were compared. If not, ``skips`` are offsets, and it skips that many records at most.
    """

    replay: int
    skips: int
    is_counted: bool = True

    def __add__(self, other: Grade) -> Grade:
        return Grade(self.replay + other.replay, self.skips + other.skips, self.is_counted and other.is_counted)


@dataclass(frozen=True, slots=True)
class Graded:
    """A partition whose grade is wanted: the next record is in [``earliest``, ``latest``], MirrorMaker's is ``own``."""

    earliest: int
    latest: int
    own: int


def grade_request(row: PartitionPlan, own: int | None) -> Graded | None:
    """The grade wanted for a checked row; None if nothing is proven, or MirrorMaker has no offset."""
    resume = row.resume_offset
    if (
        own is None
        or resume is None
        or row.set_by_hand
        or row.spread
        or row.finding not in (Verdict.EXACT, Verdict.EARLY)
    ):
        return None
    lag = 0 if row.finding is Verdict.EXACT else row.replay_at_most or 0
    return Graded(resume, resume + lag, own)


def own_offset(checkpoints: Sequence[MirrorCheckpoint], offset: int) -> MirrorCheckpoint | None:
    """The newest of a group's checkpoints that is for no later number than ``offset``, of the source: what MirrorMaker
    would hand out. One for a later number is of what the group has processed since."""
    return next((each for each in reversed(checkpoints) if each.upstream <= offset), None)


def grades(
    reader: LogReader, identity: Identity, places: Mapping[TopicPartition, Graded]
) -> dict[TopicPartition, Grade]:
    """The grade of each partition; reads records only where MirrorMaker's offset is behind the proven place."""
    asked = [place for place, each in places.items() if each.own > each.latest]
    edges = (reader.log_starts(asked), reader.log_ends(asked)) if asked else ({}, {})
    found = {}
    for place, each in places.items():
        skips, is_counted = 0, True
        if place in asked:
            start, end = edges[0][place], edges[1][place]
            at, own = max(each.latest, start), min(each.own, end)
            is_compared = asked.index(place) < MOST_PARTITIONS and own - at <= MOST_COMPARED
            is_counted = is_compared and end - own <= 2 * MOST_COMPARED  # what lies further behind is not looked at
            skips = _skips(reader, identity, place, at, own, start, end) if is_compared else max(0, own - at)
        found[place] = Grade(max(0, each.earliest - each.own), skips, is_counted)
    return found


def _skips(
    reader: LogReader, identity: Identity, place: TopicPartition, at: int, own: int, start: int, end: int
) -> int:
    """How many records of [``at``, ``own``) a start at ``own`` never reads; the log is [``start``, ``end``)."""
    before = between(reader, place, max(start, at - MOST_COMPARED), at)
    return count_unread(
        [_name(identity, record) for record in before],
        [_name(identity, record) for record in between(reader, place, at, own)],
        {_name(identity, record) for record in between(reader, place, own, min(end, own + 2 * MOST_COMPARED))},
    )


def count_unread(before: Sequence[object], passed: Sequence[object], follow: set[object]) -> int:
    """How many records a start behind ``passed`` never reads. Pure.

    From the proven place on, records are new until one comes that was there before: from there on they are sent again.
    """
    seen = set(before)

    def is_new(name: object) -> bool:
        known = name in seen
        seen.add(name)
        return not known

    return sum(name not in follow for name in takewhile(is_new, passed))


def _name(identity: Identity, record: Record) -> object:
    """Equal for copies of one record: its id, else its time and content."""
    own = identity.id_of(record) if identity.id_of else None
    if own is not None:
        return own
    return fingerprint(record.key, record.value), None if record.append_time else record.timestamp_ms


LAST = 3
"""Offsets before a partition's end that are read: the last may be a transaction's marker."""
MOST_ASKED = 100
"""At most so many partitions are read, those with the newest anchors first."""


def newest_ms(reader: LogReader, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """The latest time among each partition's last records; partitions without such a time are left out.

    Times that the broker set are of the delivery, and count. Raises Unreachable and Refused as the reader does.
    """
    ends = reader.log_ends(partitions) if partitions else {}
    asked = [ReadRequest(place, max(0, ends[place] - LAST), LAST) for place in partitions if ends[place] > 0]
    found: dict[TopicPartition, int] = {}
    for request, chunk in zip(asked, reader.read(asked) if asked else (), strict=True):
        if isinstance(chunk, Withheld):
            continue
        times = [record.timestamp_ms for record in chunk.records if record.timestamp_ms is not None]
        if times:
            found[request.partition] = max(times)
    return found


def lags_ms(rows: Sequence[PartitionPlan], identity: Identity, reader: LogReader) -> dict[TopicPartition, int]:
    """How much older than the anchor the record before the resume offset is, in ms, by partition.

    ``rows`` are all ``behind``; one read serves all. Partitions that are empty or have no times, and those beyond the
    first ``MOST_ASKED``, are left out. Raises Unreachable and Refused as the reader does.
    """
    anchored = {row.key: row.anchor.timestamp_ms for row in rows if row.anchor and row.anchor.timestamp_ms}
    latest = sorted(anchored, key=lambda place: -anchored[place])[:MOST_ASKED]
    last = {row.key: row.record_offset for row in rows}
    requests = [ReadRequest(place, offset, 1) for place in latest if (offset := last[place]) is not None]
    chunks = reader.read(requests) if requests else []
    found: dict[TopicPartition, int] = {}
    for request, chunk in zip(requests, chunks, strict=True):
        if isinstance(chunk, Withheld):
            continue
        time_ms = identity.trusted_time_of(chunk.records[0]) if chunk.records else None
        if time_ms is not None:
            found[request.partition] = max(0, anchored[request.partition] - time_ms)
    return found
