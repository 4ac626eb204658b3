"""Two consumer groups beside the demo's job, and a mirror that is killed and restarted before the disaster.

Group ``reports`` reads the job's topic and lags far behind. Group ``billing`` reads ``payments``, which have a mirror
of their own, over a slow link. That mirror delivers all payments, and is killed before Connect has committed its
position. So it sends them again after its restart. It is lost as soon as the offset that it syncs for the group is
among these second copies. Each start of a group is counted by the ids of the records that it reads again and skips.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.clock import clock_ms
from reconciler.demo.lab.in_use import BURST, ID_HEADER, ClusterInUse, make_events, produce
from reconciler.demo.lab.mirror import MirrorMaker
from reconciler.demo.proof import Alternative, alternative, read_copies
from reconciler.demo.stage import Stage
from reconciler.kafka.mirror.reading import OwnTopics, Wanted, read_pairs
from reconciler.kafka.mirror.topics import checkpoints_topic
from reconciler.kafka.reader import KafkaLogReader
from reconciler.plan.document import parse_plan
from reconciler.ports import TopicPartition

log = logging.getLogger("reconciler.demo.lab.in_use")  # librdkafka's own lines, which only --debug shows

BEST = {"emit.checkpoints.interval.seconds": "1", "sync.group.offsets.interval.seconds": "1", "offset.lag.max": "0"}
"""MirrorMaker's settings for the most exact offsets that it can sync; the last one notes the offset of every record."""
REPORTS = "reports"
PAYMENTS, BILLING, PARTITIONS = "payments", "billing", 2
MIRRORED = f"a.{PAYMENTS}"
PRODUCED, PROCESSED = 4_000, 200
"""The number of payments, and how many of each partition the group has processed."""
SETTINGS = {
    "b.offset.flush.interval.ms": "600000",  # a position that Connect commits in time would hide the kill
    "offset-syncs.topic.location": "target",
    # A slow link: a fetch brings one batch, of about a hundred payments, and waits in vain for more.
    "a.consumer.max.partition.fetch.bytes": "1",
    "a.consumer.fetch.min.bytes": "1000000",
    "a.consumer.fetch.max.wait.ms": "100",
}
_TABLE = f"""[[jobs]]
name = "{BILLING}"
home = "a"
topics = ["{PAYMENTS}"]
offsets = "kafka-group:"
"""
UNPREPARED = "unprepared"
_PATIENCE_SECONDS = 180


