"""The start of a check: a job's rows, and every destination partition with the one that counts for it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.config.file import Config, Job
from reconciler.config.settings import Left
from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.failover.checking.recorded import Basis, Recorded, Undecided
from reconciler.near import NearTopics
from reconciler.places.common import join_notes
from reconciler.places.registry import is_end_of_batch, traits
from reconciler.ports import UNKNOWN_PARTITION, ClusterInfo, Malformed, Row, TopicPartition
from reconciler.state.stored import Stored

Key = tuple[str, TopicPartition]
"""A job's name, and a partition of the destination."""

NO_NAMES = NearTopics(tuple)

log = logging.getLogger(__name__)


Numbers = Mapping[TopicPartition, Recorded | Undecided]
"""By the keys where the job lives."""


@dataclass(frozen=True, slots=True)
class JobRows:
    """A job's stored rows. ``rows``: by the keys where it lives; ``there``: at the destination, where it moves to.

    The two are the same but for a group whose job leaves. ``absent``: why there may be no row of a topic, in words.
    ``is_mirrored``: the rows at the destination are a mirror's where nothing else is known.
    """

    job: Job
    store: str
    rows: Mapping[TopicPartition, Row]
    there: Mapping[TopicPartition, Row]
    numbers: Numbers
    is_mirrored: bool = False
    absent: Mapping[str, str] = field(default_factory=dict)

    def selected(self, source: TopicPartition, destination: TopicPartition, cluster_id: str) -> Selected:
        """The stored number of a partition, and the row that a correction replaces. ``cluster_id``: the destination's.

        ``source`` and ``destination``: its keys on the cluster that jobs leave, and on the one they move to.
        """
        key, replaced = destination if self.job.moved else source, self.there.get(destination)
        found = self.numbers.get(key)
        if found is None and self.is_mirrored and replaced is not None:
            return of_mirror(replaced)
        is_copied, moved = traits(self.job.store).corrected_in_copy, self.job.moved
        return of_record(found, self.rows.get(key), replaced, key, cluster_id, moved=moved, is_copied=is_copied)

    @property
    def topics(self) -> set[str]:
        """The topics of which the job has a number, or a row that says that nothing was processed."""
        return {key.topic for key in self._keys()}

    def names(self, topic: str, name: str) -> tuple[str, ...]:
        """The names under which a topic's numbers are looked for; ``topic`` and ``name`` as in ``selected``."""
        if self.is_mirrored:
            return topic, name
        return (name,) if self.job.moved else (topic,)

    def partitions(self, topic: str, name: str) -> set[int]:
        """The partitions of which the job has a number; ``topic`` and ``name`` as the keys of ``selected``."""
        names = self.names(topic, name)
        return {key.partition for key in self._keys() if key.topic in names} - {UNKNOWN_PARTITION}

    def _keys(self) -> Iterable[TopicPartition]:
        unread = (key for key, row in self.rows.items() if row.malformed is None and row.stored.is_sentinel)
        return (*self.numbers, *unread, *(self.there if self.is_mirrored else ()))


@dataclass(frozen=True, slots=True)
class Selected:
    """The row that counts, and the one that a correction replaces (under the destination's name), if any.

    ``source`` is the row of the source's name, whether it counts or not.
    """

    row: Row | None
    replaced: Row | None
    source: Row | None = field(default=None, compare=False)
    malformed: Malformed | None = None
    """A row that cannot be read and may be the one that counts: then no other row counts."""
    recorded: Stored[Anchor] | None = None
    """The recorded number; None if nothing is recorded."""
    is_beyond: bool = False
    """The place holds another number than the recorded one, and the recorded one counts (``Recorded.is_beyond``)."""
    is_mirrors: bool = False
    """The row is a group's that a mirror keeps: the job's own number is not known."""

    @property
    def stored(self) -> StoredOffset | None:
        return self.row.stored if self.row else None

    @property
    def again(self) -> int:
        """Records from the stored number on that may be processed, by what is recorded."""
        return 0 if self.recorded is None else self.recorded.again

    @property
    def ahead(self) -> int:
        """Records after the anchor's that may be processed, by what is recorded."""
        return 0 if self.recorded is None else self.recorded.ahead

    @property
    def older(self) -> int:
        """Records between the anchor's and the stored number, by what is recorded."""
        return self.ahead - self.again

    @property
    def left(self) -> Stored[Anchor] | None:
        """The number in the form in which a plan keeps it; None if there is none."""
        if self.recorded is not None or self.row is None or self.row.stored.is_sentinel:
            return self.recorded
        return Stored(self.row.stored.offset, self.row.stored.anchor, 0, 0)


