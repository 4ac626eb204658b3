"""Tries the failover of one job without touching it: makes the plan, copies its checkpoint, if any, to a temporary
folder, reads a first batch at the destination, and compares it with the records after the anchors. It writes
neither stores nor anchors, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import logging
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import Shown, line, show, show_json, stack, wrap
from reconciler.cli.terminal.report import replay_text
from reconciler.cli.terminal.table import Cell, count_cell, partition_cell, render
from reconciler.clock import stamp
from reconciler.config.file import Config
from reconciler.core.errors import Changed, ConfigError, ExitCode
from reconciler.failover.corrections import replay_total
from reconciler.failover.inputs import refuse_wrong
from reconciler.plan.document import PartitionPlan
from reconciler.plan.start import stop_sentences, stopping_sink_sentences
from reconciler.ports import LogReader
from reconciler.spark.drill import (
    AGAIN,
    FORMAT,
    RECORDS,
    BatchReader,
    Drill,
    Tried,
    by_spark,
    drill,
    spark_session,
)

EXAMPLE = "reconciler drill -c reconciler.toml --job clicks"
HELP = Help(
    __doc__,
    [
        ("with Spark", EXAMPLE),
        ("with Kafka's client, as JSON", f"{EXAMPLE} --no-spark --format json"),
    ],
    {
        ExitCode.OK: "the job could fail over, with or without corrections",
        ExitCode.USAGE: "",
        ExitCode.NEEDS_PERSON: "it could not: a partition needs a decision, or a sink would lose or double records",
        ExitCode.CHANGED: "the first batch is not as planned, or something changed during the drill",
        ExitCode.UNREACHABLE: "a cluster or store could not be reached, or refused",
    },
    environment=CONFIG_ENVIRONMENT,
    see_also=("docs/how-to/drill.md", "reconciler plan"),
)
HEADS = ("PARTITION", "FINDING", "RESUME", "AGAIN", "READ", "FIRST", "ITS TIME", "FOUND")
RIGHT = frozenset({2, 3, 4, 5})
MOST_RECORDS = 100_000
CLIENT = "Kafka's client"
PREFIX = "reconciler-drill-"
"""Of a temporary folder. A drill that is killed with SIGKILL leaves its own behind."""

log = logging.getLogger("reconciler.drill")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    arguments.add_to(parser)
    arguments.add_one_job(parser)
    arguments.add_format(parser)
    parser.add_argument(
        "--records", metavar="N", type=int, default=RECORDS, help=f"read N offsets a partition (default: {RECORDS})"
    )
    parser.add_argument("--no-spark", action="store_true", help="read the first batch with Kafka's client")
    arguments.add_repeatable(parser, "--option", "an option of Spark's Kafka source, like kafka.security.protocol=SSL")
    parser.add_argument(
        "--temp",
        metavar="DIR",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="the folder for a checkpoint's copy, which is removed (default: the system's temporary folder)",
    )


def run(options: argparse.Namespace) -> ExitCode:
    if not 1 <= options.records <= MOST_RECORDS:
        raise ConfigError(f"--records {options.records} is not a number from 1 to {MOST_RECORDS:,}.")
    if not options.temp.is_dir():
        raise ConfigError(f"--temp {options.temp} is not a folder.", hint="Create it, or choose another one.")
    config = context.read_located(options)
    job = context.one_job(config, options.job)
    refuse_wrong(config, [job], sinks=True)
    with TemporaryDirectory(prefix=PREFIX, dir=options.temp) as folder, ExitStack() as until_the_end:
        place = Path(folder)
        outside = until_the_end.enter_context(context.outside(config))
        given = arguments.pairs("option", options.option)
        batch, reader = _first_batch(config, options, given, place, until_the_end)
        committed = None if batch is None else _committed(config, given, until_the_end)
        done = drill(config, job, outside, place, batch=batch, committed=committed, records=options.records)
    if options.format == "json":
        show_json(to_json(done, reader, config))
    else:
        show(_text(done, reader, config))
    if done.faults:
        raise Changed(f"The first batch is not as planned: {done.faults[0]}.", hint=AGAIN)
    return ExitCode.OK if done.may_start else ExitCode.NEEDS_PERSON


def _first_batch(
    config: Config, options: argparse.Namespace, given: Mapping[str, str], place: Path, until_the_end: ExitStack
) -> tuple[BatchReader | None, str]:
    """The reader of the first batch, and its name. Spark starts only when there is something to read."""
    if options.no_spark:
        return None, CLIENT
    if importlib.util.find_spec("pyspark") is None:
        log.info("pyspark is not installed: the first batch is read with Kafka's client")
        return None, CLIENT
    if set(config.destination.client) - {"bootstrap.servers"} and not given:
        log.warning(
            f"[clusters.{config.there}.client] has settings with other names in Spark: give them as --option "
            "kafka.NAME=VALUE. The first batch is read with Kafka's client"
        )
        return None, CLIENT

    def read(ranges: Mapping) -> Mapping:  # type: ignore[type-arg]
        if not ranges:
            return {}
        session = until_the_end.enter_context(spark_session(place))
        return by_spark(session, config.destination.bootstrap_servers, given)(ranges)

    return read, f"Spark {importlib.metadata.version('pyspark')}"


def _committed(config: Config, given: Mapping[str, str], until_the_end: ExitStack) -> LogReader | None:
    """The destination's log as Spark sees it, if its options leave out records of aborted and open transactions."""
    from reconciler.spark.batches.reading import ClusterAccess, reads_committed

    if not reads_committed(given):
        return None
    cluster = ClusterAccess(config.destination.client)
    reader = cluster.reader("destination", committed_only=True, deadline_s=config.search.deadline_s)
    until_the_end.callback(reader.close)
    return reader


