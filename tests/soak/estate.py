"""The clusters, the mirrors both ways, the producer, and the product's commands, each a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from reconciler.demo.lab.in_use import delete_all
from reconciler.demo.lab.kafka import HOST, Broker, free_ports
from reconciler.state.jobs import JobState
from reconciler.state.store import open_state
from tests import ROOT
from tests.demo.lab.kafka import MirrorMaker, Policy
from tests.demo.lab.servers.postgresql import PASSWORD, USER, PostgresServer
from tests.soak.choices import Mirror
from tests.soak.counting import Place
from tests.soak.damage import Disk, cut_back
from tests.soak.link import LIES, CutLink
from tests.soak.lying_link import LyingLink

TOPIC, PARTITIONS, ID = "events", 3, "message-id"
FOREIGN = "foreign"
"""The value of a record without an id."""
OTHER = {"a": "b", "b": "a"}
SECRET = "SOAK_STATE_PASSWORD"
"""The environment variable with the password of the state store, for commands and jobs."""
COMMAND_S = 300.0
"""What a command may take on a busy machine."""
_REMEMBERS = {"log.initial.task.delay.ms": "100", "log.flush.start.offset.checkpoint.interval.ms": "500"}


_MIRROR = {"sync.group.offsets.enabled": "false", "tasks.max": "2"}
_NO_SYNCS = {  # MirrorMaker refuses its source connector if a setting of the syncs' topic is left (KIP-1031)
    "emit.offset-syncs.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "offset-syncs.topic.replication.factor": "",
}


class SoakFailed(AssertionError):
    """The product broke its promise, or a command ended otherwise than it should."""


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


@dataclass
class Estate:
    """Two clusters; ``active`` is where producers write, and jobs live.

    With MirrorMaker's default names there is a mirror each way. With one name (``identity``) there is one, from the
    active cluster to the other: ``turn``.
    """

    folder: Path
    jars: Path
    state: PostgresServer
    until_the_end: ExitStack
    policy: Policy = "default"
    mirror: Mirror = Mirror.USUAL
    active: str = "a"
    produced: list[str] = field(default_factory=list)
    partitions: dict[str, int] = field(default_factory=lambda: dict.fromkeys("ab", PARTITIONS))
    """Of each cluster's topic to which producers write."""
    brokers: dict[str, Broker] = field(default_factory=dict)
    links: dict[str, CutLink] = field(default_factory=dict)
    """By cluster, how the mirror to it reaches it."""
    lying: dict[str, LyingLink] = field(default_factory=dict)
    """By cluster, how commands and jobs reach it while it lies."""
    lies: bool = False
    clock_s: float = 0.0
    """How much the clock of producers and commands is off."""
    gone: set[str] = field(default_factory=set)
    """The records that a cluster had and has lost."""
    skipped: set[str] = field(default_factory=set)
    """The records that a mirror left out."""
    mirrors: dict[str, MirrorMaker] = field(default_factory=dict)
    """By the cluster that they read."""
    _workers: dict[str, str] = field(default_factory=dict)
    """By the cluster that a mirror reads, the name of its Connect worker."""
    _mirror_numbers: Iterator[int] = field(default_factory=itertools.count)
    _begun: dict[int, tuple[str, float]] = field(default_factory=dict)
    """By process, its command and when it began."""
    _usual_s: dict[str, float] = field(default_factory=dict)

    def start(self) -> None:
        self.disk = Disk(self.folder / "disk", self.until_the_end)
        os.environ[SECRET] = PASSWORD.replace(" ", "%20")
        for name in OTHER:
            self._launch(name)
        for name, broker in self.brokers.items():
            broker.wait_ready()
            if name == self.active or not self.one_name:
                broker.create_topic(TOPIC, PARTITIONS)
        for name in [self.active] if self.one_name else OTHER:
            self.start_mirror(name)

    def _launch(self, name: str) -> None:
        """A broker with two more listeners, whose addresses are links': for the mirror that writes to it, and for
        clients while it lies.
        """
        broker = Broker(name, self.folder / name, self.jars, properties=_REMEMBERS, heap="384m")
        to_mirror, to_liar = (f"{HOST}:{port}" for port in free_ports(2))
        self.links[name] = self.until_the_end.enter_context(CutLink(lambda: to_mirror))
        self.lying[name] = self.until_the_end.enter_context(LyingLink(lambda: to_liar))
        own = f"PLAINTEXT://{broker.bootstrap}"
        broker.properties |= {
            "listeners": f"{own},MIRROR://{to_mirror},LIAR://{to_liar},CONTROLLER://{HOST}:{broker.ports[1]}",
            "advertised.listeners": f"{own},MIRROR://{self.links[name].address},LIAR://{self.lying[name].address}",
            "listener.security.protocol.map": ",".join(
                f"{each}:PLAINTEXT" for each in ("PLAINTEXT", "MIRROR", "LIAR", "CONTROLLER")
            ),
        }
        self.until_the_end.callback(broker.kill)
        broker.launch()
        self.brokers[name] = broker

    # ------------------------------------------------------------ mirrors

    @property
    def one_name(self) -> bool:
        return self.policy == "identity"

    def start_mirror(self, cluster: str, *, at_end: bool = False) -> None:
        """Start a mirror from a cluster that knows nothing of earlier ones.

        ``at_end``: it begins behind what is there now, as an operator has it who turns the direction round.
        """
        source, target = self.brokers[cluster], self.brokers[OTHER[cluster]]
        name = f"{cluster}-{next(self._mirror_numbers)}"
        own = {**_MIRROR, f"{target.name}.bootstrap.servers": self.links[target.name].address}
        if self.mirror is Mirror.NO_SYNCS:
            own |= _NO_SYNCS
        elif self.mirror is Mirror.EXACTLY_ONCE:  # its workers tell each other to begin (KIP-710)
            own |= {f"{target.name}.exactly.once.source.support": "enabled"}
            own |= {"dedicated.mode.enable.internal.rest": "true", "listeners": f"http://{HOST}:{free_ports(1)[0]}"}
        mirror = MirrorMaker(
            source,
            target,
            [TOPIC],
            self.folder / f"mirror-{name}",
            self.jars,
            policy=self.policy,
            connect=name,
            properties=own,
        )
        if at_end:
            target.create_topic(f"mm2-offset.{name}.internal", 1, {"cleanup.policy": "compact"})
            self._set_to_end(name, source, target)
        self.until_the_end.callback(mirror.kill)
        self.mirrors[cluster], self._workers[cluster] = mirror.start(), name

    def _set_to_end(self, name: str, source: Broker, target: Broker) -> None:
        """Write the positions of a mirror's Connect worker, which does not run."""
        from confluent_kafka import Producer

        topic = f"mm2-offset.{name}.internal"
        producer = Producer({"bootstrap.servers": target.bootstrap})
        for number, end in source.end_offsets(TOPIC).items():
            where = {"cluster": source.name, "partition": number, "topic": TOPIC}
            if end:
                key = json.dumps(["MirrorSourceConnector", where], separators=(",", ":"))
                producer.produce(topic, json.dumps({"offset": end - 1}, separators=(",", ":")), key)
        if producer.flush(30):
            raise SoakFailed(f"the positions of a mirror were not taken by {target.name}")

    def turn(self, to: str) -> None:
        """With one name: end the mirror to the cluster that is active from now on, and begin the one from it."""
        if self.one_name:
            self.mirrors.pop(OTHER[to]).kill()
            self.start_mirror(to, at_end=True)

    def restart_mirror(self, cluster: str) -> None:
        self.mirrors[cluster].kill()
        self.mirrors[cluster].start()

    def set_mirror_forward(self, records: int) -> None:
        """The mirror from the active cluster skips records: they are in ``skipped``."""
        mirror, target = self.mirrors[self.active], self.brokers[OTHER[self.active]]
        self.delivered(self.active)
        mirror.kill()
        before = len(self.produced)
        self.produce(records)
        self._set_to_end(self._workers[self.active], self.brokers[self.active], target)
        mirror.start()
        self.skipped |= set(self.produced[before:])

    def kill_mirror_twice(self, cluster: str, records: int) -> None:
        """Kill the mirror from a cluster, and again once it sends after its restart."""
        mirror, target = self.mirrors[cluster], self.brokers[OTHER[cluster]]
        self.produce(records)
        self.restart_mirror(cluster)
        before = target.end_offsets(mirror.target_topic(TOPIC))
        target.wait_until(
            lambda: (
                target.end_offsets(mirror.target_topic(TOPIC)) != before
                or target.ends_as(mirror.target_topic(TOPIC), self.brokers[cluster], TOPIC)
            ),
            120,
            "the mirror",
        )
        self.restart_mirror(cluster)

    def delivered(self, cluster: str, seconds: float = 300) -> None:
        """Wait until the mirror from a cluster has delivered everything."""
        mirror = self.mirrors[cluster]
        until = time.monotonic() + seconds
        source, target = self.brokers[cluster], self.brokers[OTHER[cluster]]
        while not target.ends_as(mirror.target_topic(TOPIC), source, TOPIC):
            if not mirror.process.running or time.monotonic() > until:
                raise SoakFailed(f"the mirror from {cluster} does not deliver: {mirror.process.log_tail()}")
            time.sleep(0.2)

    def recreate_copy(self) -> None:
        """Delete the other cluster's copy of the active cluster's topic, and mirror it again from the start."""
        mirror, target = self.mirrors[self.active], self.brokers[OTHER[self.active]]
        mirror.kill()
        topic = mirror.target_topic(TOPIC)
        for answer in target.admin().delete_topics([topic], operation_timeout=30).values():
            answer.result(30)
        target.wait_until(lambda: not target.partitions(topic), 30, f"the end of {topic}")
        self.start_mirror(self.active)

    def cut_copy_back(self, share: float) -> None:
        """The other cluster loses the newest records of the active cluster's topic: ``gone`` has them."""
        other = OTHER[self.active]
        before = self.log(other).keys()
        cut_back(self.brokers[other], self.mirrors[self.active].target_topic(TOPIC), share)
        self.gone |= before - self.log(other).keys()

    # ------------------------------------------------------------ records

    def topics(self, cluster: str) -> list[str]:
        return [TOPIC] if self.one_name else [TOPIC, f"{OTHER[cluster]}.{TOPIC}"]

    def names(self, cluster: str) -> dict[str, str]:
        """By the origin of a stream, its topic on a cluster."""
        return {name: TOPIC if self.one_name or name == cluster else f"{name}.{TOPIC}" for name in OTHER}

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
            stamp = int((time.time() + self.clock_s) * 1000)
            producer.produce(
                TOPIC, name.encode(), f"key-{number % 7}".encode(), partition, timestamp=stamp, headers=headers
            )
            self.produced.append(name)
        if producer.flush(60):
            raise SoakFailed(f"records were not taken by {self.active}")

    def produce_foreign(self) -> None:
        """Write records without an id to each partition of the active cluster."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.brokers[self.active].bootstrap})
        for partition in 2 * list(range(self.partitions[self.active])):
            producer.produce(TOPIC, FOREIGN.encode(), partition=partition)
        if producer.flush(60):
            raise SoakFailed(f"records were not taken by {self.active}")

    def add_partition(self) -> None:
        """One more partition of the topic to which producers write; with one name, the mirror adds it to the other."""
        from confluent_kafka.admin import NewPartitions

        broker = self.brokers[self.active]
        wanted = self.partitions[self.active] + 1
        for name in OTHER if self.one_name else [self.active]:
            self.partitions[name] = wanted
        for answer in broker.admin().create_partitions([NewPartitions(TOPIC, wanted)]).values():
            answer.result(30)
        broker.wait_until(lambda: len(broker.end_offsets(TOPIC)) == wanted, 30, "the new partition")

    def delete_all(self, cluster: str) -> None:
        """As retention does, on the topics that jobs read there."""
        for topic in self.topics(cluster):
            delete_all(self.brokers[cluster], topic)

    def log(self, cluster: str) -> dict[str, list[Place]]:
        """All records on a cluster that the jobs read there, by their ids."""
        found: dict[str, list[Place]] = {}
        for topic in self.topics(cluster):
            for name, place in self._records(cluster, topic):
                found.setdefault(name, []).append(place)
        return found

    def _records(self, cluster: str, topic: str) -> Iterator[tuple[str, Place]]:
        from confluent_kafka import Consumer, TopicPartition

        broker = self.brokers[cluster]
        ends = {number: end for number, end in broker.end_offsets(topic).items() if end}
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "counts", "enable.auto.commit": False}
        own = {"enable.partition.eof": True, "auto.offset.reset": "earliest"}
        with closing(Consumer({**settings, **own})) as consumer:
            consumer.assign([TopicPartition(topic, number, 0) for number in ends])
            left = set(ends)
            while left:
                message = consumer.poll(30)
                if message is None:
                    raise SoakFailed(f"{topic} on {cluster} cannot be read")
                if message.error() is None:
                    if message.value() != FOREIGN.encode():
                        yield message.value().decode(), Place(topic, message.partition(), message.offset())
                else:
                    left.discard(message.partition())

    # ------------------------------------------------------------ the product

    @property
    def config(self) -> Path:
        return self.folder / ("lying.toml" if self.lies else "reconciler.toml")

    def configure(self, jobs: Mapping[str, str], without_sink: Collection[str] = ()) -> None:
        """``jobs``: their settings of the place and the sink. ``without_sink``: jobs whose sink is not asked."""
        jobs = {name: _without_sink(text) if name in without_sink else text for name, text in jobs.items()}
        for self.lies in (True, False):
            addresses = {
                name: self.lying[name].address if self.lies else each.bootstrap for name, each in self.brokers.items()
            }
            self.config.write_text(self._configuration(jobs, addresses))

    def _configuration(self, jobs: Mapping[str, str], addresses: Mapping[str, str]) -> str:
        text = "".join(f'[clusters.{name}]\nbootstrap_servers = "{each}"\n' for name, each in addresses.items())
        store = f"postgresql://{USER}:${{{SECRET}}}@{self.state.host}/postgres"
        text += f'[topics]\npolicy = "{self.policy}"\n[state]\nstore = "{store}"\n'
        text += '[search]\nmax_disorder = "1h"\n'  # clocks jump
        origins = "" if self.one_name else 'origins = ["a", "b"]\n'
        for name, place in jobs.items():
            text += f'[[jobs]]\nname = "{name}"\nhome = "a"\ntopics = ["{TOPIC}"]\n{origins}new = "earliest"\n{place}\n'
            text += f'[jobs.identity]\nid = "header:{ID}"\nunique_ids = true\n'
        return text

    @contextmanager
    def lied_to(self, cluster: str, number: int) -> Iterator[None]:
        """Commands ask a cluster that gives the ``number``-th kind of wrong answers."""
        link = self.lying[cluster]
        self.lies, link.lie = True, LIES[number % len(LIES)]
        link.newest_ms = 0 if number % len(LIES) == len(LIES) - 1 else None
        try:
            yield
        finally:
            self.lies, link.lie, link.newest_ms = False, None, None

    def state_of(self, job: str) -> JobState:
        """What the state store has of a job."""
        return JobState(open_state(self.state.url()), job)

    def begin(self, *words: object, output: int | TextIO = subprocess.PIPE) -> subprocess.Popen[str]:
        """Start a command of the product."""
        command, *options = [str(word) for word in words]
        program = ["tests.soak.clock", str(self.clock_s)] if self.clock_s else ["reconciler"]
        running = subprocess.Popen(
            [sys.executable, "-m", *program, command, "-c", str(self.config), *options],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=output,
            stderr=output,
            text=True,
        )
        self._begun[running.pid] = command, time.monotonic()
        return running

    def run(self, *words: object, codes: Sequence[int] = (0,)) -> Ended:
        """Run a command to its end. Raises SoakFailed if it ends otherwise than ``codes`` say."""
        return self.ended(self.begin(*words), codes)

    def at_once(self, *commands: Sequence[object], codes: Sequence[int]) -> None:
        """Run commands side by side. Raises SoakFailed as ``run`` does."""
        for each in [self.begin(*words) for words in commands]:
            self.ended(each, codes)

    def ended(self, running: subprocess.Popen[str], codes: Sequence[int]) -> Ended:
        out, err = running.communicate(timeout=COMMAND_S)
        command, begun = self._begun.pop(running.pid)
        self._usual_s[command] = time.monotonic() - begun
        ended = Ended(running.returncode, out, err)
        if ended.code not in codes:
            words = " ".join(map(str, running.args)) if isinstance(running.args, list) else running.args
            raise SoakFailed(f"`{words}` ended with {ended.code}:\n{out}{err}")
        return ended

    def usual_s(self, command: str) -> float:
        """How long a command took the last time."""
        return self._usual_s.get(command, 2.0)

    def killed(self, share: float, *words: object) -> bool:
        """Start a command and kill it after this share of its usual time; False if it was quicker."""
        running = self.begin(*words)
        try:
            running.communicate(timeout=share * self.usual_s(str(words[0])))
        except subprocess.TimeoutExpired:
            running.kill()
            running.communicate()
            return True
        return False


def _without_sink(settings: str) -> str:
    return "\n".join(line for line in settings.splitlines() if not line.startswith("sink = "))
