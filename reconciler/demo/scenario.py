"""The failover itself, step by step, with real clusters, real MirrorMaker 2 and a real PySpark job.

Every step prints its action and its result, through ``Stage``.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

from reconciler.artifacts import kafka_jars, spark_kafka_connector
from reconciler.clock import clock_ms
from reconciler.demo import proof, restarted
from reconciler.demo.job import COUNTS, IDS, Query, Work
from reconciler.demo.lab.in_use import BURST, ID_HEADER, delete_all, make_events, produce
from reconciler.demo.lab.kafka import Broker
from reconciler.demo.lab.mirror import MirrorMaker
from reconciler.demo.proof import WINDOW_MS
from reconciler.demo.restarted import BEST, BILLING, REPORTS, Restarted, RestartedMirror, read_and_commit
from reconciler.demo.stage import (
    COUNTS_BACK,
    COUNTS_JOB,
    COUNTS_ON_A,
    COUNTS_ON_B,
    GROUP,
    IDS_BACK,
    IDS_ON_A,
    IDS_ON_B,
    MIRRORED,
    PARTITIONS,
    TOPIC,
    Stage,
    prove_counts,
    source_options,
)
from reconciler.plan.document import parse_plan
from reconciler.state.start import CHECKPOINT_VARIABLE, START_VARIABLE

DELETED, PRODUCED, LATER, REPORTED = 3_000, 22_000, 2_000, 2_000
"""``LATER``: records produced before the way back. ``REPORTED``: records of each partition that group ``reports`` has
processed."""
PER_BATCH, BATCHES = 3_000, 5
ONE_HOUR_MS = 3_600_000
PORTS = {"a": 19_092, "b": 29_092}
"""Where the clusters of a kept demo listen if nothing else does; the guide names these ports."""
_REMEMBERS = {"log.initial.task.delay.ms": "100", "log.flush.start.offset.checkpoint.interval.ms": "500"}
"""Without these settings a broker that is killed in its first minutes forgets which records were deleted."""


@dataclass(frozen=True, slots=True)
class Others:
    """The outcome of other starts on b: at the stored offsets, and at the offsets that MirrorMaker synced for the job's
    own group, which commits nothing, and for a group that lags."""

    unchanged: proof.Alternative
    not_committed: proof.Alternative
    lagging: proof.Alternative


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The proofs over both moves, and the outcome of other starts for comparison."""

    by_ids: proof.Proof
    counts: proof.Comparison
    others: Others
    restarted: Restarted
    seconds: float

    @property
    def is_clean(self) -> bool:
        return self.by_ids.is_clean and self.counts.is_equal and self.restarted.is_clean


