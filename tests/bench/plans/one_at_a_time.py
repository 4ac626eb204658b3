"""The script that people write after a failover: one partition after the other, by time, then by the record's content.

    python -m tests.bench.plans.one_at_a_time HOST:PORT TOPIC PARTITIONS NUMBER SIZE TIMESTAMP_MS

Finds the record ``NUMBER`` of each partition as ``tests.bench.plans.shapes`` writes them, and counts nothing behind it.
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, TopicPartition

from tests.bench.plans.speed import value

WAIT_S = 10.0


def main() -> None:
    bootstrap, topic, partitions, number, size, timestamp_ms = sys.argv[1:]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "one-at-a-time", "enable.auto.commit": False})
    found = 0
    for partition in range(int(partitions)):
        (start,) = consumer.offsets_for_times([TopicPartition(topic, partition, int(timestamp_ms))], timeout=WAIT_S)
        wanted = value(partition, int(number), int(size))
        consumer.assign([start])
        while (message := consumer.poll(WAIT_S)) is not None:
            if message.error() is None and message.value() == wanted:
                found += 1
                break
    consumer.close()
    if found != int(partitions):
        raise SystemExit(f"{found} of {partitions} found")


if __name__ == "__main__":
    main()
