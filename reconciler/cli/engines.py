"""Where a command's searches run: in this process, or on a Spark cluster (``--engine spark``)."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from reconciler.cli import context
from reconciler.config.file import Config
from reconciler.core.errors import ConfigError
from reconciler.failover.check import Outside


def add_engine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("large estates")
    group.add_argument(
        "--engine",
        choices=("local", "spark"),
        default="local",
        help="where the destination is searched: in this process (default), or by the executors of a Spark cluster",
    )
    group.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="with --engine spark: a setting of the Spark session, like spark.master=yarn (repeatable)",
    )
    group.add_argument(
        "--per-task", metavar="N", type=int, help="with --engine spark: partitions a task at most (default: 2000)"
    )


@contextmanager
def outside(config: Config, options: argparse.Namespace) -> Iterator[Outside]:
    """``context.outside``, with the engine that the options ask for. Spark starts when there is something to search."""
    if options.engine == "local":
        if options.conf or options.per_task is not None:
            raise ConfigError("--conf and --per-task are for --engine spark.", hint="Add it, or leave them out.")
        with context.outside(config) as here:
            yield here
        return
    settings = context.pairs("conf", options.conf)
    with ExitStack() as until_the_end, context.outside(config) as here:
        yield replace(here, run=_spark_engine(config, options, settings, until_the_end))


def _spark_engine(
    config: Config, options: argparse.Namespace, settings: dict[str, str], until_the_end: ExitStack
) -> Any:
    try:
        import pyspark  # noqa: F401
    except ModuleNotFoundError as error:
        raise ConfigError(
            "--engine spark needs pyspark, which is not installed.", hint="Install it: pip install pyspark"
        ) from error
    from reconciler.spark.distributed.run import PER_TASK, SparkEngine
    from reconciler.spark.session import own_session

    per_task = PER_TASK if options.per_task is None else options.per_task
    if per_task < 1:
        raise ConfigError(f"--per-task {per_task} must be at least 1.")
    started: list[Any] = []

    def session() -> Any:
        if not started:
            started.append(until_the_end.enter_context(own_session("reconciler", settings)))
        return started[0]

    timeout_s = context.request_timeout_s(config)
    return SparkEngine(session, config.destination.client, timeout_s=timeout_s, per_task=per_task)
