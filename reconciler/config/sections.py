"""The parts of the configuration file that stand alone: each becomes one value of the settings."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from reconciler.config.addresses import BROKERS_TOO, are_brokers, shared_brokers
from reconciler.config.avro import NUMBERS, Properties
from reconciler.config.settings import (
    Cluster,
    MetricsSettings,
    MirrorSettings,
    PolicySettings,
    SearchSettings,
    WatchSettings,
    cluster_table,
)
from reconciler.config.streams import Naming, Stream
from reconciler.config.table import Faults, Table, Unknown
from reconciler.core.question import TOPIC_NAME, Behind, NoAnchor, TopicPolicy, TopicTemplate
from reconciler.fileio import why
from reconciler.plan.rows import StartPolicy
from reconciler.plan.signing import TrustSettings

S = TypeVar("S", MetricsSettings, MirrorSettings)
CLUSTER_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""The form of a cluster's name, which is a part of topics' names."""
_URL = re.compile(r"https?://[^/]")
_NUMBER = re.compile(r"\d{1,9}(\.\d{1,3})?")
_ONE_RULE = 'One rule for all topics is written like policy = "{topic}.replica".'


def clusters(root: Table, faults: Faults) -> dict[str, Cluster | None]:
    """``[clusters]``, by name."""
    table = root.table("clusters")
    if not table.is_there and not root.is_faulty("clusters"):
        example = 'Add [clusters.NAME] for each, with bootstrap_servers = "host:port"; NAME is what MirrorMaker says.'
        faults.add("[clusters] is missing.", example)
    found = {name: _cluster(name, each, faults) for name, each in table.tables_by_name()}
    if table.is_there and len(found) < 2:
        table.fault(next(iter(found), "NAME"), "is alone.", "Add the cluster where jobs continue after a failover.")
    for one, other in combinations(filter(None, found.values()), 2):
        _refuse_one_cluster(one, other, faults)
    return found


def _cluster(name: str, table: Table, faults: Faults) -> Cluster | None:
    servers = table.filled_text("bootstrap_servers")
    client = table.mapping("client")
    table.done()
    if CLUSTER_NAME.fullmatch(name) is None:
        faults.add(f"{cluster_table(name)} is not a name that MirrorMaker could use.", "Correct the name.")
    if BROKERS_TOO in client:
        problem = f"{BROKERS_TOO} is another name for the brokers, and would replace bootstrap_servers."
        faults.add(f"{table.where('client')}: {problem}", "Give the brokers as bootstrap_servers only.")
    if servers is None:
        return None
    if not isinstance(servers, Unknown) and not are_brokers(servers):
        # The text is not repeated: it may hold a login.
        table.fault("bootstrap_servers", "is not a list of brokers.", 'Write it like "kafka-1:9092,kafka-2:9092".')
    if "bootstrap.servers" in client:
        faults.add("bootstrap.servers is given twice.", "Give it as bootstrap_servers only.")
    return Cluster(name, servers, {"bootstrap.servers": servers, **client})


def _refuse_one_cluster(one: Cluster, other: Cluster, faults: Faults) -> None:
    servers, others = one.bootstrap_servers, other.bootstrap_servers
    if isinstance(servers, Unknown) or isinstance(others, Unknown):
        return
    both = f"{one.table} and {other.table}"
    if servers == others:
        faults.add(f"{both} have the same bootstrap_servers.", "Correct one of them.")
    elif are_brokers(servers) and are_brokers(others) and (shared := shared_brokers(servers, others)):
        problem = f"{both} both have {shared[0]} in bootstrap_servers: a broker is in one cluster."
        faults.add(problem, "Correct one of them.")


def registry(root: Table, faults: Faults) -> Properties:
    """``[registry]``: the keys of confluent-kafka's client of schema registries. Empty if it is left out."""
    found = root.mapping("registry")
    if not found:
        return ()
    urls = found.get("url", "")
    if not isinstance(urls, Unknown) and not all(_URL.match(each.strip()) for each in urls.split(",")):
        # The text is not repeated: it may hold a login.
        faults.add("[registry] url is not the address of a schema registry.", 'Write it like "http://host:8081".')
    for name in sorted({*found} & {*NUMBERS}):
        if _NUMBER.fullmatch(found[name]) is None and not isinstance(found[name], Unknown):
            faults.add(f"[registry] {name} is not a number.", "Correct it.")
    return tuple(sorted(found.items()))


def schema_text(table: Table) -> str:
    """A job's ``schema``, as the text of an Avro schema: it is given by its file's path, or is that text."""
    given: str = table.text("schema", "none")
    if given == "none" or isinstance(given, Unknown):
        return given
    try:
        text = given if given.lstrip()[:1] in ("{", "[") else Path(given).read_text(encoding="utf-8-sig")
        json.loads(text)
        return text
    except (OSError, ValueError) as error:
        table.fault("schema", f"cannot be read: {why(error)}.", "Name the file of an Avro schema (.avsc).")
        return "null"  # any will do: it lets the faults of the other settings be collected


