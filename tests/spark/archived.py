"""Spark's classes as a driver's JVM has loaded them: tests start drivers at half the cost (``demo.lab.archives``).

The archive lies beside the jars of the pyspark that runs the tests. A JVM with other jars in its class path, such as
that of another pyspark, ignores it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from reconciler.core.errors import Unreachable

OPTIONS = "SPARK_SUBMIT_OPTS"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djdk.lang.Process.launchMechanism=VFORK"
"""For sessions that live for minutes: as ``demo.lab.broker.QUICK_JVM``, which is not imported for fast tests. Spark
runs chmod for every file that it writes: VFORK saves the helper program that would start each.
"""
_SECONDS = 300  # loading all classes once, and writing them


def spark_jars() -> Path | None:
    spec = find_spec("pyspark")
    return Path(spec.origin).parent / "jars" if spec and spec.origin else None


def share_classes() -> None:
    """From now on drivers of this process and those below it start quickly, and with the archive if there is one."""
    from reconciler.demo.lab.kafka import sharing

    jars, options = spark_jars(), os.environ.setdefault(OPTIONS, QUICK)
    if jars and "-XX:SharedArchiveFile=" not in options:
        os.environ[OPTIONS] = " ".join([options, *sharing(jars)])


def make_spark_archive() -> None:
    """Unless there is one, or another process is making it."""
    from tests.demo.lab.archives import make_archive

    if jars := spark_jars():
        make_archive(jars, _run_once)


def _run_once(folder: Path, jvm: Sequence[str]) -> None:
    options = " ".join([os.environ.get(OPTIONS, ""), *jvm, "-Xlog:cds=off", "-Xlog:cds+dynamic=off"])
    program = [sys.executable, "-m", __name__, str(folder)]
    try:
        subprocess.run(program, env={**os.environ, OPTIONS: options}, capture_output=True, check=True, timeout=_SECONDS)
    except subprocess.SubprocessError as error:
        raise Unreachable(f"No Spark session ran to its end: {error}") from error


def use_spark(folder: Path) -> None:
    """What most tests do: a shuffle, tasks in Python, files, and a streaming query."""
    from tests.spark.sessions import local_session

    session = local_session("classes", spark_sql_shuffle_partitions="1")
    driver = session.sparkContext._gateway.proc
    session.range(9).selectExpr("id % 3 AS k").groupBy("k").count().write.parquet(str(folder / "rows"))
    session.sparkContext.parallelize(range(2)).map(str).collect()
    stream = session.readStream.schema("k LONG, count LONG").parquet(str(folder / "rows"))
    query = (
        stream.writeStream.foreachBatch(lambda rows, number: rows.collect())
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    session.stop()
    driver.stdin.close()  # with it the JVM ends, and writes the archive
    if driver.wait() != 0:
        sys.exit(f"The driver ended with {driver.returncode}.")


if __name__ == "__main__":
    use_spark(Path(sys.argv[1]))
