"""An audit from plans to result: look up the logs' extents, read once, count; and the sentences about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from reconciler import __version__
from reconciler.clock import clock_ms, stamp
from reconciler.core.anchors import Identity
from reconciler.core.errors import Changed, ConfigError, ReconcilerError, Refused, Unreachable
from reconciler.core.text import some
from reconciler.fileio import read_regular, why
from reconciler.plan.document import Plan, parse_plan
from reconciler.spark.audit.extents import ReachedLogs, find_uncompared, look_at
from reconciler.spark.audit.output import Output
from reconciler.spark.audit.result import (
    FIGURES,
    AuditResult,
    ComparedSide,
    PartitionResult,
    Rules,
    Uncompared,
    with_split,
)
from reconciler.spark.audit.stays import Stays, Unit, find_stays
from reconciler.spark.audit.tally import (
    KINDS,
    NOWHERE,
    Found,
    Naming,
    Scope,
    find_examples,
    sight_all,
    tally,
)
from reconciler.spark.batches.reading import ClusterAccess
from reconciler.spark.session import DATA_LOSS, spark_message


def audit(
    spark: SparkSession,
    plans: Iterable[Plan | str | Path],
    *,
    destination: Mapping[str, Any],
    source: Mapping[str, Any] | None = None,
    output: Output | None = None,
    id: str | Identity = "none",
    job: str | None = None,
    unique: bool = False,
    exactly_once: bool = False,
    since_ms: int | None = None,
    destination_options: Mapping[str, str] | None = None,
    source_options: Mapping[str, str] | None = None,
    now_ms: int | None = None,
) -> AuditResult:
    """Count the records that a job lost and doubled over all failovers of ``plans`` (the package has an example).

    ``plans`` are the applied plans in any order, as paths or values. ``destination`` and ``source`` are librdkafka
    properties, and ``…_options`` those of Spark's Kafka source. ``id`` is as in ``[jobs.identity]``. ``unique``: no two
    records of the job share an id. ``exactly_once``: the job must not process announced records again. ``since_ms``:
    leave out records with an older Kafka timestamp.

    Raises ConfigError; Changed if a log is not the planned one or lost records meanwhile; Unreachable and Refused.
    """
    found, has_output = find_stays([_plan_of(each) for each in plans], job), output is not None
    if source is None and not has_output:
        raise ConfigError("Without the output and the source nothing can be compared.", hint="Give one of them.")
    naming, apart = _naming(found, id, output, unique=unique)
    given = {"destination": ClusterAccess.of(destination, destination_options)}
    if source is not None:
        given["source"] = ClusterAccess.of(source, source_options)
    looked = look_at(found, given, since_ms=since_ms, has_output=has_output)
    if not has_output and not looked.all_read:
        raise Unreachable(
            " ".join(looked.dead) or f"Cluster {looked.absent[0]} was not given.",
            hint="Without it, the job's output is needed: give --output and --column.",
        )
    from_first = len(found.hops) == 1 and looked.all_read
    rules = Rules(unique=naming.unique, from_first=from_first, all_read=looked.all_read)
    scope = Scope(found, looked, naming, rules, apart, since_ms)
    missing = tuple(find_uncompared(found, looked, has_output=has_output))
    # Rows of no record are many where older records were deleted: kept only where they are a finding.
    kinds = KINDS if looked.are_whole and since_ms is None and not missing else KINDS[:-1]
    with _spark_errors():
        seen = sight_all(spark, scope, None if output is None else output.rows(found))
        with tally(seen, len(looked.logs), rules, has_output=has_output, kinds=kinds) as counted:
            now = stamp(clock_ms() if now_ms is None else now_ms)
            return _result(scope, counted, output, missing, now, exactly_once)


def _result(
    scope: Scope, counted: Found, output: Output | None, missing: tuple[Uncompared, ...], now: str, exactly_once: bool
) -> AuditResult:
    found, naming, total = scope.found, scope.naming, counted.total
    result = AuditResult(
        tool_version=__version__,
        created_at=now,
        plans=found.digests,
        job=found.job,
        told_apart_by=naming.told_apart_by,
        unique=naming.unique,
        exactly_once=exactly_once,
        since_ms=scope.since_ms,
        stays=tuple(each or "unknown" for each in found.order),
        clusters=tuple(_clusters(scope, counted)),
        output=None if output is None else ComparedSide(output.name, total("rows"), total("nameless")),
        partitions=tuple(_partitions(scope, counted, exactly_once=exactly_once)),
        examples=find_examples(counted, scope),
        uncompared=missing,
        notes=(),
        logs_are_whole=scope.looked.are_whole and scope.since_ms is None,
    )
    result = replace(result, uncompared=(*of_sides(result), *missing))
    return replace(result, notes=tuple(notes(found, scope.looked, result)))


def _naming(found: Stays, id: str | Identity, output: Output | None, *, unique: bool) -> tuple[Naming, bool]:
    """How records are named, and whether names are compared within a partition only."""
    apart = output is None or output.columns.partition is not None
    is_one = len(found.units) == 1
    by_id = None if output is None else output.columns.id is not None
    return Naming.of(id, by_id=by_id, unique=unique, apart=(apart or is_one) and not found.spread), apart


def _clusters(scope: Scope, counted: Found) -> Iterator[ComparedSide]:
    for number, log in enumerate(scope.looked.logs):
        sums = counted.total(f"held{number}"), counted.total(f"nameless{number}")
        yield ComparedSide(log.cluster_id, *sums, tuple(each for reach in log.reaches for each in reach.read))


def _partitions(scope: Scope, counted: Found, *, exactly_once: bool) -> Iterator[PartitionResult]:
    """Each unit's figures, and those of rows that belong to none."""
    units: list[tuple[int, Unit | None]] = [*enumerate(scope.found.units)]
    if NOWHERE in counted.sums:
        units.append((NOWHERE, None))
    logs = range(len(scope.looked.logs))
    for number, unit in units:
        sums = counted.sums.get(number, {})
        topic, partition = unit or (None, None)
        at_most = 0 if unit is None else scope.found.announced[unit]
        figures = {name: sums.get(name, 0) for name in FIGURES}
        yield PartitionResult(
            topic=topic,
            partition=partition,
            compared=tuple(sums.get(f"held{n}", 0) for n in logs),
            not_compared=sum(sums.get(f"nameless{n}", 0) for n in logs),
            rows=sums.get("rows", 0),
            replay_at_most=at_most,
            figures=with_split(figures, at_most, exactly_once=exactly_once),
        )


