"""The start of a check: every destination partition of every job, with the stored row that counts for it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.config.file import Config, Job
from reconciler.config.settings import Left
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.core.question import Limits, NoAnchor, Question, StartAt, latest_possible_ms
from reconciler.core.text import counted
from reconciler.core.verdicts import Finding, Verdict
from reconciler.failover.numbers import JobRows, Selected, is_unread
from reconciler.near import NearTopics
from reconciler.places.registry import is_end_of_batch
from reconciler.ports import UNKNOWN_PARTITION, ClusterInfo, Malformed, Row, TopicPartition

if TYPE_CHECKING:
    from reconciler.core.mirror_pairs import MirrorEvidence

Key = tuple[str, TopicPartition]
"""A job's name, and a partition of the destination."""

NO_NAMES = NearTopics(tuple)

log = logging.getLogger(__name__)

NOTHING_READ = -1
"""The stored offset of a partition of which no record was processed (a sentinel)."""


@dataclass(frozen=True, slots=True)
class JobPartition:
    """One partition of one job's topic on the destination; ``exists`` is False where only a stored row names it."""

    job: Job
    source: TopicPartition
    destination: TopicPartition
    topic_id: str | None
    exists: bool
    selected: Selected
    compacted: bool | None
    translated: bool
    """MirrorMaker translates the rows of the job's store."""
    own: bool
    """The row that counts is in the destination's own numbering: the job has been handed over."""
    fault: str = ""
    """The reason in words if a row that is, or may be, this partition's cannot be read."""
    numbered_here: bool = False
    """The row that counts is in the destination's numbering, whether it has an anchor or not."""
    among_faults: bool = False
    """Some row of the topic cannot be read, so times taken from the others bound nothing."""
    no_rows: str = ""
    """A sentence if the store holds no row of any partition of the topic, and the job is not declared new."""
    anchor_lag: int = 0
    """Offsets between the anchor's record and the stored number."""
    left_at: int | None = None
    """The offset at which the job left this partition after an earlier stay, by the row that a correction replaces."""
    unread_from: int | None = None
    """The offset before which all was processed when the job left this partition last."""

    @property
    def key(self) -> Key:
        return self.job.name, self.destination

    @property
    def stored_offset(self) -> int | None:
        return None if self.selected.stored is None or self.fault else self.selected.stored.offset

    @property
    def settled(self) -> bool:
        """``own``, and not in the numbering of a topic that has been recreated since."""
        anchor = self.selected.stored.anchor if self.selected.stored else None
        return self.own and anchor is not None and anchor.numbered_by(anchor.cluster_id, self.topic_id)

    @property
    def origin(self) -> StoredOffset | None:
        """The stored offset of the source's partition of this number, also where a correction counts already.

        Where the destination's topic was recreated, the stored offset of the former partition.
        """
        if self.own and not self.settled:
            return self.selected.stored
        if self.selected.source is not None:
            return self.selected.source.stored
        return None if self.own and self.source != self.destination else self.selected.stored

    @property
    def is_unanchored(self) -> bool:
        """True if no anchor locates the stored offset here.

        The bare anchor of another cluster's log start does not locate an offset that the job has reached since.
        """
        anchor = self.selected.stored.anchor if self.selected.stored else None
        return anchor is None or (anchor.is_bare and self.anchor_lag > 0 and not self.own)

    @property
    def is_new(self) -> bool:
        """True if the job has read nothing from it yet."""
        stored = self.selected.stored
        if self.fault:
            return False
        return is_unread(stored) or (stored is not None and stored.is_bare_zero and not self.translated)


@dataclass(frozen=True, slots=True)
class GatheredJob:
    """A job's places, and its store's address without secrets."""

    job: Job
    store: str
    places: tuple[JobPartition, ...]


