"""The search of one partition, from its question to its finding.

Most starts only verify that the anchor is at its own offset: the searches for other cases are imported when needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reconciler.core.anchors import Anchor, Names, StoredOffset, real_topic_id
from reconciler.core.errors import NotRead
from reconciler.core.matching import Matcher, without_no_time
from reconciler.core.probes import LogRange, Search, ask_edges, ask_lookup
from reconciler.core.question import CLOCKS_MS, KAFKA_BEGAN_MS, Question, StartPlace
from reconciler.core.scan import count_records, last_before, record_at
from reconciler.core.verdicts import Finding, MatchedBy, Skips, Verdict

NO_OFFSET = "no stored offset"
"""How the detail of a new partition begins."""
NO_PAIR = "the anchor's record is at or after the stored offset: the pair does not belong together"


def unresolved_if_unread(search: Callable[..., Search[Finding]], *given: Any) -> Search[Finding]:
    """A search whose partition is unresolved if its records cannot be read."""
    try:
        return (yield from search(*given))
    except NotRead as error:
        return Finding(Verdict.UNRESOLVED, None, detail=str(error).rstrip("."))


def reconcile(question: Question) -> Search[Finding]:
    """One partition's finding; see ``_reconcile``."""
    return (yield from unresolved_if_unread(_reconcile, _without_no_time(question)))


def _without_no_time(question: Question) -> Question:
    stored = question.stored
    if stored is None or stored.anchor is None:
        return question
    anchor = without_no_time(stored.anchor, question.identity)
    return question if anchor is stored.anchor else replace(question, stored=replace(stored, anchor=anchor))


def _reconcile(question: Question) -> Search[Finding]:
    """Choose the method by what is stored: nothing, no anchor, an anchor of this log, or one of another log."""
    stored = question.stored
    if stored is None or stored.is_sentinel:
        return (yield from _start_new(question))
    if stored.anchor is None:
        return (yield from _without_anchor(question, stored))
    if stored.anchor.numbered_by(question.cluster_id, question.topic_id):
        return (yield from verify_own(question, stored, stored.anchor))
    if question.anchor_lag < 0:
        return Finding(Verdict.UNRESOLVED, None, detail=NO_PAIR)
    if stored.anchor.cluster_id == question.cluster_id:  # and another topic id
        why = "the topic has another id than the anchor's (recreated since, or two clusters report one cluster id); "
        return (yield from _search(question, stored.anchor, why))
    from reconciler.core.mirrored.carried import contradiction

    found = yield from _search(question, stored.anchor)
    return (yield from contradiction(question, stored.anchor, found)) or found


def _search(question: Question, anchor: Anchor, why: str | None = None) -> Search[Finding]:
    """As ``search``; with a reason ``why`` the anchor is not at its own offset in this very log."""
    from reconciler.core.search import search

    if why is None:
        return (yield from search(question, anchor))
    found = yield from search(question, anchor, why, mirrored=False)
    if question.anchor_lag <= 0 or found.resume_offset is None:
        return found
    # The job may have stored its offset since: then that and the anchor's offset are of two logs, and have no distance.
    edges = yield from ask_edges()
    rest = edges.end - found.resume_offset
    if rest <= (found.replay_at_most or 0):
        return found
    detail = f"{found.detail}; if the job has read this log since, up to {rest} records repeat"
    return replace(found, replay_at_most=rest, replay_exact=None, detail=detail)


def _start_new(question: Question) -> Search[Finding]:
    edges = yield from ask_edges()
    start, end = edges.start, edges.end

    def found(offset: int, word: str) -> Finding:
        most = max(0, end - offset) if question.no_rows else 0  # the log may have grown since its end was asked
        detail = f"{NO_OFFSET}: starts at {word}"
        return Finding(Verdict.NEW, offset, most, None if most else 0, detail=detail)

    if question.new.place is StartPlace.EARLIEST:
        return found(start, "the earliest record")
    offset, word = end, "the end"
    if question.new.timestamp_ms is not None:
        lookup = yield from ask_lookup(question.new.timestamp_ms)
        offset = end if lookup is None else max(lookup, start)
        word = "the first record of the policy's time"
        if (yield from _is_wrong(question, start, min(offset, end), question.new.timestamp_ms)):
            offset, word = start, "the earliest record, since the broker's lookup of the policy's time is wrong"
    word += yield from _skipped_by_policy(question, start, offset)
    previous = yield from last_before(offset, start)
    return found(offset, word).resting_on(previous)


def _skipped_by_policy(question: Question, start: int, offset: int) -> Search[str]:
    """The records that a policy other than ``earliest`` leaves unread, as the end of a detail.

    It is counted where the store has no row at all: there a person decides whether the job is new.
    """
    if not question.no_rows:
        return ": records there now are skipped, as the policy says" if question.new.timestamp_ms is None else ""
    count, unread = yield from count_records(start, offset, question.limits.tail_records)
    if not count + unread:
        return ""
    most = "at most " if unread else ""
    return f": {most}{count + unread:,} {'record' if count + unread == 1 else 'records'} before it skipped, by policy"


