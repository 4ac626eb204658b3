"""Finding where a job continues by the source's offsets that the mirrored records carry themselves.

Theory of operation
-------------------
The job stored S, so it has processed the records with numbers below S. Let r be any record that carries a number below
S: it was processed, so its first copy is a safe place (``by_pairs``). From there on the numbers decide:

- a record below S was processed, and may be passed;
- a record from S on that comes again further behind may be passed (``resent``): numbers increase along the source, so
  they are increasing ids.

A candidate for r comes from bisection, which proves nothing: ``search`` finds its first copy. Where a mirror sent a
stretch again the candidate may be far in front of S, and the place still moves to S, record by record.

T   Where the numbers go back, the mirror sent again, and an earlier copy is here; or the source's topic was recreated,
    and S may be a number of either. As with syncs (``by_pairs``), the record there is looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.core.anchors import Anchor, Identity, IdOrder, Names, Record, StoredOffset
from reconciler.core.bounds import bisect
from reconciler.core.matching import Matcher, Processed
from reconciler.core.mirrored.carried_numbers import reader_of, turns_before
from reconciler.core.mirrored.pairs import MOST_TURNS
from reconciler.core.probes import LogRange, Read, Search, as_chunk, ask_edges
from reconciler.core.question import Question
from reconciler.core.resent import Around, Stepped, step_over
from reconciler.core.scan import FIRST_READ, LARGEST_READ, last_before, read_once, record_at
from reconciler.core.search import search
from reconciler.core.verdicts import Finding, Verdict


def find_by_carried(question: Question, stored: int) -> Search[Finding | str]:
    """The place to resume at for the source's offset ``stored``; or why the records do not show it, as a sentence
    without its full stop."""
    edges = yield from ask_edges()
    if edges.start == edges.end:
        if edges.start:
            return Finding(Verdict.LOST, edges.start, 0, 0, detail="every record of the destination has been deleted")
        return Finding(Verdict.BEHIND, 0, 0, 0, detail="the destination partition is empty: nothing was delivered yet")
    read = yield from _read_numbers(question, edges, edges.start, edges.end - FIRST_READ)
    if isinstance(read, str):
        return read
    found = yield from _find(read, stored, edges)
    return found or f"no record near the place has {question.identity.source_value_name}"


def _read_numbers(question: Question, edges: LogRange, *places: int) -> Search[Question | str]:
    """The question with a reader of the numbers, told by the records that follow these places; see ``reader_of``."""
    answers = yield tuple(Read(max(edges.start, place), FIRST_READ) for place in places)
    records = {record.offset: record for answer in answers for record in as_chunk(answer).records}
    reader = reader_of(question.identity, [records[offset] for offset in sorted(records)])
    return (
        reader
        if isinstance(reader, str)
        else replace(question, identity=replace(question.identity, source_offset_of=reader))
    )


def _find(question: Question, stored: int, edges: LogRange) -> Search[Finding | None]:
    number_of = question.identity.source_offset_of
    assert number_of is not None, "asked only where records carry numbers"

    def compare(record: Record) -> int | None:
        number = number_of(record)
        return None if number is None else 1 if number >= stored else -1

    boundary = yield from bisect(compare, edges.start, edges.end)
    below = yield from last_before(boundary, edges.start)
    if below is None:
        return (yield from _from_the_start(question, stored, edges))
    if compare(below) != -1:  # no number, such as a local writer's
        near, _ = yield from read_once(max(edges.start, below.offset - FIRST_READ), FIRST_READ, below.offset)
        below = next((record for record in reversed(near) if compare(record) == -1), None)
    if below is None:
        return None
    found = yield from _first_copy(question, below, IdOrder.INCREASING)
    if found.resume_offset is None:
        return found
    if found.verdict is Verdict.LOST:  # its bound takes the record that was found for unprocessed
        return replace(found, replay_at_most=edges.end - found.resume_offset, replay_exact=None)
    return (yield from _judged(question, stored, edges, found))


def _numbered(identity: Identity, order: IdOrder) -> Identity:
    """The identity with the carried number as id."""
    number_of = identity.source_offset_of

    def id_of(record: Record) -> bytes | None:
        number = None if number_of is None else number_of(record)
        return None if number is None else b"%d" % number

    return Identity(identity.timestamp_of, id_of, order, identity.record_time)


def _first_copy(question: Question, record: Record, order: IdOrder) -> Search[Finding]:
    """The search for the first copy of ``record``: by its number alone, or by content, too, if that is opaque."""
    identity = _numbered(question.identity, order)
    anchor = replace(identity.anchor_of(record, cluster_id=None, topic_id=None), names=Names.NEXT)
    anchor = replace(anchor, timestamp_ms=identity.trusted_time_of(record))
    asked = replace(question, stored=StoredOffset(record.offset, anchor), identity=identity, anchor_lag=0, hints=())
    return search(asked, anchor, candidate=record, may_step=False)


def _from_the_start(question: Question, stored: int, edges: LogRange) -> Search[Finding | None]:
    """No record in front of the first that carries a number from the stored one on: resume at the log's start."""
    number_of = question.identity.source_offset_of
    records, _ = yield from read_once(edges.start, 1, edges.end)
    number = number_of(records[0]) if records and number_of is not None else None
    if number is None:
        return None
    tail = yield from _tail(question, stored, edges.start, edges.end)
    if number == stored:
        verdict = Verdict.EXACT
        detail = f"the first record here carries the source's offset {stored:,}, where the job stopped"
    else:
        verdict = Verdict.LOST
        detail = (
            f"the oldest record here carries the source's offset {number:,}, and the job stopped at {stored:,}: "
            "records between them may be gone"
        )
    return Finding(
        verdict=verdict,
        resume_offset=edges.start,
        replay_at_most=tail.at_most,
        replay_exact=tail.exact,
        matched_by=None,
        record_offset=None,
        detail=detail,
    )


