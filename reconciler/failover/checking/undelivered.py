"""Records of the cluster to which a job comes back that the other cluster never got.

A cluster that fails has records that were not mirrored yet. When it is there again, the mirror turns round and appends
behind them what the other cluster got meanwhile; so they are before the offset that the job's last record there proves.
That is so where the mirrors of both directions write to the same topics (``Naming.is_mirrored_back``). Elsewhere, such
records are behind it, but for those that the mirror skipped.

- T1  The job has processed the records before the offset where it left (``state.plans``, P3).
- T2  Behind it, a record that the other cluster has was processed there, or before. The job resumes at the first one
      that the other cluster does not have, and the records behind it count as replay.
- T3  Without an answer of the other cluster, that is the offset where the job left.
- T4  Where no mirror back writes to the topic, the job has read as many copies as there are records, unless the mirror
      skipped some or sent some twice. Equal numbers end the comparison before it begins; and without an answer, or if
      the other cluster has deleted its copies, as many copies as records are taken for all.

The records are compared one by one, up to ``MOST`` a partition. Delivered records that the job had not read when it
left come first, undelivered ones behind them. A job that was further behind is not compared beyond ``MOST``, but its
records are counted by their numbers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import NamedTuple

from reconciler.clock import stamp
from reconciler.config.file import Config
from reconciler.core.anchors import Anchor, Identity, Record, StoredOffset, fingerprint
from reconciler.core.errors import NotRead, ReconcilerError
from reconciler.core.probes import Search, ask_edges, ask_read
from reconciler.core.question import Question
from reconciler.core.reconcile import reconcile
from reconciler.core.text import counted
from reconciler.core.verdicts import Finding, Verdict
from reconciler.failover.checking.gather import JobPartition, Key
from reconciler.failover.checking.passes import Found, holds_anchor
from reconciler.failover.outside import LIMIT_S, Outside
from reconciler.kafka import engine
from reconciler.kafka.engine import EngineSettings, Inquiry
from reconciler.ports import ClusterInfo, LogReader

MOST = 10_000
TOTAL = 1_000_000
LEAST = 100
"""Records that are compared: ``MOST`` of a partition, ``TOTAL`` of a plan, but at least ``LEAST`` of each partition."""
BEFORE = 100
"""Offsets before the one where the job left in which the record before it is looked for."""
ROUNDS = 8
"""How often the other log may continue elsewhere: where the mirror sent records again."""


Names = tuple[Identity, str, str | None]
"""How a record is identified, and the ids of the cluster and the topic that number it."""


class Mark(NamedTuple):
    """A record's anchor and content, to recognize it."""

    anchor: Anchor
    append_time: bool
    content: str
    """The fingerprint of key and value as they are."""

    @classmethod
    def of(cls, record: Record, names: Names) -> Mark:
        identity, cluster_id, topic_id = names
        anchor = identity.anchor_of(record, cluster_id=cluster_id, topic_id=topic_id)
        content = fingerprint(record.key, record.value) if identity.framed else anchor.fingerprint or ""
        return cls(anchor, record.append_time, content)

    @property
    def offset(self) -> int:
        assert self.anchor.offset is not None
        return self.anchor.offset

    def is_copy(self, other: Mark) -> bool:
        """A time that a broker has stamped on arrival is not compared."""
        mine, its = self.anchor, other.anchor
        same_time = mine.timestamp_ms == its.timestamp_ms or self.append_time or other.append_time
        return mine.fingerprint == its.fingerprint and same_time


