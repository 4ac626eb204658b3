"""Range batches from real Kafka into real sinks: each semantics without faults, and with two simultaneous runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import Changed
from reconciler.places.registry import open_store
from reconciler.ports import TopicPartition
from reconciler.spark.batches.hashed_files import HashNamedFiles
from reconciler.spark.batches.planning import Caps
from reconciler.spark.batches.postgresql import PostgresUpsert
from reconciler.spark.batches.runner import at_least_once, at_most_once, exactly_once
from reconciler.spark.batches.transactional import PostgresTransaction
from tests.spark.batches.world import a_job, collected, id_results, ids, sent, staging_tables
from tests.spark.sent import Kafka

pytestmark = pytest.mark.system

TABLE = 'CREATE TABLE clicks (id text, topic text, partition integer, "offset" bigint)'


def in_table(psql: Any, table: str = "clicks") -> Counter[str]:
    return Counter(id_ for (id_,) in psql.execute(f"SELECT id FROM {table}").fetchall())


def test_without_faults_every_semantics_handles_each_record_once(
    spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path, psql: Any, database: str
) -> None:
    """All but the two that ``test_batches_failover`` runs without faults, too."""
    kafka.create(topic_name, 2)
    kafka.send(topic_name, sent(range(60)))
    psql.execute(TABLE)
    psql.execute('CREATE TABLE kept (id text PRIMARY KEY, topic text, partition integer, "offset" bigint)')
    address = f"sqlite:///{tmp_path}/offsets.db"
    seen: list[str] = []

    def work(frame: Any, ranges: Any) -> None:
        assert sum(each.offsets for each in ranges) <= 40
        seen.extend(collected(id_results(frame, ranges)).elements())

    ways = {
        "at least": (at_least_once(work), address),
        "at most": (at_most_once(work), address),
        "upsert": (exactly_once(id_results, into=PostgresUpsert(database, "kept", key=["id"])), address),
    }
    for group, (semantics, store) in ways.items():
        job = a_job(
            spark, kafka, topic_name, group=group, store=store, caps=Caps(per_run=40), options={"minPartitions": "4"}
        )
        assert job.run(semantics) == 2
        assert job.run(semantics) == 0, "nothing is left"
        job.close()
        rows = open_store(store).read(group)
        assert [row.key for row in rows] == [TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)]
        assert [(row.stored.offset, row.stored.anchor.offset, row.stored.anchor.id) for row in rows] == [
            (30, 29, b"k58"),
            (30, 29, b"k59"),
        ]
    assert Counter(seen) == ids(range(60)) + ids(range(60))
    assert in_table(psql, "kept") == ids(range(60))
    assert staging_tables(psql) == []


def test_of_two_runs_of_one_group_one_saves_and_the_other_fails_with_changed(
    spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path, psql: Any, database: str
) -> None:
    kafka.create(topic_name, 2)
    kafka.send(topic_name, sent(range(20)))
    psql.execute(TABLE)
    out, files = str(tmp_path / "out"), f"files:{tmp_path}/offsets"
    ways: dict[str, tuple[Any, str | None, str]] = {
        "transaction": (lambda: PostgresTransaction(database, "clicks"), None, "another run of the job has saved its"),
        # A run that finds a batch begun takes it for one that was killed, and repeats it.
        "files": (lambda: HashNamedFiles(out), files, "Another run of group files writes to"),
    }
    for group, (make, store, said) in ways.items():

        def while_the_first_works(frame: Any, ranges: Any, group: str = group, make: Any = make, store: Any = store):
            kafka.send(topic_name, sent([1_000 if group == "transaction" else 1_001]))
            rival = a_job(spark, kafka, topic_name, group=group, store=store)
            assert rival.run(exactly_once(id_results, into=make())) > 0
            return id_results(frame, ranges)

        first = a_job(spark, kafka, topic_name, group=group, store=store)
        with pytest.raises(Changed, match=said):
            first.run_once(exactly_once(while_the_first_works, into=make()))
        assert first.run(exactly_once(id_results, into=make())) == 0, "it goes on behind the rival's batch"
    assert in_table(psql) == ids([*range(20), 1_000])
    assert collected(spark.read.parquet(out)) == ids([*range(20), 1_000, 1_001])
    assert staging_tables(psql) == []
