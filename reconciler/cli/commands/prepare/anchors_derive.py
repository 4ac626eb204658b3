"""``reconciler anchors derive``: anchors read, on Spark, from what a job has written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from reconciler.cli import arguments
from reconciler.config.file import Job
from reconciler.core.errors import ConfigError, Refused
from reconciler.formats.anchor_lines import AnchorLine
from reconciler.spark.session import own_session

ATOMIC_FORMATS = ("delta", "iceberg", "hudi")
"""Formats whose writes are seen whole or not at all."""
COMMIT_LOG = "_spark_metadata"
"""Where Structured Streaming's file sink keeps its list of whole batches, which readers go by."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="output", metavar="OUTPUT", help="path (or table, with --format table)")
    parser.add_argument("--format", default="parquet", help="a Spark source: parquet (default), jdbc, table, delta, …")
    for name, what in (("option", "an option of the source"), ("conf", "a setting of the Spark session")):
        parser.add_argument(f"--{name}", metavar="NAME=VALUE", action="append", default=[], help=f"{what} (repeatable)")
    parser.add_argument(
        "--column",
        metavar="FIELD=NAME",
        action="append",
        default=[],
        help="the output's column for topic, partition, offset, timestamp, id, key, value or batch; "
        "also topic_name=TOPIC where no column says it, and unit=s|ms|us|ns (repeatable)",
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="the job writes each batch whole or not at all: said by you, where nothing else says so",
    )
    parser.add_argument("--cluster-id", metavar="ID", help="the source cluster's id, if it is known")
    parser.add_argument("--into-store", action="store_true", help="write to the job's store, as import does")


def derived(jobs: Sequence[Job], options: argparse.Namespace) -> list[AnchorLine]:
    """The lines of one job. Raises ConfigError for what cannot be read, or may have been cut off within a batch."""
    from reconciler.spark.derive import Columns, derive, topics_in

    if len(jobs) != 1:
        raise ConfigError("An output is one job's.", hint="Name the job with --job.")
    if options.into_store and options.path is not None:
        raise ConfigError("The lines go to the store or to a file.", hint="Leave out --into-store or PATH.")
    (job,), columns = jobs, Columns.named(arguments.pairs("column", options.column))
    if columns.batch is None and not options.whole:
        _require_whole(options)
    with own_session("reconciler anchors derive", arguments.pairs("conf", options.conf)) as spark, _told():
        output = _read(spark, options)
        lines = derive(
            output,
            group=job.group,
            columns=columns,
            topics=job.topics,
            identity=job.identity,
            cluster_id=options.cluster_id,
        )
        others = sorted(set(topics_in(output, columns)) - set(job.topics))
    _tell(job, lines, others, left_out=columns.batch is not None)
    return lines


def _tell(job: Job, lines: Sequence[AnchorLine], others: Sequence[str], *, left_out: bool) -> None:
    """What was found, and what an output cannot know, on stderr."""
    if not lines:
        raise ConfigError(
            f'The output has no record of {", ".join(job.topics)}, the topics of job "{job.name}"'
            + (f"; it has {', '.join(others)}." if others else "."),
            hint="Name the column with the topic (--column topic=NAME), or the topic (--column topic_name=TOPIC).",
        )
    said = [f"{len(lines):,} partitions found in the output."]
    if others:
        said.append(f"Topics that are not this job's were left out: {', '.join(others)}.")
    if left_out:
        said.append("The newest batch was left out, and will be read again.")
    if any(line.stored.anchor and not line.stored.anchor.names_a_record for line in lines):
        said.append("Without an id, or key and value, records can only be told apart by their time.")
    said.append(
        "Partitions without a record in the output have no line, and start as [policy] new says; records behind the "
        "last one that the job had read and not written are read again."
    )
    print(" ".join(said), file=sys.stderr)


def _require_whole(options: argparse.Namespace) -> None:
    """Resuming behind the last record of a batch that was cut off would skip what that batch lacks."""
    if options.format in ATOMIC_FORMATS:
        return
    if options.output is not None and options.format not in ("jdbc", "table"):
        from reconciler.folder import open_folder

        if open_folder(options.output).names(COMMIT_LOG):
            return
    raise ConfigError(
        "Nothing says that the output holds whole batches: the last one may have been cut off, and what it lacks would "
        "be skipped.",
        hint="Name a column that grows with each batch (--column batch=NAME): the newest is left out. Or say --whole, "
        "if the job writes each batch in one transaction.",
    )


def _read(spark: Any, options: argparse.Namespace) -> Any:
    if options.format == "table":
        return spark.table(options.output)
    reader = spark.read.format(options.format).options(**arguments.pairs("option", options.option))
    return reader.load(options.output) if options.output is not None else reader.load()


@contextmanager
def _told() -> Iterator[None]:
    """What Spark says of the output, as a sentence."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException, PySparkException

    try:
        yield
    except AnalysisException as error:
        raise ConfigError(
            f"The output cannot be read: {_first_line(error)}", hint="Correct --from, --format or --option."
        ) from error
    except (PySparkException, Py4JError) as error:
        raise Refused(
            f"Spark could not read the output: {_first_line(getattr(error, 'java_exception', None) or error)}",
            hint="See that what it lives in can be reached from here, and that --conf brings the packages it needs.",
        ) from error


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or ["it did not say why."])[0]