def of_mirror(row: Row) -> Selected:
    """A group's row at the destination as the mirror's evidence, if nothing else shows the job's number."""
    if row.malformed is not None:
        return Selected(None, row, malformed=row.malformed)
    return Selected(row, row, is_mirrors=True)


def of_record(
    found: Recorded | Undecided | None,
    row: Row | None,
    replaced: Row | None,
    key: TopicPartition,
    cluster_id: str,
    *,
    moved: bool,
    is_copied: bool,
) -> Selected:
    """A partition's recorded number, as the row that counts. ``row``: the one in its place under ``key``.

    ``moved``: the job lives on the destination, whose id is ``cluster_id``. ``is_copied``: the place is a checkpoint,
    whose copy is made for the number that it holds.
    """
    if isinstance(found, Undecided):
        return Selected(None, replaced, malformed=Malformed(found.why, found.hint))
    if found is None:
        is_unread = row is not None and row.malformed is None and row.stored.is_sentinel
        return Selected(row, replaced, None if moved else row) if is_unread else Selected(None, replaced)
    number, anchor = found.stored.number, _in_numbering_of(found, cluster_id, moved=moved)
    is_bare = found.basis is Basis.JOURNAL and (anchor is None or anchor.is_bare)
    if is_bare and not moved and not (is_copied and number):
        number, anchor = 0, Anchor()  # nothing was processed in this stay
    if row is not None and row.malformed is None and row.stored.offset == number:
        row = replace(row, stored=replace(row.stored, anchor=anchor))
    else:
        row = Row(key, StoredOffset(number, anchor), "" if row is None else row.version, note=_of_place(row))
    if found.basis is Basis.NOT_CHECKED and moved:
        row = replace(row, note=join_notes("not checked, as nothing is recorded of it", row.note))
    return Selected(row, replaced, None if moved else row, recorded=found.stored, is_beyond=found.is_beyond)


def _in_numbering_of(found: Recorded, cluster_id: str, *, moved: bool) -> Anchor | None:
    """The anchor, whose cluster is the destination exactly if the job lives there: two clusters may report one id."""
    anchor = found.stored.record
    if not moved:
        is_alike = anchor is not None and anchor.cluster_id == cluster_id
        return replace(anchor, cluster_id=None, topic_id=None) if anchor is not None and is_alike else anchor
    if anchor is None:
        return Anchor(cluster_id=cluster_id)
    is_unnamed = anchor.cluster_id is None and (anchor.offset is None or anchor.names is Names.MAX_TIME)
    return replace(anchor, cluster_id=cluster_id) if is_unnamed else anchor


def _of_place(row: Row | None) -> str:
    if row is None:
        return "its place holds no offset"
    return f"its place holds {row.stored.offset:,}" if row.malformed is None else ""


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
    left: Left | None = None
    """Where the job was in this partition when it left it last."""

    @property
    def key(self) -> Key:
        return self.job.name, self.destination

    @property
    def stored_offset(self) -> int | None:
        return None if self.selected.stored is None or self.fault else self.selected.stored.offset

    @property
    def read_elsewhere(self) -> int | None:
        """How many records the job has read of it elsewhere since it left, again ones included; None if not known."""
        number = self.selected.left
        if self.left is None or self.left.base is None or number is None:
            return None
        return number.number - self.left.base

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
        return stored is None or stored.is_unread or (stored.is_bare_zero and not self.translated)


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
        selected = found.selected(source, destination, cluster.cluster_id)
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
                left=_left(found, destination, cluster),
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