@dataclass(slots=True)
class _Front:
    """The records from where the job left, of one place. ``done``: so many of them the other cluster has."""

    at: JobPartition
    question: Question
    read: int | None
    """How many copies the job has read elsewhere (T4); None if that is not known, or says nothing."""
    end: int
    before: Mark | None = None
    marks: Sequence[Mark] = ()
    is_cut: bool = False
    """There are more records than ``marks``."""
    done: int = 0
    lacks: bool = False
    is_untold: bool = False
    """The other cluster does not say whether it had them."""

    def found(self, copies: Sequence[Mark] | None) -> None:
        """Go on by the records that the other log has from the copy of the next one on; None: it has no copy."""
        self.lacks = copies is None
        if copies is not None:
            self.done += max(1, in_order(self.marks[self.done :], copies))

    @property
    def is_open(self) -> bool:
        return not self.lacks and self.done < len(self.marks)

    @property
    def left(self) -> int:
        assert self.at.left is not None
        return self.at.left.offset

    @property
    def furthest(self) -> int:
        """The offsets before it count as processed in an earlier stay here (``rows``)."""
        assert self.at.left is not None
        return self.at.left.furthest

    @property
    def is_short(self) -> bool:
        """True if the job has read fewer copies than there are records (T4).

        Records that were not read are counted by their numbers. Where numbers are missing between those that were, up
        to half of all can be markers: each transaction has a record.
        """
        if self.read is None:
            return False
        count, numbers = len(self.marks), self.end - self.marks[0].offset
        if self.is_cut and not self.at.compacted:
            has_markers = self.marks[-1].offset - self.marks[0].offset >= count
            count = max(count, numbers // 2 if has_markers else numbers)
        return self.read < count


def in_order(marks: Sequence[Mark], copies: Sequence[Mark]) -> int:
    """How many of ``marks``, from the first on, have a copy behind that of the one before."""
    places: dict[str | None, list[int]] = {}
    for number, copy in enumerate(copies):
        places.setdefault(copy.anchor.fingerprint, []).append(number)
    last = -1
    for number, mark in enumerate(marks):
        same = places.get(mark.anchor.fingerprint, [])
        behind = same[bisect_left(same, last + 1) :]
        if (found := next((each for each in behind if mark.is_copy(copies[each])), None)) is None:
            return number
        last = found
    return len(marks)


def find_undelivered(
    config: Config,
    outside: Outside,
    here: ClusterInfo,
    places: Sequence[JobPartition],
    questions: Mapping[Key, Question],
    found: Mapping[Key, Found],
) -> dict[Key, Found]:
    """The findings of jobs that come back which begin earlier than proven (T2, T3). Raises as ``outside.reader``."""
    fronts = {at.key: front for at in places if (front := _front(config, at, questions, found)) is not None}
    if not fronts:
        return {}
    _read(outside, fronts, here)
    asked = {key: front for key, front in fronts.items() if front.marks}
    why = _compare(outside, asked) if asked else ""
    held = {}
    for key, front in asked.items():
        if (finding := _finding(front, found[key].finding, why)) is not None:
            held[key] = replace(found[key], finding=finding)
    return held


def _front(
    config: Config, at: JobPartition, questions: Mapping[Key, Question], found: Mapping[Key, Found]
) -> _Front | None:
    """Of a partition whose resume point is behind the offset where the job left it; None if nothing can be missing."""
    end = found[at.key].finding.resume_offset if at.key in found else None
    if at.job.moved or at.left is None or end is None or end <= at.left.offset:
        return None
    naming, clusters = config.topics.naming, (config.here, config.there)
    stream = naming.by_name(at.job.streams, config.there).get(at.destination.topic)
    if stream is None:
        return None
    if naming.is_mirrored_back(stream, clusters):
        return _Front(at, questions[at.key], None, end)
    if stream.origin != config.there or at.read_elsewhere == end - at.left.offset:
        return None
    return _Front(at, questions[at.key], at.read_elsewhere, end)


def _read(outside: Outside, fronts: Mapping[Key, _Front], here: ClusterInfo) -> None:
    most = min(MOST, max(LEAST, TOTAL // len(fronts)))
    inquiries = {}
    for key, front in fronts.items():
        names = (front.at.job.identity, here.cluster_id, front.at.topic_id)
        search = partial(_marks, max(0, front.left - BEFORE), front.end, BEFORE + most + 1, names)
        inquiries[key] = Inquiry(key[1], search)
    settings = EngineSettings(on_progress=outside.on_progress)
    for key, answer in engine.run(outside.reader, inquiries, clock=outside.monotonic, settings=settings).found.items():
        front, marks = fronts[key], answer.finding
        first = sum(mark.offset < front.left for mark in marks)
        front.before, front.marks = (marks[first - 1] if first else None), marks[first:][:most]
        front.is_cut = len(marks) - first > most


def _compare(outside: Outside, fronts: Mapping[Key, _Front]) -> str:
    """Look for the records on the other cluster. Why that could not be done, in words; then none is known there."""
    if outside.open_left is None:
        return _untold(fronts, "the cluster that the job leaves was not asked")
    try:
        with closing(outside.open_left()) as there:
            topics = there.describe(sorted({front.at.source.topic for front in fronts.values()}))
            _set_untold(there, topics, fronts.values())
            for _ in range(ROUNDS):
                still = {key: front for key, front in fronts.items() if front.is_open}
                if not still:
                    break
                _ask(there, topics, still)
    except ReconcilerError as error:
        why = f"the cluster that the job leaves does not say which it has ({error.message.rstrip('.')})"
        return _untold(fronts, why)
    return ""


def _untold(fronts: Mapping[Key, _Front], why: str) -> str:
    for front in fronts.values():
        front.done, front.lacks, front.is_untold = 0, True, True
    return why


def _set_untold(there: LogReader, topics: ClusterInfo, fronts: Iterable[_Front]) -> None:
    """Of the partitions whose copies are counted, those of which the other log no longer has all copies."""
    counted = [front for front in fronts if front.read is not None]
    infos = {at: topics.topics[at.topic] for front in counted if (at := front.at.source).topic in topics.topics}
    starts = there.log_starts([at for at, info in infos.items() if info.has(at.partition)])
    for front in counted:
        at, left = front.at.source, front.at.left
        first = 0 if left is None or left.base is None else max(0, left.base)
        front.lacks = front.is_untold = at not in starts or starts[at] > first or bool(infos[at].compacted)


def _ask(there: LogReader, topics: ClusterInfo, fronts: Mapping[Key, _Front]) -> None:
    inquiries = {}
    for key, front in fronts.items():
        info = topics.topics.get(front.at.source.topic)
        if info is None or not info.has(front.at.source.partition):
            front.lacks = True
            continue
        mark = front.marks[front.done]
        names = (front.at.job.identity, topics.cluster_id, info.topic_id)
        question = replace(
            front.question,
            stored=StoredOffset(mark.offset + 1, mark.anchor),
            cluster_id=topics.cluster_id,
            topic_id=info.topic_id,
            latest_ms=None,
            anchor_lag=0,
            hints=(mark.offset,),
            compacted=info.compacted,
            mirror=None,
        )
        inquiries[key] = Inquiry(front.at.source, partial(_copies, question, len(front.marks) - front.done, names))
    settings = EngineSettings(LIMIT_S)
    for key, answer in engine.run(there, inquiries, clock=monotonic, settings=settings).found.items():
        fronts[key].found(answer.finding)


def _copies(question: Question, most: int, names: Names) -> Search[list[Mark] | None]:
    """The records from the copy of the question's on; None if there is none."""
    try:
        finding = yield from reconcile(question)
        if not holds_anchor(finding) or finding.record_offset is None:
            return None
        return (yield from _marks(finding.record_offset, None, 2 * most, names))
    except NotRead:
        return None


def _marks(first: int, end: int | None, most: int, names: Names) -> Search[list[Mark]]:
    """The records from ``first`` on and before ``end``, ``most`` of them; fewer where they cannot be read."""
    edges = yield from ask_edges()
    at, end = max(first, edges.start), edges.end if end is None else min(end, edges.end)
    marks: list[Mark] = []
    while at < end and len(marks) < most:
        chunk = yield from ask_read(at, most - len(marks))
        records: Sequence[Record] = [each for each in chunk.records if at <= each.offset < end]
        marks += [Mark.of(each, names) for each in records]
        if chunk.next_offset <= at:
            break
        at = chunk.next_offset
    return marks[:most]


def _finding(front: _Front, finding: Finding, why: str) -> Finding | None:
    """The finding that begins at the first record which the other cluster lacks; None if it has them."""
    has_all = not front.lacks and not front.is_open
    by_count = front.read is not None and (front.is_untold or (has_all and front.is_cut))
    is_missing = front.is_short if by_count else not has_all
    if not is_missing:
        return None
    before = front.marks[front.done - 1] if front.done else front.before
    if has_all:
        assert before is not None
        first, at_ms = before.offset + 1, None
    else:
        first, at_ms = front.marks[front.done].offset, front.marks[front.done].anchor.timestamp_ms
    more = front.end - first
    of = "" if at_ms is None else f", of {stamp(at_ms)}"
    what = why or f"the cluster that the job leaves does not have record {first:,}{of}"
    if by_count:
        what = f"the job has read {front.read:,} copies, of more records, since it left at {front.left:,}"
    detail = f"{what}: it and what follows may be unread, so the job resumes there, {counted(more, 'offset')} earlier"
    return replace(
        finding,
        verdict=max(Verdict.EARLY, finding.verdict),
        resume_offset=first,
        replay_at_most=(finding.replay_at_most or 0) + max(0, front.end - max(first, front.furthest)),
        replay_exact=None,
        record_offset=before.offset if before else None,
        record_fingerprint=before.content if before else None,
        detail=f"{finding.detail}; {detail}",
    )