def start_policy(table: Table, usual: PolicySettings) -> dict[str, Any]:
    """The fields of ``PolicySettings`` that a job may have of its own."""
    behind = table.choice("behind", Behind, usual.start.behind)
    start = StartPolicy(behind, table.count("max_replay", usual.start.max_replay, 0))
    return {"start": start, "no_anchor": table.choice("no_anchor", NoAnchor, usual.no_anchor)}


def own_policy(job: Table, usual: PolicySettings) -> PolicySettings | None:
    """``[jobs.policy]`` over ``[policy]``; None without that table."""
    table = job.table("policy")
    found = replace(usual, **start_policy(table, usual)) if table.is_there else None
    table.done()
    return found


def own_search(job: Table, usual: SearchSettings) -> SearchSettings | None:
    """``[jobs.search]`` over ``[search]``; None without that table."""
    table = job.table("search")
    found = None
    if table.is_there:
        disorder_ms = table.duration_ms("max_disorder", f"{usual.max_disorder_ms}ms")
        scan_records = table.count("scan_records", usual.scan_records, 1)
        found = replace(usual, max_disorder_ms=disorder_ms, scan_records=scan_records)
    table.done()
    return found


def search(table: Table) -> SearchSettings:
    settings = SearchSettings(
        max_disorder_ms=table.duration_ms("max_disorder", "0s"),
        scan_records=table.count("scan_records", 100_000, 1),
        deadline_s=table.duration_ms("deadline", "30s") / 1000,
        memory_mib=table.count("memory_mib", 1_024, 128),
    )
    if settings.deadline_s == 0:
        table.fault("deadline", "must be above 0.", "No cluster answers in no time.")
    table.done()
    return settings


def trust(table: Table) -> TrustSettings:
    settings = TrustSettings(
        trusted_keys=table.texts("trusted_keys", "must be a list of files."),
        require_signature=table.take("require_signature", bool, False),
        signing_key=_path(table, "signing_key"),
    )
    if settings.require_signature and not settings.trusted_keys and not table.is_faulty("trusted_keys"):
        table.fault(
            "require_signature",
            "is true, and no key is trusted.",
            "List the public keys of those who may sign, in trusted_keys.",
        )
    table.done()
    return settings


def _path(table: Table, key: str) -> str | None:
    """A file's path. The file's content would stand here if the path had been given as ``file:PATH``."""
    found: str | None = table.text(key)
    if found is not None and (not found or "\n" in found or "\0" in found):
        table.fault(key, "is not a file's path.", 'Give the path itself, without "file:".')
    return found


def naming(table: Table, clusters: Collection[str]) -> Naming:
    """``[topics]``: how the mirrors between ``clusters`` name topics."""
    rule: str = table.text("policy", TopicPolicy.DEFAULT)
    policy, template = TopicPolicy.DEFAULT, ""
    if "{" in rule:
        template = _template(table, rule, clusters)
    elif rule in (TopicPolicy.DEFAULT, TopicPolicy.IDENTITY):
        policy = TopicPolicy(rule)
    elif not isinstance(rule, Unknown):
        table.fault("policy", f'= "{rule}" is not one of default, identity.', _ONE_RULE)
    separator = table.text("separator", ".")
    names = {name: _names(each, clusters) for name, each in table.table("names").tables_by_name(clusters)}
    table.done()
    return Naming(policy, separator, template, names)


def _names(table: Table, clusters: Collection[str]) -> dict[Stream, str]:
    """The exceptions on one cluster: ``"TOPIC@ORIGIN" = "its name there"``."""
    found: dict[Stream, str] = {}
    for text, name in table.all_texts():
        try:
            stream = Stream.parse(text)
        except ValueError as error:
            table.fault(text, f"{error}.", 'Write it like "events@a" = "other-name".')
            continue
        if stream.origin not in clusters:
            table.fault(text, f'names the cluster "{stream.origin}".', f"Known are {', '.join(clusters)}.")
        elif not _may_be_topic(stream.topic) or not _may_be_topic(name):
            table.fault(text, f'= "{name}" has what is no topic\'s name.', f"List each topic. {_ONE_RULE}")
        else:
            found[stream] = name
    return found


def _may_be_topic(name: str) -> bool:
    return isinstance(name, Unknown) or TOPIC_NAME.fullmatch(name) is not None


