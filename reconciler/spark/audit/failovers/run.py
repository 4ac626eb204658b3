"""An audit over several failovers, from plans to result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from reconciler import __version__
from reconciler.clock import clock_ms, stamp
from reconciler.core.anchors import Identity
from reconciler.core.errors import ConfigError
from reconciler.formats.plan import Plan
from reconciler.spark.audit.errors import plan_of, spark_errors, writing_findings
from reconciler.spark.audit.failovers import words
from reconciler.spark.audit.failovers.extents import ClusterLog, left_out, look_at
from reconciler.spark.audit.failovers.result import (
    ComparedSide,
    Range,
    RecordFinding,
    RecordPlace,
    StaysResult,
)
from reconciler.spark.audit.failovers.stays import stays
from reconciler.spark.audit.failovers.tally import (
    KINDS,
    SCHEMA,
    Found,
    of_sink,
    records_of,
    sighted,
    tallied,
)
from reconciler.spark.audit.findings import FINDINGS, MOST_EXAMPLES, refuse_unwritable
from reconciler.spark.audit.looking import Until
from reconciler.spark.audit.naming import By, Naming, Unique
from reconciler.spark.audit.output import Output
from reconciler.spark.audit.result import AT_LEAST_ONCE, require_known, split_doubled
from reconciler.spark.audit.sightings import small_table
from reconciler.spark.audit.tally import PART_SHIFT
from reconciler.spark.target import ClusterAccess


def audit_stays(
    spark: SparkSession,
    plans: Iterable[Plan | str | Path],
    *,
    clusters: Mapping[str, ClusterAccess],
    output: Output,
    sink: str = "the output",
    id: str | Identity = "none",
    job: str | None = None,
    unique: Unique = None,
    semantics: str = AT_LEAST_ONCE,
    since_ms: int | None = None,
    until: Until = None,
    examples_of_each: int = 10,
    parquet: str | None = None,
    now_ms: int | None = None,
) -> StaysResult:
    """Count what a job's sink lacks, has too often, or has of no record, over all failovers of ``plans``.

    ``plans`` are the applied plans in any order, those of the way back too. ``clusters``: their settings by a name for
    messages; each is recognized by its id. One that does not answer is dead, unless the job is there now. ``sink`` is
    the output's name in the result. Everything else is as in ``reconciler.spark.audit.audit``.

    Raises as that does; ConfigError also for plans with a gap between them.
    """
    require_known(semantics)
    if output.columns.by is By.OFFSET:
        raise ConfigError(
            "Over several failovers a row cannot be found by its offset.",
            hint="Identify the rows by id, key and value, or fingerprint.",
        )
    found = stays([plan_of(each) for each in plans], job)
    one = all(len(each.intervals) == 1 for each in found.clusters)
    naming = Naming.of(id, output.columns.by, unique, by_partition=one)
    if parquet is not None:
        refuse_unwritable(spark, parquet, FINDINGS)
    looked = look_at(found, clusters, until=until, since_ms=since_ms)
    with (
        spark_errors(),
        tallied(
            sightings(spark, looked.logs, naming, output, found.topics, since_ms),
            len(looked.logs),
            unique=naming.unique,
        ) as counted,
    ):
        shown = examples(counted, looked.logs, naming, examples_of_each)
        if parquet is not None:
            write_findings(counted, looked.logs, naming, parquet)
    sums = counted.sums
    announced, beyond = split_doubled(sums["doubled"], sums["doubled_read_again"], found.announced, semantics)
    sides = tuple(
        ComparedSide(log.cluster_id, sums[f"named{number}"], sums[f"nameless{number}"], tuple(_ranges(log)))
        for number, log in enumerate(looked.logs)
    )
    rows = ComparedSide(sink, sums["named"], sums["nameless"])
    is_read = len(looked.logs) == len(found.clusters) and since_ms is None
    result = StaysResult(
        tool_version=__version__,
        created_at=stamp(clock_ms() if now_ms is None else now_ms),
        plans=found.digests,
        job=found.job,
        told_apart_by=naming.by.value,
        unique=naming.unique,
        semantics=semantics,
        since_ms=since_ms,
        order=tuple(each or "unknown" for each in found.order),
        clusters=sides,
        sink=rows,
        totals={**sums, "doubled_as_announced": announced, "doubled_beyond": beyond},
        examples=shown,
        compared=tuple(words.compared(naming)),
        unknown=(),
        logs_are_whole=is_read and not any(reach.log_start for log in looked.logs for reach in log.reaches),
        unanswered=bool(looked.dead),
        left_out=left_out(found, looked.logs),
    )
    return replace(result, unknown=tuple(words.unknown(found, looked, naming, result)))


def sightings(
    spark: SparkSession,
    logs: Sequence[ClusterLog],
    naming: Naming,
    output: Output,
    topics: Collection[str],
    since_ms: int | None,
) -> DataFrame:
    """Every record of the logs, and every row of the output that is of ``topics``."""
    frames = [of_sink(output.names(topics))]
    for number, log in enumerate(logs):
        records = records_of(spark, log, naming, since_ms=since_ms)
        empty = small_table(spark, [], SCHEMA)
        frames.append(empty if records is None else sighted(records, log, naming, number))
    return reduce(DataFrame.union, frames)


def examples(counted: Found, logs: Sequence[ClusterLog], naming: Naming, of_each: int) -> tuple[RecordFinding, ...]:
    """The first ``of_each`` findings of every kind, by their places in the logs."""
    if not of_each:
        return ()
    at = [f"at{number}" for number in range(len(logs))]
    found: list[RecordFinding] = []
    for kind in (kind for kind in KINDS if counted.sums[kind]):
        order = [*(f.asc_nulls_last(name) for name in at), f.asc("name")]
        most = min(of_each, MOST_EXAMPLES - len(found))
        rows = counted.names.where(f.col(kind) > 0).orderBy(*order).limit(most).select("name", kind, *at).collect()
        for row in rows:
            id_hash = bytes(row["name"])[:8].hex() if naming.by is By.ID else None
            places = tuple(_place(log, row[name]) for log, name in zip(logs, at, strict=True) if row[name] is not None)
            found.append(RecordFinding(kind, int(row[kind]), id_hash, places))
    return tuple(found)


def write_findings(counted: Found, logs: Sequence[ClusterLog], naming: Naming, folder: str) -> None:
    """``FOLDER/findings``: a row for every finding and place; ConfigError if it exists already."""
    names = counted.names
    kinds = f.array(*(f.struct(f.lit(kind).alias("kind"), f.col(kind).alias("count")) for kind in KINDS))
    id_hash = f.lower(f.hex(f.substring("name", 1, 8))) if naming.by is By.ID else f.lit(None).cast("string")
    rows = names.select("*", f.explode(kinds).alias("of")).where("of.count > 0")
    shown = rows.select("of.kind", "of.count", id_hash.alias("id_hash"), *(f"at{n}" for n in range(len(logs))))
    for number, log in enumerate(logs):
        lanes = [(n, each.at.topic, each.at.partition) for n, each in enumerate(log.reaches)]
        fields = f"lane{number} int, topic{number} string, partition{number} int"
        there = f.broadcast(small_table(names.sparkSession, lanes, fields))
        shown = shown.withColumns(
            {
                f"lane{number}": f.shiftright(f"at{number}", PART_SHIFT).cast("int"),
                f"offset{number}": f.col(f"at{number}").bitwiseAND(f.lit(2**PART_SHIFT - 1)),
                f"cluster_id{number}": f.when(f.col(f"at{number}").isNotNull(), log.cluster_id),
            }
        ).join(there, f"lane{number}", "left")
    places = [
        f.col(f"{field}{number}")
        for number in range(len(logs))
        for field in ("cluster_id", "topic", "partition", "offset")
    ]
    with writing_findings():
        shown.select("kind", "count", "id_hash", *places).write.parquet(f"{folder.rstrip('/')}/{FINDINGS}")


def _place(log: ClusterLog, at: int) -> RecordPlace:
    reach = log.reaches[at >> PART_SHIFT]
    return RecordPlace(log.cluster_id, reach.at.topic, reach.at.partition, at & (2**PART_SHIFT - 1))


def _ranges(log: ClusterLog) -> Iterator[Range]:
    for reach in log.reaches:
        for start, end in reach.read:
            yield Range(reach.at.topic, reach.at.partition, start, end)
