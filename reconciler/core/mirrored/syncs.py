"""Which offset syncs are of the mirror to this cluster, and the new records between two syncs (``by_pairs``, B).

Another mirror may write to a topic of the same name.

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

from reconciler.core.anchors import Record, fingerprint, order_key
from reconciler.core.matching import Matcher
from reconciler.core.mirrored.pairs import Given, MirrorEvidence, Pairs, Sync, closest, copied_checkpoints, usable_syncs
from reconciler.core.probes import LogRange, Search, TimeLookup, as_lookup, ask_read
from reconciler.core.question import Question
from reconciler.core.scan import FIRST_READ, LARGEST_READ, advance, records_at
from reconciler.core.timebound import read_front

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
        kept = confirmed_syncs(pairs, end, {place: records[place] for place in dated & records.keys()}, records)
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
    """The contradiction between the syncs and a log that ends at ``end``, as a sentence; empty if there is none."""
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


def confirmed_syncs(
    pairs: Pairs, end: int, records: Mapping[int, Record], around: Mapping[int, Record] = NO_RECORDS
) -> list[Sync]:
    """The syncs that something confirms. ``records`` are at the places of some of them, ``around`` at the places where
    deliveries begin that send again."""
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
        """Whether the log shows this delivery. None if it cannot: records were deleted, or equal one another."""
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


@dataclass(frozen=True, slots=True)
class NewRecords:
    """``begin``: the record equal to the first sync's. ``records``: the new ones behind it. ``end``: the second's."""

    begin: int
    records: list[Record]
    end: int


def new_between(
    question: Question, edges: LogRange, first: Record, below: Matcher, above: Matcher, expected_end: int
) -> Search[NewRecords | None]:
    """The new records between the records of two syncs.

    ``first`` is the record at the first sync's place; ``below`` and ``above`` recognise it and the second
    sync's. None where the stretch is too long, or nothing there can be counted.
    """
    stamp = first.timestamp_ms
    if stamp is None or first.append_time:
        return None
    disorder = question.limits.max_disorder_ms
    answers = yield (TimeLookup(stamp), TimeLookup(max(0, stamp - disorder)))
    lower, safe = (edges.place_of(as_lookup(answer)) for answer in answers)
    # Whether the log reaches back past all possible copies: then a record that was not seen before is new.
    is_whole = edges.start == 0
    earliest, earliest_ms = min((lower, stamp), (safe, max(0, stamp - disorder)))
    in_front = yield from read_front(edges.start, earliest, earliest_ms, question.limits)
    if in_front.newer is not None:
        return None
    if not is_whole and question.identity.record_time:
        is_whole = in_front.last is not None and not in_front.last.append_time
    # A first copy that compaction removed left a gap, at the earliest right in front of the record at ``safe``.
    front = max(edges.start, (lower if question.compacted is False else min(safe, lower)) - 1)
    later = stamp + disorder if question.identity.record_time else None
    news = _News(below, question.limits.scan_records, stamp, later, is_whole=is_whole)
    end = yield from news.read(above, front, edges.end, expected_end)
    if end is None or (news.gap and (yield from question.may_be_compacted())):
        return None
    return NewRecords(news.began_at, news.found, end)


class _News:
    """Tells new records from others, in the order of the log; ``found`` are those behind the first sync's record."""

    def __init__(self, first: Matcher, budget: int, stamp: int, later: int | None, *, is_whole: bool) -> None:
        self.began = False
        self.began_at = 0
        self.gap = False
        self.expected = 0
        self.found: list[Record] = []
        self._first = first
        self._budget = budget
        self._highest: bytes | None = None
        self._stamp = stamp
        self._later = later
        self._is_whole = is_whole
        self._seen: set[tuple[int | None, str]] = set()

    def read(self, above: Matcher, front: int, log_end: int, expected_end: int) -> Search[int | None]:
        """Read from ``front`` to the copy of the second sync's record behind the first's; its offset, or None."""
        position, read, size = front, 0, max(FIRST_READ, min(expected_end + 1 - front, LARGEST_READ))
        self.expected = front
        while position < log_end and read < self._budget:
            chunk = yield from ask_read(position, min(size, self._budget - read))
            for record in chunk.records:
                if record.offset >= log_end:
                    return None
                if self.began and above.is_anchor(record):
                    self.step(record.offset)
                    return record.offset
                self.add(record)
            read += len(chunk.records)
            position = advance(chunk, position, log_end)
            size = min(size * 4, LARGEST_READ)
        return None

    def step(self, offset: int) -> None:
        self.gap = self.gap or offset > self.expected
        self.expected = offset + 1

    def add(self, record: Record) -> None:
        self.step(record.offset)
        mark = (record.timestamp_ms, fingerprint(record.key, record.value))
        if self.began:
            if self._is_new(record, mark):
                self.found.append(record)
        else:
            self.began, self.began_at = self._first.is_anchor(record), record.offset
        self._seen.add(mark)

    def _is_new(self, record: Record, mark: tuple[int | None, str]) -> bool:
        if self._first.by_order:
            return self._is_higher(record)
        time = record.timestamp_ms
        if time is None or record.append_time or mark in self._seen:
            return False
        return (self._later is not None and time > self._later) or (self._is_whole and time >= self._stamp)

    def _is_higher(self, record: Record) -> bool:
        name = self._first.id_of(record)
        if name is None or self._first.compare(record) != 1:
            return False
        if self._highest is not None and order_key(name) <= order_key(self._highest):
            return False
        self._highest = name
        return True
