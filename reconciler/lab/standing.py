"""The lab of ``reconciler lab``: two clusters, a mirror and records for trying things by hand.

It stands in a folder until it is taken down. ``up`` fills it, writes its record last, and starts a part that is missing
on its old port with its old data. So a killed ``up``, a reboot and ``lose_source`` have one remedy: ``up`` again. A
folder without the record is that of an interrupted first ``up``, and is begun from scratch. The mark shows that a
folder is a lab's: nothing is ever deleted in another one. A command that changes the lab holds the mark's lock.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from reconciler.artifacts import cache_directory, kafka_jars
from reconciler.clock import clock_ms
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.core.visible import command
from reconciler.fileio import locked, write_whole
from reconciler.lab import traffic
from reconciler.lab.in_use import ClusterAt, ClusterInUse
from reconciler.lab.kafka import PORT_ATTEMPTS, KafkaCluster, start_all
from reconciler.lab.mirror import MIRROR_SECONDS, MirrorMaker
from reconciler.lab.ports import HOST, free_ports, this_or_free
from reconciler.lab.servers import kill, servers_in

A, B, MIRROR = "a", "b", "mirror"
PORTS = {A: 19_092, B: 29_092}
"""Where the clusters listen if nothing else does; the tutorial names these ports."""
TOPIC, GROUP, PARTITIONS = "events", "billing", 4
DELETED, PRODUCED = 1_000, 6_000
ONE_HOUR_MS = 3_600_000
_MARK, _RECORD = ".reconciler-lab", "lab.json"
_ANSWER_SECONDS = 60
LOOKS = 3
"""How often ``up`` looks for missing parts: one that was killed just now may still be there at the first look."""
_REMEMBERS = {"log.initial.task.delay.ms": "100", "log.flush.start.offset.checkpoint.interval.ms": "500"}
"""Settings without which a broker that is killed in its first minutes forgets which records were deleted."""


@dataclass(frozen=True, slots=True)
class SavedLab:
    """The facts that a later ``up`` needs. ``ports``: of each cluster, for clients and for its controller."""

    ports: dict[str, tuple[int, int]]
    cluster_ids: dict[str, str]
    begin_ms: int
    produced: int = 0

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The record in a file; None if there is no file."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{path} is damaged: {error}.", hint="Begin again with this lab: down, then up."
            ) from None

    def address(self, cluster: str) -> str:
        return f"{HOST}:{self.ports[cluster][0]}"

    def cluster(self, name: str) -> ClusterAt:
        return ClusterAt(name, self.address(name))


@dataclass(frozen=True, slots=True)
class LabPartition:
    """One partition: its offsets, and the next offset that the lab's group has stored for it, if any."""

    cluster: str
    topic: str
    partition: int
    first: int
    next: int
    group: int | None


@dataclass(frozen=True, slots=True)
class LabServer:
    """A server of the lab: its process if it runs, and its address if it has one."""

    name: str
    pid: int | None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class LabState:
    """The lab as it was found. ``whole`` is False while ``up`` is at work, and after it was interrupted."""

    whole: bool
    parts: tuple[LabServer, ...]
    places: tuple[LabPartition, ...] = ()

    @property
    def is_up(self) -> bool:
        return self.whole and all(part.pid is not None for part in self.parts)


