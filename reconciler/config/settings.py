"""The checked configuration: frozen values, one class for each table of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from reconciler.config.streams import Naming, Stream
from reconciler.core.anchors import Anchor, Identity, TopicPartition
from reconciler.core.errors import ConfigError, ReconcilerError
from reconciler.core.question import NoAnchor, StartAt, TopicTemplate
from reconciler.near import known_names
from reconciler.plan.document import StartPolicy
from reconciler.plan.signing import TrustSettings

DAY_MS = 86_400_000


def cluster_table(name: str) -> str:
    """The configuration's table of a cluster, for messages."""
    return f"[clusters.{name}]"


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to reach a cluster: ``client`` holds librdkafka properties, ``bootstrap.servers`` among them.

    ``name`` is what MirrorMaker calls it.
    """

    name: str
    bootstrap_servers: str
    client: Mapping[str, str]

    @property
    def table(self) -> str:
        """Its table in the file, for messages."""
        return cluster_table(self.name)


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The topics' names on two clusters: the one that jobs leave (the source), and the one they move to."""

    naming: Naming
    here: str
    there: str
    clusters: tuple[str, ...]

    @property
    def alias(self) -> str:
        """MirrorMaker's name of the source."""
        return self.here

    @property
    def separator(self) -> str:
        return self.naming.separator

    @property
    def template(self) -> TopicTemplate | None:
        """The rule, where the file gives one of its own instead of MirrorMaker's two."""
        return TopicTemplate.of(self.naming.template, self.here) if self.naming.template else None

    def destination_of(self, topic: str) -> str:
        """The destination's name of a source topic."""
        if self.naming.is_identity and not self.naming.names:
            return topic
        return self.naming.name_on(self.naming.stream_of(topic, self.here, self.clusters), self.there)

    def source_of(self, name: str) -> str:
        """The source's name of a topic of the destination; the same name for one that is not mirrored from there."""
        stream = self.naming.stream_of(name, self.there, self.clusters)
        return name if stream.origin == self.there else self.naming.name_on(stream, self.here)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Limits of the search: records per partition, and seconds to wait for an unreachable cluster.

    ``memory_mib``: what the process that reads records may hold.
    """

    max_disorder_ms: int = 0
    scan_records: int = 100_000
    deadline_s: float = 30.0
    memory_mib: int = 1_024

    @property
    def request_timeout_s(self) -> float:
        """The longest time of a request to a cluster, in seconds: an outage must show before the deadline."""
        return min(10.0, self.deadline_s)

    @property
    def memory(self) -> int:
        """``memory_mib`` in bytes."""
        return self.memory_mib * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """``[mirror]``: the names of MirrorMaker's own topics at the destination, where they are not its usual ones."""

    offset_syncs_topic: str | None = None
    checkpoints_topic: str | None = None
    offsets_topic: str | None = None
    """That of the Connect worker which runs the mirror: its source connector's positions."""


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """Which partitions may start without a decision, and where partitions without an anchor or an offset start."""

    new: StartAt = field(default_factory=StartAt)
    start: StartPolicy = field(default_factory=StartPolicy)
    no_anchor: NoAnchor = NoAnchor.MIRROR
    plan_expires_ms: int = DAY_MS
    python: tuple[str, ...] = ()
    """Modules whose functions ``python:`` may name."""


