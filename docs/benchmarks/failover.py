"""A failover of a large estate: the question, every location, ``status``, and all hooks, on three brokers.

    python -m docs.benchmarks.failover [--jobs 500] [--topics 200] [--partitions 100] [--hooks 20] [--json FILE]
    python -m docs.benchmarks.failover --unrest --jobs 40 --topics 40 --partitions 20

Cluster ``a`` is lost. Each job reads one topic; every other one keeps its offsets in PostgreSQL, the others in consumer
groups, whose numbers are in their journals. The state store is in PostgreSQL, too. ``--hooks``: at a time.
``--unrest``: leaders move while plans are made, and brokers restart one after the other beside the hooks.

The benchmark ends with an error if a command fails, or if a job does not live on ``b`` with the offsets that it left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import ElectionType, Producer
from confluent_kafka.admin import NewTopic

from docs.benchmarks.common import HEAD, Cost, measured, off_the_disk, print_json, this_program
from docs.benchmarks.rows import BASE, LONG, SMALL_INDEXES, produce, stamp_ms, value
from docs.benchmarks.speed import STOCK_JVM
from reconciler.artifacts import java_executable, kafka_jars
from reconciler.clock import clock_ms
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import ExitCode
from reconciler.demo.lab.kafka import HOST, free_ports
from reconciler.places.registry import open_store
from reconciler.plan.document import JobPlan, parse_plan
from reconciler.ports import Change, TopicPartition
from reconciler.state import journal, locations
from reconciler.state.jobs import JobState
from reconciler.state.journal import StreamPartition
from reconciler.state.locations import Phase, Stamp
from reconciler.state.store import open_state
from reconciler.state.stored import Known
from tests.demo.lab.kafka import KafkaCluster
from tests.demo.lab.servers.postgresql import PostgresServer

SECRET = "BENCHMARK_PASSWORD"
TOPICS_AT_ONCE = 10
BROKERS = (1, 2, 3)
PLANS = 5
AWAY = ExitCode.UNREACHABLE
"""A hook's end after which a service manager starts it again."""
SETTINGS = {"max_connections": "100"}
"""What PostgreSQL allows unless told otherwise."""
IN_SYNC_S = 120


