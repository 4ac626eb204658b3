"""``reconciler audit``: count on Spark what a job lost, doubled and reordered over a failover."""

from __future__ import annotations

import argparse
import logging
import tomllib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.cli import arguments, context, outputs
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import say, show, show_json_text
from reconciler.clock import zoned_ms
from reconciler.config.addresses import SINKS_WITH_ROWS, scheme_of, without_secrets
from reconciler.config.file import Config, Job
from reconciler.core.anchors import Identity
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.fileio import refuse_unwritable, write_whole
from reconciler.ports import TopicPartition
from reconciler.spark.session import own_session, spark_message

if TYPE_CHECKING:
    from reconciler.formats.plan import Plan
    from reconciler.spark.audit import Columns, Output
    from reconciler.spark.audit.failovers import StaysResult
    from reconciler.spark.audit.result import AuditResult

EXAMPLE = "reconciler audit -c clicks.toml failover.plan.json --output parquet:/srv/clicks/out --column id=event_id"
HELP = Help(
    """
    Counts, on Spark, what a job lost, doubled and reordered over a failover, from the applied plan, both logs and the
    job's output. The source is compared if it is configured and reachable. With the plans of several failovers, there
    and back, it counts over all of them what the sink lacks, has too often, or has of no record. It writes only its
    results.
    """,
    [
        ("against the job's output", EXAMPLE),
        (
            "without the source, as a page",
            "reconciler audit -c clicks.toml failover.plan.json --no-source --json audit.json",
        ),
        (
            "there and back, with the sink of the configuration",
            "reconciler audit -c clicks.toml failover.plan.json failback.plan.json --column id=event_id",
        ),
    ],
    {
        ExitCode.OK: "clean",
        ExitCode.USAGE: "",
        ExitCode.NEEDS_PERSON: "something was lost, perhaps lost, doubled beyond the plan's bound, or reordered; "
        "or not everything could be compared",
        ExitCode.CHANGED: "a log is not the plan's, or lost records during the audit",
        ExitCode.UNREACHABLE: "the destination is not reachable, or Spark could not finish",
    },
    environment=CONFIG_ENVIRONMENT,
    see_also=("docs/how-to/audit.md", "docs/reference/formats.md"),
)

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "plans", metavar="PLAN", nargs="+", type=Path, help="the applied plan, or all of several failovers"
    )
    arguments.add_config(parser)
    arguments.add_one_job(parser)
    output = parser.add_argument_group("the job's output")
    output.add_argument(
        "--output",
        metavar="FORMAT:PATH",
        help="parquet:PATH, files:PATH, delta:PATH, table:NAME, jdbc:, … (default: the job's sink)",
    )
    arguments.add_repeatable(output, "--option", "an option of that Spark source")
    arguments.add_repeatable(
        output,
        "--column",
        "its column for id; or key and value; or fingerprint; or offset; also topic, partition, order, or "
        "topic_name=TOPIC if there is no such column",
        "FIELD=NAME",
    )
    rules = parser.add_argument_group("what is compared")
    rules.add_argument("--exactly-once", action="store_true", help="the job must not process a record twice")
    rules.add_argument("--unique-ids", action="store_true", help="no two records of the source share an id")
    rules.add_argument(
        "--since", metavar="TIME", help="leave out older records of both logs, like 2026-01-31T06:00:00Z"
    )
    rules.add_argument(
        "--until",
        choices=("end", "stored"),
        default="end",
        help="the job has read to the end of the log (default), or to the offsets in its store",
    )
    rules.add_argument("--no-source", action="store_true", help="do not compare the source, even if it is configured")
    results = parser.add_argument_group("results")
    arguments.add_format(results, "the printed format (default: text)")
    results.add_argument("--json", metavar="FILE", type=Path, help="write the result as JSON")
    results.add_argument("--parquet", metavar="FOLDER", help="write the figures and all findings, with Spark")
    results.add_argument(
        "--examples", type=int, default=10, metavar="N", help="of each kind and partition (default: 10)"
    )
    spark = parser.add_argument_group("Spark")
    arguments.add_repeatable(spark, "--conf", "a setting of the Spark session")
    arguments.add_repeatable(spark, "--kafka-option", "an option of the destination, like kafka.security.protocol=SSL")
    arguments.add_repeatable(spark, "--source-option", "the same for the source")


