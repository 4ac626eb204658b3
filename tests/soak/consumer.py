"""A plain consumer group: writes the ids of some records to a file, then commits. It knows nothing of the product."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType

from confluent_kafka import Consumer

BATCH = 50


def main(bootstrap: str, group: str, topics: list[str], file: Path) -> None:
    running = [True]

    def end(_: int, __: FrameType | None) -> None:
        running.clear()

    signal.signal(signal.SIGTERM, end)
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    own = {"auto.offset.reset": "earliest", "session.timeout.ms": 30_000, "topic.metadata.refresh.interval.ms": 1000}
    consumer = Consumer({**settings, **own})
    consumer.subscribe(topics)
    while running:
        found = [each for each in consumer.consume(BATCH, 0.3) if each.error() is None]
        if found:
            with file.open("a") as lines:
                lines.write("".join(f"{each.value().decode()}\n" for each in found if each.headers()))
                lines.flush()
                os.fsync(lines.fileno())
            consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3].split(","), Path(sys.argv[4]))
