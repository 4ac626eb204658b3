"""A broker that dies in mid-call, freezes or has a bad disk; the wrong cluster; a configuration that was damaged."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ExitCode
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.kafka.reader import FETCH_BYTES, KafkaLogReader
from reconciler.kafka.reading_process import open_log
from reconciler.kafka.records import Gathering
from reconciler.plan.document import PartitionPlan
from tests.demo.lab.faults.faulty import Acting, Ambush, flip_a_byte, quiet
from tests.demo.lab.kafka import KafkaCluster
from tests.failover.faults.numbered import COUNT, KINDS, LAST, Jobs, write, wrong
from tests.sizes import sampled
from tests.world import World, run_process

pytestmark = pytest.mark.system

PARTITIONS = 12
PADDING = 4_000
assert FETCH_BYTES[0] < PADDING * (COUNT - LAST), "one fetch brings a part of what a search reads"
TIMEOUT_S = 2


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[KafkaCluster]:
    """A cluster of this file's own: it is killed, frozen and damaged here."""
    with KafkaCluster("mortal", tmp_path_factory.mktemp("mortal"), kafka_jars) as cluster:
        yield cluster


@pytest.fixture
def jobs(mortal: KafkaCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    """Jobs that have read many partitions up to record ``LAST``. One fetch brings a part of what lies behind."""
    monkeypatch.setattr("reconciler.kafka.reader.FEW_PARTITIONS", 0)  # as where there are more of them
    mortal.create_topic(f"a.{topic_name}", PARTITIONS)
    write(mortal, f"a.{topic_name}", range(COUNT), range(PARTITIONS), padding=PADDING)
    kinds = [kind for kind in KINDS if kind.name in ("by content", "in the destination's numbers")]
    jobs = Jobs.of(topic_name, [topic_name], kinds)
    with closing(reader_of(mortal)) as reader:
        jobs.save(reader, kinds)
    yield jobs
    mortal.resume()


def reader_of(cluster: KafkaCluster) -> KafkaLogReader:
    return KafkaLogReader(quiet(cluster.bootstrap), timeout_s=TIMEOUT_S)


def checked(jobs: Jobs, reader: Any) -> list[PartitionPlan]:
    plan = check(jobs.config, jobs.config.jobs, jobs.outside(reader)).plan
    return [row for job in plan.jobs for row in job.partitions]


def all_right(rows: list[PartitionPlan]) -> bool:
    """True if every partition of both jobs was found to the record."""
    found = {(row.finding, row.resume_offset, row.replay_exact) for row in rows}
    assert found == {(Verdict.EXACT, LAST + 1, 0), (Verdict.EXACT, LAST + 1, 0)}
    return len(rows) == 2 * PARTITIONS


# ---------------------------------------------------------------- a broker that dies


def test_a_check_outlives_a_broker_that_dies_in_the_middle_of_every_kind_of_call(
    mortal: KafkaCluster, jobs: Jobs
) -> None:
    def die_and_come_back() -> None:
        mortal.kill()
        mortal.restart()

    broker = mortal.broker(1)
    with (
        closing(reader_of(mortal)) as reader,
        Ambush(broker, die_and_come_back) as first,
        Ambush(broker, die_and_come_back, after=first) as second,
        Ambush(broker, die_and_come_back, after=second) as third,
    ):
        acting = Acting(reader, {"log_ends": first, "offsets_for_times": second, "read": third})
        assert all_right(checked(jobs, acting))
    assert [first.struck, second.struck, third.struck] == [True] * 3


@pytest.mark.thorough
def test_a_check_outlives_a_broker_that_dies_when_half_of_a_read_has_come(
    mortal: KafkaCluster, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    took, came = Gathering.take, []

    def take(self: Gathering, messages: list[Any], connection: Any) -> bool:
        if messages and not came:
            came.append(len(messages))
            mortal.kill()
            mortal.restart()
        return took(self, messages, connection)

    monkeypatch.setattr(Gathering, "take", take)
    with closing(reader_of(mortal)) as reader:
        assert all_right(checked(jobs, reader))
    assert 0 < came[0] < PARTITIONS * (COUNT - LAST)


# ---------------------------------------------------------------- a broker that freezes


@pytest.mark.thorough
def test_a_broker_that_freezes_for_less_than_the_deadline_costs_only_time(mortal: KafkaCluster, jobs: Jobs) -> None:
    """At every kind of call: it is asked in vain, thaws, and is asked again."""
    kinds = ("log_starts", "log_ends", "offsets_for_times", "read")
    in_vain, again = {(call, 1): mortal.pause for call in kinds}, {(call, 2): mortal.resume for call in kinds}
    with closing(reader_of(mortal)) as reader:
        acting = Acting(reader, {**in_vain, **again})
        assert all_right(checked(jobs, acting))
    assert all(acting.calls.count(call) > 1 for call in kinds)


@pytest.fixture
def empty(mortal: KafkaCluster, world_on: Callable[..., World]) -> World:
    """A world on the cluster of this file."""
    return world_on(mortal)


@pytest.fixture
def world(empty: World) -> World:
    """A failed-over job on the cluster of this file."""
    empty.deliver(20)
    empty.processed(9)
    return empty


@pytest.mark.parametrize(
    ("command", "call"),
    sampled([("plan", "describe"), ("hook", "read"), ("apply", "log_starts")], keep=2),
)
def test_a_broker_that_stays_frozen_ends_a_command_at_its_deadline(
    world: World, monkeypatch: pytest.MonkeyPatch, command: str, call: str
) -> None:
    config, started = world.config(extra="[search]\ndeadline = '4s'", to="b"), world.folder / "started"
    other = world.folder / "other.plan.json"
    world.plan(config)
    arguments = {
        "plan": ("-c", config, "-o", other),
        "hook": ("-c", config, "--plans", world.folder / "plans", "--", "touch", started),
        "apply": (world.plan_file, "-c", config, "--yes"),
    }
    real, before = open_log, world.rows()
    frozen_at: list[float] = []

    def freeze() -> None:
        world.cluster.pause()
        frozen_at.append(time.monotonic())

    monkeypatch.setattr(
        "reconciler.kafka.reading_process.open_log",
        lambda *given, **named: Acting(real(*given, **named), {call: freeze}),
    )
    try:
        ended = world.run(command, *arguments[command])
        took = time.monotonic() - frozen_at[0]
    finally:
        world.cluster.resume()
    assert ended.code == ExitCode.UNREACHABLE, ended.output
    assert world.cluster.bootstrap in ended.err
    assert "Check that its brokers are up and reachable from here, then run this again." in ended.err
    assert took < 30
    assert not other.exists()
    assert not started.exists()
    assert world.rows() == before


# ---------------------------------------------------------------- a bad disk, and large batches


def test_a_record_that_a_bad_disk_has_damaged_starts_no_job(empty: World) -> None:
    """It lies behind the resume point: the reconciler finds it before the job does.

    In the second topic librdkafka (2.16) aborts the process that reads instead of reporting it, as it does with some
    lengths of a damaged batch (confluent-kafka-python's issue 689). The batch is read again by itself: then it is
    reported, or the partition is unresolved.
    """
    world = empty
    world.deliver(20)
    world.processed(9)
    alone = f"{world.topic}-alone"
    world.cluster.create_topic(f"a.{alone}")
    for numbers in (range(35), [35], range(36, COUNT)):
        write(world.cluster, f"a.{alone}", numbers)
    world.save({0: KINDS[0].store("", "") or StoredOffset(-1)}, topic=alone)
    jobs = world.job("reported"), world.job("aborted", alone)
    config = world.config(*jobs, extra="[search]\ndeadline = '5s'", to="b")

    world.cluster.stop()  # orderly: one that was killed looks through its log when it starts, and drops what is damaged
    for topic, text in ((world.topic, b"value 15 of 0"), (alone, b"value 35")):
        (segment,) = (world.cluster.directory / "data").glob(f"a.{topic}-0/*.log")
        flip_a_byte(segment, text)
    world.cluster.start()
    before, started = world.rows(), world.folder / "started"
    command = ("--plans", world.folder / "plans", "--", "touch", started)
    reported = run_process("hook", "-c", config, "--job", "reported", *command)
    aborted = run_process("hook", "-c", config, "--job", "aborted", *command)
    assert not started.exists()
    assert world.rows() == before
    assert reported.code == ExitCode.UNREACHABLE
    assert f"{world.mirrored}-0" in reported.err
    assert "delivered records that are damaged" in reported.err
    assert aborted.code in (ExitCode.UNREACHABLE, ExitCode.NEEDS_PERSON)
    told = r"(: .* delivered records that are damaged| could not be read from offset)"
    assert re.search(rf"a.{alone}-0{told}", aborted.err)


@pytest.mark.thorough  # tests/kafka/test_engine_on_kafka.py reads them in every run
def test_batches_larger_than_a_fetch_are_searched_all_the_same(clusters, topic_name: str) -> None:
    """In every partition: a broker gives a batch that is too large only for the first one it is asked for."""
    cluster, count = clusters.destination, 5
    cluster.create_topic(f"a.{topic_name}", count, {"max.message.bytes": "8000000"})
    whole = {"linger.ms": 5_000, "batch.size": 8_000_000, "message.max.bytes": 8_000_000}
    write(cluster, f"a.{topic_name}", range(COUNT), range(count), padding=2 * FETCH_BYTES[1] // COUNT, **whole)
    kinds = [kind for kind in KINDS if kind.name in ("by content", "by time alone")]
    jobs = Jobs.of(topic_name, [topic_name], kinds)
    with closing(KafkaLogReader(quiet(cluster.bootstrap))) as reader:
        jobs.save(reader, kinds)
        rows = checked(jobs, reader)
    assert len(rows) == count * len(kinds)
    assert not [row for row in rows if wrong(row, 0, range(COUNT))]
    assert {row.finding for row in rows} == {Verdict.EXACT, Verdict.EARLY}