class Demo:
    """The clusters, the mirror and the records of one demo."""

    def __init__(self, stage: Stage) -> None:
        stage.say("0  Kafka, MirrorMaker and Spark's Kafka connector (downloaded once, then from the cache)")
        jars = kafka_jars(stage.say)
        spark_kafka_connector(stage.say)
        self.stage = stage
        self.a, self.b = (
            Broker(
                name,
                stage.path(name),
                jars,
                port=PORTS[name] if stage.keep else None,
                properties=_REMEMBERS,
                detached=stage.keep,
            )
            for name in ("a", "b")
        )
        self.mirror = MirrorMaker(
            self.a, self.b, [TOPIC], stage.path("mirror"), jars, properties=BEST, detached=stage.keep
        )
        self._payments = RestartedMirror(stage, self.a, self.b, jars)
        # The first click starts a window, so the job dies within a window.
        begin_ms = (clock_ms() - ONE_HOUR_MS) // WINDOW_MS * WINDOW_MS
        self._all = list(make_events("click", PRODUCED + LATER, PARTITIONS, begin_ms, seed=2))
        self._events = self._all[:PRODUCED]
        self._reported: set[str] = set()
        self._copy = ""
        self._on_b = Query(IDS, "", {})

    def play(self) -> DemoResult:
        """Run the whole failover, and the way back. Both clusters run afterwards."""
        began = time.monotonic()
        self.stage.say("1  two Kafka clusters start: a (the source) and b (the destination)")
        self.a.launch()
        self.b.start()
        self.a.wait_ready()
        self._produce()
        self._run_on_source()
        self._wait_for_mirror()
        self.stage.say("5  disaster: cluster a and MirrorMaker are killed (SIGKILL); only b is left")
        self.a.kill()
        self.mirror.kill()
        self._fail_over()
        self._payments.plan()
        self._run_on_destination()
        others = self._try_others()
        self._go_back()
        runs = [self.stage.path(each) for each in (IDS_ON_A, IDS_ON_B, IDS_BACK)]
        return DemoResult(
            by_ids=proof.prove((event.id for event in self._all), runs),
            counts=prove_counts(self.stage, self._all),
            others=others,
            restarted=self._payments.outcome(),
            seconds=time.monotonic() - began,
        )

    def start_again(self) -> None:
        """Start the mirror again, which the disaster ended."""
        self.mirror.start()

    def _produce(self) -> None:
        self.stage.say(
            f"2  {DELETED + PRODUCED:,} records in transactions, {BURST} a millisecond; "
            f"the oldest {DELETED:,} are deleted unmirrored"
        )
        self.a.create_topic(TOPIC, PARTITIONS)
        earlier = self._events[0].timestamp_ms - 1000 * (DELETED // BURST + 1)
        produce(self.a, TOPIC, make_events("old", DELETED, PARTITIONS, earlier, seed=1), "old")
        delete_all(self.a, TOPIC)
        produce(self.a, TOPIC, iter(self._events), "new")
        self._reported = read_and_commit(self.a, REPORTS, TOPIC, REPORTED, PARTITIONS)
        self._payments.start()
        self.mirror.start()

    def _run_on_source(self) -> None:
        stage, a, config = self.stage, self.a, self.stage.config
        stage.say("3  the PySpark job runs on a: one query writes ids, one counts clicks by user and window, in state")
        self._configure()
        stage.say("   a state store records where jobs live; it is made once")
        stage.expect(0, "init", "-c", config)
        stage.say("   the first query is started by the hook, and tracks itself")
        ids = self._ids(IDS_ON_A, {"maxOffsetsPerTrigger": str(PER_BATCH)})
        options = {**source_options(a.bootstrap, TOPIC), "maxOffsetsPerTrigger": str(PER_BATCH)}
        counts = Query(COUNTS, str(stage.path(COUNTS_ON_A)), options)
        stage.run_job("job-a", Work([ids, counts], die_at_batch=BATCHES))
        found = len(proof.ids_in(stage.path(IDS_ON_A)))
        stage.say(f"   it died in the middle of its batch {BATCHES}, after {found:,} records")
        stage.say("   the second query and a consumer group, billing, know nothing of this: a command says once that")
        stage.say("   they live on a, and track keeps the anchors of their offsets while a is alive")
        others = ("--job", COUNTS_JOB, "--job", BILLING)
        stage.expect(0, "move", "-c", config, *others, "--to", "a", "--yes")
        stage.expect(0, "track", "-c", config, *others, "--once")

    def _ids(self, folder: str, options: dict[str, str] | None = None) -> Query:
        """The first query, as its hook starts it where it lives now."""
        return Query(IDS, str(self.stage.path(folder)), options or {}, start=self.stage.hook(GROUP)[START_VARIABLE])

    def _configure(self) -> None:
        self.stage.config.write_text(
            f"""[clusters.a]
bootstrap_servers = "{self.a.bootstrap}"
[clusters.b]
bootstrap_servers = "{self.b.bootstrap}"
[state]
store = "sqlite:///{self.stage.path("state.db")}"
[[jobs]]
name = "{GROUP}"
home = "a"
topics = ["{TOPIC}"]
offsets = "checkpoint:{self.stage.path(IDS_ON_A)}/checkpoint"
[jobs.identity]
id = "header:{ID_HEADER}"
[[jobs]]
name = "{COUNTS_JOB}"
home = "a"
topics = ["{TOPIC}"]
offsets = "checkpoint:{self.stage.path(COUNTS_ON_A)}/checkpoint"
{restarted.configuration()}"""
        )

    def _wait_for_mirror(self) -> None:
        self.stage.say("4  MirrorMaker 2 copies everything, and syncs the groups that commit to Kafka, every second")
        counts = Counter(event.partition for event in self._events)  # the destination has no transaction markers
        self.mirror.wait_until_mirrored(TOPIC, dict(counts))
        self._payments.lose()

    def _fail_over(self) -> None:
        stage, ids = self.stage, ("-c", self.stage.config, "--job", GROUP)
        stage.say("6  what would happen if the job started on b now?")
        stage.expect(3, "plan", *ids)
        stage.say("7  all jobs move to b: each is checked there, and its hook moves it at its next start")
        stage.expect(0, "move", "-c", stage.config, "--to", "b", "--yes")
        stage.say("8  the hooks of both queries: each checkpoint is copied, with its state, to continue at b's offsets")
        self._on_b = self._ids(IDS_ON_B)
        self._copy = stage.hook(COUNTS_JOB)[CHECKPOINT_VARIABLE]
        stage.say("9  the same check again, now that the job lives on b: every stored offset is right")
        stage.expect(0, "plan", *ids, "--to", "b")

    def _run_on_destination(self) -> None:
        stage, b = self.stage, self.b.bootstrap
        stage.say("10 both queries continue on b, from their checkpoints' copies")
        counts = Query(COUNTS, str(stage.path(COUNTS_ON_B)), source_options(b, MIRRORED), copy=self._copy)
        stage.run_job("job-b", Work([self._on_b, counts]))
        stage.say(f"   {len(proof.ids_in(stage.path(IDS_ON_B))):,} more records")

    def _go_back(self) -> None:
        stage = self.stage
        stage.say(f"   and back: a is there again, with its data, and {LATER:,} more records are produced there;")
        stage.say("   track keeps the anchors of the stateful query on b, and both jobs move to a")
        self.a.start()
        produce(self.a, TOPIC, iter(self._all[PRODUCED:]), "later")
        stage.expect(0, "track", "-c", stage.config, "--job", COUNTS_JOB, "--once")
        both = ("--job", GROUP, "--job", COUNTS_JOB)
        stage.expect(0, "move", "-c", stage.config, *both, "--to", "a", "--yes")
        ids = self._ids(IDS_BACK)
        copy = stage.hook(COUNTS_JOB)[CHECKPOINT_VARIABLE]
        counts = Query(COUNTS, str(stage.path(COUNTS_BACK)), source_options(self.a.bootstrap, TOPIC), copy=copy)
        stage.run_job("job-back", Work([ids, counts]))
        stage.say(f"   {len(proof.ids_in(stage.path(IDS_BACK))):,} more records")

    def _try_others(self) -> Others:
        stage, b = self.stage, self.b
        there, processed = proof.read_copies(b, MIRRORED), set(proof.ids_in(stage.path(IDS_ON_A)))
        rows = parse_plan(stage.plan(GROUP).read_text()).starts.job().partitions
        stored = {row.partition: row.stored_offset or 0 for row in rows}
        return Others(
            unchanged=proof.alternative(there, stored, processed),
            not_committed=proof.alternative(there, b.group_offsets(GROUP, MIRRORED), processed),
            lagging=proof.alternative(there, b.group_offsets(REPORTS, MIRRORED), self._reported),
        )
