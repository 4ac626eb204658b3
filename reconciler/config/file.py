"""The configuration file: TOML, secrets from the environment or from files, unknown keys refused.

One reading finds every fault. The names below ``__all__`` are what other rooms import of the configuration.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from reconciler.clock import zoned_ms
from reconciler.config import sections
from reconciler.config.addresses import (
    SINK_COLUMNS,
    SINK_SCHEMES,
    scheme_of,
)
from reconciler.config.avro import Properties
from reconciler.config.identity import IdentitySettings, identity_from_settings
from reconciler.config.included import with_included
from reconciler.config.ownership import Doubt, doubt_about, refuse_unlisted
from reconciler.config.places import faults_beside, place_of
from reconciler.config.secrets import fill, hidden
from reconciler.config.sections import Homes, any_home, with_homes
from reconciler.config.settings import (
    Cluster,
    Config,
    Job,
    MetricsSettings,
    MirrorSettings,
    PolicySettings,
    SearchSettings,
    TopicNames,
    job_on,
)
from reconciler.config.streams import Naming
from reconciler.config.table import UNITS, Faults, Table, Unknown
from reconciler.core.anchors import RECORD_TIME_ONLY, Identity
from reconciler.core.errors import ConfigError, together
from reconciler.core.question import StartAt, StartPlace
from reconciler.fileio import why

__all__ = [
    "Cluster",
    "Config",
    "Homes",
    "Job",
    "PolicySettings",
    "SearchSettings",
    "TopicNames",
    "any_home",
    "load_config",
    "read_config",
]

MOST_BYTES = 4 * 1024 * 1024
"""The most bytes of a file: ten thousand jobs take half of them."""
MOST_BITS = 4096
"""The longest integer. Python prints none of more than 4,300 decimal digits (``sys.get_int_max_str_digits``)."""
_RUN_CODE = frozenset({"plugin.library.paths", "ssl.engine.location", "ssl.providers", "sasl.kerberos.kinit.cmd"})
"""Properties of the Kafka client that load libraries, or start a command."""
_ENDLESS_KEY = re.compile(r"""(?<![\w-])(?:(?:[A-Za-z0-9_-]++|"[^"\n]*"|'[^'\n]*')[ \t]*+\.[ \t]*+){40}""")
"""The most parts of a dotted key: the parser's time and memory grow with the square of their number."""
_GIVEN_TWICE = ("Cannot overwrite a value", "Cannot declare", "Duplicate inline table key")
"""The beginnings of the parser's messages for a value that is given twice."""


def load_config(path: Path, environment: Mapping[str, str] | None = None, homes: Homes | None = None) -> Config:
    """Read and check a configuration file. Raises its first fault, with the others; each names the file and the key.

    Without ``homes``, a job without a home is a fault.
    """
    found = read_config(path, environment, homes)
    if isinstance(found, Config):
        return found
    raise together(found)


def read_config(
    path: Path, environment: Mapping[str, str] | None = None, homes: Homes | None = None
) -> Config | list[ConfigError]:
    """The configuration; or every fault in it, in the order of reading, each with the file and the key.

    Raises ConfigError for a file that cannot be read or is not TOML.
    """
    text, doubt = _read(path)
    faults, secrets = Faults(), dict[str, str]()
    try:
        content, doubt = with_included(_parsed(text), path, doubt, faults, _read_and_parsed)
        whole = fill(content, os.environ if environment is None else environment, secrets, faults)
        config = _Reader(Table(whole, "", faults), faults, path, doubt, homes).config()
    except RecursionError:
        raise ConfigError(f"{path}: its tables or lists are nested too deeply.") from None
    except ConfigError as error:
        raise _named(error, path, secrets) from None
    different = {(error.message, error.hint): error for error in faults.found}.values()
    return [_named(error, path, secrets) for error in different] or config


def _named(error: ConfigError, path: Path, secrets: Mapping[str, str]) -> ConfigError:
    hint = None if error.hint is None else hidden(error.hint, secrets)
    return ConfigError(f"{path}: {hidden(error.message, secrets)}", hint=hint)