# ---------------------------------------------------------------- the output


def to_json(done: Drill, reader: str, config: Config) -> dict[str, Any]:
    """The drill as JSON values, format ``reconciler.drill/1``."""
    return {
        "format": FORMAT,
        "job": done.job.name,
        "may_start": done.may_start,
        "read_with": reader,
        "partitions": [
            {
                "topic": each.row.topic,
                "partition": each.row.partition,
                "finding": each.row.finding.value,
                "resume_offset": each.row.resume_offset,
                "replay": {"at_most": each.row.replay_at_most, "exact": each.row.replay_exact},
                "stopped": each.stopped,
                "starts_at": each.starts_at,
                "read": len(each.read),
                "first": {"offset": each.first.offset, "timestamp_ms": each.first.timestamp_ms} if each.first else None,
                "found": each.found,
                "fault": each.fault,
            }
            for each in done.partitions
        ],
        "stops": _stops(done, config),
        "checkpoint": done.copy.to_json() if done.copy is not None else None,
        "plan": done.checked.shown(config.policy.start).to_json(),
    }


def _stops(done: Drill, config: Config) -> list[str]:
    """Why the job must not start, in sentences."""
    rows = [each for each in done.stops if isinstance(each, PartitionPlan)]
    return [*stop_sentences(rows, config.policy.start), *stopping_sink_sentences(done.job.sinks)]


def _text(done: Drill, reader: str, config: Config) -> Shown:
    job = done.job
    lines = [wrap("", f"drill of job {job.name} · group {job.group} · {job.store}"), line(f"first batch: {reader}")]
    rows = [_cells(each) for each in done.partitions]
    if rows:
        lines.append(render(HEADS, rows, right=RIGHT))
    lines += [wrap(f"  {text}", indent="    ") for text in _stops(done, config)]
    lines += [wrap(f"  {fault}.", indent="    ") for fault in done.faults]
    if done.copy is not None:
        lines.append(wrap(_copy_text(done)))
    return stack(*lines, wrap("", _summary(done)))


def _cells(each: Tried) -> tuple[Cell, ...]:
    row, first = each.row, each.first
    tone = "bad" if each.stopped or each.fault else "good"
    at = stamp(first.timestamp_ms) if first is not None and first.timestamp_ms is not None else "-"
    return (
        partition_cell(row),
        Cell(row.finding.value, tone),
        count_cell(row.resume_offset),
        Cell(replay_text(row)),
        count_cell(len(each.read)),
        count_cell(first.offset if first else None),
        Cell(at),
        Cell("NOT AS PLANNED" if each.fault else each.found, "bad" if each.fault else "dim"),
    )


def _copy_text(done: Drill) -> str:
    copy = done.copy
    assert copy is not None
    how = "again" if copy.found.repeats_a_batch else "next"
    sources = ", ".join(source.name for source in copy.found.positions)
    return (
        f"A copy of the checkpoint, already removed, runs batch {copy.found.next_batch} {how} · source {sources} · "
        f"state: {'copied' if copy.is_stateful else 'none'}"
    )


def _summary(done: Drill) -> str:
    if done.faults:
        return "The first batch is not as planned. Nothing was written."
    if not done.may_start:
        return f"The job could not fail over: {done.checked.why_not}. Nothing was written."
    behind = "" if any(each.read for each in done.partitions) else " (there is nothing to read yet)"
    return f"The job could fail over{behind}: {replay_total(done.plan)} would be read again. Nothing was written."
