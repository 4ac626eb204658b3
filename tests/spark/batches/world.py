"""Shared by tests of range batches: records with ids, jobs over them, and a count of each id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from reconciler.spark.batches.runner import RangeBatches
from tests.spark.sent import BASE_MS, Kafka, Sent

TEXT = "CAST(value AS STRING) AS id"
"""A result: the record's id, which is its value."""


def sent(numbers: Iterable[int], partitions: int = 2) -> list[Sent]:
    """Record ``n`` is in partition n modulo ``partitions``, its value its id."""
    return [Sent(n % partitions, b"k%d" % n, b"id-%d" % n, BASE_MS + n) for n in numbers]


def ids(numbers: Iterable[int]) -> Counter[str]:
    """Each id once."""
    return Counter(f"id-{n}" for n in numbers)


def a_job(spark: Any, kafka: Kafka, topic: str, **how: Any) -> RangeBatches:
    return RangeBatches(
        spark, **{"topics": [topic], "group": "clicks", "bootstrap_servers": kafka.bootstrap, "id": "key", **how}
    )


def id_results(frame: Any, ranges: Any) -> Any:
    return frame.selectExpr(TEXT, "topic", "partition", "offset")


def collected(frame: Any) -> Counter[str]:
    return Counter(row.id for row in frame.select("id").collect())


def staging_tables(psql: Any) -> list[Any]:
    """Those in the test's own schema: other tests' killed runs may have left some in the same server."""
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE %s"
    return psql.execute(tables, ("reconciler_staged%",)).fetchall()
