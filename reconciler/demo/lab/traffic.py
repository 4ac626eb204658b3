"""Traffic for the demo and the lab: records whose offsets cannot be the same on both clusters.

Two things make them diverge: a prefix deleted from the source before it was mirrored, and transaction markers, which
take offsets at the source and are not mirrored. A burst of records shares each timestamp, because a search by time
alone cannot distinguish such records.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.demo.lab.in_use import ClusterInUse

log = logging.getLogger(__name__)

ID_HEADER = "message-id"
BURST = 25
"""Records that share one millisecond."""
TRANSACTION = 200
"""Records per transaction; each transaction takes one marker in every partition that it wrote to."""


@dataclass(frozen=True, slots=True)
class Event:
    """One record to produce. ``timestamp_ms`` is its create time."""

    id: str
    partition: int
    timestamp_ms: int


def user_of(event: Event) -> str:
    """The user who clicked: the record's key."""
    return f"user-{event.partition}"


def events(prefix: str, count: int, partitions: int, begin_ms: int, seed: int, *, first: int = 0) -> Iterator[Event]:
    """``count`` events over ``partitions``, one burst per second; the event number 0 is at ``begin_ms``."""
    chance = random.Random(seed)
    for number in range(first, first + count):
        yield Event(f"{prefix}-{number:06d}", chance.randrange(partitions), begin_ms + 1000 * (number // BURST))


def produce(cluster: ClusterInUse, topic: str, traffic: Iterator[Event], transactional_id: str) -> list[str]:
    """Write events in transactions; returns the written ids."""
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": transactional_id, "linger.ms": 20}
    producer = Producer(settings, logger=log)
    producer.init_transactions(30)
    ids: list[str] = []
    in_transaction = 0
    for event in traffic:
        if in_transaction == 0:
            producer.begin_transaction()
        producer.produce(
            topic,
            partition=event.partition,
            key=user_of(event).encode(),
            value=json.dumps({"id": event.id, "ts": event.timestamp_ms}).encode(),
            headers=[(ID_HEADER, event.id.encode())],
            timestamp=event.timestamp_ms,
        )
        ids.append(event.id)
        in_transaction += 1
        if in_transaction == TRANSACTION:
            producer.commit_transaction(30)
            in_transaction = 0
    if in_transaction:
        producer.commit_transaction(30)
    return ids


def delete_all(cluster: ClusterInUse, topic: str) -> None:
    """Delete all records of the topic; its offsets continue."""
    for partition, end in cluster.end_offsets(topic).items():
        cluster.delete_records(topic, partition, end)
