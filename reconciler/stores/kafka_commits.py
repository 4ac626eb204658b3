"""A group's commits, read again and again over months: by a consumer that never joins.

The admin client's request for them (librdkafka 2.16, its issue 5040) ends the whole process where a broker answers that
another one is the group's coordinator, which happens whenever a coordinator is restarted or moved. A consumer of the
group asks the same of the broker and looks for the new coordinator itself. It joins nothing as long as it subscribes to
nothing, so that live members are not disturbed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from reconciler.core.errors import ConfigError
from reconciler.kafka_client.connection import Connection
from reconciler.kafka_client.errors import TOPIC_GONE, Needs
from reconciler.ports import Row, TopicPartition
from reconciler.stores import common
from reconciler.stores.kafka_group import TIMEOUT_S, KafkaGroupStore, _row
from reconciler.stores.kafka_rows import Committed

NEVER_JOINS = {"enable.auto.commit": False, "enable.auto.offset.store": False, "isolation.level": "read_committed"}
"""Offsets in an open transaction are waited for."""


class GroupCommits(KafkaGroupStore):
    """The group store of one cluster, for whoever goes on reading it. Writing is the same."""

    def __init__(self, client: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(client, timeout_s=timeout_s)
        self._connection = Connection(client, timeout_s=timeout_s)
        self._consumers: dict[str, Any] = {}
        self._admin: Any = None

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows of the given topics, ordered by topic and partition. The topics must be named."""
        common.check_name("group's name", group)
        if topics is None:
            raise ConfigError("A group's commits are read by topic, and no topic was named.")
        doing = f"read the offsets of group {group!r}"
        needs = Needs(topic="Describe on the job's topics", group=f"Describe on group {group!r}")
        try:
            if self._admin is None:
                admin = self._connection.admin()
                self._connection.describe_cluster(admin, doing)  # says it at once if one does not get in at all
                self._admin = admin
            found = self._committed(group, topics)
        except KafkaException as error:
            raise self._connection.failure(error, doing, needs) from error
        return [_row(key, found[key]) for key in sorted(found)]

    def _committed(self, group: str, topics: Iterable[str]) -> dict[TopicPartition, Committed]:
        if group not in self._consumers:
            self._consumers[group] = self._connection.consumer({**NEVER_JOINS, "group.id": group})
        consumer, timeout_s = self._consumers[group], self._connection.timeout_s
        asked = []
        for name in sorted(set(topics)):
            known = consumer.list_topics(name, timeout=timeout_s).topics[name]
            if known.error is not None and known.error.code() not in TOPIC_GONE:
                raise KafkaException(known.error)
            asked += [KafkaPartition(name, number) for number in known.partitions]
        rows = consumer.committed(asked, timeout=timeout_s) if asked else []
        for row in rows:
            if row.error is not None:
                raise KafkaException(row.error)
        return {
            TopicPartition(row.topic, row.partition): Committed(row.offset, row.metadata or "")
            for row in rows
            if row.offset >= 0
        }

    def close(self) -> None:
        super().close()
        while self._consumers:
            self._consumers.popitem()[1].close()
        self._admin = None
