"""MirrorMaker's own configuration: what ``init`` takes from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.config.settings import MirrorSettings
from reconciler.core.errors import ConfigError
from reconciler.core.question import TopicPolicy
from reconciler.preflight.mirror_file import Flow, Naming, naming, read_flows

TWO = """
clusters = a, b
a.bootstrap.servers = kafka-a:9092
b.bootstrap.servers = kafka-b:9092
b.security.protocol = SASL_SSL
b.sasl.mechanism = SCRAM-SHA-512
b.offset.storage.replication.factor = 1
security.protocol = SSL
a->b.enabled = true
a->b.topics = orders, clicks.*
"""
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.fixture
def flows(tmp_path: Path) -> Callable[[str], list[Flow]]:
    def read(text: str) -> list[Flow]:
        path = tmp_path / "mm2"
        path.write_text(text)
        return read_flows(path)

    return read


@pytest.fixture
def named(flows) -> Callable[[str], Naming]:
    def of(text: str) -> Naming:
        (flow,) = flows(text)
        return naming(flow, Path("mm2"))

    return of


def test_a_flow_has_both_clusters_and_the_settings_that_all_share(flows) -> None:
    (flow,) = flows(TWO)
    assert str(flow) == "a->b"
    assert flow.source_client == {"bootstrap.servers": "kafka-a:9092", "security.protocol": "SSL"}
    assert flow.target_client == {
        "bootstrap.servers": "kafka-b:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
    }


def test_each_enabled_direction_is_a_flow(flows) -> None:
    assert list(map(str, flows(f"{TWO}b->a.enabled = true\n"))) == ["a->b", "b->a"]
    assert list(map(str, flows(TWO.replace("a, b", "a, b, c") + "c->b.enabled = true\n"))) == ["a->b", "c->b"]
    with pytest.raises(ConfigError, match="has no flow of a mirror"):
        flows(TWO.replace("enabled = true", "enabled = false"))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", Naming("a", TopicPolicy.DEFAULT, ".")),
        ("replication.policy.separator = _\n", Naming("a", TopicPolicy.DEFAULT, "_")),
        ("replication.policy.separator=_\na->b.replication.policy.separator=-", Naming("a", TopicPolicy.DEFAULT, "-")),
        (f"replication.policy.class = {IDENTITY}\n", Naming("a", TopicPolicy.IDENTITY, ".")),
        (
            "source.cluster.alias = dc1\na->b.offset-syncs.topic.location = target\n",
            Naming("dc1", TopicPolicy.DEFAULT, ".", own=MirrorSettings(offsets_topic="mm2-offsets.a.internal")),
        ),
        (
            "source.cluster.alias =\nreplication.policy.separator =\noffset-syncs.topic.location = target\n",
            Naming(
                *("a", TopicPolicy.IDENTITY, "."),
                own=MirrorSettings("mm2-offset-syncsinternal", "checkpointsinternal"),
            ),
        ),
        (
            "source.cluster.alias =\nreplication.policy.separator = _\n",
            Naming(
                *("a", TopicPolicy.NAMES, "_", "_{topic}"),
                own=MirrorSettings(None, "_checkpoints_internal"),
            ),
        ),
        (
            "b.offset.storage.topic = worker-offsets\n",
            Naming("a", TopicPolicy.DEFAULT, ".", own=MirrorSettings(offsets_topic="worker-offsets")),
        ),
    ],
)
def test_the_names_of_topics_follow_from_the_flows_properties(named, more: str, expected: Naming) -> None:
    found = named(TWO + more)
    assert found.topics == ("orders", "clicks.*")
    assert (found.alias, found.policy, found.separator, found.template, found.own) == (
        *(expected.alias, expected.policy, expected.separator),
        *(expected.template, expected.own),
    )


def test_a_policy_of_others_is_refused_by_its_name(named) -> None:
    with pytest.raises(ConfigError, match=r"io\.example\.Suffix names the topics of a->b") as caught:
        named(f"{TWO}replication.policy.class = io.example.Suffix\n")
    assert "--policy '{cluster}_{topic}'" in (caught.value.hint or "")


CONNECTOR = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "east",
    "target.cluster.alias": "west",
    "source.cluster.bootstrap.servers": "east:9092",
    "target.cluster.bootstrap.servers": "west:9092",
    "target.cluster.security.protocol": "SSL",
    "replication.policy.separator": "-",
}


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{name}={value}\n" for name, value in CONNECTOR.items()),
        json.dumps(CONNECTOR),
        json.dumps({"name": "mirror", "config": CONNECTOR}),
    ],
)
def test_a_connector_is_a_flow(flows, text: str) -> None:
    (flow,) = flows(text)
    assert str(flow) == "east->west"
    assert flow.target_client == {"bootstrap.servers": "west:9092", "security.protocol": "SSL"}
    assert naming(flow, Path("mm2")).separator == "-"


STRIMZI = """
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
spec:
  connectCluster: west
  clusters:
    - alias: east
      bootstrapServers: east:9092
    - alias: west
      bootstrapServers: west:9093
      tls: {trustedCertificates: [{secretName: west-ca, certificate: ca.crt}]}
      authentication:
        type: scram-sha-512
        username: mm2
        passwordSecret: {secretName: mm2, password: password}
  mirrors:
    - sourceCluster: east
      targetCluster: west
      topicsPattern: "orders|clicks"
      sourceConnector:
        config: {replication.policy.separator: "-", offset-syncs.topic.location: target}
      checkpointConnector:
        config: {replication.policy.separator: "-", sync.group.offsets.enabled: true}