def gather(config: Config, stored: JobRows, cluster: ClusterInfo, near: NearTopics = NO_NAMES) -> GatheredJob:
    """Lay a job's rows beside the destination's partitions."""
    job, held = stored.job, stored.topics
    if not held and is_end_of_batch(job.store):
        return GatheredJob(job, stored.store, ())  # no batch is running
    places: list[JobPartition] = []
    streams = config.topics.naming.by_name(job.streams, config.here)
    for topic in job.topics:
        name = config.topics.destination_of(topic)
        if name not in cluster.topics and held.isdisjoint((topic, name)):
            if streams[topic].origin != job.home:
                log.info('%s does not exist on %s yet: job "%s" reads it once it does', name, config.there, job.name)
                continue
            raise _no_topic(topic, name, near)
        if name != topic and name not in cluster.topics:
            _refuse_source(job, name, [row for key, row in stored.rows.items() if key.topic == topic], cluster)
        places += _places(stored, topic, name, cluster)
    return GatheredJob(job, stored.store, tuple(places))


def _places(found: JobRows, topic: str, name: str, cluster: ClusterInfo) -> list[JobPartition]:
    rows, info = found.rows, cluster.topics.get(name)
    existing = set(info.partitions) if info else set()
    among_faults = any(row.malformed is not None for key, row in rows.items() if key.topic in (topic, name))
    places = []
    for number in sorted(existing | found.partitions(topic, name)):
        source, destination = TopicPartition(topic, number), TopicPartition(name, number)
        selected, left = found.selected(source, destination, cluster.cluster_id), _left(found, destination, cluster)
        fault = selected.malformed
        if selected.row is None and fault is None:
            fault = next((bad for at in (topic, name) if (bad := _unplaced(rows, at)) is not None), None)
        places.append(
            JobPartition(
                job=found.job,
                source=source,
                destination=destination,
                topic_id=cluster.topic_id(name),
                exists=number in existing,
                selected=selected,
                compacted=info.compacted if info else None,
                translated=selected.is_mirrors,
                own=selected.row is not None and found.job.moved,
                fault=f"{fault.message} {fault.hint}".rstrip(". ") if fault else "",
                numbered_here=_is_numbered_here(found, selected, cluster.cluster_id),
                among_faults=among_faults,
                no_rows=found.absent.get(topic, ""),
                anchor_lag=selected.older,
                left_at=left.furthest if left is not None else None,
                unread_from=left.offset if left is not None else None,
            )
        )
    return places


def _is_numbered_here(found: JobRows, selected: Selected, cluster_id: str) -> bool:
    """True by the location, or by the manifest of a copied checkpoint."""
    row = selected.row
    return row is not None and (found.job.moved or row.numbered_by == cluster_id)


def _left(found: JobRows, destination: TopicPartition, cluster: ClusterInfo) -> Left | None:
    """Where the job left the partition; None also if the topic was recreated since: its numbers began again."""
    left = found.job.left.get(destination)
    if left is None or left.anchor is None:
        return left
    return left if left.anchor.numbered_by(cluster.cluster_id, cluster.topic_id(destination.topic)) else None


def _no_topic(topic: str, name: str, near: NearTopics) -> ConfigError:
    message = f'The destination has no topic "{name}", and the store holds no offset for "{topic}"'
    there = near.of(name, topic)
    if there:
        return ConfigError(
            f"{message}; the destination has {there}.",
            hint="Correct the job's topics or home, [topics], or the clusters' names.",
        )
    return ConfigError(
        f"{message}.",
        hint="Check the job's topics and home, [topics], that the mirror has run, and that the user may "
        "describe the topic.",
    )


def _unplaced(rows: Mapping[TopicPartition, Row], topic: str) -> Malformed | None:
    """A row of the topic that cannot be read and may be of any partition."""
    row = rows.get(TopicPartition(topic, UNKNOWN_PARTITION))
    return row.malformed if row else None


def _refuse_source(job: Job, name: str, rows: Sequence[Row], cluster: ClusterInfo) -> None:
    """Raise ConfigError if the destination has no such topic, and the cluster id of the source's rows."""
    sound = [row for row in rows if row.malformed is None]
    if any(row.stored.anchor and row.stored.anchor.cluster_id == cluster.cluster_id for row in sound):
        raise ConfigError(
            f'The destination has no topic "{name}", and has the cluster id {cluster.cluster_id}, as the anchors of '
            f'job "{job.name}" do.',
            hint="If they are of that cluster, swap the addresses under [clusters]. If both clusters report one id, "
            "let the mirror make the topic first.",
        )


