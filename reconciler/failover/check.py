"""Check jobs: ask every destination partition about its stored offset, and make a plan of what was found.

Three passes, each one engine run over all jobs and topics: every partition by its own anchor; the topics whose
partitions do not correspond, by time; the offsets that a person set. Where that engine runs is the caller's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

from reconciler import __version__, engine
from reconciler.clock import stamp
from reconciler.config.file import Config, Job, SearchSettings
from reconciler.core.errors import Changed, ConfigError
from reconciler.core.policies import StartPlace
from reconciler.core.probes import Search
from reconciler.core.question import Limits, Question
from reconciler.core.reconcile import place, reconcile
from reconciler.core.timebound import remap
from reconciler.core.verdicts import Finding, Verdict
from reconciler.engine import EngineSettings, Inquiry, Outcome, Progress
from reconciler.failover.gather import GatheredJob, Place, StoreOpener, gather, question_of, source_cluster
from reconciler.failover.repartition import (
    IN_ITS_PLACE,
    all_in_place,
    beyond,
    earlier_of,
    earliest_anchor_ms,
    not_newer_than,
    span_of,
)
from reconciler.failover.selection import is_written
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan
from reconciler.kafka.patient import PatientReader
from reconciler.ports import ClusterInfo, LogReader, TopicPartition

TAIL_TOTAL = 200_000
"""Records read behind resume points to count replays, over all partitions of a run: about half a second's work."""
TAIL_LEAST = 100
MOST_PAIRS = 64
"""Anchors looked for in other partitions, to prove that records were spread: so many at most."""

Key = tuple[str, TopicPartition]
Found = engine.SearchResult[Finding]
K = TypeVar("K")


class Engine(Protocol):
    """Runs every search to its finding: ``engine.run``, or one that has other machines do so.

    An inquiry's ``start`` is a module's function with its arguments, so it can be sent to another process.
    """

    def __call__(
        self,
        reader: LogReader,
        inquiries: Mapping[K, Inquiry[Finding]],
        /,
        *,
        clock: Callable[[], float],
        settings: EngineSettings | None = None,
    ) -> Outcome[K, Finding]: ...


@dataclass(frozen=True, slots=True)
class ByHand:
    """A person's word: offsets by (topic, partition), and verdicts accepted as they are."""

    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)
    accepted: frozenset[Verdict] = frozenset()


@dataclass(frozen=True, slots=True)
class Outside:
    """What a check needs from outside: the destination, the stores, the clocks, and whom to tell."""

    reader: LogReader
    open_store: StoreOpener
    monotonic: Callable[[], float]
    now_ms: Callable[[], int]
    on_progress: Callable[[Progress], None] | None = None
    on_probes: Callable[[Mapping[str, int]], None] | None = None
    run: Engine = engine.run

    def patient(self, settings: SearchSettings) -> LogReader:
        """The destination, asked again while it is away and the search's deadline has not passed."""
        return PatientReader(self.reader, self.monotonic, settings.deadline_s)


@dataclass(frozen=True, slots=True)
class Checked:
    """A plan, the (job name, destination partition) of every row that applying it would write, and what was asked."""

    plan: Plan
    to_write: frozenset[Key]
    jobs: tuple[GatheredJob, ...] = ()


@dataclass(frozen=True, slots=True)
class _Check:
    """One check under way: its limits, and what every place is asked."""

    outside: Outside
    reader: LogReader
    settings: EngineSettings
    questions: Mapping[Key, Question]

    def ask(self, starts: Mapping[Key, Callable[[], Search[Finding]]]) -> dict[Key, Found]:
        """One engine run; each of ``starts`` begins a place's search."""
        inquiries = {key: Inquiry(key[1], start) for key, start in starts.items()}
        outcome = self.outside.run(self.outside.reader, inquiries, clock=self.outside.monotonic, settings=self.settings)
        if self.outside.on_probes:
            self.outside.on_probes(outcome.probes)
        return dict(outcome.found)


