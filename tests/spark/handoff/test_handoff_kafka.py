"""A query that starts from a plan reads every partition exactly from the plan's offset on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import main
from reconciler.core.anchors import TopicPartition
from reconciler.core.verdicts import Finding, Verdict
from reconciler.formats.plan import JobPlan, PartitionPlan, Plan
from reconciler.spark import handoff
from reconciler.spark.handoff.proof import CLUSTER_VARIABLE
from reconciler.spark.recording.foreach_batch import recording
from tests.spark.sent import BASE_MS, Kafka, Sent

pytestmark = pytest.mark.system

STARTS = {0: 3, 1: 0, 2: 10, 3: 7}
"""In the middle, at the start, at the end, and at the last record but two of ten."""


@pytest.fixture
def plan(kafka: Kafka, topic_name: str) -> Plan:
    kafka.create(topic_name, len(STARTS))
    kafka.send(topic_name, [Sent(partition, value=b"%d" % n) for partition in STARTS for n in range(10)])
    rows = tuple(
        PartitionPlan.of(
            Finding(Verdict.MOVED, offset, replay_at_most=0),
            source_topic=topic_name,
            key=TopicPartition(topic_name, partition),
            topic_id="id",
            stored=None,
            probes=1,
            rounds=1,
        )
        for partition, offset in STARTS.items()
    )
    times = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")
    job = JobPlan("clicks", "clicks", "memory:", rows)
    return Plan("0.1.0", *times, "a", None, kafka.bootstrap, kafka.cluster_id(), (job,))


def read_offsets(rows: list[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {partition: [] for partition in STARTS}
    for row in rows:
        found[row.partition].append(row.offset)
    return {partition: sorted(offsets) for partition, offsets in found.items()}


EXPECTED = {partition: list(range(start, 10)) for partition, start in STARTS.items()}


def test_a_stream_starts_at_the_planned_offsets(spark, plan, tmp_path):
    rows: list[Any] = []
    options = handoff.read_stream_options(plan, extra={"maxOffsetsPerTrigger": "6"})
    query = (
        spark.readStream.format("kafka")
        .options(**options)
        .load()
        .writeStream.foreachBatch(lambda batch, batch_id: rows.extend(batch.select("partition", "offset").collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert read_offsets(rows) == EXPECTED


def test_a_batch_read_ends_at_the_given_offsets(spark, plan, topic_name):
    ends = {topic_name: {"0": 5, "1": 0, "2": -1, "3": 8}}
    rows = spark.read.format("kafka").options(**handoff.read_options(plan, ending_offsets=ends)).load().collect()
    assert read_offsets(rows) == {0: [3, 4], 1: [], 2: [], 3: [7]}


# ---------------------------------------------------------------- mirrored and own topics, patterns, and the way back


class Two:
    """A job's life on two clusters: recorded with its own words, mirrored by hand under other offsets."""

    def __init__(self, spark: Any, clusters: Any, name: str, place: Path) -> None:
        self.spark, self.place = spark, place
        self.a, self.b = Kafka(clusters.source.bootstrap), Kafka(clusters.destination.bootstrap)
        self.name, self.store = name, f"sqlite:///{place / 'offsets.db'}"
        self.read: list[bytes] = []

    def mirror(self, source: Kafka, topic: str, target: Kafka, name: str, *, ahead: int) -> None:
        """All records of a topic with one partition, behind ``ahead`` others."""
        target.create(name, 1)
        noise = [Sent(0, b"x", b"noise-%d" % n, BASE_MS - 1000 + n) for n in range(ahead)]
        count = source.end(topic, 0)
        rows = (
            self.spark.read.format("kafka")
            .options(**{"kafka.bootstrap.servers": source.bootstrap, "subscribe": topic})
            .load()
            .selectExpr("key", "value", "unix_millis(timestamp) AS ms")
            .orderBy("offset")
            .collect()
        )
        assert len(rows) == count
        target.send(name, [*noise, *(Sent(0, bytes(r.key), bytes(r.value), r.ms) for r in rows)])

    def run(self, at: Kafka, options: dict[str, str], *recorded: tuple[str, list[str] | None]) -> set[bytes]:
        """A new query, with each of the groups recording its topics; the values that it read."""
        seen: list[bytes] = []
        function: Any = lambda batch, number: seen.extend(bytes(r.value) for r in batch.select("value").collect())  # noqa: E731
        for group, topics in recorded:
            where = {"store": self.store, "bootstrap_servers": at.bootstrap, "topics": topics}
            function = recording(function, group=group, **where)
        stream = self.spark.readStream.format("kafka").options(**options).load().writeStream.foreachBatch(function)
        fresh = self.place / f"checkpoint-{len(list(self.place.glob('checkpoint-*')))}"
        stream.option("checkpointLocation", str(fresh)).trigger(availableNow=True).start().awaitTermination()
        assert len(seen) == len(set(seen)), "nothing twice"
        return set(seen)

    def plan(self, alias: str, at: Kafka, names: dict[str, str], *jobs: tuple[str, str]) -> Path:
        """The plan that the command makes. Jobs are (name and group, topic)."""
        path, config = self.place / f"from-{alias}.json", self.place / f"from-{alias}.toml"
        text = f'[source]\nalias = "{alias}"\n[destination]\nbootstrap_servers = "{at.bootstrap}"\n'
        if names:
            text += "[topics.names]\n" + "".join(f'"{one}" = "{other}"\n' for one, other in names.items())
        for job, topic in jobs:
            text += f'[[jobs]]\nname = "{job}"\ngroup = "{job}"\ntopics = ["{topic}"]\nstore = "{self.store}"\n'
        config.write_text(text)
        assert main(["plan", "-c", str(config), "-o", str(path)]) == 0
        return path