def source_cluster(jobs: Sequence[GatheredJob], destination: str) -> str | None:
    """The cluster most anchors come from, if not the destination."""
    ids = [
        place.selected.stored.anchor.cluster_id
        for gathered in jobs
        for place in gathered.places
        if place.selected.stored is not None and place.selected.stored.anchor is not None
    ]
    others = sorted({found for found in ids if found is not None and found != destination})
    return max(others, key=ids.count, default=None)


def question_of(
    config: Config,
    place: JobPartition,
    cluster_id: str,
    limits: Limits,
    now_ms: int,
    mirror: MirrorEvidence | None = None,
) -> Question:
    """The question that a search answers for one place. ``mirror``: what the mirror recorded of its stored offset."""
    row = place.selected.row
    stored = row.stored if row else None
    is_unanchored, new = place.is_unanchored, config.new_of(place.job)
    anchor = None if stored is None or is_unanchored else stored.anchor
    too_late_for_ms = None
    if stored is not None and anchor is not None and anchor.timestamp_ms is not None:
        latest_ms = latest_possible_ms(stored, now_ms, limits.max_disorder_ms)
        too_late_for_ms = latest_ms if anchor.timestamp_ms > latest_ms else None
    if stored is not None and is_unread(stored) and not stored.is_sentinel and not place.own:
        # The job did have an offset, before every record: it must not be moved to where new partitions begin.
        stored, new = StoredOffset(NOTHING_READ), StartAt()
    elif stored is not None and is_unanchored:
        stored = replace(stored, anchor=None)
    elif stored is not None:  # when it was written decides nothing, and parts equal questions
        stored = StoredOffset(stored.offset, anchor)
    identity = place.job.identity
    if row is not None and anchor is not None and row.key != place.source and not place.translated:
        identity = replace(identity, source_value_of=None)  # its anchor's offset is not one of the source's numbers
    return Question(
        stored=stored,
        cluster_id=cluster_id,
        topic_id=place.topic_id,
        identity=identity,
        limits=limits,
        new=new,
        latest_ms=too_late_for_ms,
        by_row_time=config.policy_of(place.job).no_anchor is NoAnchor.ROW_TIME,
        anchor_lag=0 if is_unanchored else place.anchor_lag,
        beyond=place.selected.again,
        hints=(anchor.offset,) if anchor is not None and anchor.offset is not None else (),
        compacted=place.compacted,
        no_rows=bool(place.no_rows) or (is_unread(stored) and not place.own and place.selected.ahead > 0),
        mirror=mirror,
    )


def with_earlier_stay(place: JobPartition, finding: Finding) -> Finding:
    """The finding, whose replay also counts what the job has processed here in an earlier stay, from its offset on.

    These records were not on the other cluster when the job left, so its progress there does not count them.
    """
    finding = _with_this_stay(place, finding)
    resume = finding.resume_offset
    if place.left_at is None or resume is None or resume >= place.left_at:
        return finding
    more = place.left_at - resume
    done = f"up to {counted(more, 'record')} from there on processed before the job left this cluster"
    at_most = (finding.replay_at_most or 0) + more
    return replace(finding, replay_at_most=at_most, replay_exact=None, detail=f"{finding.detail}; {done}")


def _with_this_stay(place: JobPartition, finding: Finding) -> Finding:
    """The finding, whose replay also counts what may be processed beyond the stored number (``state.stored``)."""
    found, resume = place.selected, finding.resume_offset
    more = found.ahead if finding.verdict is Verdict.NEW and not place.own else found.again
    if place.own and more and resume is not None and place.stored_offset is not None:
        more = max(0, place.stored_offset + more - resume)
    if resume is None or not more:
        return finding
    is_early = not place.own and finding.verdict in (Verdict.NEW, Verdict.EXACT)
    return replace(
        finding,
        verdict=Verdict.EARLY if is_early else finding.verdict,
        replay_at_most=(finding.replay_at_most or 0) + more,
        replay_exact=None,
        detail=f"{finding.detail}; up to {counted(more, 'record')} after the stored offset may be processed",
    )
