"""Range batches killed at each kind of step or at any moment and restarted: their semantics hold."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.batches.killed import Driver, JobEnd
from tests.spark.batches.world import collected, ids, sent, staging_tables
from tests.spark.sent import Kafka

pytestmark = pytest.mark.system

SEED = 20260722


class Killed:
    """One way of running a job, killed again and again, with new records before every start."""

    def __init__(self, driver: Driver, kafka: Kafka, topic: str, **job: str) -> None:
        self.driver, self.kafka, self.topic = driver, kafka, topic
        self.job = {"topic": topic, "bootstrap": kafka.bootstrap, **job}
        self.count = 0

    def more(self) -> None:
        self.kafka.send(self.topic, sent(range(self.count, self.count + 4)))
        self.count += 4

    def run(self, way: str, **kill: Any) -> JobEnd:
        self.more()
        ended = self.driver.run(way, **kill, **self.job)
        assert ended.killed or ended.code == 0, (way, ended)
        return ended

    def at_every_step(self, way: str) -> list[str]:
        """Kill a run at the first step of each name, then run to the end. Returns the names."""
        steps = list(dict.fromkeys(self.run(way).steps))
        assert all(self.run(way, kill_at=name).killed for name in steps)
        self.run(way)
        return steps

    def at_any_moment(self, way: str) -> None:
        self.run(way, after_s=random.Random(f"{SEED} {way}").uniform(0.2, 4))
        assert self.run(way).code == 0


@pytest.fixture
def killed(spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path, database: str) -> Iterator[Killed]:
    kafka.create(topic_name, 2)
    with Driver(spark, tmp_path) as driver:
        job = {"database": database, "store": f"files:{tmp_path}/offsets", "out": str(tmp_path / "out")}
        yield Killed(driver, kafka, topic_name, **job)
    spark.catalog.clearCache()  # a killed driver gives nothing back


def test_results_and_offsets_in_one_transaction_count_once(killed: Killed, psql: Any) -> None:
    psql.execute('CREATE TABLE clicks (id text, "offset" bigint)')
    steps = killed.at_every_step("transaction")
    assert {"results", "Database._commit", "end"} <= set(steps)
    killed.at_any_moment("transaction")
    found = Counter(id_ for (id_,) in psql.execute("SELECT id FROM clicks").fetchall())
    assert found == ids(range(killed.count))
    for _ in range(20):  # tasks of killed drivers may still be writing there
        if not staging_tables(psql):
            break
        killed.run("transaction")
    assert staging_tables(psql) == [], "what killed runs left is cleared away"


@pytest.mark.thorough
def test_files_named_by_their_ranges_count_once(killed: Killed, spark: Any) -> None:
    steps = killed.at_every_step("files")
    assert {"results", "Directory.write", "Directory._rename", "GroupOffsets.save", "Directory.remove"} <= set(steps)
    killed.at_any_moment("files")
    assert collected(spark.read.parquet(killed.job["out"])) == ids(range(killed.count))


def test_rows_under_a_unique_key_count_once(killed: Killed, psql: Any) -> None:
    psql.execute('CREATE TABLE kept (id text PRIMARY KEY, "offset" bigint)')
    assert killed.run("upsert", kill_at="GroupOffsets.save").killed, "the one step that makes a batch come twice"
    killed.run("upsert")
    assert Counter(id_ for (id_,) in psql.execute("SELECT id FROM kept").fetchall()) == ids(range(killed.count))


@pytest.mark.thorough
def test_at_least_once_loses_nothing_and_at_most_once_repeats_nothing(killed: Killed) -> None:
    assert "half of the work" in killed.at_every_step("at least")
    done = Counter(Path(killed.job["out"]).read_text().split())
    assert set(done) == set(ids(range(killed.count)))
    assert max(done.values()) > 1, "some kills came between the work and the offsets"

    Path(killed.job["out"]).unlink()
    assert "half of the work" in killed.at_every_step("at most")
    done = Counter(Path(killed.job["out"]).read_text().split())
    assert max(done.values()) == 1
    assert set(done) < set(ids(range(killed.count))), "some kills came between the offsets and the work"
