"""Finding where a job continues by the mirror's own records, for a stored offset S without an anchor.

Theory of operation
-------------------
The source record x has its first copy at F(x). By the model of a mirror (``search``), nothing behind x in the source
is before F(x). So for a record that is known to be at or before S in the source, its first copy is a safe place: no
unprocessed record is before it. Every answer here is such a place, found by ``search`` with that record as the
anchor, and of several safe places the furthest is taken. A pair's place is never used itself: the record there is read
and becomes the anchor, since it may be a later copy.

S   A sync of S itself: the record at its place is the next one.
U   A sync u1 < S: the record at its place was processed; S - u1 - 1 offsets may follow it.
B   Between u1 and a sync u2 > S. Let d1 be a copy of u1 and d2 the next copy of u2 behind it. From d1 on the log is a
    mirrored one that begins at u1, so the first copies that follow d1 are in the source's order, and those before d2
    have numbers between u1 and u2. A record is *new* if it is proven to be such a first copy: it is after u1 in
    the source, and no record since d1 equals it. Counting back from d2, let w be the (u2 - S)th new record: u2 - S
    different offsets are in [w, u2), so w's own is at most S, and F(w) is a safe place. Records that are not new,
    copies sent again perhaps, do not count. The new records in front of w take numbers between u1 and w; if they take
    all that there are up to S, w is S itself.
    *Proven to be after u1*: its id is larger, where ids increase; or its time is later than u1's by more than the
    disorder; or its time t is not before u1's, and no record from L(t) on equals it, in a log where a first copy would
    still be there (the condition W of ``search``).
C   A checkpoint (u, d) with u <= S. Either the record at d is u, or the record at d - 1 is a sync's, before u. The
    earlier of the places that follow from both is safe. Its distance from S was not recorded. This
    holds since MirrorMaker 3.5: a checkpoint that may be the group's own number (``copied_checkpoints``), or that does
    not follow from the syncs that MirrorMaker knew, is left out.

T   A sync that goes back to a smaller number, not behind S, is of a record that was sent again: an earlier copy of it
    is here. If there is none, the source's topic was recreated, and S may be a number of either.

O   When a sync of a number was written, all records of smaller numbers existed. So a pair whose record is dated
    later, by more than the disorder, is of another topic of the source's name, and S may be a number of either.

Syncs that may be another mirror's (``syncs``) are left out.

A contradiction is not resolved: more new records between u1 and u2 than there are numbers. Then the pairs are of
different topics of one name, or others than the mirror wrote in between. Where other writers are possible, B is left
out. A number that may be in the destination's own numbering is safe at itself at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from reconciler.core.anchors import Anchor, Names, Record, StoredOffset
from reconciler.core.matching import Matcher
from reconciler.core.mirrored.pairs import MirrorCheckpoint, MirrorEvidence, Sync, is_dated_after
from reconciler.core.mirrored.syncs import new_between, own_syncs
from reconciler.core.probes import LogRange, Search, ask_edges
from reconciler.core.question import Question
from reconciler.core.scan import last_before, record_at, records_at
from reconciler.core.search import search
from reconciler.core.verdicts import Finding, Verdict


def find_by_mirror(question: Question, evidence: MirrorEvidence) -> Search[Finding | None]:
    """The place to resume at; None if the evidence proves none. Verdict ``exact`` where it is exact, else ``early``.

    ``unresolved`` if the evidence contradicts itself.
    """
    if not (evidence.below or evidence.above or evidence.checkpoints):
        return None
    edges = yield from ask_edges()
    evidence, foreign = yield from own_syncs(evidence, edges)
    if evidence.below or evidence.above:
        evidence = _without_too_far(evidence)
    found = yield from _find(_Case(question, evidence, edges))
    if not foreign or (found is not None and found.verdict is Verdict.EXACT):
        return found
    if found is None:
        return Finding(Verdict.UNRESOLVED, None, detail=foreign)
    return replace(found, detail=f"{found.detail}; {foreign}")


def _without_too_far(evidence: MirrorEvidence) -> MirrorEvidence:
    def kept(checkpoints: Sequence[MirrorCheckpoint]) -> tuple[MirrorCheckpoint, ...]:
        return tuple(each for each in checkpoints if each not in evidence.too_far)

    return replace(evidence, checkpoints=kept(evidence.checkpoints), returns=kept(evidence.returns))


def _find(case: _Case) -> Search[Finding | None]:
    question, evidence = case.question, case.evidence
    records = yield from _look(case)
    if (other := _denied(case, records)) is not None:
        return other
    if (turn := (yield from _of_another_topic(case, records))) is not None:
        return turn
    below = next((sync for sync in evidence.below if sync.may_name(records.get(sync.downstream))), None)
    at = next((sync for sync in evidence.above if sync.may_name(records.get(sync.downstream))), None)
    found: list[Finding] = []
    if at is not None and at.upstream == evidence.offset:
        found.append((yield from _at(case, at, records[at.downstream])))
    elif below is not None:
        found += yield from _after(case, below, records[below.downstream], at, records)
    if any(finding.verdict is Verdict.UNRESOLVED for finding in found):
        return found[-1]
    if not any(finding.verdict is Verdict.EXACT for finding in found):
        found += yield from _by_checkpoints(case, records, found)
    if not found:
        return None
    best = max(found, key=lambda finding: (finding.resume_offset or 0, finding.verdict is Verdict.EXACT))
    return (yield from _with_fingerprint((yield from not_beyond_own(question, best))))


@dataclass(frozen=True, slots=True)
class _Case:
    question: Question
    evidence: MirrorEvidence
    edges: LogRange

    def anchor(self, record: Record, offset: int, names: Names) -> Anchor:
        identity = self.question.identity
        anchor = replace(identity.anchor_of(record, cluster_id=None, topic_id=None), offset=offset, names=names)
        # A time that the broker set is that of this copy alone.
        return replace(anchor, timestamp_ms=identity.trusted_time_of(record))

    def search(self, record: Record, offset: int, names: Names, lag: int) -> Search[Finding]:
        """The search for the first copy of ``record``, as an anchor with the source's ``offset``."""
        anchor = self.anchor(record, offset, names)
        stored = StoredOffset(self.evidence.offset, anchor)
        question = replace(self.question, stored=stored, anchor_lag=lag, hints=())
        return search(question, anchor, candidate=record, may_step=False)

    def conclude(self, finding: Finding, detail: str, lag: int = 0, *, most: int | None = None) -> Finding:
        """The finding of a search with the evidence in its detail, and a bound that the log's end limits.

        It is exact unless there is a ``lag``, or evidence that only bounds it (``most``).
        """
        if not lag and finding.verdict is not Verdict.EXACT:  # the search landed before the record that it was to find
            detail += f"; {finding.detail}"
        assert finding.resume_offset is not None, "an anchor that names a record"
        follow = self.edges.end - finding.resume_offset
        at_most = min(finding.replay_at_most or 0 if most is None else most, follow)
        known = finding.replay_exact if finding.replay_exact == at_most else None
        return replace(
            finding,
            verdict=max(finding.verdict, Verdict.EARLY) if lag or most is not None else finding.verdict,
            replay_at_most=at_most,
            replay_exact=0 if at_most == 0 else known,
            detail=detail,
        )