@dataclass(frozen=True, slots=True)
class _Tail:
    """The records from a place on. ``begin`` follows the processed records, of which ``last`` is the last."""

    begin: int
    last: Record | None
    at_most: int
    exact: int | None
    first: int | None
    """The number at ``begin``, None if no record with one follows."""
    complete: bool
    sent_again: int | None
    """The last processed record behind ``begin``."""
    turns: tuple[Record, ...]
    """Records whose numbers are not above all before them."""


def _tail(question: Question, stored: int, place: int, end: int) -> Search[_Tail]:
    number_of = question.identity.source_offset_of
    assert number_of is not None, "asked only where records carry numbers"
    begin, last, first, sent_again, previous = place, None, None, None, -1
    position, read, done, unknown = place, 0, 0, 0
    stepping = True
    turns: list[Record] = []
    while position < end and read < question.limits.tail_records:
        size = min(max(FIRST_READ, read), question.limits.tail_records - read, LARGEST_READ)
        records, position = yield from read_once(position, size, end)
        read += len(records)
        for record in records:
            number = number_of(record)
            if number is not None:
                turns += [record] if number <= previous else []
                previous = number
            stepping = stepping and number is not None and number < stored
            if stepping:
                begin, last = record.offset + 1, record
                continue
            first = number if first is None else first
            if number is not None and number < stored:
                done, sent_again = done + 1, record.offset
            unknown += number is None
    unread = end - position
    at_most = done + unknown + unread
    exact = at_most if at_most == done else None
    return _Tail(
        begin=begin,
        last=last,
        at_most=at_most,
        exact=exact,
        first=first,
        complete=unread == 0,
        sent_again=sent_again,
        turns=tuple(turns),
    )


