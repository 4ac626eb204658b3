"""The passes of a check over the destination, each one engine run over all jobs and topics.

First every partition is searched by its own anchor. Then come topics whose partitions do not correspond: each doubtful
anchor in the partitions of other numbers, and all their partitions by time. Last are the offsets that the operator set.
Every pass goes through ``Passes.ask``, so it runs on the caller's engine and its probes are counted.

MirrorMaker 2 keeps partitions. Another mirror, or a topic that was recreated with another count, may not. Then any
record of the source can be in any partition, and only times bound what is unprocessed. The signs:

- *Fewer.* There is a stored offset for a partition that the destination lacks.
- *More.* The destination has partitions with higher numbers than all that are stored, one of them holds a record that
  is not newer than the latest anchor, and some anchor is not in the partition of its own number.
- *As many.* A partition without a stored offset holds records older than all anchors, and some anchor is not in the
  partition of its own number.

The last two are also seen where a topic grew and the job has not noticed yet. An anchor that is found in a partition of
another number proves that records were spread. Without that proof both are possible, and the earlier of the
two answers is safe. The proof is also looked for where the partitions of higher numbers hold newer records only. Two
cases show no sign: both sides have as many partitions, and each has a row; or the source had more partitions than there
are rows, and the job had none for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from reconciler.clock import stamp
from reconciler.core.anchors import IdOrder, Record, StoredOffset
from reconciler.core.probes import Withheld
from reconciler.core.question import Question, possible_time_ms
from reconciler.core.reconcile import place, place_at_time, reconcile, unresolved_if_unread
from reconciler.core.verdicts import Finding, MatchedBy, Verdict
from reconciler.failover.checking.gather import GatheredJob, JobPartition, Key
from reconciler.failover.outside import ByHand, Outside, WrongDecision
from reconciler.kafka import engine
from reconciler.kafka.engine import EngineSettings, Inquiry
from reconciler.ports import LogReader, ReadRequest, TopicPartition

MOST_PAIRS = 64
"""The most anchors that are looked for in other partitions, to prove that records were spread."""

Found = engine.SearchResult[Finding]
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Passes:
    """The searches of one check; ``questions`` are those of all places that exist at the destination."""

    outside: Outside
    reader: LogReader
    settings: EngineSettings
    questions: Mapping[Key, Question]

    def ask(self, inquiries: Mapping[K, Inquiry[Finding]]) -> dict[K, Found]:
        """One engine run."""
        outcome = self.outside.run(self.outside.reader, inquiries, clock=self.outside.monotonic, settings=self.settings)
        return dict(outcome.found)

    def by_anchor_or_time(self, gathered: Sequence[GatheredJob]) -> dict[Key, Found]:
        """A finding for every place that exists at the destination."""
        topics = [[at for at in job.places if at.source.topic == topic] for job in gathered for topic in job.job.topics]
        faulty = [at for places in topics for at in places if at.fault and at.exists]
        kept = [[at for at in places if not at.fault] for places in topics if not _has_fewer(places)]
        spread = [places for places in topics if _has_fewer(places) and any(at.exists for at in places)]
        handed_over = [[at for at in places if at.settled and not at.fault] for places in spread]
        found = self._by_anchor([at.key for places in (*kept, *handed_over) for at in places if at.exists])
        proven, doubtful = [], []
        for places in kept:
            may_be_spread = self._may_be_spread(places, found)
            if (may_be_spread or self._has_others(places, found)) and self._is_found_elsewhere(places, found):
                proven.append(places)
            elif may_be_spread:
                doubtful.append(places)
        for key, by_time in self._by_time(doubtful).items():
            finding = earlier_of(found[key].finding, by_time.finding)
            found[key] = replace(found[key], finding=finding, probes=found[key].probes + by_time.probes)
        found.update(self._by_time([*spread, *proven]))
        found.update({at.key: unresolved(at.fault) for at in faulty})
        return found

    def _by_anchor(self, keys: Sequence[Key]) -> dict[Key, Found]:
        """The findings by anchor. Jobs that stopped at the same record ask the same question: it is searched once."""
        first: dict[tuple[TopicPartition, Question], Key] = {}
        same = {key: first.setdefault((key[1], self.questions[key]), key) for key in keys}
        found = self.ask({key: Inquiry(key[1], partial(reconcile, self.questions[key])) for key in first.values()})
        return {key: found[asked] for key, asked in same.items()}

    def by_hand(self, by_hand: ByHand, places: Sequence[JobPartition], proven: Mapping[Key, Found]) -> dict[Key, Found]:
        """Findings for the offsets that the operator set; ``proven`` is what was found before.

        Raises WrongDecision for an offset outside the log, and for two offsets of one partition.
        """
        inquiries: dict[Key, Inquiry[Finding]] = {}
        by_time: set[Key] = set()
        there = topics_there(places) if by_hand.offsets else frozenset()
        for at in places if by_hand.offsets or by_hand.time_ms is not None else ():
            if not at.exists:
                continue
            question, finding = self.questions[at.key], proven[at.key].finding
            if (offset := offset_for(by_hand, at, there)) is not None:
                search = partial(place, question, offset, finding)
            elif by_hand.time_ms is not None:
                search = partial(place_at_time, question, by_hand.time_ms, stamp(by_hand.time_ms), finding)
                by_time.add(at.key)
            else:
                continue
            replaced = at.selected.replaced
            if replaced is not None and replaced.malformed:
                raise WrongDecision(
                    f"{replaced.malformed.message} An offset set by hand would be written over it.",
                    hint=f"{replaced.malformed.hint} Then run this again.",
                )
            inquiries[at.key] = Inquiry(at.destination, search)
        found = self.ask(inquiries)
        for key, answer in found.items():
            if answer.finding.resume_offset is None:
                place_set = f"--set {key[1].topic}:{key[1].partition}"
                if key in by_time:
                    raise WrongDecision(
                        f"--set-time: {key[1]}: {answer.finding.detail}.", hint=f"Set an offset: {place_set}=OFFSET."
                    )
                raise WrongDecision(f"{place_set}: {answer.finding.detail}.", hint="Choose one inside.")
        return found

    # ------------------------------------------------------------ topics whose partitions may not correspond

    def _may_be_spread(self, places: Sequence[JobPartition], found: dict[Key, Found]) -> bool:
        """True if numbers may mean nothing. Where partitions merely look old, their replay bound is loosened."""
        existing = {at.destination: at.key for at in places if at.exists}
        questions = {tp: self.questions[key] for tp, key in existing.items()}
        in_place = all_in_place({tp: found[key].finding for tp, key in existing.items()}, questions)
        if not in_place and self._has_more(places, questions):
            return True
        silent = [tp for tp, question in questions.items() if question.stored is None]
        earliest = earliest_anchor_ms(list(questions.values()))
        old = {} if earliest is None else not_newer_than(earliest - 1, silent, questions, self.reader)
        if old and not in_place:
            return True
        for tp, (start, end) in old.items():
            asked = found[existing[tp]]
            if asked.finding.resume_offset == start:
                detail = f"{asked.finding.detail}; records in it may be older than the job's other anchors"
                finding = replace(asked.finding, replay_at_most=end - start, replay_exact=None, detail=detail)
                found[existing[tp]] = replace(asked, finding=finding)
        return False

    def _has_others(self, places: Sequence[JobPartition], found: Mapping[Key, Found]) -> bool:
        """True if the destination has more partitions than are stored, whatever is in them, and lacks some anchor.

        One that the mirror may not have delivered yet is in no partition.
        """
        origins = {at.destination.partition: at.origin for at in places if at.origin is not None}
        more = beyond(origins, [at.destination for at in places if at.exists])
        if not more or is_handed_over(places) or self._span(places) is None:
            return False
        return any(found[at.key].finding.verdict is not Verdict.BEHIND for at in _astray(places, found))

    def _has_more(self, places: Sequence[JobPartition], questions: Mapping[TopicPartition, Question]) -> bool:
        """True if the destination has more partitions than are stored, and not for sure because the topic grew."""
        span = self._span(places)
        if span is None or is_handed_over(places):
            return False
        more = beyond([at.destination.partition for at in places if at.origin is not None], list(questions))
        return bool(not_newer_than(span.latest_ms, more, questions, self.reader))

    def _span(self, places: Sequence[JobPartition]) -> AnchorTimes | None:
        now_ms, disorder = self.outside.now_ms(), max(each.limits.max_disorder_ms for each in self.questions.values())

        def time_of(stored: StoredOffset) -> int | None:
            return possible_time_ms(stored, now_ms, disorder)

        return span_of({at.destination.partition: at.origin for at in places}, time_of)

    def _is_found_elsewhere(self, places: Sequence[JobPartition], found: Mapping[Key, Found]) -> bool:
        """True if some anchor's record is in a partition of another number: records were spread, then.

        A place where the record may have been before it was removed is no sign of it. The mirror's pair for an offset
        without an anchor and an increasing id alone are no sign either: every partition has such numbers.
        """
        questions = {at.key: self.questions[at.key] for at in _astray(places, found)}
        astray = {key: asked for key, each in questions.items() if (asked := _by_content(each)) is not None}
        there = [at.destination for at in places if at.exists]
        pairs = [(key, other) for key in astray for other in there if other != key[1]][:MOST_PAIRS]
        answers = self.ask(
            {number: Inquiry(other, partial(reconcile, astray[key])) for number, (key, other) in enumerate(pairs)}
        )
        findings = [answer.finding for answer in answers.values()]
        return any(holds_anchor(each) and each.matched_by is not None for each in findings)

    def _by_time(self, topics: Sequence[Sequence[JobPartition]]) -> dict[Key, Found]:
        """Remap topics whose partitions do not correspond to the stored ones."""
        inquiries: dict[Key, Inquiry[Finding]] = {}
        found: dict[Key, Found] = {}
        for places in topics:
            span = self._span(places)
            keys = [at.key for at in places if at.exists and not at.settled]
            why = None
            if any(at.anchor_lag < 0 for at in places):
                why = "is before its own anchor"
            elif places[0].among_faults:
                why = "cannot be read"
            elif span is None:
                why = "has no anchor to go by"
            if span is None or why is not None:
                detail = f"partition counts differ, and a stored offset {why}"
                found.update(dict.fromkeys(keys, unresolved(detail)))
                continue
            from reconciler.core.timebound import remap  # most topics' partitions do correspond

            lag = max((at.anchor_lag for at in places if not (at.settled or at.is_unanchored)), default=0)
            for key in keys:
                question = replace(self.questions[key], anchor_lag=lag)
                inquiries[key] = Inquiry(
                    key[1], partial(unresolved_if_unread, remap, question, span.earliest_ms, span.latest_ms)
                )
        found.update(self.ask(inquiries))
        return found


def _astray(places: Sequence[JobPartition], found: Mapping[Key, Found]) -> list[JobPartition]:
    """The places whose anchor's record was not found in the partition of its own number."""
    return [at for at in places if at.exists and not at.is_new and not holds_anchor(found[at.key].finding)]


