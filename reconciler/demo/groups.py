"""Consumer groups beside the demo's job: what MirrorMaker's own synced offsets are worth at their best.

Both groups commit every second, and the mirror runs with a checkpoint and a sync of groups every second. One group
reads at the head of a topic with a steady flow; the other is far behind. The records that each has processed are
compared by id with those at the destination, so what a start there reads again and skips is counted, not estimated.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from reconciler.demo.proof import Alternative, Copy, alternative, copies
from reconciler.demo.stage import PARTITIONS, TOPIC
from reconciler.lab.in_use import ClusterInUse
from reconciler.lab.traffic import ID_HEADER

log = logging.getLogger("reconciler.lab.traffic")  # librdkafka's own lines, which only --debug shows

BEST = {"emit.checkpoints.interval.seconds": "1", "sync.group.offsets.interval.seconds": "1", "offset.lag.max": "0"}
"""MirrorMaker's settings for the closest offsets that it can sync. The last one notes the offset of every record."""
HEAD, LAGGING = "near-the-head", "lagging"
FLOW_TOPIC = "views"
FLOW_PER_SECOND, LAGGING_PER_SECOND = 100, 400
COMMIT_SECONDS = 1.0
SETTLED = 5
"""Times that the synced offsets must have moved on before the disaster."""
_TICK_SECONDS = 0.1
_PATIENCE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Synced:
    """A start of the two groups at MirrorMaker's synced offsets; ``behind``: how far the second one was."""

    head: Alternative
    lagging: Alternative
    behind: int


class Groups:
    """The two groups and the flow, in threads of this process, from ``start`` to ``stop``."""

    def __init__(self, source: ClusterInUse) -> None:
        self._source = source
        self._head = _GroupReader(source, HEAD, FLOW_TOPIC, at_most=FLOW_PER_SECOND)
        self._lagging = _GroupReader(source, LAGGING, TOPIC, at_most=int(LAGGING_PER_SECOND * _TICK_SECONDS))
        self._threads = (self._head, self._lagging, _Flow(source))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run them; whatever happens, none is left when the context ends."""
        self._source.create_topic(FLOW_TOPIC, PARTITIONS)
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self.stop()

    def stop(self) -> None:
        """End them where they are, as a disaster would: nothing more is committed. Stopping twice is fine."""
        for thread in self._threads:
            thread.stop()

    def wait_until_synced(self, destination: ClusterInUse) -> bool:
        """Wait until both groups have synced offsets and they have moved on some times. False: not in a minute."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        seen: list[Mapping[int, int]] = []
        while len(seen) <= SETTLED or not destination.group_offsets(LAGGING, f"a.{TOPIC}"):
            now = destination.group_offsets(HEAD, f"a.{FLOW_TOPIC}")
            if len(now) == PARTITIONS and (not seen or now != seen[-1]):
                seen.append(now)
            if time.monotonic() > deadline:
                return False
            time.sleep(_TICK_SECONDS)
        return True

    def outcome(self, destination: ClusterInUse) -> Synced:
        """Compare what the groups processed at the source with what a start at their synced offsets would read."""
        events = copies(destination, f"a.{TOPIC}")
        head = self._at_synced(self._head, copies(destination, f"a.{FLOW_TOPIC}"), destination)
        lagging = self._at_synced(self._lagging, events, destination)
        return Synced(head, lagging, len(events) - len(self._lagging.processed))

    def _at_synced(self, reader: _GroupReader, there: list[Copy], destination: ClusterInUse) -> Alternative:
        return alternative(there, destination.group_offsets(reader.group, f"a.{reader.topic}"), reader.processed)


class _Background(threading.Thread):
    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join(_PATIENCE_SECONDS)


class _Flow(_Background):
    """A steady flow of records with ids."""

    def __init__(self, cluster: ClusterInUse) -> None:
        super().__init__()
        self._cluster = cluster
        self.sent = 0

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, "linger.ms": 5}, logger=log)
        while not self._over.wait(_TICK_SECONDS):
            for _ in range(int(FLOW_PER_SECOND * _TICK_SECONDS)):
                headers = [(ID_HEADER, f"view-{self.sent}".encode())]
                producer.produce(FLOW_TOPIC, b"view", partition=self.sent % PARTITIONS, headers=headers)
                self.sent += 1
            producer.flush(_PATIENCE_SECONDS)


class _GroupReader(_Background):
    """An ordinary consumer: it processes at most ``at_most`` records a tick, and commits every second."""

    def __init__(self, cluster: ClusterInUse, group: str, topic: str, *, at_most: int) -> None:
        super().__init__()
        self.group = group
        self.topic = topic
        self.processed: set[str] = set()
        self._cluster = cluster
        self._at_most = at_most

    def run(self) -> None:
        from confluent_kafka import Consumer, KafkaException

        settings = {
            "bootstrap.servers": self._cluster.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings, logger=log)
        consumer.subscribe([self.topic])
        due = time.monotonic() + COMMIT_SECONDS
        while not self._over.wait(_TICK_SECONDS):
            for message in consumer.consume(self._at_most, timeout=_TICK_SECONDS):
                if message.error() is None:
                    self.processed.add(dict(message.headers())[ID_HEADER].decode())
            if self.processed and time.monotonic() >= due:
                due += COMMIT_SECONDS
                with contextlib.suppress(KafkaException):  # no coordinator yet: again in a second
                    consumer.commit(asynchronous=False)
        consumer.close()