def _judged(question: Question, stored: int, edges: LogRange, found: Finding) -> Search[Finding]:
    """The finding from a safe place on, by the numbers that follow there."""
    number_of = question.identity.source_offset_of
    assert found.resume_offset is not None, "asked only with a place"
    assert number_of is not None, "asked only where records carry numbers"
    tail = yield from _tail(question, stored, found.resume_offset, edges.end)
    upto = min(found.resume_offset + 1, edges.end)
    in_front = yield from turns_before(number_of, edges.start, upto)
    for turns in (tail.turns, in_front):
        if (turn := (yield from _of_another_topic(question, turns))) is not None:
            return turn
    stepped = yield from _step_over(question, stored, edges, found.resume_offset, tail)
    if stepped is not None:
        tail = yield from _tail(question, stored, stepped.place + 1, edges.end)
    verdict, place, before = found.verdict, tail.begin, tail.last
    if before is None:
        before = yield from last_before(place, edges.start)
    last = None if before is None else number_of(before)
    if tail.first is not None:
        detail = f"the next record carries the source's offset {tail.first:,}, and the job stopped at {stored:,}"
    elif last == stored - 1:
        detail = f"the record before carries the source's offset {last:,}, and the job stopped at {stored:,}"
    elif tail.complete and place == edges.end:
        verdict = max(verdict, Verdict.BEHIND)
        detail = f"no record here carries the source's offset {stored:,}, where the job stopped, or a later one"
    else:
        detail = f"records here carry the source's offsets, and the job stopped at {stored:,}"
    if found.verdict is Verdict.EARLY and verdict is Verdict.EARLY:
        detail += f"; {found.detail}"
    judged = replace(
        found,
        verdict=verdict,
        resume_offset=place,
        replay_at_most=tail.at_most,
        replay_exact=tail.exact,
        record_offset=None,
        detail=detail,
    )
    return (judged if stepped is None else stepped.note_in(judged)).resting_on(before)


def _of_another_topic(question: Question, turns: Sequence[Record]) -> Search[Finding | None]:
    """``unresolved`` where numbers go back to one whose record was never here before; else None (T)."""
    number_of = question.identity.source_offset_of
    if not turns or number_of is None or (yield from question.may_be_compacted()):
        return None
    for record in sorted(turns, key=lambda each: (number_of(each) or 0, -each.offset))[:MOST_TURNS]:
        found = yield from _first_copy(question, record, IdOrder.OPAQUE)
        if found.verdict is Verdict.EXACT and found.resume_offset == record.offset:
            detail = (
                f"the source's offsets that records carry go back to {number_of(record):,} at {record.offset:,}, and "
                "that record was never here before: the source's topic was recreated, so the stored number may be of "
                "either"
            )
            return Finding(Verdict.UNRESOLVED, None, detail=detail)
    return None


def _step_over(question: Question, stored: int, edges: LogRange, front: int, tail: _Tail) -> Search[Stepped | None]:
    if tail.sent_again is None or stored == 0:
        return None
    identity = _numbered(question.identity, IdOrder.INCREASING)
    matcher = Matcher(Anchor(id=b"%d" % (stored - 1)), identity)
    processed = Processed(matcher, identity, 0, anchor_is_done=True)
    around = Around(edges.start, front, tail.begin, tail.sent_again, edges.end, question.limits.scan_records)
    return (yield from step_over(processed, around))


def contradiction(question: Question, anchor: Anchor, found: Finding) -> Search[Finding | None]:
    """``unresolved`` if the record that was found as the anchor's carries another number than the anchor's offset."""
    offset = found.record_offset
    if question.identity.source_value_of is None or offset is None:
        return None
    if anchor.offset is None or anchor.names is not Names.LAST:
        return None
    edges = yield from ask_edges()
    read = yield from _read_numbers(question, edges, offset - FIRST_READ // 2)
    number_of = None if isinstance(read, str) else read.identity.source_offset_of
    record = yield from record_at(offset)
    number = None if record is None or number_of is None else number_of(record)
    if record is None or number is None or number == anchor.offset:
        return None
    if not Matcher(anchor, question.identity).is_anchor(record):
        return None
    detail = (
        f"the record at {offset} is the anchor's by its content, and carries the source's offset {number:,} instead of "
        f"{anchor.offset:,}: check [jobs.identity] source_offset"
    )
    return Finding(Verdict.UNRESOLVED, None, detail=detail)
