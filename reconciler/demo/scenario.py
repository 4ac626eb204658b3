"""The failover itself, step by step, with real clusters, real MirrorMaker 2 and a real PySpark job.

Every step prints its action and its result, through ``Stage``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.artifacts import kafka_jars, spark_kafka_connector
from reconciler.clock import clock_ms
from reconciler.demo import proof, stateful, traffic
from reconciler.demo.counts import WINDOW_MS
from reconciler.demo.job import IDS, Query, Work
from reconciler.demo.stage import GROUP, MIRRORED, PARTITIONS, TOPIC, Stage
from reconciler.formats.plan import parse_plan
from reconciler.lab.kafka import KafkaCluster, start_all
from reconciler.lab.mirror import MirrorMaker
from reconciler.spark.handoff.options import read_stream_options

DELETED, PRODUCED = 3_000, 24_000
PER_BATCH, BATCHES = 3_000, 5
ONE_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Result:
    """The proof, and the outcome of the alternatives for comparison."""

    by_ids: proof.Proof
    state: stateful.StateProof
    unchanged: proof.Alternative
    mirror_maker: proof.Alternative
    seconds: float
    destination: str
    destination_pid: int

    @property
    def is_clean(self) -> bool:
        return self.by_ids.is_clean and self.state.cloned.is_equal


def play(stage: Stage) -> Result:
    """Run the whole failover. Leaves nothing running unless the stage is detached."""
    began = time.monotonic()
    stage.say("0  Kafka, MirrorMaker and Spark's Kafka connector (downloaded once, then from the cache)")
    jars = kafka_jars(stage.say)
    spark_kafka_connector(stage.say)
    a = KafkaCluster("a", stage.folder / "a", jars, detached=stage.detached)
    b = KafkaCluster("b", stage.folder / "b", jars, detached=stage.detached)
    mirror = MirrorMaker(a, b, [TOPIC], stage.folder / "mirror", jars, detached=stage.detached)
    try:
        stage.say("1  two Kafka clusters start: a (the source) and b (the destination)")
        start_all([a, b])
        events = list(_clicks())
        produced = _produce(stage, a, events)
        mirror.start()
        _run_on_source(stage, a)
        _configure(stage, a, b)
        _wait_for_mirror(stage, a, b, mirror, events)
        synced = proof.group_offsets(b, GROUP, MIRRORED)
        stage.say("5  disaster: cluster a is killed (SIGKILL), MirrorMaker stopped; only b is left")
        a.kill()
        mirror.stop()
        _fail_over(stage)
        _run_on_destination(stage, b)
        job = parse_plan(stage.plan.read_text()).job()
        ends = b.end_offsets(MIRRORED)
        stored = {row.partition: row.stored_offset or 0 for row in job.partitions}
        return Result(
            proof.prove(produced, [stage.ids_on_a, stage.ids_on_b]),
            stateful.prove(stage, events),
            proof.alternative(job, stored, ends),
            proof.alternative(job, synced, ends),
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


def _clicks() -> Iterator[traffic.Event]:
    """The mirrored records. The first one starts a window, so the job dies within a window."""
    begin = (clock_ms() - ONE_HOUR_MS) // WINDOW_MS * WINDOW_MS
    return traffic.events("click", PRODUCED, PARTITIONS, begin, seed=2)


def _produce(stage: Stage, a: KafkaCluster, events: list[traffic.Event]) -> list[str]:
    stage.say(
        f"2  {DELETED + PRODUCED:,} records in transactions, {traffic.BURST} a millisecond; "
        f"the oldest {DELETED:,} are deleted unmirrored"
    )
    a.create_topic(TOPIC, PARTITIONS)
    earlier = events[0].timestamp_ms - 1000 * (DELETED // traffic.BURST + 1)
    traffic.produce(a, TOPIC, traffic.events("old", DELETED, PARTITIONS, earlier, seed=1), "old")
    traffic.delete_all(a, TOPIC)
    return traffic.produce(a, TOPIC, iter(events), "new")


def _run_on_source(stage: Stage, a: KafkaCluster) -> None:
    stage.say("3  the PySpark job runs on a: one query writes ids, one counts clicks by user and window, in state")
    options = {
        "kafka.bootstrap.servers": a.bootstrap,
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(PER_BATCH),
    }
    queries = [Query(IDS, str(stage.ids_on_a), options), stateful.on_a(stage, options)]
    stage.run_job("job-a", Work(a.bootstrap, stage.store, GROUP, [queries], die_at_batch=BATCHES))
    stage.say(f"   it died in the middle of its batch {BATCHES}, after {len(proof.ids_in(stage.ids_on_a)):,} records")


def _configure(stage: Stage, a: KafkaCluster, b: KafkaCluster) -> None:
    stage.config.write_text(
        f"""[source]
alias = "a"
bootstrap_servers = "{a.bootstrap}"
[destination]
bootstrap_servers = "{b.bootstrap}"
[anchors]
store = "sqlite:///{stage.folder / "anchors.db"}"
[[jobs]]
name = "clicks"
group = "{GROUP}"
topics = ["{TOPIC}"]
store = "{stage.store}"
[jobs.identity]
id = "header:{traffic.ID_HEADER}"
{stateful.configuration(stage)}"""
    )


def _wait_for_mirror(
    stage: Stage, a: KafkaCluster, b: KafkaCluster, mirror: MirrorMaker, events: list[traffic.Event]
) -> None:
    from reconciler.stores.registry import open_store

    stateful.track(stage)
    stage.say("4  MirrorMaker 2 has copied everything and synced the job's group offset")
    store = open_store(stage.store)
    offsets = {row.key.partition: row.stored.offset for row in store.read(GROUP, [TOPIC])}
    store.close()
    proof.commit_group(a, GROUP, TOPIC, offsets)
    counts = Counter(event.partition for event in events)  # the destination has no transaction markers
    mirror.wait_until_mirrored(TOPIC, MIRRORED, dict(counts))
    deadline = time.monotonic() + 60
    while len(proof.group_offsets(b, GROUP, MIRRORED)) < PARTITIONS:
        if time.monotonic() > deadline:
            stage.say("   (MirrorMaker synced no offset for some partitions: they count as starting at the earliest)")
            break
        time.sleep(0.5)


def _fail_over(stage: Stage) -> None:
    ids = ("-c", stage.config, "--job", "clicks")
    stage.say("6  what would happen if the job started on b now?")
    stage.expect(3, "check", *ids)
    stage.say("7  a plan, applied: written by compare-and-set, read back")
    stage.expect(0, "plan", *ids, "-o", stage.plan)
    stage.expect(0, "apply", stage.plan, "-c", stage.config, "--yes")
    stage.say("8  the same check again: every stored offset is right now")
    stage.expect(0, "check", *ids)
    stateful.clone(stage)


def _run_on_destination(stage: Stage, b: KafkaCluster) -> None:
    stage.say("10 both queries continue on b, from the plan's startingOffsets and from the copy;")
    stage.say("   beside them, for comparison, the stateful one without its state, and with its old offsets")
    options = read_stream_options(stage.plan, extra={"includeHeaders": "true"})
    ids = Query(IDS, str(stage.ids_on_b), options)
    at_once = [ids, stateful.on_b(stage, b.bootstrap), stateful.with_new_checkpoint(stage)]
    # The old checkpoint has the copy's query id, and Spark runs only one query per id at a time.
    stage.run_job("job-b", Work(b.bootstrap, stage.store, GROUP, [at_once, [stateful.renamed(stage, b.bootstrap)]]))
    stage.say(f"   {len(proof.ids_in(stage.ids_on_b)):,} more records")