def _without_anchor(question: Question, stored: StoredOffset) -> Search[Finding]:
    from reconciler.core.mirrored.by_pairs import find_by_mirror, not_beyond_own
    from reconciler.core.mirrored.carried import find_by_carried
    from reconciler.core.timebound import TimeEvidence, judge_by_time, resume_by_time

    evidence, nothing, carried = question.mirror, "", ""
    at_start = stored.is_bare_zero and (evidence is None or evidence.offset == 0)  # else the mirror put it there
    if evidence is not None and evidence.is_of_source and question.identity.source_value_of is not None:
        by_number = yield from find_by_carried(question, evidence.offset)
        if isinstance(by_number, Finding) and (by_number.verdict is Verdict.LOST or not at_start):
            found = yield from judge_by_row_age(question, by_number)
            return (yield from not_beyond_own(question, found))
        carried = f"; {by_number}"
    if at_start:
        return (yield from _nothing_processed())
    if evidence is not None:
        by_mirror = yield from find_by_mirror(question, evidence)
        if by_mirror is not None:
            found = yield from judge_by_row_age(question, by_mirror)
            if found.verdict is Verdict.EXACT:
                return found
            if found.resume_offset is not None or not question.by_row_time:
                return replace(found, detail=found.detail + carried)
        nothing = f"{carried}; {evidence.note or 'MirrorMaker recorded nothing that proves its place'}"
    if not question.by_row_time:
        hint = "" if evidence is not None else ' (policy: no_anchor = "row-time" uses the row\'s time)'
        detail = f"stored without an anchor, so nothing can be checked{hint}{nothing}"
        return Finding(Verdict.UNRESOLVED, None, detail=detail)
    if stored.written_at_ms is None:
        detail = f"stored without an anchor, and the row's own time is not known{nothing}"
        return Finding(Verdict.UNRESOLVED, None, detail=detail)
    time = stored.written_at_ms
    judge = judge_by_time(question, time, time)
    why = "no anchor: by the time the row was written, which is right if the job lagged less than max_disorder; "
    known = TimeEvidence(absent=True, times_are_sure=False, why=why)
    return replace((yield from resume_by_time(question, time, judge, known)), by_row_time=True)


def _nothing_processed() -> Search[Finding]:
    """The finding for offset 0: nothing is in front of it, in either numbering, so the log's start is right."""
    edges = yield from ask_edges()
    if edges.start:
        detail = f"the job has processed nothing, and retention has deleted the records before {edges.start:,}"
        return Finding(Verdict.LOST, edges.start, 0, 0, detail=detail)
    return Finding(Verdict.EXACT, 0, 0, 0, detail="nothing is in front of offset 0, so the job has processed nothing")


def verify_own(question: Question, stored: StoredOffset, anchor: Anchor) -> Search[Finding]:
    """Verify an anchor that is numbered by this very topic.

    If retention or compaction removed its record, the numbering still holds. If another record is in its place (a
    truncated log, a restored backup), it does not, and the search decides. It does not decide for an offset that was
    set back while its anchor stayed: in another log, the anchor's record may be beyond what the job is to read.
    """
    edges = yield from ask_edges()
    start, end = edges.start, edges.end
    again = max(0, -question.anchor_lag)
    if stored.offset < start:
        detail = "retention has deleted unprocessed records: the stored offset is before the oldest record"
        left = max(0, stored.offset + again - start)
        return Finding(Verdict.LOST, start, left, None if left else 0, detail=detail)

    def match(detail: str, by: MatchedBy | None = None, record_offset: int | None = None) -> Search[Finding]:
        if again:
            detail += "; the stored offset was set back to before it, so the records between come again"
        copies, further = 0, max(question.beyond, again)
        if further:
            from reconciler.core.resent import count_copies  # nearly every start is at the furthest number

            until = min(stored.offset + further, end)
            copies = yield from count_copies(stored.offset, until, end, question.limits.tail_records)
        return Finding(
            verdict=Verdict.EXACT,
            resume_offset=stored.offset,
            replay_at_most=again + copies,
            replay_exact=None if again or copies else 0,
            matched_by=by,
            record_offset=record_offset,
            detail=detail,
        )

    def moved(why: str) -> Search[Finding]:
        if question.anchor_lag < 0:
            return Finding(Verdict.UNRESOLVED, None, detail=f"{why}{NO_PAIR}")
        return (yield from _search(question, anchor, why))

    if stored.offset > end:
        return (yield from moved(f"the log ends at {end}, before the stored offset: it was cut or replaced; "))
    if anchor.offset is None or anchor.is_bare or anchor.names is Names.MAX_TIME or anchor.offset < start:
        return (yield from match("the numbering is this topic's own; no record is left to compare"))
    if anchor.offset >= end:
        return (yield from moved(f"the log ends at {end}, before the anchor: it was cut; "))
    record = yield from record_at(anchor.offset)
    matcher = Matcher(anchor, question.identity)
    if record is not None:
        if matcher.is_anchor(record):
            checked = anchor.offset if anchor.offset < stored.offset else None
            return (yield from match("the anchor is at its own offset", matcher.matched_by, checked))
        return (yield from moved(f"another record is at the anchor's offset {anchor.offset}; "))
    may_be_compacted = yield from question.may_be_compacted()
    if may_be_compacted and real_topic_id(anchor.topic_id) is not None and anchor.topic_id == question.topic_id:
        return (yield from match("the numbering is this topic's own; the anchor's record was compacted away"))
    return (yield from moved(f"no record is at the anchor's offset {anchor.offset}; "))