def run(options: argparse.Namespace) -> ExitCode:
    from reconciler.spark.audit import audit
    from reconciler.spark.audit.failovers import audit_stays
    from reconciler.spark.audit.failovers.stays import is_several
    from reconciler.spark.target import ClusterAccess

    config = context.read_config(options)
    _refuse_unwritable_results(options)
    plans = [context.read_plan(path, applied=True) for path in options.plans]
    job = _job(config, plans, options.job)
    several = is_several(plans)
    how = _rules(options, config, job, plans)
    asked = {name: arguments.pairs(name, getattr(options, name)) for name in ("conf", "kafka_option", "source_option")}
    if options.examples < 0:
        raise ConfigError(f"--examples {options.examples} is below 0.")
    rows = _rows(options, job)
    if several and rows.columns is None:
        raise ConfigError(
            f"Over several failovers the job's output is compared with the logs. {rows.unread or 'None is given.'}",
            hint="Add --output and --column, or sink and sink_columns to the job.",
        )
    with own_session("reconciler audit", asked["conf"], kafka=True, tell=partial(log.info, "%s")) as spark:
        output = _output(spark, options, rows)
        source = config.source.client if config.source is not None and not options.no_source else None
        result: AuditResult | StaysResult
        if several:
            assert output is not None
            clusters = {"destination": ClusterAccess(config.destination.client, asked["kafka_option"])}
            if source is not None:
                clusters["source"] = ClusterAccess(source, asked["source_option"])
            result = audit_stays(spark, plans, clusters=clusters, output=output, sink=rows.shown, **how)
        else:
            result = audit(
                spark,
                plans,
                destination=config.destination.client,
                source=source,
                output=output,
                destination_options=asked["kafka_option"],
                source_options=asked["source_option"],
                **how,
            )
    if rows.unread is not None:
        result = replace(result, unknown=(*result.unknown, rows.unread))
    _give(result, options)
    return result.exit_code


def _refuse_unwritable_results(options: argparse.Namespace) -> None:
    """Raise ConfigError for files that cannot be written: an hour's computation must not be lost for one."""
    if options.json:
        refuse_unwritable(options.json, replaces=outputs.AUDIT, stdout="--format json prints the result.")


def _rules(options: argparse.Namespace, config: Config, job: Job, plans: Sequence[Plan]) -> dict[str, Any]:
    """The arguments that ``audit`` and ``audit_stays`` share: what is compared, and how much of it is reported."""
    from reconciler.spark.audit.result import AT_LEAST_ONCE, EXACTLY_ONCE

    return {
        "id": _id(options.config, job),
        "job": job.name,
        "unique": True if options.unique_ids else "partition" if job.identity.has_unique_ids else None,
        "semantics": EXACTLY_ONCE if options.exactly_once else AT_LEAST_ONCE,
        "since_ms": _since(options.since),
        "until": stored_until(config, job, _last(plans)) if options.until == "stored" else None,
        "examples_of_each": options.examples,
        "parquet": options.parquet,
    }


def _give(result: AuditResult | StaysResult, options: argparse.Namespace) -> None:
    from reconciler.cli.terminal.audit_report import report_of, report_of_stays
    from reconciler.spark.audit.result import AuditResult

    report = report_of(result) if isinstance(result, AuditResult) else report_of_stays(result)
    if options.json:
        write_whole(options.json, result.to_text())
    if options.format == "json":
        show_json_text(result.to_text())
        return
    show(report.text())
    written = [str(path) for path in (options.json, options.parquet) if path]
    if written:
        say(f"Written to {', '.join(written)}")


# ---------------------------------------------------------------- parsed options


def _job(config: Config, plans: Sequence[Plan], name: str | None) -> Job:
    names = {job.name for plan in plans for job in plan.jobs}
    if name is None and len(names) != 1:
        raise ConfigError(f"Which job? The plans hold: {', '.join(sorted(names))}.", hint="Name one with --job.")
    (job,) = config.chosen(name or names.pop())
    return job


def _id(path: Path, job: Job) -> str | Identity:
    """The id as the configuration's text if possible: Spark then reads keys and headers itself, which is faster."""
    tables = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("jobs", [])
    texts = [table.get("identity", {}).get("id", "none") for table in tables if table.get("name") == job.name]
    plain = len(texts) == 1 and "${" not in texts[0] and not texts[0].startswith("file:")
    return texts[0] if plain else job.identity


