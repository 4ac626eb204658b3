"""A job's stored rows, read, and the numbers that they mean by what is recorded.

A consumer group is read where its job lives, while that cluster answers; else its journal counts. Its rows at the
destination are the mirror's: a correction replaces them, and they are evidence where nothing else is known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial

from reconciler.config.file import Config, Job
from reconciler.config.streams import Stream
from reconciler.core.errors import Changed, Unreachable
from reconciler.failover.checking import recorded
from reconciler.failover.checking.gather import JobRows, Numbers
from reconciler.failover.checking.recorded import JobPlace
from reconciler.failover.outside import Outside
from reconciler.failover.unlisted import find_unlisted, no_rows, refuse_unlisted
from reconciler.failover.whereabouts import numbers_on
from reconciler.kafka.mirror.reading import mirrors_to, of_any_mirror
from reconciler.places.registry import is_end_of_batch, traits
from reconciler.ports import OffsetStore, Row, TopicPartition, by_key
from reconciler.state.jobs import JobState
from reconciler.state.journal import Entry
from reconciler.state.locations import Location, Phase, first


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
        may_be_mirrors = way.holds_commits and job.moved
        of_mirror = _committed_by_mirror(config, job, gathered, outside) if may_be_mirrors else ()
        found = recorded.judge(gathered, of_mirror)
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
    asked = recorded.unknown_numbers(gathered)
    if not asked:
        return ()
    reader = outside.patient(config.search)
    judged = {key: number if recorded.has_record(gathered, key) else None for key, number in asked.items()}
    found = of_any_mirror(judged, job.group_names, reader, mirrors_to(gathered.here.cluster, config))
    return {(key, asked[key]) for key in found}
