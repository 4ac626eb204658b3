"""The configuration file: TOML, secrets from the environment or from files, unknown keys refused."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.config.python import refuse_unlisted
from reconciler.config.secrets import filled, hidden, remember, without_plain_secrets
from reconciler.config.table import UNITS, Table
from reconciler.config.trust import TrustSettings, trust_settings
from reconciler.config.watch import MetricsSettings, WatchSettings, metrics_settings, watch_settings
from reconciler.core.anchors import Identity
from reconciler.core.errors import ConfigError
from reconciler.core.policies import Behind, NoAnchor, StartPlace, TopicPolicy
from reconciler.core.question import StartAt
from reconciler.formats.plan import StartPolicy
from reconciler.identity import identity_from_spec

MOST_BYTES = 4 * 1024 * 1024
"""A configuration of ten thousand jobs is half as large."""
_RUN_CODE = frozenset({"plugin.library.paths", "ssl.engine.location", "ssl.providers", "sasl.kerberos.kinit.cmd"})
"""Properties of the Kafka client that load libraries, or start a command."""
_ENDLESS_KEY = re.compile(r"""(?<![\w-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*"|'[^'\n]*')[ \t]*+\.[ \t]*+){40}""")
"""A dotted key of so many parts; the parser's time and memory grow with the square of their number."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to reach a cluster: ``client`` holds librdkafka properties, ``bootstrap.servers`` among them."""

    bootstrap_servers: str
    client: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicNames:
    """How MirrorMaker names a source topic on the destination."""

    policy: TopicPolicy
    alias: str | None
    separator: str
    names: Mapping[str, str]

    def destination_of(self, topic: str) -> str:
        """The destination's name of a source topic."""
        if topic in self.names:
            return self.names[topic]
        if self.policy is TopicPolicy.IDENTITY:
            return topic
        if self.alias is None:
            raise ConfigError(f'[topics.names] has no name for "{topic}".', hint="Add it, or give [source] an alias.")
        return f"{self.alias}{self.separator}{topic}"


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Limits of the search; ``deadline_s`` is how long an unreachable cluster is waited for."""

    max_disorder_ms: int = 0
    scan_records: int = 100_000
    deadline_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Policy:
    """What may start without a person, and where partitions without an anchor or an offset go."""

    new: StartAt = field(default_factory=StartAt)
    start: StartPolicy = field(default_factory=StartPolicy)
    no_anchor: NoAnchor = NoAnchor.STOP
    plan_expires_ms: int = UNITS["d"]
    python: tuple[str, ...] = ()
    """Modules whose functions ``python:`` may name."""


@dataclass(frozen=True, slots=True)
class Job:
    """One streaming job: where its offsets are, and how its records are told apart."""

    name: str
    group: str
    topics: tuple[str, ...]
    store: str
    identity: Identity


@dataclass(frozen=True, slots=True)
class Config:
    """A whole configuration file, checked."""

    source: Cluster | None
    destination: Cluster
    topics: TopicNames
    anchor_store: str | None
    search: SearchSettings
    policy: Policy
    jobs: tuple[Job, ...]
    trust: TrustSettings = field(default_factory=TrustSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)

    def chosen(self, name: str | None) -> tuple[Job, ...]:
        """The job of that name, or all of them."""
        if name is None:
            return self.jobs
        found = tuple(job for job in self.jobs if job.name == name)
        if not found:
            known = ", ".join(job.name for job in self.jobs)
            raise ConfigError(f'The configuration has no job "{name}".', hint=f"It has: {known}.")
        return found


def load_config(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """Read and check a configuration file. Every ``ConfigError`` names the file and the key."""
    text, others_may_change_it = _read(path)
    secrets: dict[str, str] = {}
    try:
        content = _parsed(text)
        without_plain_secrets(content)
        whole = filled(content, os.environ if environment is None else environment, secrets)
        remember(content, whole)
        return _config(Table(whole, ""), path, others_may_change_it)
    except RecursionError:
        raise ConfigError(f"{path}: its tables or lists are nested too deeply.") from None
    except ConfigError as error:
        hint = None if error.hint is None else hidden(error.hint, secrets)
        raise ConfigError(f"{path}: {hidden(error.message, secrets)}", hint=hint) from None


def _read(path: Path) -> tuple[str, bool]:
    """The file's text, and whether its group or everybody may write to it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ConfigError(f"The configuration file {path} is larger than {MOST_BYTES >> 20} MiB.")
        return data.decode(), os.name == "posix" and bool(mode & (stat.S_IWGRP | stat.S_IWOTH))
    except FileNotFoundError as error:
        raise ConfigError(f"There is no configuration file {path}.", hint="Name one with -c FILE.") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"The configuration file {path} cannot be read: {error}.") from error


