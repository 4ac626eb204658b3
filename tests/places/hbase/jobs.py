"""A failed-over job whose rows lie in HBase in another program's format, for tests of the commands.

Record ``n`` of a partition holds ``{"id": n, "ts": its event's time}``. At the source its offset was BASE + n; at the
destination, where the mirror began later, it is n - FIRST. The job had processed up to record DONE[partition].
"""

from __future__ import annotations

import json
import struct
from typing import Any

from tests.world import BASE, BEGIN, World

FIRST, LAST = 20, 120
DONE = {0: 60, 1: 75}
PARTITIONS = tuple(DONE)
STORED = {partition: BASE + number + 1 for partition, number in DONE.items()}
"""The next offsets to read, as the job stored them."""
RIGHT = {partition: number + 1 - FIRST for partition, number in DONE.items()}
"""The same offsets at the destination."""


def event_ms(number: int) -> int:
    """A record's own time. Its Kafka timestamp is a little later."""
    return BEGIN + 1_000 * number


def longs(*numbers: int) -> bytes:
    return b"".join(struct.pack(">q", number) for number in numbers)


def deliver(world: World, topic: str, *, partitions: int = len(PARTITIONS)) -> None:
    """Create the destination's topic as a mirror left it. Any more partitions are empty."""
    from confluent_kafka import Producer

    world.cluster.create_topic(topic, partitions)
    producer = Producer({"bootstrap.servers": world.cluster.bootstrap, "log_level": 0})
    for partition in PARTITIONS:
        for number in range(FIRST, LAST):
            value = json.dumps({"id": number, "ts": event_ms(number)})
            stamp = event_ms(number) + 3
            producer.produce(topic, value, b"key %d" % number, partition=partition, timestamp=stamp)
    assert producer.flush(30) == 0


def job(world: World, address: str, **identity: str) -> str:
    """A ``[[jobs]]`` table for the store at ``address``."""
    return world.job(store=address, **{"id": "none", "timestamp": "json:$.ts", **identity})


def config(world: World, table: str, *, identity_policy: bool = False, extra: str = "") -> Any:
    """A configuration whose job lives at home and is moving to the destination."""
    topics = '[topics]\npolicy = "identity"\n' if identity_policy else ""
    if "python:" in table:
        policy = "" if "[policy]\n" in extra else "[policy]\n"
        extra = (extra + policy).replace("[policy]\n", '[policy]\npython = ["flowlet_hooks"]\n')
    return world.config(table, extra=topics + extra, to="b")


def rows_of(table: Any) -> dict[bytes, dict[bytes, bytes]]:
    """All rows, as a plain client reads them."""
    return {key: dict(cells) for key, cells in table.scan()}


def fails_over(world: World, file: Any, table: Any, after: dict[bytes, dict[bytes, bytes]]) -> None:
    """check, plan, apply, check: the rows are as they were, and then right, byte for byte."""
    before = rows_of(table)
    ends(world.run("plan", "-c", file), 3)
    world.plan(file)
    assert rows_of(table) == before
    ends(world.run("apply", world.plan_file, "-c", file, "--yes"), 0)
    assert rows_of(table) == after
    assert {row["finding"] for row in world.checked(file, "--to", "b").values()} == {"exact"}


def ends(ended: Any, code: int) -> Any:
    assert ended.code == code, ended.output
    return ended
