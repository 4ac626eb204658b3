"""The failover itself, step by step, with real clusters, real MirrorMaker 2 and a real PySpark job.

Every step prints what it does and what came of it; ``Stage`` is where it prints and how it waits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.artifacts import kafka_jars, spark_kafka_connector
from reconciler.core.errors import ReconcilerError
from reconciler.core.plan import parse_plan
from reconciler.demo import proof, traffic
from reconciler.demo.job import KILLED
from reconciler.lab.kafka import KafkaCluster, start_all
from reconciler.lab.mirror import MirrorMaker
from reconciler.spark.handoff import read_stream_options

TOPIC, GROUP, PARTITIONS = "events", "clicks", 4
MIRRORED = f"a.{TOPIC}"
DELETED, PRODUCED = 3_000, 24_000
PER_BATCH, BATCHES = 3_000, 5
ONE_HOUR_MS = 3_600_000

Command = Callable[[Sequence[str]], int]
"""The reconciler's own command line: arguments in, exit code out, output on stdout."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the demo plays: its folder, how it speaks, and the reconciler as a person would type it."""

    folder: Path
    say: Callable[[str], None]
    reconciler: Command
    detached: bool = False

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder / 'offsets.db'}"

    @property
    def config(self) -> Path:
        return self.folder / "reconciler.toml"

    @property
    def plan(self) -> Path:
        return self.folder / "failover.plan.json"


@dataclass(frozen=True, slots=True)
class Result:
    """What the demo proved, and beside it what two other ways would have done."""

    by_ids: proof.Proof
    unchanged: proof.OtherWay
    mirror_maker: proof.OtherWay
    seconds: float
    destination: str
    destination_pid: int


def play(stage: Stage) -> Result:
    """The whole failover. Leaves nothing running unless the stage is detached."""
    began = time.monotonic()
    stage.say("0  Kafka, MirrorMaker and Spark's Kafka connector (fetched once, then from the cache)")
    jars = kafka_jars(stage.say)
    spark_kafka_connector(stage.say)
    a = KafkaCluster("a", stage.folder / "a", jars, detached=stage.detached)
    b = KafkaCluster("b", stage.folder / "b", jars, detached=stage.detached)
    mirror = MirrorMaker(a, b, [TOPIC], stage.folder / "mirror", jars, detached=stage.detached)
    try:
        stage.say("1  two Kafka clusters start: a (the source) and b (the destination)")
        start_all([a, b])
        produced = _produce(stage, a)
        mirror.start()
        first = _run_on_source(stage, a)
        _wait_for_mirror(stage, a, b, mirror)
        synced = proof.group_offsets(b, GROUP, MIRRORED)
        stage.say("5  disaster: cluster a is killed (SIGKILL), MirrorMaker stopped; only b is left")
        a.kill()
        mirror.stop()
        _fail_over(stage, b)
        second = _run_on_destination(stage, b)
        job = parse_plan(stage.plan.read_text()).job()
        ends = b.end_offsets(MIRRORED)
        stored = {row.partition: row.stored_offset or 0 for row in job.partitions}
        return Result(
            proof.prove(produced, [first, second]),
            proof.other_way(job, stored, ends),
            proof.other_way(job, synced, ends),
            time.monotonic() - began,
            b.bootstrap,
            b.pid,
        )
    except BaseException:
        if stage.detached:
            _stop(mirror, a, b)
        raise
    finally:
        if not stage.detached:
            _stop(mirror, a, b)


def _stop(mirror: MirrorMaker, *clusters: KafkaCluster) -> None:
    mirror.kill()
    for cluster in clusters:
        cluster.stop()


