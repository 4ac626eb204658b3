"""Who leads the partitions of a lab cluster of several brokers, and how to change that.

Two steps, so that the second is quick: ``prefer`` puts another replica first (a tool of Kafka's own, a second or two),
and ``elect`` gives the first replicas the lead (milliseconds, and no broker stops). Or a leader dies, and the
controller chooses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from reconciler.core.errors import Unreachable
from reconciler.demo.lab.in_use import admin_client
from reconciler.demo.lab.kafka import java_command
from reconciler.demo.lab.processes import Child
from tests.demo.lab.kafka import KafkaCluster

T = TypeVar("T")
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
    """Elect the preferred replicas once they are in sync; with ``unclean``, give leaderless partitions to any live
    replica, even one that lacks records."""
    from confluent_kafka import ElectionType, TopicPartition

    kind = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED

    def done() -> bool:
        known = _known(cluster, topic)
        if all(each.leader == each.replicas[0] or (unclean and each.leader >= 0) for each in known.values()):
            return True
        asked = [TopicPartition(topic, number) for number in known]
        # Without its own timeouts: in confluent-kafka 2.16 the call fails on them ("more argument specifiers than …").
        cluster.admin().elect_leaders(kind, asked).result(_SECONDS)  # a refusal may be one for the moment: see above
        return False

    await_that(cluster, done, f"the new leaders of {topic}")


def await_that(cluster: KafkaCluster, condition: Callable[[], T | None], what: str) -> T:
    """Wait until it is so; fails when a minute has passed or the last broker has died."""
    living = next(broker for broker in cluster.brokers if broker.running)
    return living.process.wait_until(condition, _SECONDS, what)


def _known(cluster: KafkaCluster, topic: str) -> Mapping[int, Any]:
    """The partitions as all brokers that answer know them: one that was away may know old things for a while."""
    return await_that(cluster, lambda: _agreed(cluster, topic), f"agreement on {topic}")


def _agreed(cluster: KafkaCluster, topic: str) -> Mapping[int, Any] | None:
    views: list[Mapping[int, Any]] = []
    for broker in cluster.brokers:
        if broker.answers:
            # A new client knows one broker only, so that is the one it asks.
            views.append(admin_client(broker.address).list_topics(topic, timeout=10).topics[topic].partitions)
    same = {repr([(n, each.leader, each.replicas, sorted(each.isrs)) for n, each in sorted(v.items())]) for v in views}
    return views[0] if len(same) == 1 else None


def _first_replicas(cluster: KafkaCluster, topic: str, first: Mapping[int, int]) -> bool:
    known = _known(cluster, topic)
    return all(known[number].replicas[0] == to for number, to in first.items())