def _by_content(question: Question) -> Question | None:
    """The question, answered only by the anchor's own record; None without an anchor that names it."""
    anchor = question.stored.anchor if question.stored else None
    if anchor is None:
        return None
    if question.identity.id_order is IdOrder.OPAQUE:
        return question
    identity = replace(question.identity, id_order=IdOrder.OPAQUE)
    return replace(question, identity=identity) if anchor.fingerprint is not None else None


def unresolved(detail: str) -> Found:
    """The finding for a partition that no search can judge."""
    return engine.SearchResult(Finding(Verdict.UNRESOLVED, None, detail=detail), 0, 0)


def is_handed_over(places: Sequence[JobPartition]) -> bool:
    """True if every partition has a row in the destination's numbering: other rows are what is left of the source.

    In that of today's topic: in one that was recreated with more partitions, records were redistributed.
    """
    existing = [at for at in places if at.exists]
    return bool(existing) and all(at.settled for at in existing)


def _has_fewer(places: Sequence[JobPartition]) -> bool:
    """True if the destination lacks a partition that is stored, and the job has not been handed over since."""
    stored = [at for at in places if at.selected.stored is not None or at.fault]
    return any(not at.exists for at in stored) and not all(at.is_new for at in stored) and not is_handed_over(places)


def topics_there(places: Iterable[JobPartition]) -> frozenset[str]:
    return frozenset(at.destination.topic for at in places)


