"""``reconciler audit``: count on Spark what a job lost, doubled and reordered over a failover."""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.config.file import Config, Job
from reconciler.core.anchors import Identity, IdOrder
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.fileio import write_whole
from reconciler.ports import TopicPartition
from reconciler.spark.session import own_session

if TYPE_CHECKING:
    from reconciler.formats.plan import Plan
    from reconciler.spark.audit import Columns, Output
    from reconciler.spark.audit.result import AuditResult

EXAMPLE = "reconciler audit -c clicks.toml failover.plan.json --output parquet:/srv/clicks/out --column id=event_id"
HELP = Help(
    """
    Counts, on Spark, what a job lost, doubled and reordered over a failover, from the applied plan, both logs and the
    job's output. The source is compared if it is configured and reachable. It writes only its results.
    """,
    [
        ("against the job's output", EXAMPLE),
        (
            "without the source, as a page",
            "reconciler audit -c clicks.toml failover.plan.json --no-source --html audit.html",
        ),
    ],
    {
        ExitCode.OK: "clean",
        ExitCode.USAGE: "",
        ExitCode.NEEDS_PERSON: "something was lost, perhaps lost, doubled beyond the plan's bound, or reordered; "
        "or there was nothing to compare",
        ExitCode.CHANGED: "a log is not the plan's, or lost records during the audit",
        ExitCode.UNREACHABLE: "the destination is not reachable, or Spark could not finish",
    },
    environment=CONFIG_ENVIRONMENT,
    see_also=("docs/how-to/audit.md", "docs/reference/formats.md"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plans", metavar="PLAN", nargs="+", type=Path, help="the applied plan (or plans)")
    arguments.add_config(parser)
    arguments.add_one_job(parser)
    output = parser.add_argument_group("the job's output")
    output.add_argument("--output", metavar="FORMAT:PATH", help="parquet:PATH, delta:PATH, table:NAME, jdbc:, …")
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
    results.add_argument("--html", metavar="FILE", type=Path, help="write the result as one self-contained page")
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
    from reconciler.spark.audit.result import AT_LEAST_ONCE, EXACTLY_ONCE

    config = context.read_config(options)
    plans = [context.read_plan(path) for path in options.plans]
    job = _job(config, plans, options.job)
    since_ms, until = _since(options.since), _until(config, job, plans) if options.until == "stored" else None
    asked = {name: arguments.pairs(name, getattr(options, name)) for name in ("conf", "kafka_option", "source_option")}
    if options.examples < 0:
        raise ConfigError(f"--examples {options.examples} is below 0.")
    columns = _columns(options)
    _require_folders(options)
    with own_session("reconciler audit", asked["conf"], kafka=True, tell=_on_stderr) as spark:
        result = audit(
            spark,
            plans,
            destination=config.destination.client,
            source=config.source.client if config.source is not None and not options.no_source else None,
            output=_output(spark, options, columns),
            id=_id(options.config, job),
            job=job.name,
            unique=True if options.unique_ids or job.identity.id_order is IdOrder.INCREASING else None,
            semantics=EXACTLY_ONCE if options.exactly_once else AT_LEAST_ONCE,
            since_ms=since_ms,
            until=until,
            examples_of_each=options.examples,
            parquet=options.parquet,
            destination_options=asked["kafka_option"],
            source_options=asked["source_option"],
        )
    _give(result, options)
    return result.exit_code


def _give(result: AuditResult, options: argparse.Namespace) -> None:
    from reconciler.cli.page.audit_report import audit_page, audit_text
    from reconciler.cli.terminal.table import wants_colour, width

    if options.json:
        write_whole(options.json, result.to_text())
    if options.html:
        write_whole(options.html, audit_page(result))
    if options.format == "json":
        print(result.to_text(), end="")
        return
    print(audit_text(result, columns=width(), colour=wants_colour()))
    written = [str(path) for path in (options.json, options.html, options.parquet) if path]
    if written:
        print(f"Written to {', '.join(written)}")


# ---------------------------------------------------------------- parsed options


def _job(config: Config, plans: Sequence[Plan], name: str | None) -> Job:
    names = {job.name for plan in plans for job in plan.jobs}
    if name is None and len(names) != 1:
        raise ConfigError(f"Which job? The plans hold: {', '.join(sorted(names))}.", hint="Name one with --job.")
    (job,) = config.chosen(name or names.pop())
    return job


def _id(path: Path, job: Job) -> str | Identity:
    """The id as the configuration's text if possible: Spark then reads keys and headers itself, which is faster."""
    tables = tomllib.loads(path.read_text(encoding="utf-8")).get("jobs", [])
    texts = [table.get("identity", {}).get("id", "none") for table in tables if table.get("name") == job.name]
    plain = len(texts) == 1 and "${" not in texts[0] and not texts[0].startswith("file:")
    return texts[0] if plain else job.identity


def _since(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ConfigError(f"--since {text} is not a time.", hint="Write it with its zone, like 2026-01-31T06:00:00Z.")
    return int(moment.timestamp() * 1000)


def _until(config: Config, job: Job, plans: Sequence[Plan]) -> dict[TopicPartition, int]:
    """The job's offsets in its own store, as far as they are in the destination's numbers."""
    rows = [row for plan in plans for row in plan.job(job.name).partitions if row.resume_offset is not None]
    found = {row.key: row.resume_offset or 0 for row in rows}
    own_name = {row.topic for row in rows if row.topic != row.source_topic}
    with context.outside(config) as world:
        store = world.open_store(job.store)
        try:
            stored = store.read(job.group, sorted({row.topic for row in rows}))
        finally:
            store.close()
    for row in stored:
        anchor = row.stored.anchor
        is_its = row.key.topic in own_name or (anchor is not None and anchor.cluster_id == plans[0].cluster_id)
        if row.key in found and is_its:
            found[row.key] = max(found[row.key], row.stored.offset)
    return found


def _columns(options: argparse.Namespace) -> Columns | None:
    from reconciler.spark.audit import Columns

    given = arguments.pairs("column", options.column)
    if options.output is not None:
        return Columns.named(given)
    if given or options.option:
        raise ConfigError("--column and --option describe an output, and none is given.", hint="Add --output.")
    return None


def _output(spark: Any, options: argparse.Namespace, columns: Columns | None) -> Output | None:
    from pyspark.errors import AnalysisException

    from reconciler.spark.audit import Output

    if columns is None:
        return None
    kind, mark, path = options.output.partition(":")
    if not mark or not kind:
        raise ConfigError(f"--output {options.output} is not FORMAT:PATH.", hint="For example: parquet:/srv/clicks/out")
    try:
        if kind == "table":
            return Output(spark.table(path), columns)
        reader = spark.read.format(kind).options(**arguments.pairs("option", options.option))
        return Output(reader.load(path) if path else reader.load(), columns)
    except AnalysisException as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"The output cannot be read: {reason}", hint="Correct --output or --option.") from error


def _require_folders(options: argparse.Namespace) -> None:
    """Check the results' folders first: an hour's computation must not be lost for a missing one."""
    for path in (options.json, options.html):
        if path is not None and not path.absolute().parent.is_dir():
            raise ConfigError(f"There is no folder for {path}.", hint="Create it first.")


def _on_stderr(text: str) -> None:
    print(text, file=sys.stderr)