def place(question: Question, offset: int, found: Finding) -> Search[Finding]:
    """Check a person's offset against the log: find the record before it, and count the records that follow.

    ``found`` is the partition's own finding: records from there to the offset are skipped. The verdict is
    ``unresolved`` if the offset is outside the log; otherwise the caller sets the verdict.
    """
    edges = yield from ask_edges()
    start, end = edges.start, edges.end
    if not start <= offset <= end:
        return Finding(Verdict.UNRESOLVED, None, detail=f"offset {offset} is outside the log [{start}, {end}]")
    return (yield from _placed(question, offset, found, edges, f"set by hand to {offset}"))


def place_at_time(question: Question, timestamp_ms: int, when: str, found: Finding) -> Search[Finding]:
    """As ``place``, at the first offset of a person's time or later (``when`` in words); else at the log's end."""
    edges = yield from ask_edges()
    lookup = yield from ask_lookup(timestamp_ms)
    if (yield from _is_wrong(question, edges.start, edges.place_of(lookup), timestamp_ms)):
        return Finding(
            Verdict.UNRESOLVED, None, detail=f"the broker's lookup of {when} is wrong: an earlier record is as new"
        )
    if lookup is None:
        word = f"set by hand to the end, {edges.end}: no record is of {when} or later"
        return (yield from _placed(question, edges.end, found, edges, word))
    offset = edges.place_of(lookup)
    word = f"set by hand to {offset}, the first offset of {when} or later"
    return (yield from _placed(question, offset, found, edges, word))


def _is_wrong(question: Question, start: int, answer: int, asked_ms: int) -> Search[bool]:
    """Whether the records in front of a time lookup's answer contradict it."""
    from reconciler.core.timebound import read_front

    return (yield from read_front(start, answer, max(0, asked_ms), question.limits)).newer is not None


def _placed(question: Question, offset: int, found: Finding, edges: LogRange, word: str) -> Search[Finding]:
    previous = yield from last_before(offset, edges.start)
    skips = yield from _skips(question, offset, found, edges.start)
    return Finding(Verdict.NEW, offset, edges.end - offset, detail=word, skips=skips).resting_on(previous)


def _skips(question: Question, offset: int, found: Finding, start: int) -> Search[Skips | None]:
    """How many records lie between what was found and a person's offset; None if there are none."""
    proven = found.resume_offset
    begin = start if proven is None else max(proven, start)
    if offset <= begin:
        return None
    count, unread = yield from count_records(begin, offset, question.limits.tail_records)
    if not count + unread:
        return None  # nothing but transaction markers, or offsets that compaction emptied
    surely = 0 if proven is None else max(0, count - (found.replay_at_most or 0))
    return Skips(surely, count + unread)


def judge_by_row_age(question: Question, finding: Finding) -> Search[Finding]:
    """The finding; ``unresolved`` where the record in front of its place is newer than the row.

    A place found by a number alone has only processed records in front of it, so they existed when the number was
    stored. A newer record contradicts that: the number is of another topic of the source's name, one that was recreated
    since, or the pairs are of another mirror.

    The finding does not change where other writers write among the mirrored records, or where the broker dates them.
    """
    stored, at = question.stored, finding.record_offset
    written = stored.written_at_ms if stored is not None else None
    if written is None or at is None or finding.resume_offset is None:
        return finding
    if question.mirror is not None and question.mirror.local_writers:
        return finding
    record = yield from record_at(at)
    if record is None or record.timestamp_ms is None or record.append_time:
        return finding
    covered = max(written, stored.covers_until_ms or written) if stored is not None else written
    if record.timestamp_ms <= covered + CLOCKS_MS + question.limits.max_disorder_ms:
        return finding
    if written < KAFKA_BEGAN_MS <= record.timestamp_ms:
        return finding
    late = (record.timestamp_ms - written) // 1000
    detail = (
        f"record {at:,}, in front of the place, was made {late:,} s after the number was stored, so the source's topic "
        f"may have been recreated since ({finding.detail})"
    )
    return Finding(Verdict.UNRESOLVED, None, detail=detail)