def _plan_of(given: Plan | str | Path) -> Plan:
    """The plan itself, or the one in this file. Raises ConfigError if it cannot be read."""
    if isinstance(given, Plan):
        return given
    try:
        return parse_plan(read_regular(Path(given)))
    except OSError as error:
        raise ConfigError(
            f"The plan {given} cannot be read: {why(error)}.", hint="Name the plan that was applied."
        ) from error


# ---------------------------------------------------------------- Spark's errors


@contextmanager
def _spark_errors() -> Iterator[None]:
    """Turn Spark's exceptions into this product's errors."""
    try:
        yield
    except ReconcilerError:
        raise
    except (PySparkException, Py4JError) as error:
        if DATA_LOSS in str(getattr(error, "java_exception", None) or error):
            raise Changed(
                "Records were deleted from a log while the audit read it.",
                hint="Run it again; or begin later, with --since, than retention reaches.",
            ) from error
        if isinstance(error, AnalysisException):
            raise ConfigError(f"Spark cannot run this audit: {spark_message(error)}.") from error
        raise Refused(
            f"Spark could not finish the audit: {spark_message(error)}.",
            hint="Check that the executors reach the clusters and the output, and have disk space.",
        ) from error


def of_sides(result: AuditResult) -> Iterator[Uncompared]:
    """The sides and records that could not be compared, by their counts."""
    sides = {f"cluster {each.name}": each.compared for each in result.clusters}
    if result.output is not None:
        sides[result.output.name] = result.output.compared
    for name, count in sides.items():
        if not count:
            yield Uncompared("nothing_read", (), f"No record or row of {name} could be compared.")
    nameless = [each for each in result.partitions if each.not_compared]
    if nameless:
        names = tuple(each.name for each in nameless)
        records = sum(each.not_compared for each in nameless)
        bare = [each.name for each in nameless if not any(each.compared)]
        yield Uncompared(
            "no_id",
            names,
            f"{records:,} records of {some(names)} have no id, and were not compared. "
            + (f"No record of {some(bare)} has one. " if bare else "")
            + "Correct the job's id, or name the output's key and value, which every record has.",
        )


def notes(found: Stays, looked: ReachedLogs, result: AuditResult) -> Iterator[str]:
    """Records that the figures may hide, and records that were left out on purpose."""
    for cluster in looked.absent:
        yield f"Cluster {cluster} was not read: its own records, and what the job read there, are unknown."
    yield from found.assumed
    if result.since_ms is not None:
        yield f"Records older than {stamp(result.since_ms)} were left out (--since)."
    for log in looked.logs:
        cut = [str(reach.at) for reach in log.reaches if reach.edges.log_start > 0]
        if cut:
            yield f"Cluster {log.cluster_id} has deleted the first records of {some(cut)}."
    if found.spread:
        yield f"Partitions of {some(sorted(found.spread))} do not correspond: each topic is compared as a whole."
    if result.output is not None and result.output.not_compared:
        yield f"{result.output.not_compared:,} rows of the output have no {result.told_apart_by}: not compared."
    totals = result.totals
    if lost := totals["possibly_lost"]:
        yield (
            f"{lost:,} records may be lost: a log has them more often than the job put them out. A mirror may have "
            "sent them twice, or another program may have written them."
        )
    if doubled := totals["possibly_doubled"]:
        yield (
            f"{doubled:,} more may be doubled: a log has them more than once. They are equal records, or a mirror sent "
            "them twice."
        )
    if totals["unknown_rows"] and not result.rows_must_match:
        yield f"{totals['unknown_rows']:,} rows of the output match no record that was read."