@dataclass(frozen=True, slots=True)
class Shape:
    jobs: int
    topics: int
    partitions: int
    records: int

    def topic_of(self, job: int) -> str:
        return f"t{job % self.topics:03}"

    @property
    def names(self) -> list[str]:
        return [f"job{number:03}" for number in range(self.jobs)]

    def processed(self, job: int) -> list[int]:
        """The number of the last record that the job has processed, of each partition."""
        chance, most = random.Random(job), self.records // 4
        return [self.records // 2 + chance.randint(-most, most) for _ in range(self.partitions)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--topics", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=100, help="of each topic")
    parser.add_argument("--records", type=int, default=20, help="a partition, of about 90 bytes")
    parser.add_argument("--hooks", type=int, default=20)
    parser.add_argument("--unrest", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    shape = Shape(options.jobs, options.topics, options.partitions, options.records)
    with tempfile.TemporaryDirectory() as disk, off_the_disk(Path(disk)) as folder:
        folder.chmod(0o755)
        with (
            KafkaCluster(
                "b", folder / "b", kafka_jars(print), brokers=len(BROKERS), heap="768m", properties=SMALL_INDEXES
            ) as cluster,
            PostgresServer(folder / "sql", settings=SETTINGS) as server,
        ):
            began = time.perf_counter()
            fill(cluster, shape, replicas=len(BROKERS) if options.unrest else 1)
            estate = Estate(shape, settle(shape, folder, server, cluster.bootstrap), server, cluster)
            print(f"{shape.topics * shape.partitions:,} partitions, made in {time.perf_counter() - began:.0f} s")
            rows = estate.in_unrest(options.hooks) if options.unrest else estate.fail_over(options.hooks)
    print_json("failover", vars(options), rows, options.json)


# ---------------------------------------------------------------- the estate


def fill(cluster: KafkaCluster, shape: Shape, *, replicas: int) -> None:
    """What a mirror has delivered."""
    names = [f"a.{shape.topic_of(number)}" for number in range(shape.topics)]
    for first in range(0, len(names), TOPICS_AT_ONCE):
        new = [NewTopic(name, shape.partitions, replicas) for name in names[first : first + TOPICS_AT_ONCE]]
        for made in cluster.admin().create_topics(new, operation_timeout=60).values():
            made.result(60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 50, "log_level": 0})
    for name in names:
        for partition in range(shape.partitions):
            for number in range(shape.records):
                produce(producer, name, partition, number)
            producer.poll(0)
    assert producer.flush(300) == 0


def settle(shape: Shape, folder: Path, server: PostgresServer, bootstrap: str) -> Path:
    """Have all jobs live on ``a``, with stored offsets. Returns the configuration's file."""
    state, place, who = open_state(server.url()), open_store(server.url()), Stamp("benchmark", clock_ms)
    state.create()
    place.create()
    secret = server.url().split(":")[2].split("@")[0]
    os.environ[SECRET] = secret
    address, tables = server.url().replace(secret, f"${{{SECRET}}}"), ""
    for number, name in enumerate(shape.names):
        job, topic = JobState(state, name), shape.topic_of(number)
        job.move_on(None, locations.first("a", who))
        anchors = [anchor_of(at, record) for at, record in enumerate(shape.processed(number))]
        if number % 2:
            keys = [StreamPartition(topic, "a", at) for at in range(shape.partitions)]
            known = {key: Known(BASE + at_end(each), each) for key, each in zip(keys, anchors, strict=True)}
            job.append_journal(1, 1, journal.opening(known, "benchmark", who.at_ms))
        else:
            stored = [StoredOffset(BASE + at_end(each), each) for each in anchors]
            changes = [Change(TopicPartition(topic, at), None, each) for at, each in enumerate(stored)]
            place.write(name, changes, reason="benchmark", now_ms=who.at_ms)
        offsets = "kafka-group:" if number % 2 else address
        tables += f'[[jobs]]\nname = "{name}"\nhome = "a"\ntopics = ["{topic}"]\noffsets = "{offsets}"\n'
    state.close()
    place.close()
    config = folder / "reconciler.toml"
    config.write_text(
        f'[clusters.a]\nbootstrap_servers = "{HOST}:{free_ports(1)[0]}"\n'
        f'[clusters.b]\nbootstrap_servers = "{bootstrap}"\n[state]\nstore = "{address}"\n{LONG}{tables}'
    )
    return config


def anchor_of(partition: int, number: int) -> Anchor:
    """A record as cluster ``a`` numbered it."""
    print_of = fingerprint(b"k%d" % number, value(partition, number))
    return Anchor(BASE + number, stamp_ms(number), None, print_of, "cluster-a", "topic-a")


def at_end(anchor: Anchor) -> int:
    """The offset behind a record on ``b``, where the first record has offset 0."""
    assert anchor.offset is not None
    return anchor.offset - BASE + 1


# ---------------------------------------------------------------- the failover


@dataclass(frozen=True)
class Estate:
    shape: Shape
    config: Path
    server: PostgresServer
    cluster: KafkaCluster
    costs: dict[str, Cost] = field(default_factory=dict)

    def fail_over(self, at_a_time: int) -> dict[str, Any]:
        """Move all jobs, and start them."""
        print(f"{'':24}{HEAD}")
        self.run("help", "status", "--help")
        self.run("plan", "plan", "--to", "b", "-o", str(self.config.with_name("plan.json")))
        self.run("move", "move", "--to", "b", "--yes")
        self.require_all(Phase.MOVING, "a")
        self.run("status, moving", "status")
        hooks = self.start_all(at_a_time)
        self.run("status, moved", "status")
        for name, place in zip(self.shape.names, ("table", "group"), strict=False):
            self.run(f"hook again, {place}", *self.hook(name))
        self.took("kafka-consumer-groups", measured(self.kafka("consumer.group.ConsumerGroupCommand", *DESCRIBE)))
        return {**{name: cost._asdict() for name, cost in self.costs.items()}, "hooks": hooks}

    def in_unrest(self, at_a_time: int) -> dict[str, Any]:
        """The same amid leaders that move, and restarts."""
        quiet = self.plan()
        with meanwhile(self.move_leaders) as moves:
            for _ in range(PLANS):
                assert self.plan() == quiet, "a plan that was made while leaders moved differs"
            self.run("move", "move", "--to", "b", "--yes")
        self.require_all(Phase.MOVING, "a")
        with meanwhile(self.restart_next) as restarts:
            hooks = self.start_all(at_a_time, tries=3)
            while len(restarts) < len(BROKERS):
                self.start_all(at_a_time, tries=3)
        print(f"{len(moves)} times all leaders moved, {len(restarts)} restarts of a broker")
        return {"plans": PLANS, "leaders moved": len(moves), "restarts": len(restarts), "hooks": hooks}

    def plan(self) -> Sequence[JobPlan]:
        file = self.config.with_name("plan.json")
        self.run("plan", "plan", "--to", "b", "-o", str(file))
        return parse_plan(file.read_text()).jobs

    def run(self, name: str, command: str, *words: str) -> None:
        self.took(name, measured(this_program(command, "-c", str(self.config), *words)))

    def took(self, name: str, cost: Cost) -> None:
        self.costs[name] = cost
        print(f"{name:24}{cost.text()}", flush=True)

    def hook(self, job: str) -> tuple[str, ...]:
        return ("hook", "--job", job, "--plans", str(self.config.parent), "--", "true")

    def start_all(self, at_a_time: int, *, tries: int = 1) -> dict[str, float]:
        """Run every job's hook, so many at a time. Returns seconds: of all, and of one; and how many ran again."""
        again: list[str] = []

        def start(job: str) -> tuple[str, float]:
            began = time.perf_counter()
            command, *others = self.hook(job)
            program = this_program(command, "-c", str(self.config), *others)
            for left in reversed(range(tries)):
                done = subprocess.run(program, capture_output=True, text=True, check=False)
                if done.returncode != AWAY or not left:
                    break
                again.append(job)
            said = f"{job} ended with {done.returncode}: {done.stderr[-2000:]}" if done.returncode else ""
            return said, time.perf_counter() - began

        began = time.perf_counter()
        with ThreadPoolExecutor(at_a_time) as pool:
            ended = list(pool.map(start, self.shape.names))
        all_s, took = time.perf_counter() - began, sorted(seconds for _, seconds in ended)
        print(
            f"{len(took)} hooks: {all_s:.1f} s, one {statistics.median(took):.1f} s, at most {took[-1]:.1f} s, "
            f"{len(again)} started again"
        )
        if failed := [said for said, _ in ended if said]:
            raise SystemExit(f"{len(failed)} hooks failed:\n" + "\n".join(failed[:5]))
        self.require_all(Phase.LIVES, "b")
        self.require_offsets()
        return {"all_s": all_s, "median_s": statistics.median(took), "slowest_s": took[-1], "again": len(again)}

    # ------------------------------------------------------------ what must hold

    def states(self) -> Iterator[tuple[int, JobState]]:
        store = open_state(self.server.url())
        yield from ((number, JobState(store, name)) for number, name in enumerate(self.shape.names))
        store.close()

    def require_all(self, phase: Phase, cluster: str) -> None:
        for _, state in self.states():
            here = state.location()
            assert here is not None, state.job
            assert (here.phase, here.cluster) == (phase, cluster), here

    def require_offsets(self) -> None:
        """Every job starts on ``b`` right behind what it has processed."""
        for number, state in self.states():
            numbers = journal.latest(state.newest(2))
            found = {key.partition: each.number for key, each in numbers.items()}
            assert found == {at: last + 1 for at, last in enumerate(self.shape.processed(number))}, state.job

    # ------------------------------------------------------------ unrest

    def move_leaders(self, number: int) -> None:
        """Every partition gets another leader."""
        order = [BROKERS[(number + at) % len(BROKERS)] for at in range(1, 1 + len(BROKERS))]
        topics = [f"a.{self.shape.topic_of(each)}" for each in range(self.shape.topics)]
        wanted = [
            {"topic": topic, "partition": at, "replicas": order[at % 3 :] + order[: at % 3]}
            for topic in topics
            for at in range(self.shape.partitions)
        ]
        file = self.config.with_name("leaders.json")
        file.write_text(json.dumps({"version": 1, "partitions": wanted}))
        words = ("--reassignment-json-file", str(file), "--execute")
        subprocess.run(self.kafka("reassign.ReassignPartitionsCommand", *words), check=True, capture_output=True)
        self.cluster.admin().elect_leaders(ElectionType.PREFERRED, None).result(60)

    def restart_next(self, number: int) -> None:
        """Restart a broker, and wait until its replicas are in sync."""
        self.cluster.restart_broker(BROKERS[number % len(BROKERS)])
        self.cluster.wait_until(self.is_in_sync, IN_SYNC_S, "replicas in sync")

    def is_in_sync(self) -> bool:
        topics = self.cluster.admin().list_topics(timeout=10).topics.values()
        return all(len(each.isrs) == len(BROKERS) for topic in topics for each in topic.partitions.values())

    def kafka(self, tool: str, *words: str) -> list[str]:
        """The command line of one of Kafka's own tools."""
        java = (str(java_executable()), *STOCK_JVM, "-cp", f"{kafka_jars(print)}/*")
        return [*java, f"org.apache.kafka.tools.{tool}", "--bootstrap-server", self.cluster.bootstrap, *words]


DESCRIBE = ("--describe", "--all-groups", "--offsets")


@contextmanager
def meanwhile(disturb: Callable[[int], None]) -> Iterator[Sequence[int]]:
    """Call it with 0, 1, … as long as the block runs. Raises its error, or if the block was over before its end."""
    done, stop, failed = list[int](), threading.Event(), list[Exception]()

    def run() -> None:
        try:
            while not stop.is_set():
                disturb(len(done))
                done.append(len(done))
        except Exception as error:  # noqa: BLE001 - raised in the caller's thread
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]
    assert done


if __name__ == "__main__":
    main()
