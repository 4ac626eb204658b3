"""Records that are small on the wire and large in memory."""

from __future__ import annotations

from confluent_kafka import Producer

MIB = 1024 * 1024


def plant(bootstrap: str, topic: str, partition: int, codec: str, *, each_mib: int, count: int = 1) -> None:
    """Write ``count`` records of so many MiB of zeros in one compressed batch."""
    settings = {
        "bootstrap.servers": bootstrap,
        "compression.type": codec,
        "message.max.bytes": 1_000_000_000,
        "batch.size": 2_000_000_000,
        "batch.num.messages": count,
        "linger.ms": 2_000 if count > 1 else 0,
        "queue.buffering.max.kbytes": 2_097_151,
        "log_level": 0,
    }
    answers: list[object] = []
    producer = Producer(settings)
    for _ in range(count):
        content = bytes(each_mib * MIB)
        producer.produce(topic, content, partition=partition, on_delivery=lambda error, _: answers.append(error))
    assert producer.flush(60) == 0
    assert answers == [None] * count
