"""What the cluster has now, as planning needs it: topics, first offsets, ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reconciler.core.anchors import Record
from reconciler.core.errors import Changed, Unreachable
from reconciler.ports import LogReader, ReadRequest, TopicPartition
from reconciler.spark.ranges.planning import Log

LOOK_BACK = 200
"""Offsets in front of a log's end in which its last record is looked for. Gaps there are transaction markers."""
TIMEOUT_S = 10.0


def look(reader: LogReader, topics: Iterable[str], committed: Mapping[str, Any] | None = None) -> Log:
    """The topics' partitions and edges. ``committed`` is the client's properties, if the end is to be the last stable
    offset, which a ``read_committed`` reader does not pass.

    Raises Unreachable and Refused, and Changed for a topic that was made anew meanwhile.
    """
    before = reader.describe(sorted(set(topics)))
    partitions = [TopicPartition(info.name, number) for info in before.topics.values() for number in info.partitions]
    if not partitions:
        return Log(before, {}, {})
    starts = reader.log_starts(partitions)
    ends = reader.log_ends(partitions) if committed is None else _stable_ends(partitions, committed)
    after = reader.describe(sorted(set(topics)))
    if before.cluster_id != after.cluster_id or _ids(before) != _ids(after):
        raise Changed("A topic was deleted or made anew while it was looked at.", hint="Run this again.")
    return Log(after, starts, ends)


def last_records(reader: LogReader, log: Log, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, Record]:
    """Each partition's last record before an offset, where there is one not far in front of it."""
    asked = [at for at, end in ends.items() if end > log.starts[at]]
    requests = [ReadRequest(at, max(log.starts[at], ends[at] - LOOK_BACK), LOOK_BACK) for at in asked]
    found = {}
    for at, chunk in zip(asked, reader.read(requests) if requests else (), strict=True):
        before = [record for record in chunk.records if record.offset < ends[at]]
        if before:
            found[at] = before[-1]
    return found


def _ids(cluster: Any) -> dict[str, str | None]:
    return {name: info.topic_id for name, info in cluster.topics.items()}


def _stable_ends(partitions: list[TopicPartition], client: Mapping[str, Any]) -> dict[TopicPartition, int]:
    from confluent_kafka import IsolationLevel, KafkaException
    from confluent_kafka import TopicPartition as KafkaPartition
    from confluent_kafka.admin import OffsetSpec

    from reconciler.kafka.connection import Connection

    connection, doing = Connection(client, timeout_s=TIMEOUT_S, whose="job's"), "look up the last stable offsets"
    wanted = {KafkaPartition(at.topic, at.partition): OffsetSpec.latest() for at in partitions}
    admin = connection.admin()  # held until the last answer: without it the answers would not come
    try:
        futures = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT_S)
        return {TopicPartition(at.topic, at.partition): future.result().offset for at, future in futures.items()}
    except KafkaException as error:
        failure = connection.failure(error, doing)
        assert isinstance(failure, Unreachable)
        raise failure from error