def _look(case: _Case) -> Search[dict[int, Record]]:
    """The records at the pairs' places, and before those of checkpoints; by offset. Places outside of the log have
    none."""
    evidence, edges = case.evidence, case.edges
    places = {sync.downstream for sync in (*evidence.below, *evidence.above, *(turn for _, turn in evidence.turns))}
    places |= {
        place for each in (*evidence.checkpoints, *evidence.returns) for place in (each.downstream - 1, each.downstream)
    }
    return (yield from records_at(places, edges.start, edges.end))


def _denied(case: _Case, records: dict[int, Record]) -> Finding | None:
    """The finding where a pair's record is newer than a sync of a larger number; else None (O)."""
    evidence, disorder = case.evidence, case.question.limits.max_disorder_ms
    existed = evidence.existed
    if existed is None:
        return None

    def is_denied(place: int, upstream: int) -> bool:
        record = records.get(place)
        return record is not None and existed.denies(record, upstream, disorder)

    syncs = (*evidence.below, *evidence.above, *(turn for _, turn in evidence.turns))
    denied: list[Sync | MirrorCheckpoint] = [
        sync
        for sync in syncs
        if sync.may_name(records.get(sync.downstream)) and is_denied(sync.downstream, sync.upstream)
    ]
    for each in (*evidence.checkpoints, *evidence.returns):  # one of both records is not behind the group's offset
        here, before = records.get(each.downstream), records.get(each.downstream - 1)
        is_stale = before is not None and is_dated_after(before, each.written_ms)
        by_here = here is None or is_denied(each.downstream, each.upstream)
        by_before = each.upstream == 0 or is_denied(each.downstream - 1, each.upstream)
        if not is_stale and by_here and by_before and (here is not None or before is not None):
            denied.append(each)
    if not denied:
        return None
    detail = (
        f"MirrorMaker's pair {denied[0]} names a record that is newer than a sync of a larger number: the source's "
        "topic was recreated or cut, so the stored number may be of either"
    )
    return Finding(Verdict.UNRESOLVED, None, detail=detail)


