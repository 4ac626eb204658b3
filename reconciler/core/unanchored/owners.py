"""Which offset syncs are surely of the mirror to this cluster: another mirror may write to a topic of the same name.

A mirror from here to the source keeps its syncs here, in a topic of the same name and with the same keys. Taken for the
source's, its pairs can skip. So a sync is used only where something confirms it, and nothing contradicts the syncs.

MirrorMaker 2 since 3.5 writes a sync at every jump of the source's numbers, and when it starts (``MirrorSourceTask``,
``PartitionState``). So behind its last sync (u, d) the numbers follow one another. These contradict all syncs:

K   A checkpoint is written from the newest sync that MirrorMaker knew then, if that is not behind the group's offset
    (``OffsetSyncStore`` always keeps the newest). If the newest sync here is surely older than the checkpoint, and not
    behind the group's offset, and did not give the checkpoint's place, then the mirror reads its syncs elsewhere.
N   The last number that Connect committed is at most u + (end - 1 - d): the records behind d have one number each.
E   The record at d was there when the pair was written, so d is in front of the log's end.
F   What neither K nor N confirms must at least reach the log's end as closely as its pairs do one another.

And these confirm a sync:

P   It gave a checkpoint, as in K, by the rule of MirrorMaker 3.5 and later. One that may be a copy of the group's own
    number (``copied_checkpoints``) does not count: two mirrors may both have equal numbers on both sides.
Q   It is the last one, and what Connect committed follows from it exactly.
D   The record at d is dated shortly before the sync was written. For a sync of another mirror, d is a place elsewhere,
    and the record that is there here has nothing to do with that time.
A   A delivery that sends again begins at it, or leads up to that: the records from d on are those of the same numbers
    further in front, the one before d is not, and so with the other deliveries. Another mirror that was restarted, too,
    began elsewhere, or sent other numbers again.
L   A confirmed one follows, and has its distance u - d. Then the records between have the numbers between.
R   It leads to a confirmed one without a pause, each sync a little further in both numberings: one delivery.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from reconciler.core.anchors import Record
from reconciler.core.mirror_pairs import MirrorEvidence, Pairs, Sync
from reconciler.core.probes import LogRange, Search
from reconciler.core.scan import records_at
from reconciler.core.unanchored.pairs import Given, closest, copied_checkpoints, usable_syncs

NEAR = 10_000
"""Records behind the last sync of a mirror that was killed while it delivered fast, in any case."""
SHORTLY_MS = 30_000
"""The longest time from a record to its sync, if the mirror delivers records as they come; measured: 10 to 40 ms."""
PAUSE_MS = 5_000
"""The longest pause between two syncs of one delivery. A starting mirror takes longer to write its first."""
CLOSE = 1_000
"""Numbers between two syncs of one delivery: ``offset.lag.max`` is 100 by default."""
MOST_ASKED = 100
"""The newest checkpoints that may confirm a sync."""
LATEST = 3
"""The newest syncs whose records are looked at in any case, and the newest deliveries that send again."""
STRETCH = 3
"""Records that must be there again, none like another, where a delivery begins that sends again."""
NO_RECORDS: Mapping[int, Record] = {}


def own_syncs(evidence: MirrorEvidence, edges: LogRange) -> Search[tuple[MirrorEvidence, str]]:
    """The evidence without syncs that may be another mirror's, and why some are left out; empty if none is."""
    pairs, end = evidence.doubtful, edges.end
    if pairs is None:
        return evidence, ""
    reason, kept = contradiction(pairs, end), []
    if not reason:
        syncs = usable_syncs(pairs.syncs)
        dated = {sync.downstream for sync in (*syncs[-LATEST:], *evidence.below, *evidence.above)}
        places = dated.union(*(again.places() for again in _sent_again(syncs)))
        records = yield from records_at(places, edges.start, end)
        kept = confirmed(pairs, end, {place: records[place] for place in dated & records.keys()}, records)
        reason = "nothing here confirms that the mirror to this cluster wrote them"
    below, above = closest(evidence.offset, kept)
    if (below, above) == (evidence.below, evidence.above):
        return evidence, ""
    told = (
        f"MirrorMaker's offset syncs {'near it ' if below or above else ''}are left out, since they may be of a mirror "
        f"from here: {reason}. If only the mirror to this cluster writes them, name their topic: [mirror] "
        "offset_syncs_topic. If its Connect worker keeps positions in a topic here, name that: [mirror] offsets_topic"
    )
    return replace(evidence, below=below, above=above), told


def contradiction(pairs: Pairs, end: int) -> str:
    """What contradicts the syncs, for a log that ends at ``end``; empty if nothing does."""
    if not pairs.syncs:
        return ""
    last = pairs.syncs[-1]
    behind = end - 1 - last.downstream
    if behind < 0:
        return f"the sync {last} names a place behind the log's end"
    if pairs.delivered is not None and pairs.delivered - last.upstream > behind:
        return f"the mirror has delivered up to {pairs.delivered:,}, which does not follow from the sync {last}"
    timed = [each for each in pairs.checkpoints if each.written_ms is not None]
    given = Given(pairs.syncs)
    for checkpoint in sorted(timed, key=lambda each: -(each.written_ms or 0)):
        if (is_explained := given.explains(checkpoint)) is not None:  # the newest of which it can be said
            return "" if is_explained else f"the checkpoint {checkpoint} comes from none of them"
    step = max((late.downstream - early.downstream for early, late in pairwise(pairs.syncs)), default=0)
    if behind > max(NEAR, 2 * step) and not _reaches(last, pairs.delivered, end):
        return f"{behind:,} records follow the last sync {last}, and nothing else confirms it"
    return ""


