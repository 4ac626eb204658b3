"""``job()`` and ``track`` with real queries on a real cluster: what the journal has after a kill, a move, a failure."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.config.identity import IdentitySettings
from reconciler.config.streams import Stream
from reconciler.core.anchors import fingerprint
from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.jobs.tracking.recorder import positions_of
from reconciler.places.checkpoint.reading import read_checkpoint
from reconciler.ports import TopicPartition
from reconciler.spark import job
from reconciler.spark.started import Job
from reconciler.spark.tracking import State
from reconciler.state import journal, locations
from reconciler.state.jobs import JobState
from reconciler.state.journal import StreamPartition
from reconciler.state.locations import Stamp
from reconciler.state.start import Start, dump
from reconciler.state.store import open_state
from tests import ROOT
from tests.spark.environments import since_pyspark
from tests.spark.sent import BASE_MS, Kafka, Sent
from tests.waiting import wait_until
from tests.world import free_port

pytestmark = pytest.mark.system

KILLS = 20
EXACT = 0.8
"""Of the kills, with one-second batches: the busier the machine, the later an entry follows the begin of a batch. Two
cores at a load of 15 to 18 gave 34 of 40, and 40 of 40."""
SEED = 49


def records(count: int, start: int = 0, partitions: int = 2) -> list[Sent]:
    return [
        Sent(number % partitions, b"k%d" % (number % 5), b"v%d" % number, BASE_MS + number, (("id", b"h%d" % number),))
        for number in range(start, start + count)
    ]


class Home:
    """Jobs in their first stay on a real cluster, with one state store."""

    def __init__(self, kafka: Kafka, topic: str, folder: Path) -> None:
        self.kafka, self.topic, self.folder = kafka, topic, folder
        kafka.create(topic, 2)
        self.address = f"sqlite:///{folder}/state.db"
        self.store = open_state(self.address)
        self.store.create()

    def start(self, name: str = "clicks", id: str = "none") -> Start:
        """The start of a job, placed here."""
        checkpoint = str(self.folder / name)
        JobState(self.store, name).move_on(None, locations.first("a", Stamp("hook", lambda: 1), checkpoint))
        streams = {self.topic: Stream(self.topic, "a")}
        offsets = {TopicPartition(self.topic, number): 0 for number in range(2)}
        known = (self.kafka.bootstrap, 1, self.address, self.store.id, streams, offsets, IdentitySettings(id=id))
        return Start(name, "a", *known, checkpoint=checkpoint)

    def state(self, name: str = "clicks", store: str | None = None) -> JobState:
        return JobState(open_state(store or self.address), name)

    def move(self, name: str) -> None:
        """The job lives on b by now."""
        state, ana = self.state(name), Stamp("ana", lambda: 1_790_000_000_000)
        here = state.location()
        assert here is not None
        here = state.move_on(here, locations.moving(here, "b", ana))
        here = state.move_on(here, locations.writing(here, 1, ana))
        state.move_on(here, locations.lives(here, None, ana))


@pytest.fixture
def home(kafka: Kafka, topic_name: str, tmp_path: Path) -> Home:
    return Home(kafka, topic_name, tmp_path)


def run(spark: Any, clicks: Job, options: dict[str, str] | None = None) -> Any:
    """A query that reads all there is, into files."""
    rows = clicks.read(spark, options).selectExpr("cast(value as string) as value")
    writer = rows.writeStream.option("checkpointLocation", clicks.checkpoint)
    return writer.trigger(availableNow=True).start(f"{clicks.checkpoint}-out", format="json")


def test_the_journal_has_the_last_record_that_a_query_of_committed_records_has_read(spark: Any, home: Home) -> None:
    home.kafka.send(home.topic, records(6), transaction=f"yes-{home.topic}")
    home.kafka.send(home.topic, records(4, start=6), transaction=f"no-{home.topic}", abort=True)
    start = home.start(id="header:id")
    clicks = job(start=start, environ={})
    frame = clicks.read(spark, {"kafka.isolation.level": "read_committed"})
    assert "headers" in frame.columns
    query = run(spark, clicks, {"kafka.isolation.level": "read_committed"})
    tracking = clicks.track(query)
    query.awaitTermination()
    tracking.close()
    assert tracking.state is State.ENDED
    latest = journal.latest(home.state().newest(1))
    for partition, last in ((0, 4), (1, 5)):
        known = latest[StreamPartition(home.topic, "a", partition)]
        assert known.record is not None
        assert (known.number, known.record.offset, known.older) == (7, 2, 0), "two markers and two aborted records"
        assert known.record.id == b"h%d" % last
        assert known.record.fingerprint == fingerprint(b"k%d" % (last % 5), b"v%d" % last)
        assert known.record.cluster_id == home.kafka.cluster_id()

    reads = len(home.state().newest(1))
    again = run(spark, clicks)
    clicks.track(again).close()
    again.awaitTermination()
    assert [each.full for each in home.state().newest(1)][reads:] == [True], "the next run of a query without news"


def test_a_driver_without_a_login_lets_its_query_go_on(
    spark: Any, home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.kafka.send(home.topic, records(4))
    config = tmp_path / "reconciler.toml"
    config.write_text(
        f'[clusters.a]\nbootstrap_servers = "{home.kafka.bootstrap}"\n'
        '[clusters.a.client]\n"security.protocol" = "SSL"\n[clusters.b]\nbootstrap_servers = "b:9092"\n'
        '[[jobs]]\nname = "clicks"\nhome = "a"\ntopics = ["events"]\noffsets = "memory:"\n'
    )
    clicks = job(start=replace(home.start(), config=str(config)), environ={})
    query = run(spark, clicks, {"kafka.security.protocol": "PLAINTEXT"})  # Spark has a login of its own
    tracking = clicks.track(query)
    query.awaitTermination()
    wait_until(lambda: tracking.trouble, "the cluster does not answer this driver")
    tracking.close()
    assert read_checkpoint(clicks.checkpoint).committed
    assert "reconciler track" in caplog.text
    assert home.state().newest(1) == []


def test_a_job_without_a_hook_has_one_query_and_its_own_checkpoint(spark: Any, home: Home, tmp_path: Path) -> None:
    home.kafka.send(home.topic, records(4))
    config = tmp_path / "reconciler.toml"
    config.write_text(
        f'[state]\nstore = "{home.address}"\n[clusters.a]\nbootstrap_servers = "{home.kafka.bootstrap}"\n'
        f'[clusters.b]\nbootstrap_servers = "127.0.0.1:{free_port()}"\n[[jobs]]\nname = "clicks"\nhome = "a"\n'
        f'topics = ["{home.topic}"]\noffsets = "checkpoint:{tmp_path}/clicks"\n'
    )
    clicks = job(config, "clicks", plans=tmp_path / "plans", environ={})
    writer = clicks.read(spark).writeStream.format("noop")
    query = writer.option("checkpointLocation", clicks.checkpoint).start()
    tracking = clicks.track(query)
    with pytest.raises(ConfigError, match="already tracks another query"):
        clicks.track(query)
    query.processAllAvailable()
    query.stop()
    tracking.close()
    assert {at.partition: known.number for at, known in home.state().newest(1)[-1].numbers.items()} == {0: 2, 1: 2}
    other = writer.option("checkpointLocation", str(tmp_path / "other")).start()
    with pytest.raises(NeedsPerson, match=r"continues from .*/other, and this stay has .*/clicks"):
        clicks.track(other)
    assert not other.isActive


@pytest.mark.parametrize("is_named", [False, pytest.param(True, marks=since_pyspark(4, 2))])
def test_of_two_sources_in_one_partition_the_one_that_is_behind_decides(
    spark: Any, home: Home, is_named: bool, request: pytest.FixtureRequest
) -> None:
    """Its records come in later batches: beyond them nothing is processed. Nor is a batch that fails."""
    if is_named:
        request.getfixturevalue("named_sources")
    home.kafka.send(home.topic, records(9, partitions=1))
    clicks = job(start=home.start(), environ={})

    def source(name: str, **more: str) -> Any:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", home.kafka.bootstrap)
        reader = reader.options(subscribe=home.topic, startingOffsets="earliest", **more)
        return (reader.name(name) if is_named else reader).load()

    def work(batch: Any, number: int) -> None:
        batch.count()
        if number:
            raise RuntimeError("the sink is full")

    both = source("ahead").unionByName(source("behind", maxOffsetsPerTrigger="2"))
    query = both.writeStream.foreachBatch(work).option("checkpointLocation", clicks.checkpoint).start()
    tracking = clicks.track(query)
    with pytest.raises(Exception, match="the sink is full"):
        query.awaitTermination()
    tracking.close()
    entries, at = home.state().newest(1), StreamPartition(home.topic, "a", 0)
    assert journal.latest(entries)[at].number == 2, "one source has read all nine"
    assert entries[-1].begun[at].number == 4


# ---------------------------------------------------------------- kills


class Driver:
    """The program of ``driver`` with everything that it started, which is frozen and killed together."""

    def __init__(self, home: Home, starts: dict[str, Path]) -> None:
        self.home = home
        self.log = home.folder / "driver.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.job.driver", *map(str, starts.values())],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
            )

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def freeze(self) -> None:
        """Stop all its threads, and wait until the last one has stopped. One in a fork waits in D for its child."""
        self.signal(signal.SIGSTOP)
        wait_until(lambda: set(self._states()) <= {"T", "Z", "D"}, "the driver is frozen", look_s=0.001)

    def _states(self) -> Iterator[str]:
        for about in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):  # it has ended
                if int(about.read_text().rpartition(")")[2].split()[2]) == self.process.pid:
                    for thread in about.parent.glob("task/*/stat"):
                        yield thread.read_text().rpartition(")")[2].split()[0]

    def comes(self, name: str, entries: int) -> None:
        """Wait until the job's journal has so many entries."""

        def there() -> bool:
            found = self.home.state(name).newest(1)
            return bool(found) and found[-1].number >= entries

        wait_until(there, lambda: self.log.read_text()[-3000:], ended=lambda: self.process.poll() is not None)

    def end(self) -> list[list[str]]:
        """What it reports, once its queries have ended."""
        out, _ = self.process.communicate(timeout=300)
        return [json.loads(line) for line in out.splitlines() if line.startswith("[")]