class StandingLab:
    """The lab in ``folder``; ``say`` receives a line before each step that takes time."""

    def __init__(self, folder: Path | None, say: Callable[[str], None]) -> None:
        self.folder = (folder or cache_directory() / "lab").resolve()
        self._named = folder is not None
        self._say = say

    def command(self, action: str) -> str:
        """The command line that does ``action`` with this lab, and with no other."""
        return command("reconciler", "lab", action, *(("--folder", self.folder) if self._named else ()))

    # ------------------------------------------------------------ up and down

    def up(self) -> bool:
        """Start every part that is not running. False: all of it was running already."""
        with self._alone(begin=True):
            record = self._record()
            if record is None:
                self._clear()
                self._begin()
                return True
            is_changed = False
            for _ in range(LOOKS):
                if missing := {A, B, MIRROR} - self._running().keys():
                    is_changed, record = True, self._go_on(record, missing)
                if all(self._answers(record.cluster(name)) for name in (A, B)):
                    return is_changed
            raise Unreachable("A cluster of the lab ends again and again.", hint=f"Its log is in {self.folder}.")

    def down(self) -> bool:
        """End every process and delete the folder. False: there was no lab."""
        if not self._marked:
            self._check_folder()
            return False
        with self._alone():
            kill(servers_in(self.folder), self.folder)
            shutil.rmtree(self.folder)
        return True

    def lose_source(self) -> bool:
        """Kill the source and the mirror with SIGKILL. False: neither was running."""
        with self._alone():
            lost = [server for server in servers_in(self.folder) if server.name in (A, MIRROR)]
            kill(lost, self.folder)
        return bool(lost)

    def produce(self, count: int) -> None:
        """Produce more records on the source, and wait until the destination has them."""
        with self._alone():
            record = self._record()
            if record is None:
                raise self._no_lab()
            if missing := {A, B, MIRROR} - self._running().keys():
                raise Unreachable(f"Not running: {', '.join(sorted(missing))}.", hint=f"Start it: {self.command('up')}")
            a, b = record.cluster(A), record.cluster(B)
            _produce(a, record, count)
            self._write(replace(record, produced=record.produced + count))
            there = f"{A}.{TOPIC}"  # numbers do not tell: a mirror that was killed sends older records again
            b.wait_until(lambda: b.ends_as(there, a, TOPIC), MIRROR_SECONDS, "the mirror to copy the new records")

    # ------------------------------------------------------------ what is there

    def state(self) -> LabState:
        """The running processes, and the offsets of every topic on the clusters that answer.

        Raises Unreachable where there is no lab.
        """
        if not self._marked:
            raise self._no_lab()
        record, running = self._record(), self._running()
        parts = [LabServer(name, running.get(name), record.address(name) if record else None) for name in (A, B)]
        parts.append(LabServer(MIRROR, running.get(MIRROR)))
        places: list[LabPartition] = []
        if record is not None:
            for name in (A, B):
                if name in running and self._answers(record.cluster(name)):
                    places += _places(record.cluster(name))
        return LabState(record is not None, tuple(parts), tuple(places))

    def _running(self) -> dict[str, int]:
        return {server.name: server.pid for server in servers_in(self.folder)}

    def _answers(self, cluster: ClusterInUse) -> bool:
        """Wait for a cluster's answer. False: its process has ended."""
        found = cluster.wait_until(
            lambda: "an answer" if _is_answering(cluster) else None if cluster.name in self._running() else "an end",
            _ANSWER_SECONDS,
            "its first answer",
        )
        return found == "an answer"

    # ------------------------------------------------------------ starting

    def _begin(self) -> None:
        """Start everything, fill it, and write the record. Nothing stays if this fails."""
        jars = kafka_jars(self._say)
        ports = {name: (this_or_free(PORTS[name]), own) for name, own in zip((A, B), free_ports(2), strict=True)}
        a, b = self._cluster(A, jars, ports[A]), self._cluster(B, jars, ports[B])
        mirror = self._mirror(a, b, jars)
        try:
            self._say("Two Kafka clusters start: a (the source) and b (the destination).")
            start_all([a, b])
            made = {cluster.name: cluster.brokers[0].known_ports for cluster in (a, b)}
            ids = {cluster.name: cluster.cluster_id for cluster in (a, b)}
            record = SavedLab(made, ids, clock_ms() - ONE_HOUR_MS)
            self._say(f"{PRODUCED:,} records on a, in transactions; {DELETED:,} older ones are deleted unmirrored.")
            a.create_topic(TOPIC, PARTITIONS)
            old = traffic.events("old", DELETED, PARTITIONS, record.begin_ms - ONE_HOUR_MS, seed=1)
            traffic.produce(a, TOPIC, old, "lab")
            traffic.delete_all(a, TOPIC)
            sent = _produce(a, record, PRODUCED)
            self._say("MirrorMaker 2 starts and copies them to b.")
            mirror.start()
            mirror.wait_until_mirrored(TOPIC, ends=sent)
            self._say(f"Group {GROUP} has processed two thirds of them, and has committed its offsets on a.")
            firsts, ends = a.start_offsets(TOPIC), a.end_offsets(TOPIC)
            two_thirds = {number: first + (ends[number] - first) * 2 // 3 for number, first in firsts.items()}
            a.wait_until(lambda: _is_committed(a, two_thirds), _ANSWER_SECONDS, "a coordinator of groups")
            self._write(replace(record, produced=PRODUCED))
        except BaseException:
            self._clear()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _go_on(self, record: SavedLab, missing: set[str]) -> SavedLab:
        """Start the missing parts with their old data, on their old ports if those are free; the lab as it is then."""
        jars = kafka_jars(self._say)
        self._say(f"Not running: {', '.join(sorted(missing))}. Starting it again, with its data.")
        before = servers_in(self.folder)
        try:
            lost = sorted({A, B} & missing)
            record = self._start_again(record, lost, jars)
            if MIRROR not in missing and lost:
                kill([server for server in before if server.name == MIRROR], self.folder)  # it may have an old address
            if MIRROR in missing or lost:
                self._mirror(record.cluster(A), record.cluster(B), jars).start()
        except BaseException:
            kill([server for server in servers_in(self.folder) if server not in before], self.folder)
            raise
        return record

    def _start_again(self, record: SavedLab, names: Sequence[str], jars: Path) -> SavedLab:
        """Start these clusters. If another program takes one of their ports meanwhile, they take free ones."""
        attempts_left = PORT_ATTEMPTS
        while True:
            clusters = []
            for name in names:
                clients, controllers = record.ports[name]
                ports = (this_or_free(clients), this_or_free(controllers))
                record = replace(record, ports={**record.ports, name: ports})
                cluster = self._cluster(name, jars, ports)
                cluster.cluster_id = record.cluster_ids[name]
                clusters.append(cluster)
            self._write(record)
            try:
                start_all(clusters)
                return record
            except Unreachable:
                attempts_left -= 1
                if not attempts_left or not any(cluster.port_was_taken() for cluster in clusters):
                    raise

    def _cluster(self, name: str, jars: Path, ports: tuple[int, int]) -> KafkaCluster:
        cluster = KafkaCluster(name, self.folder / name, jars, properties=_REMEMBERS, detached=True)
        cluster.brokers[0].ports = ports
        return cluster

    def _mirror(self, a: ClusterInUse, b: ClusterInUse, jars: Path) -> MirrorMaker:
        return MirrorMaker(a, b, [".*"], self.folder / MIRROR, jars, detached=True)

    # ------------------------------------------------------------ the folder

    @property
    def _marked(self) -> bool:
        return (self.folder / _MARK).exists()

    @contextmanager
    def _alone(self, *, begin: bool = False) -> Iterator[None]:
        """Hold the lock of the lab's mark, so that one command at a time changes the lab."""
        self._check_folder()
        if begin:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / _MARK).touch()
        elif not self._marked:
            raise self._no_lab()
        with locked(self.folder / _MARK):
            yield

    def _check_folder(self) -> None:
        """Raises ConfigError for a folder with files that are not a lab's."""
        if self.folder.exists() and not self._marked and (not self.folder.is_dir() or any(self.folder.iterdir())):
            raise ConfigError(f"{self.folder} is not a lab's folder.", hint="Give a new or empty one with --folder.")

    def _clear(self) -> None:
        """End and delete all that an interrupted first start has left."""
        kill(servers_in(self.folder), self.folder)
        for left in self.folder.iterdir():
            if left.is_dir():
                shutil.rmtree(left)
            elif left.name != _MARK:
                left.unlink()

    def _record(self) -> SavedLab | None:
        return SavedLab.read(self.folder / _RECORD)

    def _no_lab(self) -> Unreachable:
        return Unreachable(f"No lab is up in {self.folder}.", hint=f"Start one: {self.command('up')}")

    def _write(self, record: SavedLab) -> None:
        write_whole(self.folder / _RECORD, json.dumps(asdict(record), indent=1))


