"""A job's stored rows, the numbers that they mean by what is recorded, and the row that a correction replaces.

A consumer group is read where its job lives, while that cluster answers; else its journal counts. Its rows at the
destination are the mirror's: a correction replaces them, and they are evidence where nothing else is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from reconciler.config.file import Config, Job
from reconciler.config.streams import Stream
from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.errors import Changed, Unreachable
from reconciler.failover import recorded
from reconciler.failover.outside import Outside
from reconciler.failover.recorded import Basis, JobPlace, Recorded, Undecided
from reconciler.failover.unlisted import find_unlisted, no_rows, refuse_unlisted
from reconciler.failover.whereabouts import numbers_on
from reconciler.kafka.mirror.reading import mirrors_to, of_any_mirror
from reconciler.places.common import join_notes
from reconciler.places.registry import is_end_of_batch, traits
from reconciler.ports import UNKNOWN_PARTITION, Malformed, OffsetStore, Row, TopicPartition, by_key
from reconciler.state.jobs import JobState
from reconciler.state.journal import Entry
from reconciler.state.locations import Location, Phase, first
from reconciler.state.stored import Stored

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


def read_numbers(config: Config, job: Job, outside: Outside) -> JobRows:
    """The job's rows, and what they mean. Raises as stores do; Changed if the job was moved just now."""
    with closing(outside.open_store(job.store)) as store:
        return _read(config, job, store, outside)


def read_rows(config: Config, job: Job, outside: Outside) -> JobRows:
    """As ``read_numbers``. Raises NeedsPerson for rows of topics that no job lists, too."""
    with closing(outside.open_store(job.store)) as store:
        found = _read(config, job, store, outside)
        if is_end_of_batch(job.store):
            return found
        if found.there or job.new is not None:  # else the rows may be another job's (``no_rows``)
            refuse_unlisted(job, found.store, find_unlisted(config, job, store))
    held = found.topics
    streams = config.topics.naming.by_name(job.streams, config.here)
    absent = [
        (topic, config.topics.destination_of(topic))
        for topic in job.topics
        if not (held and topic in streams and may_appear(job, streams[topic]))
        if job.new is None and held.isdisjoint(found.names(topic, config.topics.destination_of(topic)))
    ]
    if not absent:
        return found
    with closing((outside.open_whole or outside.open_store)(job.store)) as store:
        return replace(found, absent={names[0]: no_rows(store, job.group, *names) for names in absent})


def may_appear(job: Job, stream: Stream) -> bool:
    """True if the job may get a stream while it has offsets of others."""
    return stream.origin != job.home or job.has_pattern_of(stream.topic)


def job_topics(config: Config, job: Job) -> list[str]:
    """The topic names under which a job may have rows: the source's and the destination's."""
    return sorted({*job.topics, *(config.topics.destination_of(topic) for topic in job.topics)})


def _read(config: Config, job: Job, store: OffsetStore, outside: Outside) -> JobRows:
    if job.trouble is not None:
        raise job.trouble
    there = by_key(store.read(job.group, job_topics(config, job)))
    leaves = traits(job.store).holds_commits and not job.moved
    rows: Mapping[TopicPartition, Row] | None = there
    unseen: Unreachable | None = None
    if leaves:
        rows, unseen = _left_commits(job, job.group_on(config.here), outside)
    numbers = _numbers(config, job, store, rows, unseen, outside)
    return JobRows(job, store.address, rows or {}, there, numbers, is_mirrored=leaves)


def _left_commits(
    job: Job, group: str, outside: Outside
) -> tuple[Mapping[TopicPartition, Row] | None, Unreachable | None]:
    """The group's commits where its job lives, or why they are not known: no move needs that cluster."""
    try:
        return by_key(outside.commits_left(group, job.topics)), None
    except Unreachable as error:
        return None, error


def _numbers(
    config: Config,
    job: Job,
    store: OffsetStore,
    rows: Mapping[TopicPartition, Row] | None,
    unseen: Unreachable | None,
    outside: Outside,
) -> Numbers:
    state, way = outside.state_of(job.name), traits(job.store)
    here = _location(config, job, state)
    naming, cluster = config.topics.naming, numbers_on(job, here)
    names = naming.by_name(job.streams, cluster)
    shared = recorded.shared_names(config, job, cluster)
    place = JobPlace(store, job.group, way, names, shared, names_on=partial(naming.by_name, job.streams))
    gathered = recorded.gather(state, here, place, rows, unseen)
    if is_end_of_batch(job.store):
        found = recorded.ends(gathered, _earlier(state, here))
    else:
        found = recorded.judge(gathered, _committed_by_mirror(config, job, gathered, outside))
    topics = {stream: name for name, stream in names.items()}
    return {TopicPartition(topics[Stream(at.topic, at.origin)], at.partition): each for at, each in found.items()}


def _earlier(state: JobState, here: Location) -> list[Entry]:
    """The journals of earlier stays on the cluster where the job lives."""
    lived = [each for each in state.history() if each.phase is Phase.LIVES and each.cluster == here.cluster]
    stays = sorted({each.stay for each in lived if each.stay < here.stay})
    return [entry for stay in stays for entry in state.newest(stay)]


def _location(config: Config, job: Job, state: JobState) -> Location:
    """Where the job lives; it is at home while nothing is recorded. Raises Changed if it was moved just now."""
    here = state.location()
    if here is not None and here.phase is Phase.WRITING and traits(job.store).corrected_in_copy:
        return [each for each in state.history() if each.phase is Phase.LIVES][-1]  # a copy is not its place yet
    if (None if here is None else here.number) != job.location:
        raise Changed(f'Job "{job.name}" was moved just now.', hint="Run this again.")
    return here or first(config.there if job.moved else config.here)


def _committed_by_mirror(
    config: Config, job: Job, gathered: recorded.Gathered, outside: Outside
) -> Collection[tuple[TopicPartition, int]]:
    """The group's numbers that are not recorded, and that a mirror may have committed where the job lives."""
    may_be_mirrors = traits(job.store).holds_commits and job.moved
    asked = recorded.unknown_numbers(gathered) if may_be_mirrors else {}
    if not asked:
        return ()
    reader = outside.patient(config.search)
    judged = {key: number if recorded.has_record(gathered, key) else None for key, number in asked.items()}
    found = of_any_mirror(judged, job.group_names, reader, mirrors_to(gathered.here.cluster, config))
    return {(key, asked[key]) for key in found}


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


def is_unread(stored: StoredOffset | None) -> bool:
    """True if nothing of the partition was processed: no row, or one that says so."""
    return stored is None or stored.is_unread