def _produce(stage: Stage, a: KafkaCluster) -> list[str]:
    stage.say(
        f"2  {DELETED + PRODUCED:,} records in transactions ({traffic.BURST} a millisecond); "
        f"the oldest {DELETED:,} are deleted before anything is mirrored"
    )
    a.create_topic(TOPIC, PARTITIONS)
    begin = time.time_ns() // 1_000_000 - ONE_HOUR_MS
    traffic.produce(a, TOPIC, traffic.events("old", DELETED, PARTITIONS, begin, seed=1), "old")
    traffic.delete_all(a, TOPIC)
    later = begin + 1000 * (DELETED // traffic.BURST + 1)
    return traffic.produce(a, TOPIC, traffic.events("click", PRODUCED, PARTITIONS, later, seed=2), "new")


def _run_on_source(stage: Stage, a: KafkaCluster) -> Path:
    output = stage.folder / "output-a"
    stage.say(f"3  the PySpark job runs on a, and dies after {BATCHES} batches")
    options = {
        "kafka.bootstrap.servers": a.bootstrap,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(PER_BATCH),
    }
    _job(stage, a, output, options, die_at_batch=BATCHES)
    stage.say(f"   it processed {len(proof.ids_in(output)):,} records; its offsets are in {stage.store}")
    return output


def _wait_for_mirror(stage: Stage, a: KafkaCluster, b: KafkaCluster, mirror: MirrorMaker) -> None:
    from reconciler.stores.registry import open_store

    stage.say("4  MirrorMaker 2 has copied everything and synced the job's group offset")
    store = open_store(stage.store)
    offsets = {row.key.partition: row.stored.offset for row in store.read(GROUP, [TOPIC])}
    store.close()
    proof.commit_group(a, GROUP, TOPIC, offsets)
    wanted = _mirrored_ends(stage)
    mirror.wait_until_mirrored(TOPIC, MIRRORED, wanted)
    deadline = time.monotonic() + 60
    while len(proof.group_offsets(b, GROUP, MIRRORED)) < PARTITIONS:
        if time.monotonic() > deadline:
            stage.say("   (MirrorMaker synced no offset for some partitions: they count as starting at the earliest)")
            break
        time.sleep(0.5)


def _mirrored_ends(stage: Stage) -> dict[int, int]:
    """Records a partition at the destination: those that were not deleted, without markers."""
    counts = dict.fromkeys(range(PARTITIONS), 0)
    for event in traffic.events("click", PRODUCED, PARTITIONS, 0, seed=2):
        counts[event.partition] += 1
    return counts


def _fail_over(stage: Stage, b: KafkaCluster) -> None:
    stage.config.write_text(
        f"""[source]
alias = "a"
[destination]
bootstrap_servers = "{b.bootstrap}"
[[jobs]]
name = "clicks"
group = "{GROUP}"
topics = ["{TOPIC}"]
store = "{stage.store}"
[jobs.identity]
id = "header:{traffic.ID_HEADER}"
"""
    )
    config = str(stage.config)
    stage.say("6  what would happen if the job started on b now?")
    _expect(stage, ["check", "-c", config], 3)
    stage.say("7  a plan, applied: written by compare-and-set, read back")
    _expect(stage, ["plan", "-c", config, "-o", str(stage.plan)], 0)
    _expect(stage, ["apply", str(stage.plan), "-c", config, "--yes"], 0)
    stage.say("8  the same check again: every stored offset is right now")
    _expect(stage, ["check", "-c", config], 0)


def _expect(stage: Stage, arguments: list[str], code: int) -> None:
    shown = " ".join(arguments).replace(str(stage.folder), ".")
    stage.say(f"\n   $ reconciler {shown}")
    found = stage.reconciler(arguments)
    stage.say(f"   (exit code {found})")
    if found != code:
        raise DemoFailed(
            f"`reconciler {shown}` ended with {found} instead of {code}.", hint="Run the demo with --keep."
        )


def _run_on_destination(stage: Stage, b: KafkaCluster) -> Path:
    output = stage.folder / "output-b"
    stage.say("9  the job continues on b, from the plan's startingOffsets")
    options = read_stream_options(stage.plan, extra={"includeHeaders": "true"})
    _job(stage, b, output, options)
    stage.say(f"   it processed {len(proof.ids_in(output)):,} more records")
    return output


def _job(stage: Stage, cluster: KafkaCluster, output: Path, options: dict[str, str], *, die_at_batch: int = -1) -> None:
    output.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "reconciler.demo.job", "--bootstrap", cluster.bootstrap, "--store", stage.store),
        *("--group", GROUP, "--output", str(output), "--read-options", json.dumps(options)),
        *("--die-at-batch", str(die_at_batch)),
    ]
    log = output / "job.log"
    with log.open("wb") as file:
        ended = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, env=dict(os.environ), check=False)
    expected = KILLED if die_at_batch >= 0 else 0
    if ended.returncode != expected:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise DemoFailed(f"The PySpark job ended with {ended.returncode} instead of {expected}:\n{tail}")


class DemoFailed(ReconcilerError):
    """A step of the demo did not do what it shows."""
