"""A mirror that is killed and restarted before the disaster: three starts of a group that it serves, side by side.

The mirror is separate from the job's, on a narrow link. It delivers all payments, and is killed before Connect has
committed its position, so after its restart it sends them again from the first one. It is lost as soon as the offset
that it syncs for the group lies among those. The records that the group has processed are compared by id with the ones
at the destination, so what each start reads again and skips is counted.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.clock import clock_ms
from reconciler.core.errors import ReconcilerError
from reconciler.core.verdicts import Verdict
from reconciler.demo.proof import Alternative, alternative, copies
from reconciler.demo.stage import Stage
from reconciler.formats.plan import parse_plan
from reconciler.kafka.reader import KafkaLogReader
from reconciler.lab import traffic
from reconciler.lab.in_use import ClusterInUse
from reconciler.lab.mirror import MirrorMaker
from reconciler.mirror.reading import OwnTopics, Wanted, read_pairs
from reconciler.mirror.topics import checkpoints_topic
from reconciler.ports import TopicPartition

log = logging.getLogger("reconciler.lab.traffic")  # librdkafka's own lines, which only --debug shows

PAYMENTS, BILLING, PARTITIONS = "payments", "billing", 2
MIRRORED = f"a.{PAYMENTS}"
PRODUCED, PROCESSED = 4_000, 200
"""Payments in all, and those that the group has processed in each partition."""
SETTINGS = {
    "b.offset.flush.interval.ms": "600000",  # a position that Connect commits in time would hide the kill
    "offset-syncs.topic.location": "target",
    # A narrow link: a fetch brings one batch, of about a hundred payments, and waits in vain for more.
    "a.consumer.max.partition.fetch.bytes": "1",
    "a.consumer.fetch.min.bytes": "1000000",
    "a.consumer.fetch.max.wait.ms": "100",
}
_TABLE = f"""[[jobs]]
name = "{BILLING}"
group = "{BILLING}"
topics = ["{PAYMENTS}"]
store = "kafka-group:"
"""
_PATIENCE_SECONDS = 180


@dataclass(frozen=True, slots=True)
class Planned:
    """A start at a plan's offsets: its verdict, what the plan says will be read again at most, and what it reads."""

    verdict: Verdict
    at_most: int
    start: Alternative

    @property
    def is_kept(self) -> bool:
        """Whether the start skips nothing, and reads no more again than the plan said."""
        return self.start.skipped == 0 and self.start.again <= self.at_most


@dataclass(frozen=True, slots=True)
class Restarted:
    """Three starts of the group. ``sent``: payments at the destination; ``sent_again``: those that are there twice."""

    sent: int
    sent_again: int
    anchored: Planned
    synced: Alternative
    unprepared: Planned

    @property
    def is_clean(self) -> bool:
        return self.anchored.is_kept and self.unprepared.is_kept


