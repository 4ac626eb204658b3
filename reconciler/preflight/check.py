"""A configuration tried: every connection it names is made, and everything is told, not only the first that fails.

Reads only. What could only be found out by writing (whether a store takes a correction) is asked of the store's
permissions, or of the file's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reconciler.config.file import Cluster, Config, Job
from reconciler.core.errors import ConfigError, ReconcilerError
from reconciler.ports import Capabilities, ClusterInfo, LogReader, ReadRequest, TopicInfo, TopicPartition
from reconciler.preflight.stores import anchor_store, job_store
from reconciler.preflight.tried import Tried, World, counted, fail, failed, ok, warn

DESTINATION, SOURCE = "destination", "source"


def abilities(config: Config, jobs: Sequence[Job], world: World) -> tuple[dict[str, Capabilities], list[Tried]]:
    """What each job's store can do by itself, by the job's name; and those that cannot even be opened. No contact."""
    found, tried = {}, []
    for job in jobs:
        try:
            store = world.open_store(job.store, kafka_client=config.destination.client)
            found[job.name] = store.capabilities
            store.close()
        except ReconcilerError as error:
            tried.append(failed(f"job {job.name}", error))
    return found, tried


def connections(config: Config, jobs: Sequence[Job], able: Mapping[str, Capabilities], world: World) -> Iterator[Tried]:
    """Try the clusters and the stores, one after the other."""
    destination = yield from _destination(config, jobs, world)
    if config.source is not None:
        yield from _source(config, config.source, jobs, world, destination)
    anchors_work = yield from anchor_store(config, jobs, able, world)
    for job in jobs:
        if job.name in able:
            yield from job_store(config, job, able[job.name], world, destination, with_anchors=anchors_work)


# ---------------------------------------------------------------- clusters


def _destination(config: Config, jobs: Sequence[Job], world: World) -> Generator[Tried, None, ClusterInfo | None]:
    """Yields what was tried; returns the cluster and those of the jobs' topics that it has, None without an answer."""
    topics = sorted({config.topics.destination_of(topic) for job in jobs for topic in job.topics})
    try:
        reader = world.reader(config.destination.client, DESTINATION)
    except ReconcilerError as error:
        yield failed(DESTINATION, error)
        return None
    try:
        found = yield from _cluster(reader, DESTINATION, topics)
        if found is None:
            return None
        for name in topics:
            if name in found.topics:
                yield from _topic(reader, found.topics[name])
            elif name not in found.hidden:
                yield _no_topic(config, name, world)
        return ClusterInfo(found.cluster_id, found.topics)
    finally:
        reader.close()


@dataclass(frozen=True, slots=True)
class _Found:
    cluster_id: str
    topics: Mapping[str, TopicInfo]
    hidden: frozenset[str]


def _cluster(
    reader: LogReader, whose: str, topics: Sequence[str], *, only_warn: bool = False
) -> Generator[Tried, None, _Found | None]:
    """The cluster's own description first, then topic by topic: one that may not be described hides no other."""
    try:
        cluster_id = reader.describe(()).cluster_id
    except ReconcilerError as error:
        yield failed(whose, error, only_warn=only_warn)
        return None
    yield ok(whose, f"answers; it is cluster {cluster_id}")
    known: dict[str, TopicInfo] = {}
    hidden = set()
    for name in topics:
        try:
            known.update(reader.describe((name,)).topics)
        except ReconcilerError as error:
            hidden.add(name)
            yield failed(f"topic {name}", error, only_warn=only_warn)
    return _Found(cluster_id, known, frozenset(hidden))


def _topic(reader: LogReader, info: TopicInfo, *, only_warn: bool = False) -> Iterator[Tried]:
    """How large it is, and whether this user may read it: its edges are looked up, and a record is read."""
    subject = f"topic {info.name}"
    partitions = [TopicPartition(info.name, number) for number in info.partitions]
    try:
        starts, ends = reader.log_starts(partitions), reader.log_ends(partitions)
        held = [tp for tp in partitions if ends[tp] > starts[tp]]
        place = (held or partitions)[0]
        reader.read([ReadRequest(place, starts[place], 1)])
    except ReconcilerError as error:
        yield failed(subject, error, only_warn=only_warn)
        return
    offsets = sum(ends[tp] - starts[tp] for tp in partitions)
    holds = f"{offsets:,} offsets" if held else "empty"
    yield ok(subject, f"{counted(len(partitions), 'partition')}, {holds}; it may be read")
    if info.compacted is None:
        yield warn(
            subject,
            "whether it is compacted may not be read: where its offsets have gaps, some answers will be bounded that "
            "could be exact.",
            "Ask for DescribeConfigs on the topic, if you want those.",
        )


def _no_topic(config: Config, name: str, world: World) -> Tried:
    said = f'The destination has no topic "{name}", or this user may not describe it.'
    source = next((topic for job in config.jobs for topic in job.topics if _named(config, topic, name)), name)
    try:
        there = world.topics(config.destination.client)
        near = sorted(each for each in there if each != name and each.endswith(source))
    except ReconcilerError:
        near = []
    if near:
        return fail(
            f"topic {name}",
            said,
            f"It has {', '.join(near[:3])}: correct [source] alias, or [topics].",
        )
    return fail(
        f"topic {name}",
        said,
        "See that the job's topics, [source] alias and [topics] are as in the mirror, and that the mirror has run.",
    )


def _named(config: Config, topic: str, name: str) -> bool:
    return config.topics.destination_of(topic) == name


def _source(
    config: Config, source: Cluster, jobs: Sequence[Job], world: World, destination: ClusterInfo | None
) -> Iterator[Tried]:
    """Only track and audit connect there, so that nothing here is a failure but a source that is the destination."""
    try:
        reader = world.reader(source.client, SOURCE)
    except ReconcilerError as error:
        yield failed(SOURCE, error, only_warn=not isinstance(error, ConfigError))
        return
    try:
        topics = sorted({topic for job in jobs for topic in job.topics})
        found = yield from _cluster(reader, SOURCE, topics, only_warn=True)
        if found is None:
            yield warn(SOURCE, "only track and audit need it; everything else works without.")
            return
        if destination is not None and found.cluster_id == destination.cluster_id:
            yield fail(
                SOURCE, "It is the same cluster as the destination.", "Correct one of the two bootstrap_servers."
            )
            return
        for name in topics:
            if name in found.topics:
                yield from _topic(reader, found.topics[name], only_warn=True)
            elif name not in found.hidden:
                yield warn(
                    f"topic {name}", "The source has no such topic.", "See that the job's topics are spelled right."
                )
    finally:
        reader.close()


def reading(config: Config) -> Callable[[Mapping[str, str], str], LogReader]:
    """Readers of clusters' logs, with a patience for one request each."""
    from reconciler.kafka.reader import KafkaLogReader  # noqa: PLC0415 - the client library loads when it is needed

    timeout_s = min(10.0, config.search.deadline_s)
    return lambda client, who: KafkaLogReader(client, timeout_s=timeout_s, who=who)