def values(what: str, count: int) -> list[Sent]:
    return [Sent(0, b"k", b"%s-%d" % (what.encode(), n), BASE_MS + n) for n in range(count)]


def test_a_job_reads_the_mirrored_and_the_local_topic_and_goes_back(
    spark: Any,
    clusters: Any,
    topic_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two, events = Two(spark, clusters, topic_name, tmp_path), f"events-{topic_name[-8:]}"
    first = {"kafka.bootstrap.servers": two.a.bootstrap, "subscribe": events, "startingOffsets": "earliest"}
    two.a.create(events, 1)
    two.a.send(events, values("a", 6))
    assert len(two.run(two.a, first, ("clicks", None))) == 6
    two.a.send(events, values("late", 3))
    two.mirror(two.a, events, two.b, f"a.{events}", ahead=4)
    two.b.create(events, 1)
    two.b.send(events, values("b", 5))
    two.b.create(f"{events}-old", 1)  # Spark alone would find the pattern in this name, too
    two.b.send(f"{events}-old", values("old", 2))

    # On the other cluster: what was left of the mirrored topic, and all of the local one, each in a group of its own.
    monkeypatch.setenv(CLUSTER_VARIABLE, two.b.bootstrap)
    start = handoff.load(two.plan("a", two.b, {}, ("clicks", events)), "clicks")
    start = start.matching(rf"(a\.)?{events}")
    groups = (("clicks", [f"a.{events}"]), ("local", [events]))
    there = two.run(two.b, start.read_stream_options(), *groups)
    assert there == {b"late-0", b"late-1", b"late-2", *(b"b-%d" % n for n in range(5))}

    # Back: the mirrored topic's records are in the first cluster's own one, the local one's in b.events.
    two.b.send(events, values("b-late", 2))
    two.mirror(two.b, events, two.a, f"b.{events}", ahead=3)
    two.a.send(events, values("new", 2))
    names = {f"a.{events}": events, events: f"b.{events}"}
    back = two.plan("b", two.a, names, ("clicks", f"a.{events}"), ("local", events))
    monkeypatch.setenv(CLUSTER_VARIABLE, two.a.bootstrap)
    again = handoff.load(back, ["clicks", "local"])
    assert set(again.offsets) == {events, f"b.{events}"}
    assert two.run(two.a, again.read_stream_options()) == {b"new-0", b"new-1", b"b-late-0", b"b-late-1"}
