"""Range batches on a log that changes or has gaps, and values of every type."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from reconciler.core.errors import NeedsPerson, Refused
from reconciler.places.registry import open_store
from reconciler.spark.batches import reading
from reconciler.spark.batches.planning import Caps, Policy
from reconciler.spark.batches.postgresql import PostgresUpsert
from reconciler.spark.batches.runner import at_least_once, exactly_once
from reconciler.spark.batches.transactional import PostgresTransaction
from tests.spark.batches.world import a_job, collected, id_results, ids, sent
from tests.spark.sent import BASE_MS, Kafka, Sent
from tests.spark.sessions import set_for_now
from tests.waiting import wait_until

pytestmark = pytest.mark.system


class Collected:
    """A job's function that collects its records until they are taken."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self.semantics = at_least_once(self._work)

    def _work(self, frame: Any, ranges: Any) -> None:
        self._found.extend(collected(id_results(frame, ranges)).elements())

    def now(self) -> list[str]:
        found, self._found = sorted(self._found, key=lambda each: int(each[3:])), []
        return found


def delete_before(kafka: Kafka, topic: str, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for future in admin.delete_records([KafkaPartition(topic, partition, offset)]).values():
        future.result(30)


def test_a_changed_topic_is_noticed_and_nothing_is_skipped_silently(
    spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    kafka.create(topic_name, 2)
    kafka.send(topic_name, sent(range(20)))
    seen, address = Collected(), f"sqlite:///{tmp_path}/offsets.db"

    def job(**policy: Any) -> Any:
        return a_job(spark, kafka, topic_name, store=address, policy=Policy(**policy))

    assert job().run(seen.semantics) == 1
    assert len(seen.now()) == 20

    kafka.send(topic_name, sent(range(20, 40)))
    delete_before(kafka, topic_name, 0, 15)
    with pytest.raises(NeedsPerson, match="up to 5 records that it had not read are gone"):
        job().run(seen.semantics)
    assert job(overtaken="earliest").run(seen.semantics) == 1
    assert "up to 5 records that it had not read are gone" in caplog.text
    gone = {"id-20", "id-22", "id-24", "id-26", "id-28"}
    assert seen.now() == [f"id-{n}" for n in range(20, 40) if f"id-{n}" not in gone]

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_partitions([NewPartitions(topic_name, 3)])[topic_name].result(30)
    wait_until(
        lambda: len(admin.list_topics(topic_name, timeout=30).topics[topic_name].partitions) == 3,
        "the new partitions, at the broker",
    )
    kafka.send(topic_name, [Sent(2, b"k", b"id-40", BASE_MS)])
    assert job().run(seen.semantics) == 1
    assert seen.now() == ["id-40"]

    # Retention that comes between plan and read.
    kafka.send(topic_name, sent(range(50, 54)))  # behind offset 20 in either partition
    store = open_store(address)
    read, before = reading.read, store.read("clicks")

    def too_late(*arguments: Any) -> Any:
        delete_before(kafka, topic_name, 0, 21)
        return read(*arguments)

    monkeypatch.setattr(reading, "read", too_late)
    with pytest.raises(NeedsPerson, match="records were removed while they were read"):
        job().run(seen.semantics)
    assert (seen.now(), store.read("clicks")) == ([], before)


def test_gaps_of_transactions_are_skipped_and_no_open_or_aborted_record_is_read(
    spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path
) -> None:
    kafka.create(topic_name)
    for first in (0, 2, 4):
        kafka.send(topic_name, sent(range(first, first + 2), 1), transaction=f"done-{topic_name}")
    patient = {"transaction.timeout.ms": 900_000}  # the broker must not abort it on a busy machine
    aborting = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": f"not-{topic_name}", **patient})
    aborting.init_transactions(30)
    aborting.begin_transaction()
    for _ in range(9):
        aborting.produce(topic_name, b"id-999")
    aborting.flush(30)
    aborting.abort_transaction(30)
    kafka.send(topic_name, sent([6], 1), transaction=f"done-{topic_name}")
    aborting.begin_transaction()
    aborting.produce(topic_name, b"id-999")
    aborting.flush(30)

    seen, address = Collected(), f"sqlite:///{tmp_path}/offsets.db"
    job = a_job(
        spark,
        kafka,
        topic_name,
        store=address,
        caps=Caps(per_partition=4),
        options={"kafka.isolation.level": "read_committed"},
    )
    assert job.run(seen.semantics) == 3, "each batch has records; a range without any is none"
    assert seen.now() == list(ids(range(7)))
    (row,) = open_store(address).read("clicks")
    assert (row.stored.offset, row.stored.anchor.offset, row.stored.anchor.id) == (20, 19, b"k6"), "behind it, markers"
    aborting.abort_transaction(30)
    assert job.run(seen.semantics) == 0


AT = datetime(2026, 10, 25, 1, 30, 0, 123_000, UTC)
"""Within the hour that clocks repeat in much of Europe."""


def test_values_of_every_type_arrive_as_they_are(
    spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path, psql: Any, database: str
) -> None:
    kafka.create(topic_name)
    kafka.send(topic_name, [Sent(0, None, b"\x00\xff", BASE_MS), Sent(0, None, None)])
    psql.execute(
        'CREATE TABLE "Odd ""types" (id text, at timestamptz, "on" date, raw bytea, doc jsonb, price numeric(9,2),'
        " tags text[], yes boolean, n bigint)"
    )

    def results(frame: Any, ranges: Any) -> Any:
        return frame.selectExpr(
            r"if(value is null, null, 'ä\t\\N\n') AS id",
            f"if(value is null, null, timestamp_millis({int(AT.timestamp() * 1000)})) AS at",
            "date'2026-02-28' AS on",
            "value AS raw",
            """'{"a": [1]}' AS doc""",
            "CAST(12.34 AS decimal(9,2)) AS price",
            "array('x', null) AS tags",
            "true AS yes",
            "offset AS n",
        )

    with set_for_now(spark, {"spark.sql.session.timeZone": "Pacific/Chatham"}):
        sink = PostgresTransaction(database, 'Odd "types')
        assert a_job(spark, kafka, topic_name).run(exactly_once(results, into=sink)) == 1
        sink.close()
    found = psql.execute('SELECT * FROM "Odd ""types" ORDER BY n').fetchall()
    some = (date(2026, 2, 28),), ({"a": [1]}, Decimal("12.34"), ["x", None], True)
    assert found == [("ä\t\\N\n", AT, *some[0], b"\x00\xff", *some[1], 0), (None, None, *some[0], None, *some[1], 1)]


def test_a_table_that_does_not_fit_is_refused_and_totals_are_added_up(
    spark: Any, kafka: Kafka, topic_name: str, tmp_path: Path, psql: Any, database: str
) -> None:
    kafka.create(topic_name)
    kafka.send(topic_name, sent(range(2), 1))
    psql.execute("CREATE TABLE clicks (id uuid)")
    job = a_job(spark, kafka, topic_name)
    wrong = exactly_once(lambda frame, _: frame.selectExpr("'x' AS id"), into=PostgresTransaction(database, "clicks"))
    with pytest.raises(Refused, match=r"rejected the results.*uuid.*Nothing of this batch was saved"):
        job.run(wrong)
    assert open_store(database).read("clicks") == []
    psql.execute("CREATE TABLE totals (page text PRIMARY KEY, n bigint)")
    sink = PostgresTransaction(
        database,
        "totals",
        merge="INSERT INTO totals SELECT * FROM {staged} ON CONFLICT (page) DO UPDATE SET n = totals.n + excluded.n",
    )

    def counted(frame: Any, ranges: Any) -> Any:
        return frame.groupBy(frame.topic.alias("page")).count().withColumnRenamed("count", "n")

    assert a_job(spark, kafka, topic_name, caps=Caps(per_run=1)).run(exactly_once(counted, into=sink)) == 2
    assert psql.execute("SELECT * FROM totals").fetchall() == [(topic_name, 2)]
    with pytest.raises(Refused, match="no unique index on exactly id"):
        a_job(spark, kafka, topic_name, store=f"sqlite:///{tmp_path}/o.db").run(
            exactly_once(id_results, into=PostgresUpsert(database, "clicks", key=["id"]))
        )
