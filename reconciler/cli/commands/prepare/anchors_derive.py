"""``reconciler anchors derive``: compute anchors, on Spark, from a job's output."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from reconciler.cli import arguments
from reconciler.config.file import Job
from reconciler.core.errors import ConfigError
from reconciler.formats.anchor_lines import AnchorLine
from reconciler.formats.decimal_text import counted
from reconciler.spark.session import own_session, refused, spark_message

ATOMIC_FORMATS = ("delta", "iceberg", "hudi")
"""Formats with atomic writes."""
COMMIT_LOG = "_spark_metadata"
"""The folder in which Structured Streaming's file sink lists complete batches; readers use that list."""

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="output", metavar="OUTPUT", help="its path (or table, with --format table)")
    parser.add_argument("--format", default="parquet", help="a Spark source: parquet (default), jdbc, table, delta, …")
    arguments.add_repeatable(parser, "--option", "an option of the source")
    arguments.add_repeatable(parser, "--conf", "a setting of the Spark session")
    arguments.add_repeatable(
        parser,
        "--column",
        "the output's column for topic, partition, offset, timestamp, id, key, value or batch; "
        "also topic_name=TOPIC if there is no such column, and unit=s|ms|us|ns",
        "FIELD=NAME",
    )
    parser.add_argument(
        "--whole",
        action="store_true",
        help="you confirm that the job writes each batch atomically, if nothing else proves it",
    )
    parser.add_argument("--cluster-id", metavar="ID", help="the source cluster's id, if it is known")
    parser.add_argument("--into-store", action="store_true", help="write to the job's store, as import does")


def derived(jobs: Sequence[Job], options: argparse.Namespace) -> list[AnchorLine]:
    """The lines of one job. Raises ConfigError for an output that cannot be read, or may end within a batch."""
    from reconciler.spark.derive import Columns, derive, topics_in

    if len(jobs) != 1:
        raise ConfigError("An output belongs to one job.", hint="Name the job with --job.")
    if options.into_store and options.path is not None:
        raise ConfigError("The lines go either to the store or to a file.", hint="Leave out --into-store or PATH.")
    (job,), columns = jobs, Columns.named(arguments.pairs("column", options.column))
    if columns.batch is None and not options.whole:
        _require_whole(options)
    with own_session("reconciler anchors derive", arguments.pairs("conf", options.conf)) as spark, _spark_errors():
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
    _report(job, lines, others, left_out=columns.batch is not None)
    return lines


def _report(job: Job, lines: Sequence[AnchorLine], others: Sequence[str], *, left_out: bool) -> None:
    """Print the findings and their limits on stderr. Raises ConfigError if there are no lines."""
    if not lines:
        raise ConfigError(
            f'The output has no record of {", ".join(job.topics)}, the topics of job "{job.name}"'
            + (f"; it has {', '.join(others)}." if others else "."),
            hint="Name the column with the topic (--column topic=NAME), or the topic (--column topic_name=TOPIC).",
        )
    sentences = [f"{counted(len(lines), 'partition')} found in the output."]
    if others:
        sentences.append(f"Topics of other jobs were left out: {', '.join(others)}.")
    if left_out:
        sentences.append(
            "The newest batch of each topic was left out, with earlier ones that hold some of its records, and will be "
            "read again."
        )
    if any(line.stored.anchor and not line.stored.anchor.names_a_record for line in lines):
        sentences.append("Without an id, or key and value, records can only be identified by their time.")
    sentences.append(
        "Partitions without a record in the output have no line, and start by [policy] new; records that the job had "
        "read and not yet written are read again."
    )
    sentences.append(
        "If the query holds records back in its state (a join of two streams, an aggregation in append mode, arbitrary "
        "state), do not use these lines: a job that starts at them would skip what waits there."
    )
    log.info("%s", " ".join(sentences))


def _require_whole(options: argparse.Namespace) -> None:
    """Raises ConfigError for an output that may end within a batch: resuming after its last record could skip."""
    if options.format in ATOMIC_FORMATS:
        return
    if options.output is not None and options.format not in ("jdbc", "table"):
        from reconciler.folder import open_folder

        if open_folder(options.output).names(COMMIT_LOG):
            return
    raise ConfigError(
        "The output may end within a batch, whose missing records would be skipped: nothing proves that its batches "
        "are complete.",
        hint="Name a column that grows with each batch (--column batch=NAME): the newest is left out. Or add "
        "--whole, if the job writes each batch in one transaction.",
    )


def _read(spark: Any, options: argparse.Namespace) -> Any:
    if options.format == "table":
        return spark.table(options.output)
    reader = spark.read.format(options.format).options(**arguments.pairs("option", options.option))
    return reader.load(options.output) if options.output is not None else reader.load()


@contextmanager
def _spark_errors() -> Iterator[None]:
    """Raise Spark's errors about the output as the product's."""
    from pyspark.errors import AnalysisException

    hint = "Check that its storage can be reached from here, and that --conf adds the packages that it needs."
    with refused("Spark could not read the output", hint):
        try:
            yield
        except AnalysisException as error:
            why = f"The output cannot be read: {spark_message(error)}."
            raise ConfigError(why, hint="Correct --from, --format or --option.") from error
