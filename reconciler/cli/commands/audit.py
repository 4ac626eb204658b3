"""Counts, on Spark, what a job lost and doubled over its failovers, from the applied plans, the clusters' logs and the
job's output. The source is compared if it is configured. Without an output, it counts what the job's offsets skip
and repeat. It writes only its results.
"""

from __future__ import annotations

import argparse
import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import Shown, line, say, show, show_json_text, stack, wrap
from reconciler.cli.terminal.table import Cell, count_cell, render
from reconciler.config.addresses import SINKS_WITH_ROWS, scheme_of, without_secrets
from reconciler.config.file import Config, Job
from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import ConfigError, ExitCode
from reconciler.failover.writing.plan_checks import directed
from reconciler.fileio import FileKind, refuse_unwritable, write_whole
from reconciler.spark.session import own_session

if TYPE_CHECKING:
    from reconciler.plan.document import Plan
    from reconciler.spark.audit import Columns
    from reconciler.spark.audit.result import AuditResult, Example, PartitionResult

AUDIT = FileKind("an audit's result", re.compile(rb'\{"clusters":\['))
"""The only kind of file that a result replaces: canonical JSON that begins with this key."""
EXAMPLE = "reconciler audit -c clicks.toml failover.plan.json --output parquet:/srv/clicks/out --column id=event_id"
HELP = Help(
    __doc__,
    [
        ("against the job's output", EXAMPLE),
        ("the source is gone", f"{EXAMPLE} --no-source --json audit.json"),
        (
            "there and back",
            "reconciler audit -c clicks.toml failover.plan.json failback.plan.json --column id=event_id",
        ),
    ],
    {
        ExitCode.OK: "clean",
        ExitCode.USAGE: "",
        ExitCode.NEEDS_PERSON: "something was lost, perhaps lost, or doubled beyond the plans' bounds; "
        "or not everything could be compared",
        ExitCode.CHANGED: "a log is not the plans', or lost records during the audit",
        ExitCode.UNREACHABLE: "a cluster that is needed is not reachable, or Spark could not finish",
    },
    environment=CONFIG_ENVIRONMENT,
    see_also=("docs/how-to/audit.md", "docs/reference/formats.md"),
)
HEADS = ("partition", "records", "rows", "lost", "possibly", "doubled", "announced", "beyond", "of no record")
_FIGURES = ("lost", "possibly_lost", "doubled", "doubled_as_announced", "doubled_beyond", "unknown_rows")

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plans", metavar="PLAN", nargs="+", type=Path, help="the applied plan of each failover")
    arguments.add_config(parser)
    arguments.add_one_job(parser)
    output = parser.add_argument_group("the job's output")
    output.add_argument(
        "--output",
        metavar="FORMAT:PATH",
        help="parquet:PATH, files:PATH, delta:PATH, table:NAME, jdbc:, … (default: the job's sink)",
    )
    arguments.add_repeatable(output, "--option", "an option of that Spark source")
    columns = "its column for id; or key and value; also topic and partition"
    arguments.add_repeatable(output, "--column", columns, "FIELD=NAME")
    rules = parser.add_argument_group("what is compared")
    rules.add_argument("--exactly-once", action="store_true", help="the job must not process a record twice")
    rules.add_argument("--unique-ids", action="store_true", help="no two records of the job share an id")
    rules.add_argument("--since", metavar="TIME", help="leave out older records, like 2026-01-31T06:00:00Z")
    rules.add_argument("--no-source", action="store_true", help="do not read the source, though it is configured")
    results = parser.add_argument_group("results")
    arguments.add_format(results, "the printed format (default: text)")
    results.add_argument("--json", metavar="FILE", type=Path, help="write the result as JSON")
    spark = parser.add_argument_group("Spark")
    arguments.add_repeatable(spark, "--conf", "a setting of the Spark session")
    arguments.add_repeatable(spark, "--kafka-option", "an option of the destination, like kafka.security.protocol=SSL")
    arguments.add_repeatable(spark, "--source-option", "the same for the source")


def run(options: argparse.Namespace) -> ExitCode:
    from reconciler.spark.audit import Output, audit
    from reconciler.spark.audit.output import sink_rows, spark_rows

    config = context.read_config(options)
    if options.json:  # an hour's computation must not be lost for it
        refuse_unwritable(options.json, replaces=AUDIT, stdout="--format json prints the result.")
    plans = [context.read_plan(path, applied=True) for path in options.plans]
    config = directed(config, min(plans, key=lambda plan: plan.created_at))
    job = _job(config, plans, options.job)
    given = {name: arguments.pairs(name, getattr(options, name)) for name in ("conf", "kafka_option", "source_option")}
    more, address, columns = arguments.pairs("option", options.option), *_rows(options, job)
    since_ms = None if options.since is None else arguments.time_ms_of("--since", options.since)
    source = None if config.source is None or options.no_source else config.source.client
    with own_session("reconciler audit", given["conf"], tell=partial(log.info, "%s")) as spark:
        output = None
        if address is not None and columns is not None:
            is_sink = scheme_of(address) in SINKS_WITH_ROWS
            rows = sink_rows(spark, address, more) if is_sink else spark_rows(spark, address, more)
            output = Output(rows, columns, without_secrets(address))
        result = audit(
            spark,
            plans,
            destination=config.destination.client,
            source=source,
            output=output,
            id=job.identity,
            job=job.name,
            unique=options.unique_ids,
            exactly_once=options.exactly_once,
            since_ms=since_ms,
            destination_options=given["kafka_option"],
            source_options=given["source_option"],
        )
    _tell(_with_unread(result, address, columns), options)
    return result.exit_code


