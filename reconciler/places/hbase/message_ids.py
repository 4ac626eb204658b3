"""The message ids in a flowlet's rows, read from the log that its offsets belong to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing

from reconciler.core.anchors import Record
from reconciler.core.errors import ConfigError, Refused
from reconciler.kafka.reader import KafkaLogReader
from reconciler.places.hbase.layouts.flowlet import as_message_id
from reconciler.ports import ReadRequest, TopicPartition

TIMEOUT_S = 10.0


def message_ids(
    places: Mapping[TopicPartition, int],
    *,
    id_of: Callable[[Record], bytes | None],
    client: Mapping[str, str] | None,
    timeout_s: float = TIMEOUT_S,
) -> dict[TopicPartition, int | None]:
    """The id (by ``id_of``) of the first record at or after each offset, None where there is no such record or topic.

    ``client`` holds the cluster's librdkafka properties. Raises ConfigError without them, Unreachable without an answer
    in time, and Refused where the cluster refuses or a record has no id of 8 bytes.
    """
    if not client:
        raise ConfigError(
            "Writing a flowlet's row takes the cluster's client settings, and there are none.",
            hint="Set its bootstrap_servers under [clusters].",
        )
    with closing(KafkaLogReader(client, timeout_s=timeout_s)) as log:
        topics = log.describe({key.topic for key in places}).topics
        requests = [
            ReadRequest(key, offset, max_records=1)
            for key, offset in places.items()
            if key.topic in topics and topics[key.topic].has(key.partition)
        ]
        ids: dict[TopicPartition, int | None] = dict.fromkeys(places)
        for request, chunk in zip(requests, log.read(requests), strict=True):
            if chunk.records:
                ids[request.partition] = _number(request.partition, chunk.records[0], id_of)
    return ids


def _number(key: TopicPartition, record: Record, id_of: Callable[[Record], bytes | None]) -> int:
    found = id_of(record)
    number = as_message_id(found)
    if number is None:
        raise Refused(
            f"The record at {key}, offset {record.offset}, has no message id that is a number"
            f" of 8 bytes (the function returned {'nothing' if found is None else f'{len(found)} bytes'}).",
            hint="Correct id_of in the store's address: it must return a record's id as a whole number.",
        )
    return number
