"""``config check``: connects to the clusters, the jobs' stores and the state store that a configuration names, and
reports all results, not the first failure. It only reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from reconciler.clock import stamp
from reconciler.config.file import Cluster, Config, Job
from reconciler.config.identity import settings_of
from reconciler.core.anchors import Identity, Record, real_topic_id
from reconciler.core.errors import ConfigError, NotRead, ReconcilerError
from reconciler.core.mirrored.carried_numbers import reader_of
from reconciler.core.text import command, counted
from reconciler.near import near_names, near_topics
from reconciler.ports import Capabilities, ClusterInfo, LogReader, ReadRequest, TopicInfo
from reconciler.preflight.stores import Trials, World, job_store
from reconciler.preflight.survey import are_framed, sample
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location
from reconciler.state.store import open_state

DESTINATION, SOURCE = "destination", "source"
RECORDS = 20
"""Records to read of a topic, to see whether they have what ``[jobs.identity]`` names."""


def connections(
    config: Config, jobs: Sequence[Job], able: Mapping[str, Capabilities], world: World, trials: Trials
) -> None:
    """Try the clusters and the stores one by one."""
    destination = _destination(config, jobs, world, trials)
    if config.source is not None:
        _source(config, config.source, jobs, world, destination, trials)
    for job in jobs:
        if job.name in able:
            job_store(config, job, able[job.name], world, destination, trials)


# ---------------------------------------------------------------- clusters and topics


def _destination(config: Config, jobs: Sequence[Job], world: World, trials: Trials) -> ClusterInfo | None:
    """The cluster with the jobs' topics that it has. None if it does not answer."""
    topics = sorted({config.topics.destination_of(topic) for job in jobs for topic in job.topics})
    with trials.trying(DESTINATION), closing(world.reader(config.destination.client, DESTINATION)) as reader:
        cluster_id = reader.describe(()).cluster_id
        trials.ok(DESTINATION, f"answers; it is cluster {cluster_id}")
        known = _topics(reader, topics, lambda name: _no_topic(config, name, world, trials), trials)
        for job in jobs:
            _identity(config, job, known, reader, trials)
        return ClusterInfo(cluster_id, known)
    return None


def _topics(
    reader: LogReader, names: Sequence[str], absent: Callable[[str], None], trials: Trials, *, only_warn: bool = False
) -> dict[str, TopicInfo]:
    """The topics that exist. Each is described alone: a forbidden topic must not hide the others."""
    known: dict[str, TopicInfo] = {}
    for name in names:
        with trials.trying(f"topic {name}", only_warn=only_warn):
            found = reader.describe((name,)).topics
            if name not in found:
                absent(name)
                continue
            known[name] = found[name]
            _topic(reader, found[name], trials)
    return known


def _topic(reader: LogReader, info: TopicInfo, trials: Trials) -> None:
    """Look up its edges and read one record: how large it is, and whether this user may read it."""
    subject, partitions = f"topic {info.name}", info.places
    starts, ends = reader.log_starts(partitions), reader.log_ends(partitions)
    held = [tp for tp in partitions if ends[tp] > starts[tp]]
    place = (held or partitions)[0]
    (chunk,) = reader.read([ReadRequest(place, starts[place], 1)])
    offsets = sum(ends[tp] - starts[tp] for tp in partitions)
    holds = f"{counted(len(partitions), 'partition')}, {f'{offsets:,} offsets' if held else 'empty'}"
    try:
        len(chunk.records)
    except NotRead as error:  # it may be read, and is not within the limits: other records may be
        trials.warn(subject, error.message, error.hint or "")
    else:
        holds += "; it may be read"
    trials.ok(subject, holds)
    if info.compacted is None:
        next_step = "Ask for DescribeConfigs on the topic: without it some answers are early that could be exact."
        trials.warn(subject, "this user may not read whether it is compacted.", next_step)


def _no_topic(config: Config, name: str, world: World, trials: Trials) -> None:
    sources = {config.topics.destination_of(topic): topic for job in config.jobs for topic in job.topics}
    source = sources[name]
    next_step = "Check that the job's topics and home, and [topics], are as in the mirror, and that it has run."
    if near := _near(name, source, config.destination.client, world):
        rule = next((each for each in near if each.startswith(source) and each != source), None)
        example = f' (for example policy = "{rule.replace(source, "{topic}", 1)}")' if rule else ""
        next_step = f"It has {', '.join(near)}: correct the job's topics or home, or [topics]{example}."
    message = f'The destination has no topic "{name}", or this user may not describe it.'
    trials.fail(f"topic {name}", message, next_step)


def _near(name: str, source: str, client: Mapping[str, str], world: World) -> list[str]:
    """Topics with a similar name. Empty if there is none, or if topics cannot be listed."""
    try:
        return near_topics(name, source, world.topics(client))
    except ReconcilerError:
        return []