def _produce(a: ClusterInUse, record: SavedLab, count: int) -> Counter[int]:
    """Produce the next ``count`` events; returns the number of records by partition."""
    first = record.produced
    events = list(traffic.events("click", count, PARTITIONS, record.begin_ms, seed=first, first=first))
    traffic.produce(a, TOPIC, iter(events), "lab")
    return Counter(event.partition for event in events)


def _is_committed(cluster: ClusterInUse, offsets: dict[int, int]) -> bool:
    """Commit the group's offsets; False while a new cluster has no coordinator."""
    from confluent_kafka import KafkaError, KafkaException

    early = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
    try:
        cluster.commit_group(GROUP, TOPIC, offsets)
    except KafkaException as error:
        if error.args[0].code() in early:
            return False
        raise
    return True


def _places(cluster: ClusterInUse) -> Iterator[LabPartition]:
    for topic in sorted(cluster.admin().list_topics(timeout=10).topics):
        if topic.startswith(("__", "mm2-")) or topic.endswith((".internal", "heartbeats")):
            continue
        firsts, group = cluster.start_offsets(topic), cluster.group_offsets(GROUP, topic)
        for number, end in sorted(cluster.end_offsets(topic).items()):
            yield LabPartition(cluster.name, topic, number, firsts[number], end, group.get(number))


def _is_answering(cluster: ClusterInUse) -> bool:
    from confluent_kafka import KafkaException

    try:
        return bool(cluster.admin().list_topics(timeout=2).brokers)
    except KafkaException:
        return False