def _read(path: Path) -> tuple[str, Doubt | None]:
    """The file's text, and why users other than root and this one may choose it."""
    try:
        with path.open("rb") as file:
            doubt = doubt_about(path, os.fstat(file.fileno()))
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ConfigError(f"The configuration file {path} is larger than {MOST_BYTES >> 20} MiB.")
        return data.decode("utf-8-sig"), doubt  # editors on Windows begin a file with a byte order mark
    except FileNotFoundError as error:
        raise ConfigError(f"There is no configuration file {path}.", hint="Name one with -c FILE.") from error
    except (OSError, ValueError) as error:
        hint = "Name a file that this user may read with -c FILE."
        if isinstance(error, UnicodeDecodeError):
            hint = "Save it as UTF-8, or name another file with -c FILE."
        raise ConfigError(f"The configuration file {path} cannot be read: {why(error)}.", hint=hint) from error


def _read_and_parsed(path: Path) -> tuple[dict[str, Any], Doubt | None]:
    text, doubt = _read(path)
    return _parsed(text), doubt


def _parsed(text: str) -> dict[str, Any]:
    if _ENDLESS_KEY.search(text):
        raise ConfigError("it has a name of more than 40 parts with dots between them.", hint="Correct that line.")
    try:
        found = tomllib.loads(text)
    except ValueError as error:  # TOML's own, and Python's for a number of thousands of digits
        raise ConfigError(f"it is not TOML: {error}.", hint=_how_to_write(text, str(error))) from error
    if _is_endless(found):  # in hexadecimal; no message could show it
        raise ConfigError("it has a number of thousands of digits.", hint="TOML's integers have 64 bits: correct it.")
    return found


