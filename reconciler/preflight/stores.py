"""Tries the stores that a configuration names: opens and reads each, and asks whether it may be written to."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing

from reconciler.config.file import Config, Job
from reconciler.core.errors import NotCreated, ReconcilerError, Refused
from reconciler.core.policies import NoAnchor
from reconciler.failover.gather import job_topics
from reconciler.failover.unlisted import find_unlisted, offsets_of
from reconciler.formats.decimal_text import counted, some
from reconciler.ports import Capabilities, ClusterInfo, OffsetStore, Row, TopicPartition
from reconciler.preflight.results import TrialResult, World, fail, failed, ok, warn
from reconciler.stores.numbers import suspicious_name
from reconciler.stores.registry import traits

ANCHORS = "[anchors] store"


def anchor_store(
    config: Config, jobs: Sequence[Job], able: Mapping[str, Capabilities], world: World
) -> Generator[TrialResult, None, bool]:
    """Yields results; returns whether the separate store of anchors can be used, True if none is configured."""
    if config.anchor_store is None:
        return True
    users = [job for job in jobs if job.name in able and able[job.name].needs_tracking]
    try:
        store = world.open_store(config.anchor_store, kafka_client=config.destination.client)
    except ReconcilerError as error:
        yield failed(ANCHORS, error)
        return False
    try:
        if not store.capabilities.keeps_other_anchors:
            return False  # reported with the addresses that cannot be used
        if not users:
            yield ok(
                ANCHORS,
                f"{store.address} is for rows that have no anchor of their own: every job's store keeps them itself",
            )
            return True
        counts = {job.name: len(store.read(job.group, job.topics)) for job in users}
    except NotCreated:
        yield warn(
            ANCHORS,
            f"There are no anchors yet: {store.address} does not exist.",
            "Run reconciler track while the source is alive: its first round creates it. Or correct the address.",
        )
        return True
    except ReconcilerError as error:
        yield failed(ANCHORS, error)
        return False
    finally:
        store.close()
    kept = ", ".join(f"{counted(count, 'anchor')} for {name}" for name, count in counts.items())
    yield ok(ANCHORS, f"{store.address} keeps {kept}")
    return True


def job_store(
    config: Config, job: Job, able: Capabilities, world: World, destination: ClusterInfo | None, *, with_anchors: bool
) -> Iterator[TrialResult]:
    subject = f"job {job.name}"
    yield from unmovable(config, job)
    yield from doubtful_number(job)
    try:
        store = world.open_store(
            job.store, kafka_client=config.destination.client, anchors=config.anchor_store if with_anchors else None
        )
    except ReconcilerError as error:
        yield failed(subject, error)
        return
    with closing(store):
        try:
            rows = store.read(job.group, job_topics(config, job))
        except ReconcilerError as error:
            yield failed(subject, error)
            return
        yield from _rows(config, job, able, store, rows, destination)
        yield from _unlisted(config, job, store)
        if able.writable:
            yield _writable(job, store)


def _unlisted(config: Config, job: Job, store: OffsetStore) -> Iterator[TrialResult]:
    """A failure for topics that a start would leave unread; a word about those that the job ignores."""
    subject, found = f"job {job.name}", find_unlisted(config, job, store)
    if found.topics:
        yield fail(subject, f"It does not list all of its topics: the store has {found.what}.", found.way_out)
    if found.ignored:
        yield ok(subject, f"the store has {offsets_of(found.ignored)}, which the job ignores (ignore_topics)")
    if found.unknown:
        yield warn(subject, f"Whether it has offsets of topics that it does not list is unknown: {found.unknown}")


def unmovable(config: Config, job: Job) -> Iterator[TrialResult]:
    """Warn of a job that the hook could not move: only it writes its offsets, and a topic keeps its name."""
    one_name = next((topic for topic in job.topics if config.topics.destination_of(topic) == topic), None)
    if traits(job.store).corrected_by_job and one_name is not None:
        yield warn(
            f"job {job.name}",
            f'Topic "{one_name}" has one name on both sides, and only the job writes its offsets: after a failover '
            "they would not tell whose numbers they are, so the hook refuses to correct them.",
            "Plan for another place of its offsets at the destination: a property, app id or table of its own.",
        )


def doubtful_number(job: Job) -> Iterator[TrialResult]:
    """Warn of a name that says something else than the address: the job would skip a record of each partition."""
    if (name := suspicious_name(job.store)) is not None:
        yield warn(
            f"job {job.name}",
            f'The name "{name}" suggests the last processed offset, and its numbers are taken for the next offset to '
            "read.",
            "If the job starts after the stored number, add &number=last to its store's address: else it may skip a "
            "record of each partition. If it starts at the number itself, add &number=next.",
        )


def _rows(
    config: Config,
    job: Job,
    able: Capabilities,
    store: OffsetStore,
    rows: Sequence[Row],
    destination: ClusterInfo | None,
) -> Iterator[TrialResult]:
    subject, where = f"job {job.name}", f'{store.address}, group "{job.group}"'
    if not rows:
        yield _none_of(subject, where, job_topics(config, job))
        return
    for row in rows:
        if row.malformed is not None:
            yield fail(subject, row.malformed.message, row.malformed.hint)
    stored = {row.key.topic for row in rows}
    rows = [row for row in rows if row.malformed is None]
    by_topic: dict[str, int] = {}
    for row in rows:
        by_topic[row.key.topic] = by_topic.get(row.key.topic, 0) + 1
    listed = ", ".join(f"{count:,} of {topic}" for topic, count in sorted(by_topic.items()))
    lacking = [row for row in rows if row.stored.anchor is None and not row.stored.is_sentinel]
    synced = _synced(config, job, rows) if able.translated_by_mirror else frozenset()
    bare = [row for row in lacking if row.key not in synced]
    with_anchor = f"{len(rows) - len(lacking):,} with an anchor" if lacking else "all with an anchor"
    if len(bare) < len(lacking):
        with_anchor += f", {len(lacking) - len(bare):,} synced by the mirror, which the anchors replace"
    yield ok(subject, f"{where}: {counted(len(rows), 'stored offset')} ({listed}), {with_anchor}")
    for topic in job.topics if job.new is None else ():
        both = sorted({topic, config.topics.destination_of(topic)})
        if stored.isdisjoint(both):
            yield _none_of(subject, where, both)
    if bare:
        yield _bare(config, job, able, bare)
    yield from _against(config, job, rows, destination)


def _none_of(subject: str, where: str, topics: Sequence[str]) -> TrialResult:
    """A failover would stop for a topic with records and without any row, unless the job is called new."""
    return warn(
        subject,
        f"{where}: there is no stored offset for {', '.join(topics)}.",
        "If the job has run, check that store, group and topics are as the job has them.",
    )


def _synced(config: Config, job: Job, rows: Sequence[Row]) -> frozenset[TopicPartition]:
    """The destination's partitions whose source partition has an anchor: a mirror's row there needs none."""
    names = {topic: config.topics.destination_of(topic) for topic in job.topics}
    anchored = (row.key for row in rows if row.stored.anchor is not None)
    return frozenset(
        TopicPartition(names[key.topic], key.partition)
        for key in anchored
        if names.get(key.topic, key.topic) != key.topic
    )


def _bare(config: Config, job: Job, able: Capabilities, bare: Sequence[Row]) -> TrialResult:
    names = some([str(row.key) for row in bare], 3)
    message = f"{counted(len(bare), 'stored offset')} {'has' if len(bare) == 1 else 'have'} no anchor: {names}."
    if config.policy.no_anchor is NoAnchor.ROW_TIME:
        return warn(
            f"job {job.name}",
            message,
            "By [policy] no_anchor they are located by the mirror's own records, else by the time of their rows.",
        )
    if not able.needs_tracking:
        track = ", or let reconciler track keep them while the source is alive" if config.anchor_store else ""
        record = f"Let the job record them (recording() or observing()), or import them{track}."
        return warn(f"job {job.name}", message, record)
    lacks = "" if config.anchor_store else "Set [anchors] store and [source] bootstrap_servers, then let "
    return warn(f"job {job.name}", message, f"{lacks or 'Let '}reconciler track run while the source is alive.")


def _against(config: Config, job: Job, rows: Sequence[Row], destination: ClusterInfo | None) -> Iterator[TrialResult]:
    """Compare the rows with the destination: it may be their source, or lack some of their partitions."""
    if destination is None:
        return
    names = {topic: config.topics.destination_of(topic) for topic in job.topics}
    from_there = [
        row
        for row in rows
        if row.key.topic in names
        and names[row.key.topic] not in destination.topics
        and row.stored.anchor is not None
        and row.stored.anchor.cluster_id == destination.cluster_id
    ]
    if from_there:
        yield fail(
            f"job {job.name}",
            f"[destination] lacks its topics, and reports the cluster id of its anchors ({destination.cluster_id}).",
            "If they are of that cluster, point [destination] at the other one.",
        )
    for topic, name in names.items():
        info = destination.topics.get(name)
        stored = {row.key.partition for row in rows if row.key.topic in (topic, name)}
        if info is not None and (beyond := stored - set(info.partitions)):
            yield warn(
                f"job {job.name}",
                f"{topic}: {counted(len(stored), 'partition')} stored, and {len(info.partitions):,} there, "
                f"without partition {min(beyond)}.",
                "The counts differ: offsets would be located by time (remapped), if at all.",
            )


def _writable(job: Job, store: OffsetStore) -> TrialResult:
    """Asks the store whether it would refuse a write now; no write is tried."""
    subject = f"job {job.name}"
    try:
        store.check_writable(job.group)
    except Refused as error:
        return warn(subject, f"A correction could not be written now: {error.message}", error.hint or "")
    except ReconcilerError as error:
        return failed(subject, error)
    return ok(subject, "its offsets may be corrected there, by what its permissions say (no write was tried)")
