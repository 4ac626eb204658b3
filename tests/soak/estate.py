"""The clusters, the mirrors both ways, the producer, and the product's commands, each a process of its own."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.demo.lab.kafka import Broker
from reconciler.demo.lab.mirror import MirrorMaker
from tests import ROOT

TOPIC, PARTITIONS, ID = "events", 3, "message-id"
OTHER = {"a": "b", "b": "a"}
COMMAND_S = 120.0
"""What a command may take on a busy machine."""
_REMEMBERS = {"log.initial.task.delay.ms": "100", "log.flush.start.offset.checkpoint.interval.ms": "500"}


_MIRROR = {"sync.group.offsets.enabled": "false"}


class SoakFailed(AssertionError):
    """The product broke its promise, or a command ended otherwise than it should."""


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


@dataclass
class Estate:
    """Two clusters with MirrorMaker's default names; ``active`` is where producers write, and jobs live."""

    folder: Path
    jars: Path
    until_the_end: ExitStack
    active: str = "a"
    produced: list[str] = field(default_factory=list)
    partitions: dict[str, int] = field(default_factory=lambda: dict.fromkeys("ab", PARTITIONS))
    """Of each cluster's own topic."""
    brokers: dict[str, Broker] = field(default_factory=dict)
    mirrors: dict[str, MirrorMaker] = field(default_factory=dict)
    """By the cluster that they read."""

    def start(self) -> None:
        for name in OTHER:
            broker = Broker(name, self.folder / name, self.jars, properties=_REMEMBERS, heap="384m")
            self.until_the_end.callback(broker.kill)
            broker.launch()
            self.brokers[name] = broker
        for broker in self.brokers.values():
            broker.wait_ready()
            broker.create_topic(TOPIC, PARTITIONS)
        for name in OTHER:
            source, target = self.brokers[name], self.brokers[OTHER[name]]
            mirror = MirrorMaker(
                source, target, [TOPIC], self.folder / f"mirror-{name}", self.jars, connect=name, properties=_MIRROR
            )
            self.until_the_end.callback(lambda each=mirror: each.kill())
            self.mirrors[name] = mirror.start()

    # ------------------------------------------------------------ records

    def topics(self, cluster: str) -> list[str]:
        return [TOPIC, f"{OTHER[cluster]}.{TOPIC}"]

    def produce(self, count: int) -> None:
        """Write records with new ids to the active cluster, in the order of their ids in each partition."""
        from confluent_kafka import Producer

        broker = self.brokers[self.active]
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "enable.idempotence": True})
        for number in itertools.count(len(self.produced)):
            if count <= 0:
                break
            count -= 1
            name, partition = f"{number:08d}", number % self.partitions[self.active]
            headers = [(ID, name.encode())]
            producer.produce(TOPIC, name.encode(), f"key-{number % 7}".encode(), partition, headers=headers)
            self.produced.append(name)
        if producer.flush(60):
            raise SoakFailed(f"records were not taken by {self.active}")

    def add_partition(self) -> None:
        """One more partition of the active cluster's own topic."""
        from confluent_kafka.admin import NewPartitions

        broker = self.brokers[self.active]
        self.partitions[self.active] += 1
        wanted = self.partitions[self.active]
        for answer in broker.admin().create_partitions([NewPartitions(TOPIC, wanted)]).values():
            answer.result(30)
        broker.wait_until(lambda: len(broker.end_offsets(TOPIC)) == wanted, 30, "the new partition")

    def held(self, cluster: str) -> set[str]:
        """The ids of all records on a cluster that the jobs read there."""
        return set(itertools.chain.from_iterable(self._ids(cluster, topic) for topic in self.topics(cluster)))

    def _ids(self, cluster: str, topic: str) -> Iterator[str]:
        from confluent_kafka import Consumer, TopicPartition

        broker = self.brokers[cluster]
        ends = {number: end for number, end in broker.end_offsets(topic).items() if end}
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "counts", "enable.auto.commit": False}
        with closing(Consumer({**settings, "enable.partition.eof": True})) as consumer:
            consumer.assign([TopicPartition(topic, number, 0) for number in ends])
            left = set(ends)
            while left:
                message = consumer.poll(30)
                if message is None:
                    raise SoakFailed(f"{topic} on {cluster} cannot be read")
                if message.error() is None:
                    yield message.value().decode()
                else:
                    left.discard(message.partition())

    def delivered(self, cluster: str, seconds: float = 120) -> None:
        """Wait until the mirror from a cluster has delivered everything."""
        mirror = self.mirrors[cluster]
        until = time.monotonic() + seconds
        source, target = self.brokers[cluster], self.brokers[OTHER[cluster]]
        while not target.ends_as(f"{cluster}.{TOPIC}", source, TOPIC):
            if not mirror.process.running or time.monotonic() > until:
                raise SoakFailed(f"the mirror from {cluster} does not deliver: {mirror.process.log_tail()}")
            time.sleep(0.2)

    def restart_mirror(self, cluster: str) -> None:
        self.mirrors[cluster].kill()
        self.mirrors[cluster].start()

    # ------------------------------------------------------------ the product

    @property
    def config(self) -> Path:
        return self.folder / "reconciler.toml"

    def configure(self, jobs: Mapping[str, str]) -> None:
        """``jobs``: their places."""
        text = "".join(
            f'[clusters.{name}]\nbootstrap_servers = "{each.bootstrap}"\n' for name, each in self.brokers.items()
        )
        text += f'[state]\nstore = "sqlite:///{self.folder}/state.db"\n'
        for name, place in jobs.items():
            text += (
                f'[[jobs]]\nname = "{name}"\nhome = "a"\ntopics = ["{TOPIC}"]\norigins = ["a", "b"]\nnew = "earliest"\n'
            )
            text += f'offsets = "{place}"\n[jobs.identity]\nid = "header:{ID}"\nunique_ids = true\n'
        self.config.write_text(text)

    def begin(self, *words: object) -> subprocess.Popen[str]:
        """Start a command of the product."""
        command, *options = [str(word) for word in words]
        return subprocess.Popen(
            [sys.executable, "-m", "reconciler", command, "-c", str(self.config), *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: object, codes: Sequence[int] = (0,)) -> Ended:
        """Run a command to its end. Raises SoakFailed if it ends otherwise than ``codes`` say."""
        running = self.begin(*words)
        out, err = running.communicate(timeout=COMMAND_S)
        ended = Ended(running.returncode, out, err)
        if ended.code not in codes:
            raise SoakFailed(f"`reconciler {' '.join(map(str, words))}` ended with {ended.code}:\n{out}{err}")
        return ended

    def killed(self, after_s: float, *words: object) -> bool:
        """Start a command and kill it; False if it was quicker."""
        running = self.begin(*words)
        try:
            running.communicate(timeout=after_s)
        except subprocess.TimeoutExpired:
            running.kill()
            running.communicate()
            return True
        return False