def names_to_set(at: JobPartition, there: Set[str]) -> tuple[TopicPartition, ...]:
    """A place's names in ``--set``: the destination's; and the source's, unless a topic has it ``there``."""
    return (at.destination,) if at.source.topic in there else (at.destination, at.source)


def offset_for(by_hand: ByHand, at: JobPartition, there: Set[str]) -> int | None:
    """The offset that the operator set for this place under one of its names; else None.

    Raises WrongDecision for two offsets, one under each name.
    """
    names = [(tp.topic, tp.partition) for tp in names_to_set(at, there)]
    given = {name: by_hand.offsets[name] for name in names if name in by_hand.offsets}
    if len(set(given.values())) > 1:
        words = " and ".join(f"--set {topic}:{partition}={offset}" for (topic, partition), offset in given.items())
        raise WrongDecision(f"{words} are two offsets for one partition.", hint="Leave one of them out.")
    return next(iter(given.values()), None)


FIRST_RECORDS = 16
"""Records looked at from a partition's start: one dated years ahead must not hide how old the partition is."""


@dataclass(frozen=True, slots=True)
class AnchorTimes:
    """The times of a topic's anchors, epoch ms.

    ``earliest_ms`` None: some partition was not read, or its anchor has no time, so no time bounds the unprocessed
    records. ``latest_ms`` None: no time bounds the processed records.
    """

    earliest_ms: int | None
    latest_ms: int | None


