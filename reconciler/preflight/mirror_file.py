"""MirrorMaker's own configuration, as far as ``init`` can take it: aliases, the naming of topics, addresses, logins.

It is a properties file of the dedicated mode (``a->b.enabled = true``; Kafka's ``MirrorMakerConfig``), the properties
or JSON of one connector, or Strimzi's resource KafkaMirrorMaker2 as YAML or JSON. Pure but for the reading of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.config.settings import MirrorSettings
from reconciler.core.errors import ConfigError
from reconciler.core.question import TopicPolicy
from reconciler.kafka.mirror.topics import own_names
from reconciler.preflight.client_properties import SERVERS, parsed, text_of

_CONNECTION = re.compile(r"bootstrap\.servers|security\.protocol|(sasl|ssl(?!\.cipher))\..*")
_POLICY, _SEPARATOR = "replication.policy.class", "replication.policy.separator"
_ALIAS, _TARGET = "source.cluster.alias", "target.cluster.alias"
_STRIMZIS_OFFSETS = "mirrormaker2-cluster-offsets"
_MECHANISMS = {"scram-sha-512": "SCRAM-SHA-512", "scram-sha-256": "SCRAM-SHA-256", "plain": "PLAIN"}


@dataclass(frozen=True, slots=True)
class Flow:
    """One direction of a mirror: both clusters' names, their clients' properties as Java has them, and the properties
    of its source and checkpoint connectors. ``offsets_topic``: where its worker keeps positions."""

    source: str
    target: str
    source_client: Mapping[str, str]
    target_client: Mapping[str, str]
    connector: Mapping[str, str]
    checkpoints: Mapping[str, str]
    offsets_topic: str | None = None

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


@dataclass(frozen=True, slots=True)
class Naming:
    """How a flow names topics, in a configuration's words. ``topics``: patterns of the source's names, as Java's
    regular expressions; None: all. ``note``: what does not fit in the flow itself."""

    alias: str
    policy: TopicPolicy
    separator: str
    template: str = ""
    own: MirrorSettings = field(default_factory=MirrorSettings)
    topics: tuple[str, ...] | None = None
    note: str = ""


def read_flows(path: Path) -> list[Flow]:
    """The flows of a file. Raises ConfigError if it cannot be read, or has none."""
    text = text_of(path, "--mirror-properties")
    if "apiVersion" in text or text.lstrip().startswith("{"):
        found = [flow for each in _documents(text, path) for flow in _of_document(each)]
    else:
        found = list(_of_properties(parsed(text, str(path))))
    if not found:
        raise ConfigError(
            f"{path} has no flow of a mirror.",
            hint="Give MirrorMaker's properties (with A->B.enabled = true), those of its source connector, or a "
            "KafkaMirrorMaker2 of Strimzi.",
        )
    return found


def naming(flow: Flow, path: Path) -> Naming:
    """Raises ConfigError for a naming policy that is not MirrorMaker's own."""
    policy, separator, alias = _rule(flow.connector, flow, path)
    at_checkpoints = _rule(flow.checkpoints, flow, path) if flow.checkpoints is not flow.connector else None
    note = ""
    if at_checkpoints is not None and at_checkpoints != (policy, separator, alias):
        note = (
            f"{path}: the checkpoint connector of {flow} has another {_POLICY} or {_SEPARATOR} than the source "
            "connector, so its checkpoints name topics that are not there: give both the same"
        )
    template = ""
    if policy is TopicPolicy.DEFAULT and not alias:  # an empty alias leaves only the separator in front
        template = f"{separator}{{topic}}" if separator else ""
        policy = TopicPolicy.NAMES if template else TopicPolicy.IDENTITY
    patterns = flow.connector.get("topics", "").split(",")
    topics = tuple(pattern.strip() for pattern in patterns if pattern.strip())
    own = _own(flow, alias, separator, (at_checkpoints or ("", separator))[1])
    return Naming(alias or flow.source, policy, separator or ".", template, own, topics or None, note)


def _rule(connector: Mapping[str, str], flow: Flow, path: Path) -> tuple[TopicPolicy, str, str]:
    """Policy, separator and alias of one connector."""
    separator, alias = connector.get(_SEPARATOR, "."), connector.get(_ALIAS, flow.source)
    policies = {"": TopicPolicy.DEFAULT, "DefaultReplicationPolicy": TopicPolicy.DEFAULT}
    policies["IdentityReplicationPolicy"] = TopicPolicy.IDENTITY
    given = connector.get(_POLICY, "")
    policy = policies.get(given.rpartition(".")[2])
    if policy is None:
        raise ConfigError(
            f"{path}: {given} names the topics of {flow}, and is none of MirrorMaker's own policies.",
            hint="Say how it names them: --policy '{cluster}_{topic}', or --policy default or identity.",
        )
    return policy, separator, alias


def _own(flow: Flow, alias: str, separator: str, at_checkpoints: str) -> MirrorSettings:
    """The names of MirrorMaker's topics at the target that do not follow from the alias and separator written."""
    usual = [own_names(alias or flow.source, mark) for mark in (separator or ".", ".")]
    syncs = own_names(alias, separator).offset_syncs_topic if _keeps_syncs_at_target(flow) else None
    theirs = own_names(alias, at_checkpoints)
    offsets = flow.offsets_topic
    return MirrorSettings(
        None if syncs in [each.offset_syncs_topic for each in usual] else syncs,
        None if theirs.checkpoints_topic in [each.checkpoints_topic for each in usual] else theirs.checkpoints_topic,
        None if offsets == f"mm2-offsets.{alias or flow.source}.internal" else offsets,
    )


def _keeps_syncs_at_target(flow: Flow) -> bool:
    return flow.connector.get("offset-syncs.topic.location", "source") == "target"