def _parsed(text: str) -> dict[str, Any]:
    if _ENDLESS_KEY.search(text):
        raise ConfigError("it has a name of more than 40 parts with dots between them.", hint="Correct that line.")
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOML's own, and Python's for a number of thousands of digits
        raise ConfigError(f"it is not TOML: {error}.", hint="Correct that line.") from error


def _config(root: Table, path: Path, others_may_change_it: bool) -> Config:
    source_table = root.table("source")
    alias, source = _source(source_table) if source_table else (None, None)
    destination_table = root.table("destination")
    if destination_table is None:
        raise ConfigError("[destination] is missing.", hint='Add it with bootstrap_servers = "host:port".')
    destination = _cluster(destination_table, required=True)
    if source is not None and destination is not None and source.bootstrap_servers == destination.bootstrap_servers:
        raise ConfigError("[source] and [destination] have the same bootstrap_servers.", hint="Correct one of them.")
    topics = _topics(_table(root, "topics"), alias)
    anchors = root.table("anchors")
    anchor_store = anchors.text("store") if anchors else None
    if anchors:
        anchors.done()
    search = _search(_table(root, "search"))
    policy = _policy(_table(root, "policy"))
    code = _what_runs_code(policy, source, destination)
    if code and others_may_change_it:
        raise ConfigError(
            f"{code} lets this file run code, and others than its owner may write to it.",
            hint=f"Look at what it says, then run: chmod go-w {path}",
        )
    trust = trust_settings(_table(root, "trust"))
    watch = watch_settings(_table(root, "watch"))
    metrics = metrics_settings(_table(root, "metrics"))
    refuse_unlisted("[anchors] store", anchor_store or "", policy.python)
    jobs = _jobs(root.take("jobs", list, []), policy.python)
    for job in jobs:
        names = [topics.destination_of(topic) for topic in job.topics]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(
                    f'Two topics of job "{job.name}" have the name "{name}" at the destination.',
                    hint="Correct [topics.names]: each needs a name of its own.",
                )
    root.done()
    if destination is None:
        raise ConfigError("[destination] bootstrap_servers is missing.")
    return Config(source, destination, topics, anchor_store, search, policy, jobs, trust, watch, metrics)


def _what_runs_code(policy: Policy, *clusters: Cluster | None) -> str | None:
    """What in the file has this process run code that is not the product's, None if there is nothing of the kind."""
    if policy.python:
        return "[policy] python"
    settings = {name for cluster in clusters if cluster is not None for name in cluster.client}
    return min(settings & _RUN_CODE, default=None)


def _table(root: Table, name: str) -> Table:
    """A table of the file; one that is left out is an empty one."""
    return root.table(name) or Table({}, name)


def _source(table: Table) -> tuple[str | None, Cluster | None]:
    alias = table.text("alias")
    if alias == "":
        raise ConfigError("[source] alias is empty.", hint="Give the name MirrorMaker gives the source.")
    return alias, _cluster(table, required=False)


def _cluster(table: Table, *, required: bool) -> Cluster | None:
    servers = table.text("bootstrap_servers", required=required)
    client = table.mapping("client")
    table.done()
    if servers is None:
        return None
    if "bootstrap.servers" in client:
        raise ConfigError("bootstrap.servers is given twice.", hint="Give it as bootstrap_servers only.")
    return Cluster(servers, {"bootstrap.servers": servers, **client})


def _topics(table: Table, alias: str | None) -> TopicNames:
    names = table.mapping("names")
    policy = table.choice("policy", TopicPolicy, TopicPolicy.NAMES if names else TopicPolicy.DEFAULT)
    separator = table.text("separator", ".")
    table.done()
    if policy is TopicPolicy.DEFAULT and alias is None:
        raise ConfigError(
            '[source] alias is missing: the default topic policy names a mirrored topic "ALIAS.topic".',
            hint='Add the name MirrorMaker gives the source, or set [topics] policy = "identity".',
        )
    return TopicNames(policy, alias, separator, names)