def _template(table: Table, rule: str, clusters: Collection[str]) -> str:
    try:
        for cluster in clusters:
            TopicTemplate.of(rule, cluster)
    except ValueError as error:
        table.fault("policy", f'= "{rule}" {error}.', _ONE_RULE)
        return ""
    return rule


def home_of(table: Table, clusters: Collection[str]) -> str:
    """A job's ``home``."""
    return table.one_of("home", clusters, "the cluster where its topics are produced while nothing has failed")


Homes = Callable[[Mapping[str, Cluster | None], str | None, Mapping[str, Sequence[str]]], Mapping[str, str]]
"""Finds the homes of jobs whose tables leave them out, by the clusters, the state store's address, and the topics of
each such job. Raises ConfigError as a fault of the file; other errors end the reading."""


def any_home(
    clusters: Mapping[str, Cluster | None], _: str | None, jobs: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """``Homes`` for what needs the clusters and stores of a file, and none of its jobs."""
    return dict.fromkeys(jobs, next(iter(clusters)))


def with_homes(
    tables: list[Any], clusters: Mapping[str, Cluster | None], state: str | None, homes: Homes | None, faults: Faults
) -> list[Any]:
    """The jobs' tables, with homes where they leave them out. Where anything else is wrong, none is looked up."""
    lacking = {each["name"]: each["topics"] for each in tables if _lacks_home(each)}
    if not lacking or homes is None:
        return tables
    found: Mapping[str, str] = dict.fromkeys(lacking, Unknown())
    if not faults.found:
        with faults.collect():
            found = homes(clusters, state, lacking)
    return [{**each, "home": found[each["name"]]} if _lacks_home(each) else each for each in tables]


def _lacks_home(values: object) -> bool:
    """True if this is a job's table without a home, by which one can be looked up."""
    if not isinstance(values, dict) or "home" in values or not isinstance(values.get("name"), str):
        return False
    topics = values.get("topics")
    return isinstance(topics, list) and bool(topics) and all(isinstance(each, str) for each in topics)


def origins_of(table: Table, home: str, clusters: Collection[str]) -> tuple[str, ...]:
    """A job's ``origins``, its home among them."""
    origins = table.texts("origins", "must be a list of clusters.", 'For example origins = ["a", "b"].') or (home,)
    for name in origins:
        if name not in clusters and not isinstance(name, Unknown):
            table.fault("origins", f'has "{name}", which is not a cluster.', f"Known are {', '.join(clusters)}.")
    if home not in origins and not isinstance(home, Unknown) and not table.is_faulty("origins"):
        table.fault("origins", f'lacks the job\'s home, "{home}".', "Add it.")
    return origins


def job_groups(table: Table, clusters: Collection[str]) -> dict[str, str]:
    """A job's ``group`` by cluster, if it names one for each; empty if it is one name, or left out."""
    if not table.has_table("group"):
        return {}
    groups = table.table("group")
    found = {cluster: groups.required_text(cluster) for cluster in clusters}
    groups.done()
    return found


def watch(table: Table) -> WatchSettings:
    settings = WatchSettings(
        listen=table.text("listen", "127.0.0.1:9464"),
        every_ms=table.duration_ms("every", "60s"),
        requests_per_second=table.count("requests_per_second", 50, 1),
    )
    if settings.every_ms < 1:
        table.fault("every", "must be above 0.")
    table.done()
    return settings


def names(table: Table, kind: type[S]) -> S:
    """The settings of a table whose keys are the fields of ``kind``, each a text or left out."""
    settings = kind(**{field.name: table.filled_text(field.name) for field in fields(kind)})
    table.done()
    return settings


def state(table: Table) -> str | None:
    """The state store's address."""
    address = table.filled_text("store")
    table.done()
    return address


def job_topics(table: Table) -> tuple[str, ...]:
    """A job's ``topics`` and patterns of topics, without repetitions."""
    problem = "must be a list of different topic names."
    topics = table.texts("topics", problem, 'For example topics = ["events"].', required=True)
    if len({*topics}) < len(topics) or not (topics or table.is_faulty("topics")):
        table.fault("topics", problem, 'For example topics = ["events"].')
    for topic in topics:
        if not _may_be_topic(topic if isinstance(topic, Unknown) else topic.replace("*", "x")):
            problem = f'has "{topic}", which is not the name of a topic.'
            table.fault("topics", problem, 'A pattern has * for any characters, like "events_*".')
    return tuple(dict.fromkeys(topics))


def ignored_topics(table: Table, topics: Collection[str]) -> tuple[str, ...]:
    """A job's ``ignore_topics``: none of them is among its ``topics``."""
    ignored = table.texts("ignore_topics", "must be a list of topic names.")
    if both := [topic for topic in ignored if topic in topics]:
        table.fault("ignore_topics", f'has "{both[0]}", and so has topics.', "Remove it from one of them.")
    return ignored