def _of_another_topic(case: _Case, records: dict[int, Record]) -> Search[Finding | None]:
    """The finding where a sync goes back to a number whose record was never here before; else None (T)."""
    question = case.question
    turns = [(before, turn) for before, turn in case.evidence.turns if turn.may_name(records.get(turn.downstream))]
    turns = [(before, turn) for before, turn in turns if before.downstream >= case.edges.start]
    if not turns or (yield from question.may_be_compacted()):
        return None
    for before, turn in turns:
        found = yield from case.search(records[turn.downstream], turn.upstream, Names.NEXT, 0)
        if found.verdict is Verdict.EXACT and found.resume_offset == turn.downstream:
            detail = (
                f"MirrorMaker's sync {turn} follows {before}, and its record was never here before: the source's topic "
                "was recreated, so the stored number may be of either"
            )
            return Finding(Verdict.UNRESOLVED, None, detail=detail)
    return None


# ---------------------------------------------------------------- S, U and B


def _at(case: _Case, sync: Sync, record: Record) -> Search[Finding]:
    finding = yield from case.search(record, sync.upstream, Names.NEXT, 0)
    detail = f"MirrorMaker's sync {sync} is of the stored offset itself"
    return case.conclude(finding, detail)


def _after(
    case: _Case, below: Sync, record: Record, above: Sync | None, records: dict[int, Record]
) -> Search[list[Finding]]:
    lag = case.evidence.offset - below.upstream - 1
    finding = yield from case.search(record, below.upstream, Names.LAST, lag)
    distance = "right before" if not lag else f"{lag + 1:,} offsets before"
    detail = f"MirrorMaker's sync {below}, {distance} the stored offset"
    found = [case.conclude(finding, detail, lag)]
    if lag and above is not None and not case.evidence.local_writers:
        counted = None
        for sync in (each for each in case.evidence.below if each.may_name(records.get(each.downstream))):
            below = sync
            counted = yield from _count(case, below, above, records[below.downstream], records[above.downstream])
            if counted is not None:
                break
        if counted is None:
            return found
        if counted.new > above.upstream - below.upstream - 1:
            detail = (
                f"MirrorMaker's syncs {below} and {above} contradict the log: more records lie between them than "
                "there are numbers, so the topic was recreated, or other programs write to it"
            )
            return [Finding(Verdict.UNRESOLVED, None, detail=detail)]
        if counted.record is not None:
            finding = yield from case.search(counted.record, case.evidence.offset, Names.NEXT, counted.lag)
            detail = f"counted back from MirrorMaker's sync {above}, with {below} before the stored offset"
            found.append(case.conclude(finding, detail, counted.lag))
    return found


@dataclass(frozen=True, slots=True)
class _Counted:
    """``record`` is w of the argument B, None if there are too few new records; ``lag`` numbers lie between w and S."""

    new: int
    record: Record | None
    lag: int


