"""An audit from plans to result: look up the logs' extents, read once, count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from reconciler import __version__
from reconciler.clock import clock_ms, stamp
from reconciler.core.anchors import Identity
from reconciler.core.errors import ReconcilerError
from reconciler.formats.plan import Plan
from reconciler.ports import TopicPartition
from reconciler.spark.audit import words
from reconciler.spark.audit.errors import plan_of, spark_errors
from reconciler.spark.audit.findings import (
    FINDINGS,
    KINDS,
    PARTITIONS,
    examples,
    findings,
    refuse_unwritable,
    write_parquet,
)
from reconciler.spark.audit.looking import (
    LogExtent,
    Until,
    gaps,
    is_dead,
    left_out,
    look_at_destination,
    look_at_source,
)
from reconciler.spark.audit.naming import OFFSET, By, Naming, Unique
from reconciler.spark.audit.order import destination_order, output_order
from reconciler.spark.audit.output import Output, offset_name
from reconciler.spark.audit.result import (
    AT_LEAST_ONCE,
    COUNTS,
    FIGURES,
    AuditResult,
    PartitionResult,
    ReadOffsets,
    require_known,
    split_doubled,
)
from reconciler.spark.audit.resumed_rows import ALL_PARTITIONS, AuditedJob, AuditUnit, ResumedRow, planned
from reconciler.spark.audit.sightings import AFTER, BEYOND, DESTINATION_SIDES, PROCESSED, UNPROCESSED, Places, sightings
from reconciler.spark.audit.tally import Rules, judged, sums, tally, together
from reconciler.spark.columns import kept
from reconciler.spark.target import ClusterAccess


def audit(
    spark: SparkSession,
    plans: Iterable[Plan | str | Path],
    *,
    destination: Mapping[str, Any],
    source: Mapping[str, Any] | None = None,
    output: Output | None = None,
    id: str | Identity = "none",
    job: str | None = None,
    unique: Unique = None,
    semantics: str = AT_LEAST_ONCE,
    since_ms: int | None = None,
    until: Until = None,
    examples_of_each: int = 10,
    parquet: str | None = None,
    destination_options: Mapping[str, str] | None = None,
    source_options: Mapping[str, str] | None = None,
    now_ms: int | None = None,
) -> AuditResult:
    """Count what a job lost, doubled and reordered over a failover (package docstring: an example, and the method).

    ``plans`` are the applied plans of one failover, as paths or values. ``destination`` and ``source`` are librdkafka
    properties; ``destination_options`` and ``source_options`` are options of Spark's Kafka source for the same
    clusters, for logins (``kafka.security.protocol``, …). A source that does not answer is dead; the result says so.
    ``id`` is as in ``[jobs.identity]``. ``unique``: no two records share an id; ``"partition"``, or what the identity
    says by default: no two of one source partition do, which counts where partitions are compared apart.
    ``semantics``: ``at-least-once`` jobs may process announced records again; ``exactly-once`` jobs none.
    ``since_ms``: leave out older records of both logs, by their Kafka timestamp. ``until``: the job's position, by
    destination partition; by default the logs' ends. None for a partition: unknown, so that the verdict cannot be
    ``clean`` where the log has records from the resume offset on. ``parquet``: a new folder for all findings.

    Raises ConfigError for arguments that cannot be used, Changed if a log is not the planned one or lost records while
    it was read, Unreachable and Refused.
    """
    require_known(semantics)
    about = planned([plan_of(each) for each in plans], job)
    if parquet is not None:
        refuse_unwritable(spark, parquet, PARTITIONS, FINDINGS)
    at_destination = ClusterAccess(destination, destination_options or {})
    at_source = None if source is None else ClusterAccess(source, source_options or {})
    there = look_at_destination(about, at_destination, until=until, since_ms=since_ms)
    here, why_dead = _source(about, at_source, since_ms)
    places = Places(about)
    scoped = None if output is None else output.scoped(places)
    apart = places.are_compared_apart("place" if scoped is None else scoped.scope)
    naming = Naming.of(id, output.columns.by if output else None, unique, by_partition=apart)
    auditing = _Audit(
        spark=spark,
        planned=about,
        places=places,
        naming=naming,
        there=there,
        here=here,
        output=scoped,
        since_ms=since_ms,
    )
    with spark_errors(), ExitStack() as on_disk:
        found = auditing.counted(on_disk)
        partitions, elsewhere = auditing.results(found, semantics)
        all_found = findings(found.names, found.late if any(row.figures["reordered"] for row in partitions) else None)
        any_found = any(row.figures[kind] for row in partitions for kind in KINDS)
        shown = examples(all_found, places, examples_of_each) if any_found and examples_of_each else ()
        result = AuditResult(
            tool_version=__version__,
            created_at=stamp(clock_ms() if now_ms is None else now_ms),
            plans=about.digests,
            job=about.job,
            told_apart_by=naming.by.value,
            unique=naming.unique,
            semantics=semantics,
            since_ms=since_ms,
            source_cluster_id=here.cluster_id if here else None,
            destination_cluster_id=there.cluster_id,
            has_output=output is not None,
            compared=tuple(words.compared(naming, found.rules)),
            unknown=(),
            partitions=partitions,
            examples=shown,
            output_elsewhere=elsewhere["output_unknown"],
            nameless_elsewhere=elsewhere["nameless"],
            left_out=left_out(about, there, here, has_output=output is not None),
        )
        result = replace(
            result, unknown=tuple(words.unknown(about, naming, found.rules, result, there, here, why_dead))
        )
        if parquet is not None:
            write_parquet(spark, parquet, result, all_found, places)
        return result


@dataclass(frozen=True)
class _Counted:
    """The rules used for counting, and the figures: ``names`` as ``tally.together`` makes them.

    ``late`` has the records out of order; None where no order is known.
    """

    rules: Rules
    names: DataFrame
    late: DataFrame | None


@dataclass(frozen=True)
class _Audit:
    """An audit's scope, fixed before the first record is read.

    What is computed of the frames stays on the executors' disks meanwhile, so that each is computed once (A1).
    """

    spark: SparkSession
    planned: AuditedJob
    places: Places
    naming: Naming
    there: LogExtent
    here: LogExtent | None
    output: Output | None
    since_ms: int | None

    @cached_property
    def gaps(self) -> set[TopicPartition]:
        return gaps(self.there, self.here)

    def seen(self) -> DataFrame:
        """Every record of both logs."""
        logs = [(self.there, DESTINATION_SIDES)]
        if self.here is not None:
            logs.append((self.here, (PROCESSED, UNPROCESSED, UNPROCESSED)))
        frames = [
            sightings(self.spark, log, self.naming, self.places, sides, since_ms=self.since_ms) for log, sides in logs
        ]
        return frames[0] if len(frames) == 1 else frames[0].union(frames[1])

    def counted(self, on_disk: ExitStack) -> _Counted:
        """The figures. ``on_disk`` releases what the executors keep of them."""
        seen = on_disk.enter_context(kept(self.seen(), "DISK_ONLY"))
        rules, output = self._rules(), self.output
        rows = None if output is None else output.rows(self.places, seen, source_lives=rules.source_lives)
        if rules.offsets_only:
            seen = _named_by_offset(seen)
        scope = "place" if output is None else output.scope
        names = on_disk.enter_context(kept(together(judged(tally(seen, scope, rows), rules)), "DISK_ONLY"))
        late = self._late(rules, seen, rows)
        return _Counted(rules, names, None if late is None else on_disk.enter_context(kept(late, "DISK_ONLY")))

    def _late(self, rules: Rules, seen: DataFrame, rows: DataFrame | None) -> DataFrame | None:
        """The records out of order, in the output or, without one, at the destination."""
        spread = [number for number, place in enumerate(self.places.all) if place.partition == ALL_PARTITIONS]
        if self.output is None or rows is None:
            return destination_order(seen, spread) if rules.source_lives else None
        if not rules.judges_order:
            return None
        return output_order(seen, rows, self.output.scope, spread, source_lives=rules.source_lives)

    def results(self, found: _Counted, semantics: str) -> tuple[tuple[PartitionResult, ...], dict[str, int]]:
        """The figures of each place, and those of the output's rows that belong to none."""
        late = found.late
        counted = {row["place"]: row for row in sums(found.names)}
        reordered = (
            {} if late is None else {row["place"]: row["count"] for row in late.groupBy("place").count().collect()}
        )
        outside = [row for number, row in counted.items() if number < 0]
        elsewhere = {name: sum(row[name] for row in outside) for name in ("output_unknown", "nameless")}
        found_at = (
            self._result(place, counted.get(number, {}), reordered.get(number, 0), semantics)
            for number, place in enumerate(self.places.all)
        )
        return tuple(found_at), elsewhere

    def _rules(self) -> Rules:
        offsets_only = self.naming.by is By.OFFSET and self.here is None
        columns = self.output.columns if self.output else None
        topics = self.places.of_topics
        both = {
            resumed.row.topic for resumed in self.planned.resumed_rows if resumed.row.topic == resumed.row.source_topic
        }
        cut_off = {s.at.topic for s in self.here.stretches if s.start > 0} if self.here else set()
        return Rules(
            source_lives=self.here is not None,
            has_output=self.output is not None,
            unique=offsets_only or (self.naming.unique and self.naming.by is By.ID),
            by_id=columns is not None and columns.by is By.ID,
            offsets_only=offsets_only,
            judges_order=columns is not None and columns.order is not None,
            shared=tuple(sorted(topics[topic] for topic in both)),
            cut_off=tuple(sorted(topics[topic] for topic in cut_off)),
        )

    def _result(self, place: AuditUnit, found: Mapping[str, Any], reordered: int, semantics: str) -> PartitionResult:
        resumed_rows = [resumed for resumed in self.planned.resumed_rows if resumed.place == place]
        single = resumed_rows[0] if place.partition != ALL_PARTITIONS else None
        at_most = [resumed.row.replay_at_most for resumed in resumed_rows]
        exact = [resumed.row.replay_exact for resumed in resumed_rows]
        announced = None if None in at_most else sum(count or 0 for count in at_most)
        figures = {name: int(found.get(name) or 0) for name in FIGURES}
        read_again = int(found.get("read_again") or 0)
        split = split_doubled(figures["doubled"], read_again, announced, semantics)
        figures |= {"reordered": reordered, "doubled_as_announced": split[0], "doubled_beyond": split[1]}
        until = [s.until for s in self.there.stretches if s.resumed is single]
        return PartitionResult(
            source_topic=place.topic,
            topic=resumed_rows[0].row.topic,
            partition=single.row.partition if single else None,
            stored_offset=single.row.stored_offset if single else None,
            resume_offset=single.resume_offset if single else None,
            until=until[0] if until else None,
            replay_at_most=announced,
            replay_exact=None if None in exact else sum(count or 0 for count in exact),
            source_read=_read(self.here, single),
            destination_read=_read(self.there, single),
            counts={name: int(found.get(name) or 0) for name in COUNTS},
            figures=figures,
            has_gap=any(resumed.row.key in self.gaps for resumed in resumed_rows),
        )


def _read(log: LogExtent | None, resumed: ResumedRow | None) -> ReadOffsets | None:
    found = [s for s in log.stretches if s.resumed is resumed] if log is not None and resumed is not None else []
    return ReadOffsets(found[0].start, found[0].end) if found else None


def _named_by_offset(seen: DataFrame) -> DataFrame:
    """The destination's records from the resume offset on, named by their offsets."""
    named = seen.where(f.col("side").isin(AFTER, BEYOND))
    return named.withColumns({"by": f.lit(OFFSET), "name": offset_name("part", "pos")})


def _source(
    about: AuditedJob, cluster: ClusterAccess | None, since_ms: int | None
) -> tuple[LogExtent | None, str | None]:
    """The source's side, or why there is none."""
    if cluster is None:
        return None, None
    try:
        return look_at_source(about, cluster, since_ms=since_ms), None
    except ReconcilerError as error:
        if not is_dead(error):
            raise
        return None, f"The source did not answer, and was taken for dead: {error.message}"
