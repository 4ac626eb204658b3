"""Which broker leads each partition, as the cluster's metadata says now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection

from reconciler.kafka.connection import Connection
from reconciler.kafka.errors import Needs
from reconciler.ports import TopicPartition


def leaders_of(client: Mapping[str, Any], topics: Collection[str], *, timeout_s: float) -> dict[TopicPartition, int]:
    """The leaders' broker ids; a partition that has none at the moment is left out, as is a topic that is not there.

    They say which searches to put together and nothing else: whoever reads finds the leader of that moment. Raises
    ``Unreachable`` and ``Refused`` as a log does.
    """
    connection = Connection(client, timeout_s=timeout_s, whose="destination")
    admin = connection.admin()
    described = admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=timeout_s)
    found: dict[TopicPartition, int] = {}
    for name, future in described.items():
        try:
            partitions = future.result().partitions
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                continue
            needs = Needs(topic=f'Describe on topic "{name}"')
            raise connection.failure(error, f'look up the leaders of topic "{name}"', needs) from error
        found.update(
            (TopicPartition(name, each.id), each.leader.id)
            for each in partitions
            if each.leader is not None and each.leader.id >= 0
        )
    return found