# ---------------------------------------------------------------- properties


def _of_properties(given: Mapping[str, str]) -> Iterator[Flow]:
    if _TARGET in given or "connector.class" in given:
        yield from _of_connector(given)
        return
    names = [name.strip() for name in given.get("clusters", "").split(",") if name.strip()]
    for source in names:
        for target in (each for each in names if each != source):
            front = f"{source}->{target}."
            if given.get(f"{front}enabled", "").strip().lower() != "true":
                continue
            connector = {**given, **_stripped(given, front)}
            offsets = given.get(f"{target}.offset.storage.topic", f"mm2-offsets.{source}.internal")
            clients = (
                _client(given, f"{source}.", with_common=True),
                _client(given, f"{target}.", with_common=True),
            )
            yield Flow(source, target, *clients, connector, connector, offsets)


def _of_connector(given: Mapping[str, str]) -> Iterator[Flow]:
    """The properties of a source connector, or of a checkpoint connector, in a Connect worker."""
    kind = given.get("connector.class", "MirrorSourceConnector" if _ALIAS in given else "").rpartition(".")[2]
    if kind in ("MirrorSourceConnector", "MirrorCheckpointConnector"):
        source, target = given.get(_ALIAS, "source"), given.get(_TARGET, "target")
        clients = (_client(given, "source.cluster."), _client(given, "target.cluster."))
        yield Flow(source, target, *clients, given, given)


def _client(given: Mapping[str, str], front: str, *, with_common: bool = False) -> dict[str, str]:
    """The connection's properties of one cluster; those without a cluster in front are of all clusters."""
    of_all = given if with_common else {}
    found = {**of_all, **_stripped(given, front)}
    return {name: value for name, value in found.items() if _CONNECTION.fullmatch(name)}


def _stripped(given: Mapping[str, str], front: str) -> dict[str, str]:
    return {name.removeprefix(front): value for name, value in given.items() if name.startswith(front)}


# ---------------------------------------------------------------- Strimzi's resources, and JSON


def _documents(text: str, path: Path) -> list[Mapping[str, Any]]:
    try:
        found = [json.loads(text)] if text.lstrip().startswith("{") else _yaml_documents(text)
    except ImportError as error:
        raise ConfigError(f"{path} is YAML, which needs PyYAML.", hint="Run: pip install pyyaml") from error
    except ValueError as error:  # its text is not repeated: it may hold a password
        raise ConfigError(f"{path} is neither JSON nor YAML.", hint="Correct it.") from error
    listed = [item for each in found if isinstance(each, dict) for item in each.get("items", [each])]
    return [each for each in listed if isinstance(each, dict)]


def _yaml_documents(text: str) -> list[Any]:
    import yaml  # only for this, and not installed with the product

    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise ValueError from error


def _of_document(content: Mapping[str, Any]) -> Iterator[Flow]:
    spec = _table(content, "spec")
    match content.get("kind"):
        case "KafkaMirrorMaker2":
            yield from _of_strimzi(spec)
        case "KafkaConnector":
            yield from _of_connector({"connector.class": str(spec.get("class", "")), **_texts(_table(spec, "config"))})
        case None:
            yield from _of_connector(_texts(_table(content, "config") or content))


def _of_strimzi(spec: Mapping[str, Any]) -> Iterator[Flow]:
    """Its ``v1beta2``, which lists the clusters apart, and its ``v1``."""
    clusters = {str(each.get("alias")): each for each in _tables(spec, "clusters")}
    worker = _table(spec, "target")
    for each in _tables(spec, "mirrors"):
        source = _table(each, "source") or clusters.get(str(each.get("sourceCluster")), {})
        target = worker or clusters.get(str(each.get("targetCluster", spec.get("connectCluster"))), {})
        names = [str(side.get("alias", other)) for side, other in ((source, each.get("sourceCluster")), (target, None))]
        config = _texts(_table(target, "config"))
        offsets = str(target.get("offsetStorageTopic") or config.get("offset.storage.topic", _STRIMZIS_OFFSETS))
        connector = _texts(_table(_table(each, "sourceConnector"), "config"))
        if pattern := each.get("topicsPattern"):
            connector.setdefault("topics", str(pattern))
        checkpoints = connector
        if "checkpointConnector" in each:
            checkpoints = _texts(_table(_table(each, "checkpointConnector"), "config"))
        clients = (_strimzis_client(source), _strimzis_client(target))
        yield Flow(names[0], names[1], *clients, connector, checkpoints, offsets)


def _strimzis_client(cluster: Mapping[str, Any]) -> dict[str, str]:
    """Its address, and its login as far as the resource has it: passwords and certificates are in Secrets."""
    client = {name: value for name, value in _texts(_table(cluster, "config")).items() if _CONNECTION.fullmatch(name)}
    if servers := cluster.get("bootstrapServers"):
        client[SERVERS] = str(servers)
    login = _table(cluster, "authentication")
    mechanism = _MECHANISMS.get(str(login.get("type", "")).lower())
    if mechanism:
        client |= {"sasl.mechanism": mechanism, "sasl.username": str(login.get("username", ""))}
        client["sasl.password"] = "${RECONCILER_SASL_PASSWORD}"
    if "tls" in cluster or mechanism:
        protocol = "SSL" if "tls" in cluster else "PLAINTEXT"
        client["security.protocol"] = f"SASL_{protocol}" if mechanism else protocol
    return client


def _table(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = content.get(key)
    return found if isinstance(found, dict) else {}


def _tables(content: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    found = content.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _texts(content: Mapping[str, Any]) -> dict[str, str]:
    """Values as a connector gets them: YAML's ``true`` is a text there."""
    return {
        name: str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)
        for name, value in content.items()
        if not isinstance(value, dict | list)
    }
