"""Tries the failover of one job without touching it: makes the plan, copies its checkpoint, if any, to a temporary
folder, reads a first batch at the destination, and checks that it begins right after the anchors' records. It writes
neither stores nor anchors, and leaves nothing behind.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import Shown, show, show_json, stack, wrap
from reconciler.cli.terminal.report import replay_text
from reconciler.cli.terminal.table import Cell, count_cell, partition_cell, render
from reconciler.clock import stamp
from reconciler.config.file import Config
from reconciler.core.errors import Changed, ConfigError, ExitCode
from reconciler.failover.inputs import refuse_wrong
from reconciler.jobs.drill import AGAIN, FORMAT, Drill, Tried, drill
from reconciler.plan.costs import replay_total
from reconciler.plan.document import PartitionPlan
from reconciler.plan.start import stop_sentences, stopping_sink_sentences

EXAMPLE = "reconciler drill -c reconciler.toml --job clicks"
HELP = Help(
    __doc__,
    [
        ("one job", EXAMPLE),
        ("as JSON", f"{EXAMPLE} --format json"),
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
PREFIX = "reconciler-drill-"
"""The prefix of a drill's temporary folder, which a drill killed with SIGKILL leaves behind."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    arguments.add_config(parser)
    arguments.add_to(parser)
    arguments.add_one_job(parser)
    arguments.add_format(parser)
    parser.add_argument(
        "--temp",
        metavar="DIR",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="the folder for a checkpoint's copy, which is removed (default: the system's temporary folder)",
    )


def run(options: argparse.Namespace) -> ExitCode:
    if not options.temp.is_dir():
        raise ConfigError(f"--temp {options.temp} is not a folder.", hint="Create it, or choose another one.")
    config = context.read_located(options)
    job = context.one_job(config, options.job)
    refuse_wrong(config, [job], sinks=True)
    with TemporaryDirectory(prefix=PREFIX, dir=options.temp) as folder, context.outside(config) as outside:
        done = drill(config, job, outside, Path(folder))
    if options.format == "json":
        show_json(to_json(done, config))
    else:
        show(_text(done, config))
    if done.faults:
        raise Changed(f"The first batch is not as planned: {done.faults[0]}.", hint=AGAIN)
    return ExitCode.OK if done.may_start else ExitCode.NEEDS_PERSON


# ---------------------------------------------------------------- the output


def to_json(done: Drill, config: Config) -> dict[str, Any]:
    """The drill as JSON values, format ``reconciler.drill/1``."""
    return {
        "format": FORMAT,
        "job": done.job.name,
        "may_start": done.may_start,
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


def _text(done: Drill, config: Config) -> Shown:
    job = done.job
    lines = [wrap("", f"drill of job {job.name} · group {job.group} · {job.store}")]
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