def _search(table: Table) -> SearchSettings:
    settings = SearchSettings(
        max_disorder_ms=table.duration_ms("max_disorder", "0s"),
        scan_records=table.count("scan_records", 100_000, 1),
        deadline_s=table.duration_ms("deadline", "30s") / 1000,
    )
    table.done()
    return settings


def _policy(table: Table) -> Policy:
    policy = Policy(
        new=_start_at(table.text("new", "earliest")),
        start=StartPolicy(
            behind=table.choice("behind", Behind, Behind.START),
            max_replay=table.count("max_replay", 1_000_000, 0),
        ),
        no_anchor=table.choice("no_anchor", NoAnchor, NoAnchor.STOP),
        plan_expires_ms=table.duration_ms("plan_expires", "1d"),
        python=_texts(table, "python"),
    )
    if policy.plan_expires_ms < UNITS["s"]:
        raise ConfigError('[policy] plan_expires must be at least "1s".', hint="A plan takes time to look at.")
    table.done()
    return policy


def _texts(table: Table, key: str) -> tuple[str, ...]:
    texts = table.take(key, list, [])
    if not all(isinstance(text, str) and text for text in texts):
        raise ConfigError(f"{table.where(key)} must be a list of names.", hint='For example ["clicks.ids"].')
    return tuple(texts)


def _start_at(text: str) -> StartAt:
    if text in (StartPlace.EARLIEST, StartPlace.LATEST):
        return StartAt(StartPlace(text))
    from datetime import datetime  # noqa: PLC0415 - only a policy that names a time needs it

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(
            f'[policy] new = "{text}" is not "earliest", "latest" or a time.',
            hint='Write a time with its zone, like "2026-01-31T06:00:00Z".',
        )
    return StartAt(StartPlace.TIME, int(moment.timestamp() * 1000))


def _jobs(tables: list[Any], modules: tuple[str, ...]) -> tuple[Job, ...]:
    if not tables:
        raise ConfigError("There is no job in it.", hint="Add a [[jobs]] table with name, group, topics and store.")
    jobs: list[Job] = []
    for number, values in enumerate(tables, start=1):
        if not isinstance(values, dict):
            raise ConfigError("[[jobs]] must be tables.")
        table = Table(values, f"jobs {values.get('name', number)}")
        topics = table.take("topics", list, required=True)
        if not topics or not all(isinstance(topic, str) and topic for topic in topics) or len({*topics}) < len(topics):
            raise ConfigError(f"{table.where('topics')} must be a list of different topic names.")
        identity = table.table("identity") or Table({}, "identity")
        store = _with_saves(table)
        refuse_unlisted(table.where("store"), store, modules)
        job = Job(
            name=table.text("name", required=True),
            group=table.text("group", required=True),
            topics=tuple(topics),
            store=store,
            identity=_identity(identity, modules),
        )
        identity.done()
        table.done()
        _refuse_twins(job, jobs)
        jobs.append(job)
    return tuple(jobs)


def _identity(table: Table, modules: tuple[str, ...]) -> Identity:
    id = table.text("id", "none")
    refuse_unlisted(table.where("id"), id, modules)
    order, unit = table.text("id_order", "opaque"), table.text("unit", "ms")
    return identity_from_spec(table.text("timestamp", "record"), id, order, unit)


def _with_saves(table: Table) -> str:
    """The job's store address, with ``saves`` as a part of it: which offset of a batch the job stores."""
    address: str = table.text("store", required=True)
    saves = table.choice("saves", ("", "from", "until"), "")
    if not saves:
        return address
    if re.search(r"[?&]saves=", address):
        raise ConfigError(f"{table.where('saves')} is given in the store's address too.", hint="Give it once.")
    return f"{address}{'&' if '?' in address else '?'}saves={saves}"


def _refuse_twins(job: Job, others: list[Job]) -> None:
    for other in others:
        if other.name == job.name:
            raise ConfigError(f'Two jobs are named "{job.name}".', hint="Rename one of them.")
        if (other.store, other.group) == (job.store, job.group) and set(other.topics) & set(job.topics):
            raise ConfigError(
                f'Jobs "{other.name}" and "{job.name}" share the stored offsets of a topic: one store, one group.',
                hint="Give one of them a group of its own, or make them one job.",
            )