"""


def test_strimzis_resource_is_a_flow_without_the_password(flows) -> None:
    (flow,) = flows(STRIMZI)
    assert (str(flow), flow.source_client) == ("east->west", {"bootstrap.servers": "east:9092"})
    assert flow.target_client == {
        "bootstrap.servers": "west:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "mm2",
        "sasl.password": "${RECONCILER_SASL_PASSWORD}",
    }
    own = MirrorSettings(offsets_topic="mirrormaker2-cluster-offsets")
    assert naming(flow, Path("mm2")) == Naming("east", TopicPolicy.DEFAULT, "-", own=own, topics=("orders|clicks",))


def test_strimzis_newer_resource_has_its_target_and_sources_in_other_places(flows) -> None:
    (flow,) = flows(
        """
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
spec:
  target: {alias: west, bootstrapServers: "west:9092", offsetStorageTopic: dr-offsets}
  mirrors:
    - source: {alias: east, bootstrapServers: "east:9092"}
      sourceConnector: {}
"""
    )
    assert str(flow) == "east->west"
    assert (flow.target_client, flow.offsets_topic) == ({"bootstrap.servers": "west:9092"}, "dr-offsets")


def test_a_policy_in_one_connector_only_is_reported(named) -> None:
    one = STRIMZI.replace('{replication.policy.separator: "-", sync', "{sync")
    found = named(one)
    assert "the checkpoint connector of east->west has another replication.policy" in found.note
    assert found.own.checkpoints_topic is None, "it is the usual one, with a dot"
    assert not named(STRIMZI).note


@pytest.mark.parametrize("text", ["apiVersion: v1\nkind: Secret\n", '{"a": 1}', "group.id=x\n"])
def test_a_file_without_a_mirror_is_refused(flows, text: str) -> None:
    with pytest.raises(ConfigError, match="has no flow of a mirror"):
        flows(text)


def test_a_broken_file_is_not_repeated(flows) -> None:
    with pytest.raises(ConfigError, match="neither JSON nor YAML") as caught:
        flows("apiVersion: x\nkind: KafkaMirrorMaker2\npassword: [s3cret")
    assert "s3cret" not in str(caught.value)