@dataclass(frozen=True, slots=True)
class Left:
    """Where a job was in a partition when it left a cluster, with the record before it.

    It had processed all records before ``offset`` at its last stay there, and at most up to ``furthest`` at any. Its
    number on the cluster where it lives, less ``base``, says how many records it has read elsewhere since.
    """

    offset: int
    furthest: int
    anchor: Anchor | None
    base: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One streaming job: where its offsets are, and how its records are identified.

    ``topics`` are the names on the cluster that jobs leave (``Config.here``).
    """

    name: str
    group: str
    """Its consumer group on the cluster where a place in a cluster is read and written: ``Config.there``, or
    ``Config.here`` after ``Config.on``. Of other places, whose rows they are."""
    topics: tuple[str, ...]
    store: str
    identity: Identity
    home: str = ""
    """The cluster that produces its topics while nothing has failed."""
    moved: bool = False
    """True if it lives on ``Config.there``."""
    location: int | None = None
    """The number of the location that says so."""
    left: Mapping[TopicPartition, Left] = field(default_factory=dict)
    """Where it was when it left ``Config.there`` after earlier stays there, by that cluster's names."""
    in_copy: bool = False
    """True if its location names the copy of its checkpoint in which it continues: the original is not planned."""
    streams: tuple[Stream, ...] = ()
    """The streams that it reads, under whatever names."""
    patterns: tuple[str, ...] = ()
    """Of topics at their origin, whose streams are added where they are looked up (``failover.patterns``)."""
    origins: tuple[str, ...] = ()
    trouble: ReconcilerError | None = None
    """Why its topics could not be looked up."""
    new: StartAt | None = None
    """Written out for this job: it is known to be new, and its partitions without an offset start here."""
    sinks: tuple[str, ...] = ()
    """Addresses of what the query writes to."""
    ignore_topics: tuple[str, ...] = ()
    """Topics of which the store may have offsets, and which the job is not to read."""
    owner: str = ""
    """Who looks after it: a label of its metrics and alerts."""
    single_driver: bool = False
    """The operator says that no driver of it stores a number after a later one has begun, and that its place is never
    restored."""
    sink_columns: Mapping[str, str] = field(default_factory=dict)
    """The sink's columns that identify a row's record, by what they hold: ``id``, ``key``, …"""
    groups: Mapping[str, str] = field(default_factory=dict)
    """By cluster, where a mirror renames groups; else empty."""
    policy: PolicySettings | None = None
    """``[jobs.policy]`` merged over ``[policy]``; None without that table. So with ``search``."""
    search: SearchSettings | None = None

    def group_on(self, cluster: str) -> str:
        """Its consumer group's name on a cluster."""
        return self.groups.get(cluster, self.group)

    @property
    def group_names(self) -> frozenset[str]:
        """Its group's names on all clusters: a mirror's checkpoints may have either."""
        return frozenset(self.groups.values()) or frozenset((self.group,))

    def has_pattern_of(self, topic: str) -> bool:
        """True if a pattern of the job matches a topic's name at its origin."""
        return topic not in self.ignore_topics and any(fnmatchcase(topic, each) for each in self.patterns)


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """``[watch]``: ``listen`` is HOST:PORT; a round begins every ``every_ms``."""

    listen: str = "127.0.0.1:9464"
    every_ms: int = 60_000
    requests_per_second: int = 50
    """The limit on requests to the destination's brokers, over all jobs of the process."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """``[metrics]``: where a hook writes its metrics: a folder of node_exporter's textfile collector, a push gateway's
    URL."""

    textfile: str | None = None
    pushgateway: str | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """A whole configuration file, checked."""

    clusters: Mapping[str, Cluster | None]
    """By name; None for one without an address: nothing connects to it."""
    topics: TopicNames
    search: SearchSettings
    policy: PolicySettings
    jobs: tuple[Job, ...]
    trust: TrustSettings = field(default_factory=TrustSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    mirror: MirrorSettings = field(default_factory=MirrorSettings)
    state: str | None = None
    """The state store's address."""
    file: Path | None = None
    """Where it was read from, for commands that messages name."""

    @property
    def here(self) -> str:
        """The cluster that jobs leave: the source."""
        return self.topics.here

    @property
    def there(self) -> str:
        """The cluster that jobs move to: the destination."""
        return self.topics.there

    @property
    def source(self) -> Cluster | None:
        return self.clusters[self.here]

    @property
    def destination(self) -> Cluster:
        """Raises ConfigError if it has no address."""
        found = self.clusters[self.there]
        if found is None:
            raise ConfigError(
                f"{cluster_table(self.there)} bootstrap_servers is missing.",
                hint='Jobs can only move to a cluster that has an address: add bootstrap_servers = "host:port".',
            )
        return found

    def toward(self, there: str) -> Config:
        """The configuration for a move to ``there``. Raises ConfigError if there is no such cluster."""
        if there == self.there:
            return self
        others = [name for name in self.clusters if name != there]
        return self.between(self.here if self.here in others else others[0], there)

    def between(self, here: str, there: str) -> Config:
        """The configuration for a move from ``here`` to ``there``. Raises ConfigError if one is no cluster of it.

        A location in the state store may name one that was renamed or taken out since.
        """
        for name in (there, here):
            if name not in self.clusters:
                known = known_names(name, list(self.clusters))
                raise ConfigError(f'The configuration has no cluster "{name}".', hint=f"It has: {known}.")
        topics = replace(self.topics, here=here, there=there)
        jobs = tuple(job_on(job, topics.naming, here, group_on=there) for job in self.jobs)
        return replace(self, topics=topics, jobs=jobs)

    def on(self, here: str) -> Config:
        """The configuration for what is done on ``here`` alone: the other cluster is only named."""
        found = self.between(here, next(name for name in self.clusters if name != here))
        return replace(found, jobs=tuple(replace(job, group=job.group_on(here)) for job in found.jobs))

    def new_of(self, job: Job) -> StartAt:
        """Where a job's partitions without a stored offset start."""
        return self.policy.new if job.new is None else job.new

    def policy_of(self, job: Job) -> PolicySettings:
        """The policy that holds for a job."""
        return job.policy or self.policy

    def search_of(self, job: Job) -> SearchSettings:
        """The limits of a job's searches. ``deadline_s`` and the memory are of the process: those of ``search``."""
        return job.search or self.search

    def own_policy(self, name: str) -> StartPolicy | None:
        """A job's own policy where that is not the one of ``[policy]``; None also for no job of this file."""
        own = next((self.policy_of(job).start for job in self.jobs if job.name == name), self.policy.start)
        return None if own == self.policy.start else own

    def chosen(self, *names: str) -> tuple[Job, ...]:
        """The jobs of these names, or all jobs without one. Raises ConfigError for an unknown name."""
        known = [job.name for job in self.jobs]
        for name in names:
            if name not in known:
                raise ConfigError(
                    f'The configuration has no job "{name}".', hint=f"It has: {known_names(name, known)}."
                )
        return tuple(job for job in self.jobs if not names or job.name in names)


def job_on(job: Job, naming: Naming, cluster: str, *, group_on: str | None = None) -> Job:
    """The job with its topics as they are named on ``cluster``, and its group as on ``group_on``."""
    topics = tuple(dict.fromkeys(naming.name_on(stream, cluster) for stream in job.streams))
    return replace(job, topics=topics, group=job.group if group_on is None else job.group_on(group_on))