def _is_endless(value: object) -> bool:
    """True if a number is too long for Python to print it in decimal digits."""
    if isinstance(value, dict | list):
        return any(map(_is_endless, value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and value.bit_length() > MOST_BITS


def _how_to_write(text: str, problem: str) -> str:
    """The hint for a line that is not TOML. The line itself is not shown: it may hold a secret."""
    if text.lstrip().startswith("{"):
        return "It looks like JSON, as a plan is: -c names the configuration."
    if problem.startswith(_GIVEN_TWICE):
        return "It is given twice: leave one out, or write [[jobs]], in double brackets, over each job."
    return 'Correct that line: [table] over a table, name = "value" in it, each quote and bracket closed.'


class _Reader:
    """Turns the file's tables into settings, and adds every fault to ``faults``: only without any may they be used."""

    def __init__(self, root: Table, faults: Faults, path: Path, doubt: Doubt | None, homes: Homes | None) -> None:
        self._root = root
        self._homes = homes
        self._faults = faults
        self._identities: dict[IdentitySettings, Identity] = {}
        self._registry: Properties = ()
        self._path = path
        self._doubt = doubt
        self._place_of = cache(place_of)
        self._search, self._policy = SearchSettings(), PolicySettings()
        self._modules: tuple[str, ...] | None = ()
        """Python modules that the file may name. None where that cannot be said: none is imported then, nor refused."""

    def config(self) -> Config:
        root = self._root
        clusters = sections.clusters(root, self._faults)
        naming = sections.naming(root.table("topics"), clusters)
        state = sections.state(root.table("state"))
        self._search = search = sections.search(root.table("search"))
        self._policy = policy = self._policy_of(root.table("policy"))
        self._judge_code(policy, *clusters.values())
        trust = sections.trust(root.table("trust"))
        watch = sections.watch(root.table("watch"))
        metrics = sections.names(root.table("metrics"), MetricsSettings)
        mirror = sections.names(root.table("mirror"), MirrorSettings)
        self._registry = sections.registry(root, self._faults)
        jobs = self._jobs(naming, clusters, state)
        root.done()
        topics = self._direction(naming, tuple(clusters), jobs)
        jobs = tuple(job_on(job, naming, topics.here, group_on=topics.there) for job in jobs)
        main = (clusters, topics, search, policy, jobs)
        return Config(*main, trust, watch, metrics, mirror, state, self._path)

    # ------------------------------------------------------------ clusters and topics

    def _direction(self, naming: Naming, clusters: tuple[str, ...], jobs: Sequence[Job]) -> TopicNames:
        """Away from the jobs' home, until a command says otherwise (``Config.between``)."""
        homes = dict.fromkeys(job.home for job in jobs if not isinstance(job.home, Unknown))
        here = next(iter(homes), next(iter(clusters), Unknown()))
        there = next((name for name in clusters if name != here), Unknown())
        return TopicNames(naming, here, there, clusters)

    # ------------------------------------------------------------ policy, and what it allows to run

    def _policy_of(self, table: Table) -> PolicySettings:
        policy = PolicySettings(
            new=_start_at(table, "earliest") or StartAt(),
            **sections.start_policy(table, PolicySettings()),
            plan_expires_ms=table.duration_ms("plan_expires", "1d"),
            python=table.texts("python", "must be a list of names.", 'For example ["clicks.ids"].'),
        )
        self._modules = None if table.is_faulty("python") else policy.python
        if policy.plan_expires_ms < UNITS["s"]:
            table.fault("plan_expires", 'must be at least "1s".', "A plan takes time to look at.")
        table.done()
        return policy

    def _judge_code(self, policy: PolicySettings, *clusters: Cluster | None) -> None:
        """A file that makes this process run code which is not the product's must be beyond other users' reach."""
        settings = {name for cluster in clusters if cluster is not None for name in cluster.client}
        for cluster in filter(None, clusters):
            self._refuse_unlisted(f"{cluster.table} client.oauth", cluster.client.get("oauth", ""))
        code = "[policy] python" if policy.python else min(settings & _RUN_CODE, default=None)
        if code and self._doubt is not None:
            self._modules = None
            self._faults.add(f"{code} lets this file run code, and {self._doubt.why}.", self._doubt.hint)

    def _refuse_unlisted(self, where: str, text: str) -> bool:
        """True if ``text`` may be used: a module that it names is listed in ``[policy] python``."""
        if self._modules is None:
            return not text.startswith("python:")
        with self._faults.collect():
            refuse_unlisted(where, text, self._modules)
            return True
        return False

    # ------------------------------------------------------------ jobs

    def _jobs(self, naming: Naming, clusters: Mapping[str, Cluster | None], state: str | None) -> tuple[Job, ...]:
        tables = with_homes(self._root.tables("jobs", "job"), clusters, state, self._homes, self._faults)
        if not tables and not self._root.is_faulty("jobs"):
            self._faults.add("It defines no job.", "Add a [[jobs]] table with name, home, topics and offsets.")
        jobs: list[Job] = []
        for number, values in enumerate(tables, start=1):
            if not isinstance(values, dict):
                self._faults.add("[[jobs]] must be tables.")
                continue
            name = values.get("name", number)
            title = f"jobs {number if isinstance(name, Unknown) else name}"
            job = self._job(Table(values, title, self._faults), naming, clusters)
            is_recorded = state is not None
            self._faults.found += faults_beside(job, jobs, naming, clusters, self._place_of, is_recorded=is_recorded)
            jobs.append(job if isinstance(job.home, Unknown) else job_on(job, naming, job.home))
        return tuple(jobs)

    def _job(self, table: Table, naming: Naming, clusters: Collection[str]) -> Job:
        name = table.required_text("name")
        patterns, topics = _parted(sections.job_topics(table))
        home = sections.home_of(table, clusters)
        origins = sections.origins_of(table, home, clusters)
        identity = table.table("identity")
        store = table.required_text("offsets")
        self._refuse_unlisted(table.where("offsets"), store)
        if scheme_of(store) == "checkpoint" and "?" in store:
            table.fault("offsets", "has a parameter, and a checkpoint takes none.", f"Write {store.partition('?')[0]}.")
        sinks, sink_columns = self._sinks(table)
        groups = sections.job_groups(table, clusters)
        if groups and scheme_of(store) != "kafka-group" and not table.is_faulty("offsets"):
            problem = "names a group on each cluster, and its offsets are not in a cluster's group."
            table.fault("group", problem, 'Write one name, like group = "clicks".')
        job = Job(
            name=name,
            group=groups.get(home) or name if groups else table.filled_text("group") or name,
            topics=topics,
            store=store,
            identity=self._identity(identity),
            home=home,
            streams=naming.streams(topics, home, origins),
            patterns=patterns,
            origins=origins,
            new=_start_at(table),
            sinks=sinks,
            ignore_topics=sections.ignored_topics(table, [*patterns, *topics]),
            owner=table.filled_text("owner") or "",
            single_driver=table.take("single_driver", bool, False),
            sink_columns=sink_columns,
            groups=groups,
            policy=sections.own_policy(table, self._policy),
            search=sections.own_search(table, self._search),
        )
        identity.done()
        table.done()
        return job

    def _sinks(self, table: Table) -> tuple[tuple[str, ...], dict[str, str]]:
        """The addresses of the job's sinks, and the columns that identify a row's record."""
        sinks = table.one_or_more("sink", 'must be an address, or a list of addresses, like "files:/data/clicks".')
        for sink in sinks:
            if scheme_of(sink) == "hudi":
                problem = "names a Hudi table, whose batches are not compared: Hudi drops those of a new checkpoint."
                table.fault("sink", problem, 'Leave sink out, and continue in a copy: offsets = "checkpoint:PATH".')
            elif scheme_of(sink) not in SINK_SCHEMES:
                known = ", ".join(f"{scheme}:…" for scheme in sorted(SINK_SCHEMES))
                table.fault("sink", "has an address of an unknown kind.", f"Known are {known}")
            self._refuse_unlisted(table.where("sink"), sink)
        sink_columns = table.mapping("sink_columns")
        for wrong in sorted({*sink_columns} - {*SINK_COLUMNS}):
            table.fault("sink_columns", f"has no {wrong}.", f"Known here: {', '.join(SINK_COLUMNS)}.")
        if sink_columns and not (sinks or table.is_faulty("sink")):
            table.fault("sink_columns", "describes a sink, and there is none.", "Add sink.")
        return sinks, sink_columns

    def _identity(self, table: Table) -> Identity:
        id = table.text("id", "none")
        may_be_used = self._refuse_unlisted(table.where("id"), id)
        timestamp, order = table.text("timestamp", "record"), table.text("id_order", "opaque")
        unit, unique = table.text("unit", "ms"), bool(table.take("unique_ids", bool, False))
        carried, frame = table.text("source_offset", "none"), table.text("frame", "none")
        schema = sections.schema_text(table)
        if not may_be_used or table.is_faulty("id"):
            id = "key"  # any id will do: it lets the faults of the other settings be collected
        try:
            # Jobs with equal settings share one identity, so that their equal questions are asked once.
            settings = IdentitySettings(timestamp, id, order, unit, unique, carried, frame, schema)
            if settings.is_avro:
                settings = replace(settings, registry=self._registry)
            elif schema != "none" and not table.is_faulty("schema"):
                problem = 'is for Avro, and nothing here is read by "avro:".'
                table.fault("schema", problem, 'Set id = "avro:$.path", too.')
            identity = self._identities.setdefault(settings, identity_from_settings(settings))
        except ConfigError as error:
            for each in (error, *error.others):
                self._faults.add(table.where(each.message), each.hint)
            return RECORD_TIME_ONLY
        _refuse_without_effect(table, timestamp, id, order, unit)
        return identity


def _refuse_without_effect(table: Table, timestamp: str, id: str, order: str, unit: str) -> None:
    """A setting about a time or an id that the job does not have: its own setting was forgotten."""
    if unit != "ms" and timestamp == "record" and not table.is_faulty("timestamp"):
        problem = f'= "{unit}" says something of a time in the record, and timestamp is "record".'
        table.fault("unit", problem, "Set timestamp, too: Kafka's own are in milliseconds.")
    if order == "increasing" and id == "none":
        table.fault("id_order", '= "increasing" says something of ids, and id is "none".', "Set id, too.")


def _parted(topics: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The patterns, and the topics that are named."""
    patterns = [topic for topic in topics if not isinstance(topic, Unknown) and "*" in topic]
    return tuple(patterns), tuple(topic for topic in topics if isinstance(topic, Unknown) or "*" not in topic)


def _start_at(table: Table, usual: str | None = None) -> StartAt | None:
    text = table.text("new", usual)
    if text is None or isinstance(text, Unknown):
        return None
    if text in (StartPlace.EARLIEST, StartPlace.LATEST):
        return StartAt(StartPlace(text))
    found = zoned_ms(text)
    if found is None:
        table.fault(
            "new",
            f'= "{text}" is not "earliest", "latest" or a time.',
            'Write a time with its zone, like "2026-01-31T06:00:00Z".',
        )
        return None
    return StartAt(StartPlace.TIME, found)