def read_and_commit(cluster: ClusterInUse, group: str, topic: str, count: int, partitions: int) -> set[str]:
    """Process the first records of each partition and commit, as a group that then lags; returns their ids."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
    consumer = Consumer(settings, logger=log)
    processed: set[str] = set()

    def commit() -> bool:
        with contextlib.suppress(KafkaException):  # no coordinator yet
            consumer.commit(asynchronous=False)
            return True
        return False

    for number in range(partitions):
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
        wanted = len(processed) + count
        while len(processed) < wanted:
            for message in consumer.consume(wanted - len(processed), timeout=1):
                if message.error() is None:
                    processed.add(dict(message.headers())[ID_HEADER].decode())
        cluster.wait_until(commit, _PATIENCE_SECONDS, f"a commit of group {group}")
    consumer.close()
    return processed


@dataclass(frozen=True, slots=True)
class Planned:
    """A start at a plan's offsets: the plan's bound of records read again, and the outcome."""

    at_most: int
    start: Alternative

    @property
    def is_kept(self) -> bool:
        """True if the start skips nothing, and reads no more again than the plan said."""
        return self.start.skipped == 0 and self.start.again <= self.at_most


@dataclass(frozen=True, slots=True)
class Restarted:
    """Three starts of the group. ``sent``: payments at the destination; ``sent_again``: those there twice."""

    sent: int
    sent_again: int
    anchored: Planned
    synced: Alternative
    unprepared: Planned

    @property
    def is_clean(self) -> bool:
        return self.anchored.is_kept and self.unprepared.is_kept


class RestartedMirror:
    """The payments, the group and their mirror."""

    def __init__(self, stage: Stage, a: ClusterInUse, b: ClusterInUse, jars: Path) -> None:
        self._stage = stage
        self._a = a
        self._b = b
        folder = stage.path("payments-mirror")
        self._mirror = MirrorMaker(a, b, [PAYMENTS], folder, jars, connect=PAYMENTS, properties=SETTINGS)
        self._counts: Counter[int] = Counter()
        self._processed: set[str] = set()

    def start(self) -> None:
        """Produce the payments, process the first ones, and start the mirror."""
        begin_ms = clock_ms() - 1000 * PRODUCED // BURST
        events = list(make_events("payment", PRODUCED, PARTITIONS, begin_ms, seed=3))
        self._counts = Counter(event.partition for event in events)  # b has no transaction markers
        self._a.create_topic(PAYMENTS, PARTITIONS)
        produce(self._a, PAYMENTS, iter(events), PAYMENTS)
        self._processed = read_and_commit(self._a, BILLING, PAYMENTS, PROCESSED, PARTITIONS)
        self._mirror.start()

    def lose(self) -> None:
        """Kill and restart the mirror once it has copied everything, and lose it while it sends the payments again."""
        self._mirror.wait_until(lambda: self._has_reached(1), _PATIENCE_SECONDS, "the payments")
        self._mirror.kill()
        self._mirror.start()
        what = "an offset of the group among the payments that are sent again"
        self._mirror.wait_until(lambda: self._is_lost_in_between() or self._has_reached(2), _PATIENCE_SECONDS, what)
        self._mirror.kill()
        again = sum(self._b.end_offsets(MIRRORED).values()) - PRODUCED
        self._stage.say(
            f"   another mirror copied {PRODUCED:,} payments, was killed and restarted, and began to send them again:\n"
            f"   it had sent {again:,} when it was lost"
        )

    def _has_reached(self, times: int) -> bool:
        ends = self._b.end_offsets(MIRRORED)
        return all(ends.get(number, 0) >= times * count for number, count in self._counts.items())

    def _is_lost_in_between(self) -> bool:
        """True if the mirror has been halted after a checkpoint named each synced offset, behind all first copies.

        MirrorMaker commits the group's offset and writes the checkpoint that names it one after the other, and may be
        lost in between. Such an offset is ``unresolved``; the demo shows the usual case.
        """
        if not self._synced_behind():
            return False
        self._mirror.process.pause()
        synced, named = self._synced_behind(), self._named()
        if synced and all(offset in named[number] for number, offset in synced.items()):
            return True
        self._mirror.process.resume()
        return False

    def _synced_behind(self) -> dict[int, int]:
        """The group's synced offsets, if they are behind the first copies of all payments; else none."""
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):  # the coordinator is starting
            synced = self._b.group_offsets(BILLING, MIRRORED)
            if all(synced.get(number, 0) > count for number, count in self._counts.items()):
                return synced
        return {}

    def _named(self) -> dict[int, set[int]]:
        """The offsets of each partition here that the group's checkpoints name."""
        own = OwnTopics((), (checkpoints_topic(self._a.name, "."),), is_one_way=True)
        places = {number: TopicPartition(MIRRORED, number) for number in range(PARTITIONS)}
        wanted = [
            Wanted(TopicPartition(PAYMENTS, number), here, None, frozenset({BILLING}))
            for number, here in places.items()
        ]
        with contextlib.closing(KafkaLogReader({"bootstrap.servers": self._b.bootstrap})) as reader:
            known = read_pairs(reader, own, wanted).checkpoints
        return {
            number: {each.downstream for each in known.get(here, ()) if each.group == BILLING}
            for number, here in places.items()
        }

    def plan(self) -> None:
        """Plan the group's start twice: with the anchors of ``track``, and by the mirror's topics alone."""
        self._stage.say(
            "   the group billing, which read payments: once with its anchors, once by its mirror's topics on b only"
        )
        config = self._stage.path(f"{UNPREPARED}.toml")
        config.write_text(f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "{self._b.bootstrap}"\n{_TABLE}')
        self._stage.expect(0, "plan", "-c", self._stage.config, "--job", BILLING, "-o", self._stage.plan(BILLING))
        self._stage.expect(0, "plan", "-c", config, "-o", self._stage.plan(UNPREPARED))

    def outcome(self) -> Restarted:
        """Count what each start reads again and skips; the plans must have been made."""
        records = read_copies(self._b, MIRRORED)

        def started_at(offsets: Mapping[int, int]) -> Alternative:
            return alternative(records, offsets, self._processed)

        def planned(name: str) -> Planned:
            rows = parse_plan(self._stage.plan(name).read_text()).job().partitions
            offsets = {row.partition: row.resume_offset or 0 for row in rows}
            return Planned(sum(row.replay_at_most or 0 for row in rows), started_at(offsets))

        sent = len({name for _, _, name in records})
        synced = started_at(self._b.group_offsets(BILLING, MIRRORED))
        return Restarted(sent, len(records) - sent, planned(BILLING), synced, planned(UNPREPARED))


def configuration() -> str:
    """The group's table, with the ids by which ``track`` keeps its anchors."""
    return f"""{_TABLE}[jobs.identity]
id = "header:{ID_HEADER}"
unique_ids = true
"""