class RestartedMirror:
    """The payments, the group and their mirror, in a thread of this process from ``running`` on."""

    def __init__(self, a: ClusterInUse, b: ClusterInUse, folder: Path, jars: Path) -> None:
        self._a = a
        self._b = b
        self._mirror = MirrorMaker(a, b, [PAYMENTS], folder, jars, connect=PAYMENTS, properties=SETTINGS)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="restarted mirror", daemon=True)
        self._failure: Exception | None = None
        self._processed: set[str] = set()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start it; whatever happens, the mirror is gone when the context ends."""
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join(_PATIENCE_SECONDS)

    def wait(self, stage: Stage) -> None:
        """Wait until the mirror is lost. Raises what its thread raised."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        again = sum(self._b.end_offsets(MIRRORED).values()) - PRODUCED
        stage.say(
            f"   another mirror copied {PRODUCED:,} payments, was killed and restarted, and began to send them again:"
        )
        stage.say(f"   it had sent {again:,} when it was lost")

    def outcome(self, stage: Stage) -> Restarted:
        """Count what each start reads again and skips; the plans must have been made."""
        records = copies(self._b, MIRRORED)

        def started_at(offsets: Mapping[int, int]) -> Alternative:
            return alternative(records, offsets, self._processed)

        def planned(path: Path) -> Planned:
            job = parse_plan(path.read_text()).job()
            at_most = sum(row.replay_at_most or 0 for row in job.partitions)
            offsets = {row.partition: row.resume_offset or 0 for row in job.partitions}
            return Planned(job.verdict, at_most, started_at(offsets))

        sent = len({name for _, _, name in records})
        return Restarted(
            sent,
            len(records) - sent,
            planned(_plan(stage)),
            started_at(self._b.group_offsets(BILLING, MIRRORED)),
            planned(_unprepared_plan(stage)),
        )

    # ------------------------------------------------------------ in the thread

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._play()
        except _Stopped:
            pass
        except (ReconcilerError, KafkaException) as error:
            self._failure = error
        finally:
            self._mirror.kill()

    def _play(self) -> None:
        begin_ms = clock_ms() - 1000 * PRODUCED // traffic.BURST
        events = list(traffic.events("payment", PRODUCED, PARTITIONS, begin_ms, seed=3))
        counts = Counter(event.partition for event in events)  # the destination has no transaction markers
        self._a.create_topic(PAYMENTS, PARTITIONS)
        traffic.produce(self._a, PAYMENTS, iter(events), PAYMENTS)
        self._process()
        self._mirror.start()
        self._until(lambda: self._reached(counts), "the payments")
        self._mirror.kill()
        self._mirror.start()
        all_again = {number: 2 * count for number, count in counts.items()}
        self._until(
            lambda: self._is_lost_in_between(counts) or self._reached(all_again),
            "an offset of the group among the payments that are sent again",
        )

    def _reached(self, wanted: Mapping[int, int]) -> bool:
        ends = self._b.end_offsets(MIRRORED)
        return all(ends.get(number, 0) >= end for number, end in wanted.items())

    def _is_lost_in_between(self, counts: Mapping[int, int]) -> bool:
        """Whether the mirror has been halted where a checkpoint names each synced offset, behind all first copies.

        MirrorMaker commits an offset for the group apart from the checkpoint that names it, and may be lost in between.
        Such an offset is ``unresolved``, and the demo shows the usual case.
        """
        if not self._synced_behind(counts):
            return False
        self._mirror.pause()
        synced, named = self._synced_behind(counts), self._named()
        if synced and all(offset in named[number] for number, offset in synced.items()):
            return True
        self._mirror.resume()
        return False

    def _synced_behind(self, counts: Mapping[int, int]) -> dict[int, int]:
        """The group's synced offsets, if they are behind the first copies of all payments; else none."""
        from confluent_kafka import KafkaException

        with contextlib.suppress(KafkaException):  # the coordinator is starting
            synced = self._b.group_offsets(BILLING, MIRRORED)
            if all(synced.get(number, 0) > count for number, count in counts.items()):
                return synced
        return {}

    def _named(self) -> dict[int, set[int]]:
        """The offsets of each partition here that the group's checkpoints name."""
        own = OwnTopics((), (checkpoints_topic(self._a.name, "."),), is_one_way=True)
        places = {number: TopicPartition(MIRRORED, number) for number in range(PARTITIONS)}
        wanted = [Wanted(TopicPartition(PAYMENTS, number), here, None, BILLING) for number, here in places.items()]
        with contextlib.closing(KafkaLogReader({"bootstrap.servers": self._b.bootstrap})) as reader:
            known = read_pairs(reader, own, wanted).checkpoints
        return {
            number: {each.downstream for each in known.get(here, ()) if each.group == BILLING}
            for number, here in places.items()
        }

    def _until(self, arrived: Callable[[], bool], what: str) -> None:
        def has_arrived() -> bool:
            self._check_stop()
            return arrived()

        self._mirror.wait_until(has_arrived, _PATIENCE_SECONDS, what)

    def _process(self) -> None:
        """Process the first records of each partition, and commit, as a group does that then falls behind."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

        settings = {"bootstrap.servers": self._a.bootstrap, "group.id": BILLING, "enable.auto.commit": False}
        consumer = Consumer(settings, logger=log)
        for partition in range(PARTITIONS):
            consumer.assign([TopicPartition(PAYMENTS, partition, OFFSET_BEGINNING)])
            left = PROCESSED
            while left:
                for message in consumer.consume(left, timeout=1):
                    if message.error() is None:
                        self._processed.add(dict(message.headers())[traffic.ID_HEADER].decode())
                        left -= 1
                self._check_stop()
            while True:
                try:
                    consumer.commit(asynchronous=False)
                    break
                except KafkaException:  # no coordinator yet
                    self._check_stop()
        consumer.close()

    def _check_stop(self) -> None:
        """Raise ``_Stopped`` once the demo ends."""
        if self._over.is_set():
            raise _Stopped


class _Stopped(Exception):
    """The demo ends, and the thread with it."""


def configuration() -> str:
    """The job's table where ``track`` keeps anchors for it, by the ids that its records have."""
    return f"""{_TABLE}[jobs.identity]
id = "header:{traffic.ID_HEADER}"
id_order = "unique"
"""


def plan(stage: Stage, b: ClusterInUse) -> None:
    """Plan the group's start twice: with the anchors that ``track`` kept, and with nothing but the mirror's traces."""
    stage.say(
        "   the group billing, which read payments: once with its anchors, once with what its mirror left on b only"
    )
    destination = f'[source]\nalias = "a"\n[destination]\nbootstrap_servers = "{b.bootstrap}"\n'
    _unprepared(stage).write_text(destination + _TABLE)
    stage.expect(0, "plan", "-c", stage.config, "--job", BILLING, "-o", _plan(stage))
    stage.expect(0, "plan", "-c", _unprepared(stage), "-o", _unprepared_plan(stage))


def _unprepared(stage: Stage) -> Path:
    return stage.folder / "unprepared.toml"


def _plan(stage: Stage) -> Path:
    return stage.folder / "billing.plan.json"


def _unprepared_plan(stage: Stage) -> Path:
    return stage.folder / "unprepared.plan.json"