def confirmed(
    pairs: Pairs, end: int, records: Mapping[int, Record], around: Mapping[int, Record] = NO_RECORDS
) -> list[Sync]:
    """Those syncs that something confirms; ``records`` are those at the places of some of them, ``around`` those at the
    places where deliveries begin that send again."""
    syncs = usable_syncs(pairs.syncs)
    if not syncs:
        return []
    given, copied = Given(pairs.syncs), copied_checkpoints(pairs.checkpoints, ())
    asked = [each for each in pairs.checkpoints[-MOST_ASKED:] if each not in copied]
    gave = {sync for each in asked for sync in given.exact_givers(each)}
    sure = {
        at
        for at, sync in enumerate(syncs)
        if sync in gave or _is_dated_shortly_before(sync, records.get(sync.downstream))
    }
    if _reaches(pairs.syncs[-1], pairs.delivered, end):
        sure.add(len(syncs) - 1)
    again = {each: each.is_there(around) for each in _sent_again(syncs)}
    if False not in again.values():
        sure.update(at for each, is_there in again.items() if is_there for at in (each.early, each.late))
    steps = range(len(syncs) - 1)
    for at in reversed(steps):
        if at + 1 in sure and (_is_one_line(syncs[at], syncs[at + 1]) or _is_one_delivery(syncs[at], syncs[at + 1])):
            sure.add(at)
    for at in steps:
        if at in sure and _is_one_delivery(syncs[at], syncs[at + 1]):
            sure.add(at + 1)
    return [syncs[at] for at in sorted(sure)]


def _reaches(last: Sync, delivered: int | None, end: int) -> bool:
    """Whether what Connect committed follows exactly from the last sync, in a log that ends at ``end`` (Q)."""
    return delivered is not None and delivered - last.upstream == end - 1 - last.downstream


def _is_dated_shortly_before(sync: Sync, record: Record | None) -> bool:
    if record is None or record.timestamp_ms is None or sync.written_ms is None:
        return False
    return 0 <= sync.written_ms - record.timestamp_ms <= SHORTLY_MS


@dataclass(frozen=True, slots=True)
class _SentAgain:
    """A delivery that sends again (A): the indexes of its first sync and of one in front, and the two places of the
    number with which it begins."""

    early: int
    late: int
    first: int
    again: int

    def places(self) -> set[int]:
        return {place + step for place in (self.first, self.again) for step in range(-1, STRETCH)}

    def is_there(self, records: Mapping[int, Record]) -> bool | None:
        """None where that cannot be told: records are gone, or equal one another."""
        pairs = [(records.get(self.first + step), records.get(self.again + step)) for step in range(STRETCH)]
        known = [(_content(one), _content(other)) for one, other in pairs if one is not None and other is not None]
        if any(one != other for one, other in known):
            return False
        in_front, before = records.get(self.first - 1), records.get(self.again - 1)
        if len(set(known)) < STRETCH or before is None or (self.first and in_front is None):
            return None
        return in_front is None or _content(in_front) != _content(before)


def _sent_again(syncs: Sequence[Sync]) -> list[_SentAgain]:
    """The newest deliveries that may send again; the syncs' places grow."""
    back = [at for at in range(1, len(syncs)) if syncs[at].upstream <= syncs[at - 1].upstream]
    begins = [syncs[at].downstream for at in back]

    def is_long(place: int) -> bool:
        following = bisect_right(begins, place)
        return following == len(begins) or begins[following] - place >= STRETCH

    found: list[_SentAgain] = []
    for late in back[-LATEST:]:
        sync = syncs[late]
        front = [at for at in range(late) if syncs[at].upstream <= sync.upstream]
        if not front:
            continue
        early = max(front, key=lambda at: (syncs[at].upstream, at))
        first = syncs[early].downstream + sync.upstream - syncs[early].upstream
        is_of_it = first < syncs[early + 1].downstream  # else the number is behind a gap
        if is_of_it and is_long(first) and is_long(sync.downstream):
            found.append(_SentAgain(early, late, first, sync.downstream))
    return found


def _content(record: Record) -> tuple[int | None, bytes | None, bytes | None]:
    return None if record.append_time else record.timestamp_ms, record.key, record.value


def _is_one_line(early: Sync, late: Sync) -> bool:
    return early.upstream - early.downstream == late.upstream - late.downstream


def _is_one_delivery(early: Sync, late: Sync) -> bool:
    step = late.downstream - early.downstream
    pause = (late.written_ms or 0) - (early.written_ms or 0)
    return 1 <= step <= late.upstream - early.upstream <= CLOSE and 0 <= pause <= PAUSE_MS
