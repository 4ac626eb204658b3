"""Who leads the partitions of a lab cluster of several brokers, and how to change that.

Two steps, so that the second is quick: ``prefer`` puts another replica first (a tool of Kafka's own, a second or two),
and ``elect`` gives the first replicas the lead (milliseconds, and no broker stops). Or a leader dies, and the
controller chooses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from reconciler.core.errors import Unreachable
from reconciler.lab.broker import java_command
from reconciler.lab.kafka import KafkaCluster
from reconciler.lab.processes import Child

_SECONDS = 60


def leaders(cluster: KafkaCluster, topic: str) -> dict[int, int]:
    """The leader of each partition, -1 where there is none."""
    return {number: known.leader for number, known in _known(cluster, topic).items()}


def in_sync(cluster: KafkaCluster, topic: str) -> dict[int, frozenset[int]]:
    """The brokers of each partition that are in sync."""
    return {number: frozenset(known.isrs) for number, known in _known(cluster, topic).items()}


def prefer(cluster: KafkaCluster, topic: str, first: Mapping[int, int]) -> None:
    """Make ``first[partition]``, one of its replicas, the preferred leader. The leader stays until ``elect``."""
    known = _known(cluster, topic)
    rows = [
        {
            "topic": topic,
            "partition": number,
            "replicas": [to, *(each for each in known[number].replicas if each != to)],
        }
        for number, to in first.items()
    ]
    wanted = cluster.directory / "reassignment.json"
    wanted.write_text(json.dumps({"version": 1, "partitions": rows}), encoding="utf-8")
    command = java_command(
        cluster.jars,
        "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
        *("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(wanted), "--execute"),
        heap="128m",
    )
    tool = Child("The reassignment", command, cluster.directory / "reassignment.log", cwd=cluster.directory)
    if tool.wait(_SECONDS) != 0:
        raise Unreachable(f"{tool.name} failed.", hint=f"Its log, {tool.log}, ends: {tool.log_tail()}")
    await_that(cluster, lambda: _first_replicas(cluster, topic, first), f"the new order of {topic}'s replicas")


def elect(cluster: KafkaCluster, topic: str, *, unclean: bool = False) -> None:
    """Give the preferred replicas the lead; with ``unclean``, where nobody leads, any replica that lives."""
    from confluent_kafka import ElectionType, KafkaError, TopicPartition

    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
    asked = [TopicPartition(topic, number) for number in _known(cluster, topic)]
    # Without its own timeouts: in confluent-kafka 2.16 the call fails on them ("more argument specifiers than …").
    answers = cluster.admin().elect_leaders(kind, asked).result(_SECONDS)
    for place, error in answers.items():
        if error is not None and error.code() != KafkaError.ELECTION_NOT_NEEDED:
            raise Unreachable(f"Partition {place.partition} of {topic} got no new leader: {error.str()}.")

    def done() -> bool:
        known = _known(cluster, topic).values()
        return all(each.leader == each.replicas[0] or (unclean and each.leader >= 0) for each in known)

    await_that(cluster, done, f"the new leaders of {topic}")


def await_that(cluster: KafkaCluster, condition: Callable[[], bool], what: str) -> None:
    """Wait until it is so; fails when a minute has passed or the last broker has died."""
    living = next(broker for broker in cluster.brokers if broker.running)
    living.process.wait_until(condition, _SECONDS, what)


def _known(cluster: KafkaCluster, topic: str) -> Mapping[int, Any]:
    """The topic's partitions as the cluster knows them now."""
    partitions: Mapping[int, Any] = cluster.admin().list_topics(topic, timeout=10).topics[topic].partitions
    return partitions


def _first_replicas(cluster: KafkaCluster, topic: str, first: Mapping[int, int]) -> bool:
    known = _known(cluster, topic)
    return all(known[number].replicas[0] == to for number, to in first.items())