def _count(case: _Case, below: Sync, above: Sync, first: Record, last: Record) -> Search[_Counted | None]:
    """Count the new records between two syncs back from the second; None where they cannot be counted.

    A record equal to the first sync's, but before its place, may be a twin. Nothing is counted from it.
    """

    def matcher(record: Record) -> Matcher:
        return Matcher(case.anchor(record, 0, Names.LAST), case.question.identity)

    equal = matcher(first)
    read = yield from new_between(case.question, case.edges, first, equal, matcher(last), above.downstream)
    if read is None:
        return None
    new, end = read.records, read.end
    if read.begin != below.downstream and not equal.by_order:
        return None
    back = above.upstream - case.evidence.offset
    if len(new) < back:
        return _Counted(len(new), None, 0)
    record = new[len(new) - back]
    lag = case.evidence.offset - below.upstream - 1 - (len(new) - back)
    if end == above.downstream:  # else it may be a twin of the second sync's record, and S may be after it
        lag = min(lag, end - record.offset)
    return _Counted(len(new), record, lag)


# ---------------------------------------------------------------- C


def _by_checkpoints(case: _Case, records: dict[int, Record], found: Sequence[Finding]) -> Search[list[Finding]]:
    """Findings by checkpoints that may lead further than what was found."""
    reached = max((finding.resume_offset or 0 for finding in found), default=-1)
    limit = min((finding.replay_at_most or 0 for finding in found), default=None)
    better: list[Finding] = []
    for checkpoint in case.evidence.checkpoints:
        if checkpoint.downstream > reached:
            finding = yield from _by_checkpoint(case, checkpoint, records, limit)
            better += [finding] if finding is not None else []
    return better


def _by_checkpoint(
    case: _Case, checkpoint: MirrorCheckpoint, records: dict[int, Record], limit: int | None
) -> Search[Finding | None]:
    place, edges = checkpoint.downstream, case.edges
    here, before = records.get(place), records.get(place - 1)
    oldest = before or here  # it was surely there when the checkpoint was written
    if oldest is None or place > edges.end or is_dated_after(oldest, checkpoint.written_ms):
        return None
    inside = (here is None and place < edges.end) or (before is None and place > edges.start)
    if inside and (yield from case.question.may_be_compacted()):
        return None
    found: list[Finding] = []
    if here is not None:
        found.append((yield from case.search(here, checkpoint.upstream, Names.NEXT, 0)))
    if before is not None:
        found.append((yield from case.search(before, checkpoint.upstream, Names.LAST, 0)))
    finding = earliest(found)
    assert finding.resume_offset is not None
    most = edges.end - finding.resume_offset
    distance = case.evidence.offset - checkpoint.upstream
    offsets = "offset" if distance == 1 else "offsets"
    where = f"{distance:,} {offsets} before the stored one" if distance else "the stored offset itself"
    detail = f"{checkpoint.description}, {where}"
    return case.conclude(finding, detail, most=most if limit is None else min(limit, most))


def earliest(found: Sequence[Finding]) -> Finding:
    """The finding that is safe if only one of several is."""
    return min(found, key=lambda each: each.resume_offset or 0)


# ---------------------------------------------------------------- numbers that may be the destination's


def not_beyond_own(question: Question, finding: Finding) -> Search[Finding]:
    """Where the stored number may be the destination's own, nothing behind it is safe."""
    stored, resume = question.mirror.own if question.mirror else None, finding.resume_offset
    if stored is None or resume is None or resume == stored:
        return finding
    edges = yield from ask_edges()
    if stored > edges.end:
        return finding
    at_most, verdict = finding.replay_at_most or 0, max(finding.verdict, Verdict.EARLY)
    detail = f"{finding.detail}; the number may be the job's own of this topic already"
    if resume < stored:
        most = min(edges.end - resume, at_most + stored - resume)
        return replace(finding, verdict=verdict, replay_at_most=most, replay_exact=None, detail=detail)
    place = max(stored, edges.start)
    previous = yield from last_before(place, edges.start)
    most = min(edges.end - place, at_most + resume - place)
    moved = replace(
        finding,
        verdict=verdict,
        resume_offset=place,
        replay_at_most=most,
        replay_exact=None,
        record_offset=None,
        detail=detail,
    )
    return moved.resting_on(previous)


def _with_fingerprint(finding: Finding) -> Search[Finding]:
    """The finding with what is before it: no stored anchor tells that later."""
    if finding.record_offset is None or finding.record_fingerprint is not None:
        return finding
    record = yield from record_at(finding.record_offset)
    return finding if record is None else finding.resting_on(record)
