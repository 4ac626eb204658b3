"""``config check``: makes every connection that a configuration names, and reports all results, not the first failure.

Reads only. Whether a store would take a correction is asked of its permissions, or the file's; no write is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing

from reconciler.config.file import Cluster, Config, Job
from reconciler.config.places import one_store
from reconciler.core.anchors import real_topic_id
from reconciler.core.errors import ConfigError, NotRead, ReconcilerError
from reconciler.formats.decimal_text import counted
from reconciler.near import near_topics
from reconciler.ports import Capabilities, ClusterInfo, LogReader, ReadRequest, TopicInfo
from reconciler.preflight.mirror import mirror
from reconciler.preflight.records import identities
from reconciler.preflight.results import TrialResult, World, fail, failed, ok, warn
from reconciler.preflight.sinks import job_sinks, untracked_end, unusable_sinks
from reconciler.preflight.stores import ANCHORS, anchor_store, job_store
from reconciler.tracking.trackable import refuse_shared

DESTINATION, SOURCE = "destination", "source"


def abilities(config: Config, jobs: Sequence[Job], world: World) -> tuple[dict[str, Capabilities], list[TrialResult]]:
    """The abilities of each job's store, by the job's name; and all addresses that cannot be used. No contact.

    A wrong address is also reported in the words of the trial that would fail on it.
    """
    found, failures = {}, []
    for job in jobs:
        try:
            store = world.open_store(job.store, kafka_client=config.destination.client)
            found[job.name] = store.capabilities
            store.close()
        except ReconcilerError as error:
            failures.append(failed(f"job {job.name}", error))
        failures += unusable_sinks(job)
    if config.anchor_store is not None:
        try:
            store = world.open_store(config.anchor_store, kafka_client=config.destination.client)
            if not store.capabilities.keeps_other_anchors:
                message = f"The store {store.address} cannot keep the anchors of other stores."
                failures.append(fail(ANCHORS, message, "Choose another, for example sqlite:////srv/anchors.db."))
            store.close()
            users = [job for job in jobs if job.name in found and found[job.name].needs_tracking]
            refuse_shared([*users, *(job for job in config.jobs if one_store(job.store, config.anchor_store))])
        except ReconcilerError as error:
            failures.append(failed(ANCHORS, error))
    return found, failures


def connections(
    config: Config, jobs: Sequence[Job], able: Mapping[str, Capabilities], world: World
) -> Iterator[TrialResult]:
    """Try the clusters and the stores one by one."""
    destination = yield from _destination(config, jobs, world)
    if config.source is not None:
        yield from _source(config.source, jobs, world, destination)
    anchors_work = yield from anchor_store(config, jobs, able, world)
    for job in jobs:
        if job.name in able:
            yield from job_store(config, job, able[job.name], world, destination, with_anchors=anchors_work)
        yield from job_sinks(job)
        yield from untracked_end(config, job)


# ---------------------------------------------------------------- clusters


def _destination(config: Config, jobs: Sequence[Job], world: World) -> Generator[TrialResult, None, ClusterInfo | None]:
    """Yields results; returns the cluster with those of the jobs' topics that it has, None if it does not answer."""
    topics = sorted({config.topics.destination_of(topic) for job in jobs for topic in job.topics})
    try:
        reader = world.reader(config.destination.client, DESTINATION)
    except ReconcilerError as error:
        yield failed(DESTINATION, error)
        return None
    with closing(reader):
        cluster_id = yield from _cluster_id(reader, DESTINATION)
        if cluster_id is None:
            return None
        known = yield from _topics(reader, topics, lambda name: _no_topic(config, name, world))
        yield from identities(config, jobs, known, reader)
        yield from mirror(config, reader)
        return ClusterInfo(cluster_id, known)


def _cluster_id(reader: LogReader, whose: str, *, only_warn: bool = False) -> Generator[TrialResult, None, str | None]:
    """Returns the cluster's id, None if it does not answer."""
    try:
        cluster_id = reader.describe(()).cluster_id
    except ReconcilerError as error:
        yield failed(whose, error, only_warn=only_warn)
        return None
    yield ok(whose, f"answers; it is cluster {cluster_id}")
    return cluster_id


def _topics(
    reader: LogReader, names: Sequence[str], absent: Callable[[str], TrialResult], *, only_warn: bool = False
) -> Generator[TrialResult, None, dict[str, TopicInfo]]:
    """Returns the topics that are there. Each is described on its own: one that may not be must not hide the others."""
    known: dict[str, TopicInfo] = {}
    for name in names:
        try:
            known.update(reader.describe((name,)).topics)
        except ReconcilerError as error:
            yield failed(f"topic {name}", error, only_warn=only_warn)
            continue
        if name in known:
            yield from _topic(reader, known[name], only_warn=only_warn)
        else:
            yield absent(name)
    return known