def check(config: Config, jobs: Sequence[Job], outside: Outside, by_hand: ByHand | None = None) -> Checked:
    """Find the verdict of every partition of ``jobs``; reads only.

    Raises ``ConfigError`` for topics that exist nowhere and for a destination that is the source, ``Changed`` for
    topics made anew meanwhile, ``Unreachable`` and ``Refused`` for clusters and stores.
    """
    by_hand = by_hand or ByHand()
    topics = {config.topics.destination_of(topic) for job in jobs for topic in job.topics}
    reader = outside.patient(config.search)
    cluster = reader.describe(topics)
    gathered = [gather(config, job, cluster, outside.open_store) for job in jobs]
    places = [found for job in gathered for found in job.places]
    _refuse_unknown(by_hand, places)
    limits = _limits(config, len(places))
    questions = {at.key: question_of(config, at, cluster.cluster_id, limits) for at in places if at.exists}
    checking = _Check(outside, reader, EngineSettings(config.search.deadline_s, outside.on_progress), questions)
    found = _ask_all(checking, gathered)
    by_person = _ask_by_hand(checking, by_hand, places)
    _refuse_made_anew(cluster, reader.describe(topics))
    now = outside.now_ms()
    plan = Plan(
        tool_version=__version__,
        created_at=stamp(now),
        expires_at=stamp(now + config.policy.plan_expires_ms),
        source_alias=config.topics.alias,
        source_cluster_id=source_cluster(gathered, cluster.cluster_id),
        bootstrap_servers=config.destination.bootstrap_servers,
        cluster_id=cluster.cluster_id,
        jobs=tuple(_job_plan(job, found, by_person, by_hand.accepted) for job in gathered),
    )
    return Checked(plan, _to_write(plan, places, config.policy.new.place is not StartPlace.EARLIEST), tuple(gathered))


def _refuse_made_anew(before: ClusterInfo, after: ClusterInfo) -> None:
    """What was read of a topic that was then replaced says nothing of the one that is there now."""
    for name in sorted({*before.topics, *after.topics}):
        ids = [info.topic_id if info else None for info in (before.topics.get(name), after.topics.get(name))]
        if ids[0] != ids[1] or before.cluster_id != after.cluster_id:
            raise Changed(
                f'The topic "{name}" was deleted or made anew while it was checked '
                f"(its id was {ids[0]}, now {ids[1]}).",
                hint="Run this again when the topics have settled.",
            )


def _to_write(plan: Plan, places: Sequence[Place], writes_new: bool) -> frozenset[Key]:
    rows = {(job.name, row.key): row for job in plan.jobs for row in job.partitions}
    selected = {at.key: at.selected for at in places}
    return frozenset(key for key, row in rows.items() if is_written(row, selected[key], writes_new=writes_new))


