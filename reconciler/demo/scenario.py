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
from reconciler.demo import proof, restarted, stateful
from reconciler.demo.counts import WINDOW_MS
from reconciler.demo.groups import BEST, FLOW_TOPIC, Groups, Synced
from reconciler.demo.job import IDS, Query, Work
from reconciler.demo.restarted import Restarted, RestartedMirror
from reconciler.demo.stage import GROUP, MIRRORED, PARTITIONS, TOPIC, Stage
from reconciler.formats.plan import parse_plan
from reconciler.lab import traffic
from reconciler.lab.kafka import KafkaCluster, start_all
from reconciler.lab.mirror import MirrorMaker
from reconciler.spark.handoff.options import read_stream_options

DELETED, PRODUCED = 3_000, 24_000
PER_BATCH, BATCHES = 3_000, 5
ONE_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The proof, and the outcome of the alternatives for comparison."""

    by_ids: proof.Proof
    state: stateful.StateProof
    unchanged: proof.Alternative
    not_committed: proof.Alternative
    synced: Synced
    restarted: Restarted
    seconds: float
    destination: str
    destination_pid: int

    @property
    def is_clean(self) -> bool:
        return self.by_ids.is_clean and self.state.cloned.is_equal and self.restarted.is_clean


def play(stage: Stage) -> DemoResult:
    """Run the whole failover. Leaves nothing running unless the stage is detached."""
    began = time.monotonic()
    stage.say("0  Kafka, MirrorMaker and Spark's Kafka connector (downloaded once, then from the cache)")
    jars = kafka_jars(stage.say)
    spark_kafka_connector(stage.say)
    a = KafkaCluster("a", stage.folder / "a", jars, detached=stage.detached)
    b = KafkaCluster("b", stage.folder / "b", jars, detached=stage.detached)
    mirror = MirrorMaker(
        a, b, [TOPIC, FLOW_TOPIC], stage.folder / "mirror", jars, properties=BEST, detached=stage.detached
    )
    groups = Groups(a)
    payments = RestartedMirror(a, b, stage.folder / "payments-mirror", jars)
    is_kept = stage.detached
    try:
        stage.say("1  two Kafka clusters start: a (the source) and b (the destination)")
        start_all([a, b])
        events = list(_clicks())
        with payments.running():
            produced = _produce(stage, a, events)
            with groups.running():
                mirror.start()
                _run_on_source(stage, a)
                _configure(stage, a, b)
                _wait_for_mirror(stage, b, mirror, events, groups)
                payments.wait(stage)
                stage.say("5  disaster: cluster a and MirrorMaker are killed (SIGKILL); only b is left")
                groups.stop()
                a.kill()
                mirror.kill()
        _fail_over(stage)
        restarted.plan(stage, b)
        _run_on_destination(stage, b)
        stored = {row.partition: row.stored_offset or 0 for row in parse_plan(stage.plan.read_text()).job().partitions}
        there, processed = proof.copies(b, MIRRORED), set(proof.ids_in(stage.ids_on_a))
        return DemoResult(
            by_ids=proof.prove(produced, [stage.ids_on_a, stage.ids_on_b]),
            state=stateful.prove(stage, events),
            unchanged=proof.alternative(there, stored, processed),
            not_committed=proof.alternative(there, b.group_offsets(GROUP, MIRRORED), processed),
            synced=groups.outcome(b),
            restarted=payments.outcome(stage),
            seconds=time.monotonic() - began,
            destination=b.bootstrap,
            destination_pid=b.pid,
        )
    except BaseException:
        is_kept = False
        raise
    finally:
        if not is_kept:
            mirror.kill()
            a.stop()
            b.stop()


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
{stateful.configuration(stage)}{restarted.configuration()}"""
    )


def _wait_for_mirror(
    stage: Stage, b: KafkaCluster, mirror: MirrorMaker, events: list[traffic.Event], groups: Groups
) -> None:
    stateful.track(stage)
    stage.say("4  MirrorMaker 2 has copied everything, and syncs the groups that commit to Kafka, every second")
    counts = Counter(event.partition for event in events)  # the destination has no transaction markers
    mirror.wait_until_mirrored(TOPIC, MIRRORED, dict(counts))
    if not groups.wait_until_synced(b):
        stage.say("   (not within a minute: a partition without a synced offset counts as starting at the earliest)")


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
    own = {"kafka.bootstrap.servers": b.bootstrap, "includeHeaders": "true"}
    options = read_stream_options(stage.plan, extra=own)
    ids = Query(IDS, str(stage.ids_on_b), options)
    at_once = [ids, stateful.on_b(stage, b.bootstrap), stateful.with_new_checkpoint(stage)]
    # The old checkpoint has the copy's query id, and Spark runs only one query per id at a time.
    stage.run_job("job-b", Work(b.bootstrap, stage.store, GROUP, [at_once, [stateful.renamed(stage, b.bootstrap)]]))
    stage.say(f"   {len(proof.ids_in(stage.ids_on_b)):,} more records")
