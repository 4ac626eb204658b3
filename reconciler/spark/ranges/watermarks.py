"""The cluster's topics, first offsets and ends, looked up for planning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.core.anchors import Record
from reconciler.core.errors import Changed, Unreachable
from reconciler.ports import ClusterInfo, LogReader, ReadRequest, TopicPartition
from reconciler.spark.ranges.planning import LogEdges

LOOK_BACK = 200
"""Offsets before a log's end that are searched for its last record. Gaps there are transaction markers."""
TIMEOUT_S = 10.0


def look(reader: LogReader, topics: Iterable[str], committed: Mapping[str, Any] | None = None) -> LogEdges:
    """The topics' partitions and edges. With ``committed``, the client's properties, the end is the last stable offset:
    a ``read_committed`` reader does not pass it.

    Raises Unreachable and Refused, and Changed for a topic that was recreated meanwhile.
    """
    wanted = sorted(set(topics))
    seen = reader.describe(wanted)
    while True:
        partitions = _partitions(seen)
        if not partitions:
            return LogEdges(seen, {}, {})
        starts = reader.log_starts(partitions)
        ends = reader.log_ends(partitions) if committed is None else _stable_ends(partitions, committed)
        now = reader.describe(wanted)
        if seen.cluster_id != now.cluster_id or _ids(seen) != _ids(now):
            raise Changed(
                "A topic was deleted or recreated while its partitions were looked up.", hint="Run this again."
            )
        if partitions == _partitions(now):
            return LogEdges(now, starts, ends)
        seen = now  # partitions were added: they have edges, too


def last_records(reader: LogReader, log: LogEdges, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
    """Each partition's last record before an offset, where there is one within ``LOOK_BACK`` offsets."""
    wanted = [at for at, end in ends.items() if end > log.starts[at]]
    requests = [ReadRequest(at, max(log.starts[at], ends[at] - LOOK_BACK), LOOK_BACK) for at in wanted]
    found = {}
    for at, chunk in zip(wanted, reader.read(requests) if requests else (), strict=True):
        before = [record for record in chunk.records if record.offset < ends[at]]
        if before:
            found[at] = before[-1]
    return found


def _partitions(cluster: ClusterInfo) -> list[TopicPartition]:
    return [TopicPartition(info.name, number) for info in cluster.topics.values() for number in info.partitions]


def _ids(cluster: ClusterInfo) -> dict[str, str | None]:
    return {name: info.topic_id for name, info in cluster.topics.items()}


def _stable_ends(partitions: list[TopicPartition], client: Mapping[str, Any]) -> dict[TopicPartition, int]:
    from confluent_kafka import IsolationLevel, KafkaException
    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import OffsetSpec

    from reconciler.kafka.connection import Connection

    connection, doing = Connection(client, timeout_s=TIMEOUT_S, whose="job's"), "look up the last stable offsets"
    wanted = {KafkaPartition(at.topic, at.partition): OffsetSpec.latest() for at in partitions}
    admin = connection.admin()  # kept until the last answer: a collected client gives none
    try:
        futures = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT_S)
        return {TopicPartition(at.topic, at.partition): future.result().offset for at, future in futures.items()}
    except KafkaException as error:
        failure = connection.failure(error, doing)
        assert isinstance(failure, Unreachable)
        raise failure from error