def _since(text: str | None) -> int | None:
    if text is None:
        return None
    found = zoned_ms(text)
    if found is None:
        raise ConfigError(f"--since {text} is not a time.", hint="Write it with its zone, like 2026-01-31T06:00:00Z.")
    return found


def stored_until(config: Config, job: Job, plans: Sequence[Plan]) -> dict[TopicPartition, int | None]:
    """The job's offsets in its own store, in the destination's numbers; None for a partition that has none there.

    One before the last resume offset is none: it is of an older stay, and the job goes on in another store.
    """
    in_turn = sorted(plans, key=lambda plan: plan.created_at)
    rows = [row for plan in in_turn for row in plan.job(job.name).partitions if row.resume_offset is not None]
    resumed = {row.key: row.resume_offset or 0 for row in rows}
    found: dict[TopicPartition, int | None] = dict.fromkeys(resumed)
    own_name = {row.topic for row in rows if row.topic != row.source_topic}
    with context.outside(config) as world, closing(world.open_store(job.store)) as store:
        stored = store.read(job.group, sorted({row.topic for row in rows}))
    for row in stored:
        anchor = row.stored.anchor
        is_its = row.key.topic in own_name or (anchor is not None and anchor.cluster_id == plans[0].cluster_id)
        if row.key in found and is_its and row.stored.offset >= resumed[row.key]:
            found[row.key] = max(found[row.key] or 0, row.stored.offset)
    return found


def _last(plans: Sequence[Plan]) -> list[Plan]:
    """The plans of the last failover: their offsets are the job's position now."""
    newest = max(plans, key=lambda plan: plan.created_at)
    left = max((plan.created_at for plan in plans if plan.cluster_id != newest.cluster_id), default="")
    return [plan for plan in plans if plan.created_at > left]


@dataclass(frozen=True)
class _Rows:
    """The job's output as it was asked for: its address and columns; or why the configured sink is not read."""

    address: str | None = None
    columns: Columns | None = None
    unread: str | None = None

    @property
    def shown(self) -> str:
        return without_secrets(self.address or "")


def _rows(options: argparse.Namespace, job: Job) -> _Rows:
    """What ``--output`` names, else the job's sink. Raises ConfigError if that is not clear."""
    from reconciler.spark.audit import Columns

    given = arguments.pairs("column", options.column)
    if options.output is not None:
        is_sink = options.output in job.sinks
        return _Rows(options.output, Columns.named(given or (job.sink_columns if is_sink else {})))
    sinks = [sink for sink in job.sinks if scheme_of(sink) in SINKS_WITH_ROWS]
    columns = given or job.sink_columns
    if columns and len(sinks) == 1:
        return _Rows(sinks[0], Columns.named(columns))
    if columns and sinks:
        raise ConfigError(
            f"Which sink? The job has {', '.join(map(without_secrets, sinks))}.", hint="Name one with --output."
        )
    if given or options.option:
        raise ConfigError("--column and --option describe an output, and none is given.", hint="Add --output.")
    if sinks:
        shown = ", ".join(map(without_secrets, sinks))
        return _Rows(unread=f"The sink {shown} was not read: no column of it is named (sink_columns, or --column).")
    return _Rows()


def _output(spark: Any, options: argparse.Namespace, rows: _Rows) -> Output | None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException

    from reconciler.spark.audit import Output
    from reconciler.spark.audit.sink_rows import sink_rows

    if rows.columns is None or rows.address is None:
        return None
    more = arguments.pairs("option", options.option)
    if scheme_of(rows.address) in SINKS_WITH_ROWS:
        return Output(sink_rows(spark, rows.address, rows.columns, more), rows.columns)
    kind, mark, path = rows.address.partition(":")
    if not mark or not kind:
        raise ConfigError(f"--output {rows.address} is not FORMAT:PATH.", hint="For example: parquet:/srv/clicks/out")
    try:
        if kind == "table":
            return Output(spark.table(path), rows.columns)
        reader = spark.read.format(kind).options(**more)
        return Output(reader.load(path) if path else reader.load(), rows.columns)
    except (AnalysisException, Py4JError) as error:  # the second one for a format that Spark does not know
        reason = spark_message(error)
        raise ConfigError(f"The output cannot be read: {reason}.", hint="Correct --output or --option.") from error