@contextmanager
def producing(home: Home) -> Iterator[None]:
    """Records come all the time."""
    over = threading.Event()

    def produce() -> None:
        number = 0
        while not over.wait(0.1):
            home.kafka.send(home.topic, records(6, start=number))
            number += 6

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        yield
    finally:
        over.set()
        producer.join()


def left_by_a_kill(home: Home, name: str, place: Path) -> tuple[bool, list[int]]:
    """Of a frozen driver's files: whether it was within a batch, and which stored numbers the journal lacks."""
    for part in ("metadata", "offsets", "commits", "sources"):
        there = home.folder / name / part
        (shutil.copytree if there.is_dir() else shutil.copy)(there, place / name / part)
    for file in home.folder.glob("state.db*"):
        shutil.copy(file, place / file.name)
    found = read_checkpoint(str(place / name))
    entries = home.state(name, f"sqlite:///{place}/state.db").journal(1)
    lacking = []
    for at, numbers in positions_of(found).items():
        known = {
            each.number
            for each in journal.known_of(entries, StreamPartition(at.topic, "a", at.partition))
            if each.older == 0 and (each.number == 0 or (each.record and each.record.offset == each.number - 1))
        }
        lacking += [number for number in numbers if number is not None and number not in known]
    return found.repeats_a_batch, lacking