def _limits(config: Config, partitions: int) -> Limits:
    tail = min(max(TAIL_LEAST, TAIL_TOTAL // max(partitions, 1)), config.search.scan_records)
    return Limits(config.search.max_disorder_ms, config.search.scan_records, tail)


# ---------------------------------------------------------------- asking


def _ask_all(checking: _Check, gathered: Sequence[GatheredJob]) -> dict[Key, Found]:
    topics = [[at for at in job.places if at.source.topic == topic] for job in gathered for topic in job.job.topics]
    kept = [places for places in topics if not _has_fewer(places)]
    keys = [at.key for places in kept for at in places if at.exists]
    found = checking.ask({key: partial(reconcile, checking.questions[key]) for key in keys})
    spread = [places for places in topics if _has_fewer(places) and any(at.exists for at in places)]
    doubtful = [places for places in kept if _may_be_spread(checking, places, found)]
    proven = [places for places in doubtful if _is_found_elsewhere(checking, places, found)]
    for key, by_time in _ask_by_time(checking, [places for places in doubtful if places not in proven]).items():
        finding = earlier_of(found[key].finding, by_time.finding)
        found[key] = replace(found[key], finding=finding, probes=found[key].probes + by_time.probes)
    found.update(_ask_by_time(checking, [*spread, *proven]))
    return found


def _has_fewer(places: Sequence[Place]) -> bool:
    """True if the destination lacks a partition that is stored, and the job has not been handed over since."""
    stored = [at for at in places if at.selected.stored is not None]
    return any(not at.exists for at in stored) and not all(at.is_new for at in stored) and not _is_handed_over(places)


def _is_handed_over(places: Sequence[Place]) -> bool:
    """True if every partition has a row in the destination's numbering: other rows are what is left of the source."""
    existing = [at for at in places if at.exists]
    return bool(existing) and all(at.own for at in existing)


def _may_be_spread(checking: _Check, places: Sequence[Place], found: dict[Key, Found]) -> bool:
    """True if numbers may mean nothing. Where partitions merely look old, their replay bound is loosened instead."""
    existing = {at.destination: at.key for at in places if at.exists}
    questions = {tp: checking.questions[key] for tp, key in existing.items()}
    in_place = all_in_place({tp: found[key].finding for tp, key in existing.items()}, questions)
    if not in_place and _has_more(checking, places, questions):
        return True
    silent = [tp for tp, question in questions.items() if question.stored is None]
    earliest = earliest_anchor_ms(list(questions.values()))
    old = {} if earliest is None else not_newer_than(earliest - 1, silent, questions, checking.reader)
    if old and not in_place:
        return True
    for tp, (start, end) in old.items():
        asked = found[existing[tp]]
        if asked.finding.resume_offset == start:
            detail = f"{asked.finding.detail}; it holds records older than the job's other anchors"
            finding = replace(asked.finding, replay_at_most=end - start, replay_exact=None, detail=detail)
            found[existing[tp]] = replace(asked, finding=finding)
    return False


def _has_more(checking: _Check, places: Sequence[Place], questions: Mapping[TopicPartition, Question]) -> bool:
    """True if the destination has more partitions than are stored, and not for sure because the topic grew."""
    span = span_of({at.destination.partition: at.origin for at in places})
    if span is None or _is_handed_over(places):
        return False
    more = beyond([at.destination.partition for at in places if at.origin is not None], list(questions))
    return bool(not_newer_than(span.latest_ms, more, questions, checking.reader))


def _is_found_elsewhere(checking: _Check, places: Sequence[Place], found: Mapping[Key, Found]) -> bool:
    """True if some anchor lies in a partition of another number: records were spread, then."""
    astray = [at for at in places if at.exists and not at.is_new and found[at.key].finding.verdict not in IN_ITS_PLACE]
    pairs = [(at, other) for at in astray for other in places if other.exists and other is not at][:MOST_PAIRS]
    inquiries = {
        number: Inquiry(other.destination, partial(reconcile, checking.questions[at.key]))
        for number, (at, other) in enumerate(pairs)
    }
    outcome = engine.run(checking.reader, inquiries, clock=checking.outside.monotonic, settings=checking.settings)
    return any(answer.finding.verdict in IN_ITS_PLACE for answer in outcome.found.values())


def _ask_by_time(checking: _Check, topics: Sequence[Sequence[Place]]) -> dict[Key, Found]:
    """Remap topics whose partitions do not correspond to the stored ones."""
    starts: dict[Key, Callable[[], Search[Finding]]] = {}
    found: dict[Key, Found] = {}
    for places in topics:
        span = span_of({at.destination.partition: at.origin for at in places})
        keys = [at.key for at in places if at.exists and not at.own]
        if span is None:
            detail = "partition counts differ, and a stored offset has no anchor to go by"
            found.update(
                dict.fromkeys(keys, engine.SearchResult(Finding(Verdict.UNRESOLVED, None, detail=detail), 0, 0))
            )
        else:
            lag = max((checking.questions[key].anchor_lag for key in keys), default=0)
            for key in keys:
                question = replace(checking.questions[key], anchor_lag=lag)
                starts[key] = partial(remap, question, span.earliest_ms, span.latest_ms)
    found.update(checking.ask(starts))
    return found


def _ask_by_hand(checking: _Check, by_hand: ByHand, places: Sequence[Place]) -> dict[Key, Found]:
    offsets = {at.key: offset for at in places for offset in _offsets_for(by_hand, at) if at.exists}
    found = checking.ask({key: partial(place, checking.questions[key], offset) for key, offset in offsets.items()})
    for (_, tp), answer in found.items():
        if answer.finding.resume_offset is None:
            raise ConfigError(f"--set {tp.topic}:{tp.partition}: {answer.finding.detail}.", hint="Choose one inside.")
    return found


def _offsets_for(by_hand: ByHand, at: Place) -> list[int]:
    names = dict.fromkeys(((at.destination.topic, at.destination.partition), (at.source.topic, at.source.partition)))
    return [by_hand.offsets[name] for name in names if name in by_hand.offsets][:1]


def _refuse_unknown(by_hand: ByHand, places: Sequence[Place]) -> None:
    known = {(tp.topic, tp.partition) for at in places if at.exists for tp in (at.destination, at.source)}
    for topic, partition in by_hand.offsets:
        if (topic, partition) not in known:
            raise ConfigError(
                f"--set {topic}:{partition}: the chosen jobs have no such partition on the destination.",
                hint="Topics: " + ", ".join(sorted({at.destination.topic for at in places})) + ".",
            )


# ---------------------------------------------------------------- rows


def _job_plan(
    gathered: GatheredJob, found: Mapping[Key, Found], by_person: Mapping[Key, Found], accepted: frozenset[Verdict]
) -> JobPlan:
    by_topic: dict[str, list[Place]] = {}
    for at in gathered.places:
        by_topic.setdefault(at.source.topic, []).append(at)
    folded = {
        topic
        for topic, places in by_topic.items()
        if _is_handed_over(places) or any(at.key in found and _was_remapped(found[at.key]) for at in places)
    }
    rows = []
    for at in gathered.places:
        if at.key in found:
            rows.append(_row(at, found[at.key], by_person.get(at.key), accepted))
        elif (at.own or at.source.topic not in folded) and not at.is_new:
            rows.append(_row(at, _missing(at), None, accepted))
    return JobPlan(gathered.job.name, gathered.job.group, gathered.store, tuple(rows))


def _was_remapped(found: Found) -> bool:
    return found.finding.verdict is Verdict.REMAPPED


def _missing(at: Place) -> Found:
    what = f"partition {at.destination.partition}" if at.topic_id else f'topic "{at.destination.topic}"'
    return engine.SearchResult(Finding(Verdict.MISSING, None, detail=f"the destination has no {what}"), 0, 0)


def _row(at: Place, found: Found, by_person: Found | None, accepted: frozenset[Verdict]) -> PartitionPlan:
    finding, by_hand, probes, rounds = found.finding, False, found.probes, found.rounds
    if at.selected.row is not None and at.selected.row.note:
        finding = replace(finding, detail=f"{finding.detail}; {at.selected.row.note}")
    if by_person is not None:
        detail = f"set by hand to {by_person.finding.resume_offset}; found: {finding.detail}"
        finding, by_hand = replace(by_person.finding, verdict=finding.verdict, detail=detail), True
        probes, rounds = probes + by_person.probes, rounds + by_person.rounds
    elif finding.verdict in accepted and (finding.resume_offset is not None or finding.verdict is Verdict.MISSING):
        finding, by_hand = replace(finding, detail=f"accepted by hand: {finding.detail}"), True
    return PartitionPlan.of(
        finding,
        source_topic=at.source.topic,
        key=at.destination,
        topic_id=at.topic_id,
        stored=at.selected.stored,
        probes=probes,
        rounds=rounds,
        set_by_hand=by_hand,
    )