def _with_unread(result: AuditResult, address: str | None, columns: Columns | None) -> AuditResult:
    """The result, with a note if the job's sink was not read."""
    if address is None or columns is not None:
        return result
    unread = f"The sink {without_secrets(address)} was not read: no column of it is named (sink_columns, --column)."
    return replace(result, notes=(*result.notes, unread))


def _tell(result: AuditResult, options: argparse.Namespace) -> None:
    """Print the result, and write it to the files that the options name."""
    if options.json:
        write_whole(options.json, result.to_text())
    if options.format == "json":
        show_json_text(result.to_text())
        return
    show(report(result))
    if options.json:
        say(f"Written to {options.json}")


# ---------------------------------------------------------------- parsed options


def _job(config: Config, plans: Sequence[Plan], name: str | None) -> Job:
    names = {job.name for plan in plans for job in plan.jobs}
    if name is None and len(names) != 1:
        raise ConfigError(f"Which job? The plans hold: {', '.join(sorted(names))}.", hint="Name one with --job.")
    (job,) = config.chosen(name or names.pop())
    return job


def _rows(options: argparse.Namespace, job: Job) -> tuple[str | None, Columns | None]:
    """The address of the job's output, and its columns: what ``--output`` names, else the job's sink. An address
    without columns is a sink that cannot be read. Raises ConfigError if it is not clear."""
    from reconciler.spark.audit import Columns

    given = arguments.pairs("column", options.column)
    if options.output is not None:
        is_sink = options.output in job.sinks
        return options.output, Columns.named(given or (job.sink_columns if is_sink else {}))
    sinks = [sink for sink in job.sinks if scheme_of(sink) in SINKS_WITH_ROWS]
    columns = given or job.sink_columns
    if columns and len(sinks) > 1:
        raise ConfigError(
            f"Which sink? The job has {', '.join(map(without_secrets, sinks))}.", hint="Name one with --output."
        )
    if not sinks and (given or options.option):
        raise ConfigError("--column and --option describe an output, and none is given.", hint="Add --output.")
    return next(iter(sinks), None), Columns.named(columns) if columns and sinks else None


# ---------------------------------------------------------------- as text


def report(result: AuditResult, *, columns: int | None = None, colour: bool | None = None) -> Shown:
    """The table, then the figures, examples, what was compared and what was not."""
    rows = [_cells(each, result) for each in result.partitions]
    table = render(HEADS, rows, right=frozenset(range(1, len(HEADS))), columns=columns, colour=colour)
    parts = [table, line(""), wrap(f"{result.verdict}: {_sum(result)}", columns=columns)]
    lists = {
        "for example": [_example(each) for each in result.examples],
        "compared": [_sides(result)],
        "not compared": [each.text for each in result.uncompared],
        "to know": result.notes,
    }
    for head, sentences in lists.items():
        if sentences:
            lines = (f"  {sentence}" for sentence in sentences)
            parts.append(wrap("", f"{head}:", *lines, indent="    ", columns=columns))
    return stack(*parts)


def _cells(row: PartitionResult, result: AuditResult) -> list[Cell]:
    bad = {"lost", "possibly_lost", "doubled_beyond", *(["unknown_rows"] if result.rows_must_match else [])}
    figures = [count_cell(row.figures[name], "bad" if row.figures[name] and name in bad else None) for name in _FIGURES]
    is_good = not row.not_compared and not any(row.figures[name] for name in bad)
    rows = row.rows if result.output is not None else None
    return [Cell(row.name, "good" if is_good else "bad"), count_cell(max(row.compared)), count_cell(rows), *figures]


def _sum(result: AuditResult) -> str:
    totals = result.totals
    unread = f" ({totals['lost_unread']:,} of them read by no stay)" if totals["lost_unread"] else ""
    possibly = f", {totals['possibly_lost']:,} possibly lost" if totals["possibly_lost"] else ""
    doubled = f"{totals['doubled']:,} doubled ({totals['doubled_as_announced']:,} of them announced by the plans)"
    return f"{totals['lost']:,} lost{unread}{possibly}, {doubled}, {totals['unknown_rows']:,} rows of no record."


def _sides(result: AuditResult) -> str:
    sides = [f"{each.compared:,} records of cluster {each.name}" for each in result.clusters]
    if result.output is not None:
        sides.append(f"{result.output.compared:,} rows of {result.output.name}")
    return f"{', '.join(sides)}, over {len(result.stays)} stays. Records are distinguished by {result.told_apart_by}."


def _example(example: Example) -> str:
    count = f", {example.count:,} times" if example.count > 1 else ""
    id_hash = f", id {example.id_hash}" if example.id_hash else ""
    places = [
        f"{TopicPartition(at.topic, at.partition)} at {at.offset:,} of cluster {at.cluster_id}" for at in example.places
    ]
    return f"{example.kind.replace('_', ' ')}: {', '.join(places) or 'in no log'}{count}{id_hash}"