def test_after_a_kill_the_journal_has_the_stored_numbers(home: Home) -> None:
    """A kill leaves on the disk what a driver has that is frozen: so one driver is killed at many moments."""
    starts = {name: home.folder / f"{name}.start.json" for name in ("counts", "batches")}
    for name, path in starts.items():
        path.write_text(dump(home.start(name)))
    moments = random.Random(SEED)
    within = {True: 0, False: 0}
    lacking: dict[str, list[int]] = {}
    with producing(home):
        driver = Driver(home, starts)
        try:
            for name in starts:
                driver.comes(name, 3)
            for kill in range(KILLS):
                time.sleep(moments.uniform(0.2, 1.2))  # any moment of a batch, or between two
                driver.freeze()
                for name in starts:
                    place = home.folder / f"killed-{kill}"
                    (place / name).mkdir(parents=True)
                    is_within, missing = left_by_a_kill(home, name, place)
                    within[is_within] += 1
                    lacking |= {f"{name} {kill}": missing} if missing else {}
                driver.signal(signal.SIGCONT)
        finally:
            driver.signal(signal.SIGKILL)
            driver.process.wait()
        print(f"within {within[True]}, between {within[False]}, lacking {lacking}")
        assert min(within.values()) > 0
        assert len(lacking) <= (1 - EXACT) * 2 * KILLS, lacking

        killed = {name: home.state(name).newest(1)[-1] for name in starts}
        driver = Driver(home, starts)
        try:
            for name, last in killed.items():
                driver.comes(name, last.number + 2)
                runs = {each.run for each in home.state(name).newest(1) if each.number > last.number}
                assert len(runs) == 1
                assert last.run not in runs

            # One job is moved, and the other one's journal is opened by another driver.
            home.move("counts")
            state = home.state("batches")
            while not state.append_journal(
                1, state.newest(1)[-1].number + 1, replace(killed["batches"], run="driver 2", full=False)
            ):
                pass
            ends = {name: (ended, why) for name, ended, why in driver.end()}
        finally:
            driver.signal(signal.SIGKILL)
    assert {ended for ended, _ in ends.values()} == {State.STOPPED}
    assert "it lives on b, stay 2, by ana at 2026-09-21" in ends["counts"][1]
    assert "another driver records its stay 1" in ends["batches"][1]