def span_of(
    stored: Mapping[int, StoredOffset | None], time_of: Callable[[StoredOffset], int | None]
) -> AnchorTimes | None:
    """The span of a topic's stored offsets by source partition; None where an offset above 0 has no anchor.

    ``time_of`` gives the time of an offset's anchor, epoch ms, or None if it bounds nothing. Partitions below the
    highest number that have no offset were not read either.
    """
    known = {number: row for number, row in stored.items() if row is not None}
    if not known:
        return None
    read = [row for row in known.values() if not (row.is_sentinel or row.is_bare_zero)]
    if any(row.anchor is None for row in read):
        return None
    times = [time_of(row) for row in read]
    timed = [time for time in times if time is not None]
    all_read = len(read) == max(known) + 1
    return AnchorTimes(
        min(timed) if timed and all_read and len(timed) == len(times) else None,
        max(timed) if timed and len(timed) == len(times) else None,
    )


def all_in_place(findings: Mapping[TopicPartition, Finding], questions: Mapping[TopicPartition, Question]) -> bool:
    """True if every stored anchor was found in the partition of its own number."""
    read_from = [tp for tp, question in questions.items() if question.stored is not None]
    return all(holds_anchor(findings[tp]) for tp in read_from)


def holds_anchor(finding: Finding) -> bool:
    """True if the anchor's record was found in this partition, also where it proves no offset, because it lags."""
    by_content = finding.matched_by in (MatchedBy.ID, MatchedBy.FINGERPRINT)
    return finding.verdict is Verdict.EXACT or (finding.verdict is Verdict.EARLY and by_content)


def beyond(stored: Iterable[int], existing: Sequence[TopicPartition]) -> list[TopicPartition]:
    """The destination's partitions with higher numbers than all that are stored; none if nothing is stored."""
    highest = max(stored, default=None)
    return [] if highest is None else [tp for tp in existing if tp.partition > highest]


def not_newer_than(
    latest_ms: int | None,
    partitions: Sequence[TopicPartition],
    questions: Mapping[TopicPartition, Question],
    reader: LogReader,
) -> dict[TopicPartition, tuple[int, int]]:
    """Those of ``partitions`` that hold a record of ``latest_ms`` or before (or any, without it), with [start, end).

    A record whose time is not known, since the destination's broker has overwritten it, may be such a one.
    A job that read the topic would have read them, unless it began at the latest, or they were numbered otherwise.
    Looks at the first records of each.
    """
    if not partitions:
        return {}
    starts, ends = reader.log_starts(partitions), reader.log_ends(partitions)
    filled = [tp for tp in partitions if starts[tp] < ends[tp]]
    chunks = reader.read([ReadRequest(tp, starts[tp], FIRST_RECORDS) for tp in filled])
    found = {}
    for tp, chunk in zip(filled, chunks, strict=True):
        if isinstance(chunk, Withheld):
            found[tp] = (starts[tp], ends[tp])  # it may hold one
            continue
        if any(latest_ms is None or _may_be_of(record, latest_ms, questions[tp]) for record in chunk.records):
            found[tp] = (starts[tp], ends[tp])
    return found


def _may_be_of(record: Record, latest_ms: int, question: Question) -> bool:
    time = question.identity.trusted_time_of(record)
    return record.append_time if time is None else time <= latest_ms


def earlier_of(own: Finding, by_time: Finding) -> Finding:
    """A finding that is safe whether or not records were spread: the earlier offset, and a bound for both cases."""
    if own.resume_offset is None or by_time.resume_offset is None or by_time.replay_at_most is None:
        return own if own.resume_offset is None else by_time
    detail = f"there are more partitions than are stored, and records may have been spread over them; {own.detail}"
    earlier_by = by_time.resume_offset - own.resume_offset
    return replace(
        own if earlier_by > 0 else by_time,
        verdict=max(Verdict.EARLY, own.verdict, by_time.verdict),
        spread=True,
        replay_at_most=by_time.replay_at_most + max(0, earlier_by),
        replay_exact=None,
        matched_by=None,
        detail=detail,
    )


def earliest_anchor_ms(questions: Sequence[Question]) -> int | None:
    """The earliest stored anchor's time less the disorder; None if one has no time to go by, or nothing is stored."""
    if any(question.latest_ms is not None for question in questions):
        return None
    anchors = [question.stored.anchor for question in questions if question.stored is not None]
    times = [anchor.timestamp_ms for anchor in anchors if anchor is not None and anchor.timestamp_ms is not None]
    if not times or len(times) < len(anchors):
        return None
    return min(times) - max(question.limits.max_disorder_ms for question in questions)