def _topic(reader: LogReader, info: TopicInfo, *, only_warn: bool = False) -> Iterator[TrialResult]:
    """Look up its edges and read one record: how large it is, and whether this user may read it."""
    subject = f"topic {info.name}"
    partitions = info.places
    try:
        starts, ends = reader.log_starts(partitions), reader.log_ends(partitions)
        held = [tp for tp in partitions if ends[tp] > starts[tp]]
        place = (held or partitions)[0]
        (chunk,) = reader.read([ReadRequest(place, starts[place], 1)])
    except ReconcilerError as error:
        yield failed(subject, error, only_warn=only_warn)
        return
    offsets = sum(ends[tp] - starts[tp] for tp in partitions)
    holds = f"{counted(len(partitions), 'partition')}, {f'{offsets:,} offsets' if held else 'empty'}"
    try:
        len(chunk.records)
    except NotRead as error:  # it may be read, and is not within the limits: other records may be
        yield failed(subject, error, only_warn=True)
        yield ok(subject, holds)
    else:
        yield ok(subject, f"{holds}; it may be read")
    if info.compacted is None:
        yield warn(
            subject,
            "whether it is compacted may not be read: where its offsets have gaps, some answers will be bounded that "
            "could be exact.",
            "Ask for DescribeConfigs on the topic, if you want those.",
        )


def _no_topic(config: Config, name: str, world: World) -> TrialResult:
    message = f'The destination has no topic "{name}", or this user may not describe it.'
    sources = {config.topics.destination_of(topic): topic for job in config.jobs for topic in job.topics}
    near = _near(name, source := sources[name], config.destination.client, world)
    if near:
        rules = [each.replace(source, "{topic}", 1) for each in near if each.startswith(source) and each != source]
        rule = f' (for example policy = "{rules[0]}")' if rules else ""
        correction = f"correct the job's topics, [source] alias, or [topics]{rule}."
        return fail(f"topic {name}", message, f"It has {', '.join(near)}: {correction}")
    return fail(
        f"topic {name}",
        message,
        "See that the job's topics, [source] alias and [topics] are as in the mirror, and that the mirror has run.",
    )


def _near(name: str, source: str, client: Mapping[str, str], world: World) -> list[str]:
    """Topics that may be meant; none where none is like it, or they cannot be listed."""
    try:
        return near_topics(name, source, world.topics(client))
    except ReconcilerError:
        return []


def _source(
    source: Cluster, jobs: Sequence[Job], world: World, destination: ClusterInfo | None
) -> Iterator[TrialResult]:
    """Only track and audit connect there: every problem is a warning, except a source that is the destination."""
    try:
        reader = world.reader(source.client, SOURCE)
    except ReconcilerError as error:
        yield failed(SOURCE, error, only_warn=not isinstance(error, ConfigError))
        return
    with closing(reader):
        topics = sorted({topic for job in jobs for topic in job.topics})
        cluster_id = yield from _cluster_id(reader, SOURCE, only_warn=True)
        if cluster_id is None:
            yield warn(SOURCE, "only track, audit and jobs that start there need it; everything else works without.")
            return
        if destination is not None and cluster_id == destination.cluster_id:
            if _is_one(reader, destination):
                yield fail(
                    SOURCE,
                    f"It reports the cluster id of the destination ({cluster_id}), and the same ids of topics.",
                    "Correct one of the two bootstrap_servers, unless one cluster is a clone of the other.",
                )
                return
            yield warn(
                SOURCE,
                f"It reports the cluster id of the destination ({cluster_id}): only topic ids tell the two apart.",
                "Use anchors that hold them, as job, track and hook record them. Where both sides have one topic name "
                "and these do not tell, say the side: hook --to SIDE.",
            )
        yield from _topics(reader, topics, lambda name: _no_source_topic(source, name, world), only_warn=True)


def _is_one(reader: LogReader, destination: ClusterInfo) -> bool:
    """True if the source has a topic of the destination, by its id; also if no id can be compared."""
    try:
        there = reader.describe(destination.topics)
    except ReconcilerError:
        return True
    same = (real_topic_id(there.topic_id(name)) in (None, destination.topic_id(name)) for name in there.topics)
    return not destination.topics or any(same)


def _no_source_topic(source: Cluster, name: str, world: World) -> TrialResult:
    near = _near(name, name, source.client, world)
    next_step = "Check the spelling of the job's topics."
    if near:
        next_step = f"It has {', '.join(near)}: correct the job's topics."
    return warn(f"topic {name}", "The source has no such topic.", next_step)
