"""What an audit costs at the size where Spark is needed: both logs and the sink's rows by id.

    python -m docs.benchmarks.audit_sinks [--records 100000000] [--failovers 4] [--memory 6g] [--json FILE]

Generates ids of 16 bytes in eight partitions, as both clusters' logs have them and as a Parquet folder has the job's
rows, with some rows left out, some written twice, and some of no record. Counts them on two threads with so much
memory, and prints the seconds, the process's peak memory and the shuffle's disk space. Fails unless every planted row
is found, and nothing else. Writing the folder is not timed. No Kafka: what a log's records cost to read comes on top.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import shutil
import tempfile
import time
from functools import reduce
from pathlib import Path
from typing import Any

from docs.benchmarks.common import cpu_s, peak_mb, print_json
from reconciler.ports import TopicPartition
from reconciler.spark.audit.extents import ClusterLog, Edges, Reach, ReachedLogs
from reconciler.spark.audit.output import Columns, Output
from reconciler.spark.audit.result import Rules, StayRange
from reconciler.spark.audit.stays import Stays, Unit
from reconciler.spark.audit.tally import PER_TASK, Naming, Scope, find_examples, sight_records, sight_rows, tally
from reconciler.spark.batches.reading import ClusterAccess
from tests.spark.sessions import SMALL

PARTITIONS = 8
NEVER_WRITTEN, TWICE, OF_NO_RECORD = 7, 5, 3
SHIFT = 1_000
"""Offsets on the second cluster are larger by so many, times the partition's number and one."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=100_000_000)
    parser.add_argument("--failovers", type=int, default=4)
    parser.add_argument("--memory", default="6g", help="the heap of Spark's one process")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="audit-sinks-"))
    try:
        row = measured(options.records, options.failovers, options.memory, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(f"{'records':>12} {'stays':>6} {'wall s':>8} {'CPU s':>8} {'peak MB':>8} {'disk MB':>8}")
    print(
        f"{row['records']:>12,} {row['stays']:>6} {row['wall_s']:>8} {row['cpu_s']:>8} {row['peak_mb']:>8,} "
        f"{row['disk_mb']:>8,}"
    )
    shape = {"memory": options.memory, "partitions": PARTITIONS, "id_bytes": 16}
    versions = {"spark": importlib.metadata.version("pyspark")}
    print_json("audit_sinks", shape, [row], options.json, versions=versions)


def measured(records: int, failovers: int, memory: str, place: Path) -> dict[str, Any]:
    """One audit, and its cost. Raises SystemExit if its findings are not the planted ones."""
    from pyspark.sql import DataFrame, SparkSession

    builder = SparkSession.builder.master("local[2]").appName("audit-sinks")
    for key, value in {**SMALL, "spark.driver.memory": memory, "spark.local.dir": str(place / "spark")}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        planted = write_sink(spark, records, place / "sink")
        process = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
        before, began = cpu_s(process), time.perf_counter()
        logs = [log(records, failovers, cluster) for cluster in range(2)]
        naming = Naming.of("key", by_id=True, unique=True, apart=False)
        scope = Scope(one_topic(), ReachedLogs(tuple(logs), (), ()), naming, Rules(unique=True), apart=False)
        rows = Output(spark.read.parquet(str(place / "sink")), Columns(id="event_id"))
        frames = [sight_rows(rows.rows(scope.found), scope)]
        frames += [
            sight_records(of_log(spark, records, number), each, scope, number) for number, each in enumerate(logs)
        ]
        with tally(reduce(DataFrame.union, frames), len(logs), scope.rules) as found:
            shown = find_examples(found, scope)
            wall, cpu = time.perf_counter() - began, cpu_s(process) - before
            disk = sum(file.stat().st_size for file in (place / "spark").rglob("*") if file.is_file())
        check(planted, found, shown)
        return {
            "records": records,
            "rows_compared": sum(found.total(name) for name in ("rows", "held0", "held1")),
            "stays": failovers + 1,
            "wall_s": round(wall, 1),
            "cpu_s": round(cpu, 1),
            "peak_mb": peak_mb(process),
            "disk_mb": disk >> 20,
        }
    finally:
        spark.stop()


# ---------------------------------------------------------------- the generated world


def log(records: int, failovers: int, cluster: int) -> ClusterLog:
    """A cluster's reaches: the job was on the clusters in turn, for as many records each time."""
    each = records // PARTITIONS
    cuts = [each * stay // (failovers + 1) for stay in range(failovers + 2)]
    reaches = []
    for partition in range(PARTITIONS):
        shift = cluster * SHIFT * (partition + 1)
        stays = range(cluster, failovers + 1, 2)
        at, edges = TopicPartition("events", partition), Edges(shift, shift, each + shift)
        read = (StayRange(stay, *at, cuts[stay] + shift, cuts[stay + 1] + shift) for stay in stays)
        until = each + shift if failovers % 2 == cluster else None
        reaches.append(Reach(at, edges, tuple(read), until))
    return ClusterLog(ClusterAccess.at("nowhere:9092"), f"cluster-{cluster}", tuple(reaches))


def one_topic() -> Stays:
    """What the count needs of the plans: the units."""
    units = tuple(Unit("events", partition) for partition in range(PARTITIONS))
    none: Any = ()
    return Stays("clicks", none, none, none, none, {"events": "events"}, frozenset(), units, {}, none)


def of_log(spark: Any, records: int, cluster: int) -> Any:
    """The log's records, with the columns of Spark's Kafka source."""
    numbers = spark.range(0, records, 1, max(2, -(-records // PER_TASK)))
    return numbers.selectExpr(
        "unhex(md5(cast(id AS string))) AS key",
        "cast(null AS binary) AS value",
        "'events' AS topic",
        f"cast(id % {PARTITIONS} AS int) AS partition",
        f"id DIV {PARTITIONS} + {cluster * SHIFT} * (id % {PARTITIONS} + 1) AS offset",
    )


def write_sink(spark: Any, records: int, folder: Path) -> dict[str, set[str]]:
    """The job's rows, with faults. Returns the planted ids' hashes by kind."""
    missing = {records * (n + 1) // (NEVER_WRITTEN + 1) for n in range(NEVER_WRITTEN)}
    twice = {records * (n + 1) // (TWICE + 1) + 1 for n in range(TWICE)}
    foreign = {records + n for n in range(OF_NO_RECORD)}
    numbers = spark.range(0, records, 1, max(2, -(-records // PER_TASK)))
    kept = numbers.where(f"id NOT IN ({', '.join(map(str, missing))})")
    more = spark.createDataFrame([(n,) for n in sorted(twice | foreign)], "id bigint")
    rows = kept.union(more).selectExpr("unhex(md5(cast(id AS string))) AS event_id", "id % 1000 AS amount")
    rows.write.parquet(str(folder))
    planted = {"lost": missing, "doubled": twice, "unknown_rows": foreign}
    return {kind: {id_hash(n) for n in numbers} for kind, numbers in planted.items()}


def id_hash(number: int) -> str:
    id = hashlib.md5(str(number).encode(), usedforsecurity=False).digest()
    return hashlib.sha256(id).hexdigest()[:16]


def check(planted: dict[str, set[str]], counted: Any, shown: Any) -> None:
    found = {kind: {each.id_hash for each in shown if each.kind == kind} for kind in planted}
    counts = {kind: counted.total(kind) for kind in planted}
    if (
        found != planted
        or counts != {kind: len(ids) for kind, ids in planted.items()}
        or counted.total("possibly_lost")
    ):
        raise SystemExit(f"not what was planted: {json.dumps(counts)}")


if __name__ == "__main__":
    main()