def _source(
    config: Config, source: Cluster, jobs: Sequence[Job], world: World, there: ClusterInfo | None, trials: Trials
) -> None:
    """Only track and audit connect there: every problem is a warning, except a source that is the destination."""
    try:
        reader = world.reader(source.client, SOURCE)
    except ConfigError as error:
        trials.fail(SOURCE, error.message, error.hint or "", error.exit_code)
        return
    with closing(reader):
        try:
            cluster_id = reader.describe(()).cluster_id
        except ReconcilerError as error:
            trials.warn(SOURCE, error.message, error.hint or "")
            trials.warn(SOURCE, "only track, audit and jobs that start there need it; everything else works without.")
            return
        trials.ok(SOURCE, f"answers; it is cluster {cluster_id}")
        if there is not None and cluster_id == there.cluster_id:
            reports = f"It reports the cluster id of the destination ({cluster_id})"
            if _is_one(reader, there):
                next_step = "Correct one of the two bootstrap_servers, unless one cluster is a clone of the other."
                trials.fail(SOURCE, f"{reports}, and the same ids of topics.", next_step)
                return
            next_step = "Use anchors that hold topic ids, as track(query), track and hook record them."
            trials.warn(SOURCE, f"{reports}: only topic ids tell the two apart.", next_step)

        streams = {stream for job in jobs for stream in job.streams if stream.origin != config.here}
        mirrored = config.topics.naming.by_name(streams, config.here)

        def absent(name: str) -> None:
            if name in mirrored:
                makes = f"A mirror from {mirrored[name].origin} creates it for the way back; it is not needed before."
                trials.warn(f"topic {name}", "The source does not have it yet.", makes)
                return
            near = _near(name, name, source.client, world)
            next_step = f"It has {', '.join(near)}: correct the job's topics." if near else "Check the spelling."
            trials.warn(f"topic {name}", "The source has no such topic.", next_step)

        topics = sorted({topic for job in jobs for topic in job.topics})
        _topics(reader, topics, absent, trials, only_warn=True)


def _is_one(reader: LogReader, destination: ClusterInfo) -> bool:
    """True if a topic has one id on both clusters, or if no id can be compared."""
    try:
        there = reader.describe(destination.topics)
    except ReconcilerError:
        return True
    same = (real_topic_id(there.topic_id(name)) in (None, destination.topic_id(name)) for name in there.topics)
    return not destination.topics or any(same)


# ---------------------------------------------------------------- records


def _identity(config: Config, job: Job, known: Mapping[str, TopicInfo], reader: LogReader, trials: Trials) -> None:
    """Warn where a job's records do not have an id, a time or a source's offset as the configuration says."""
    subject, partitions = f"job {job.name}", []
    with trials.trying(subject, only_warn=True):
        names = [name for topic in job.topics if (name := config.topics.destination_of(topic)) in known]
        partitions = [found for found in sample(reader, names, RECORDS).values() if found]
    with trials.trying(subject):  # without a schema no command can read the ids of Avro records
        if partitions:
            _judge_records(subject, job.identity, partitions, trials)


def _judge_records(subject: str, identity: Identity, partitions: Sequence[Sequence[Record]], trials: Trials) -> None:
    records = [record for found in partitions for record in found]
    settings = settings_of(identity)
    if not identity.framed and are_framed(records):
        message = "the values of its records are framed by a schema registry, and another one may number schemas "
        trials.warn(subject, f"{message}differently.", 'Add to its [jobs.identity]: frame = "confluent"')
    readers: dict[str, tuple[str, Callable[[Record], object] | None, str]] = {
        "id": (settings.id, identity.id_of, identity.id_name),
        "timestamp": (settings.timestamp, identity.timestamp_of, identity.time_name),
    }
    for setting, (spec, read, name) in readers.items():
        if spec != "record" and read is not None and all(read(record) is None for record in records):
            kind = spec.partition(":")[0]
            dots = f"; a name with dots is written like {kind}:$['trace.id']" if kind in ("json", "avro") else ""
            message = f'{setting} = "{spec}": none of the {len(records):,} records read has {name}.'
            trials.warn(subject, message, f"Correct [jobs.identity] {setting}{dots}.")
    carried = [reader_of(identity, each) for each in partitions] if identity.source_value_of is not None else []
    if why := next((each for each in carried if isinstance(each, str)), None):
        message = f'source_offset = "{settings.source_offset}": {why}.'
        trials.warn(subject, message, "Correct [jobs.identity] source_offset.")


# ---------------------------------------------------------------- names, and where the jobs live


def unread_names(config: Config, trials: Trials) -> None:
    """Report names for topics that no job reads: the topic that was meant keeps the policy's name."""
    read = {str(stream) for job in config.jobs for stream in job.streams}
    for cluster, named in config.topics.naming.names.items():
        names = {str(stream) for stream in named}
        for name in sorted(names - read):
            near = next(iter(near_names(name, read - names)), None)
            meant = f"Did you mean {near}? " if near else ""
            problem = f'[topics.names.{cluster}] names "{name}", which no job reads.'
            trials.warn("topics", problem, f"{meant}Otherwise remove it.")


def state_store(config: Config, jobs: tuple[Job, ...], trials: Trials, *, offline: bool) -> None:
    """The state store, and where each job lives by it: without it no hook starts a job."""
    if config.state is None:
        next_step = "Add one before the first start by the hook; reconciler init -c FILE makes it."
        trials.warn("state", "There is no [state] store: hook, move and status need one.", next_step)
        return
    if offline and not config.state.startswith("sqlite:"):
        return
    with trials.trying("state"), closing(open_state(config.state)) as store:
        trials.ok("state", f"{store.shown} is state store {store.id[:8]}")
        if config.state.startswith("sqlite:"):
            next_step = "For several machines use PostgreSQL, HBase, or files: on a shared disk or in a bucket."
            trials.warn("state", "Only this machine's hooks see a SQLite file.", next_step)
        for job in jobs:
            with trials.trying(f"job {job.name}"):
                trials.ok(f"job {job.name}", _lives(JobState(store, job.name).location(), job))


def _lives(here: Location | None, job: Job) -> str:
    if here is None:
        move = command("reconciler", "move", "--to", job.home)
        return f"where it lives is not recorded: its first start, or {move}, records it"
    since = f"since {stamp(here.at_ms)}, by {here.by}"
    return f"{'lives on' if here.to is None else f'is moving to {here.to} from'} {here.cluster}, {since}"
