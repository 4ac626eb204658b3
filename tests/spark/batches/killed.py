"""Jobs of range batches, killed (SIGKILL) at a chosen step or at any moment, without hooks in the product.

Run as a program this is a server: it loads everything once, and forks a process for each requested job. That process
attaches to the JVM of the tests' Spark as its driver, and only it is killed: the JVM's work continues, as after a
driver's loss in a cluster. A step is a call that changes something outside the process, or is next to one; a job can be
killed right before a step. The last step is named "end".
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests import ROOT

PATIENCE_S = 300


@dataclass(frozen=True, slots=True)
class JobEnd:
    """``code`` is negative for a signal; for a killed job the last of ``steps`` did not happen."""

    code: int
    steps: tuple[str, ...]

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Driver:
    """The server, started in a ``with`` block."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._gateway = spark.sparkContext._gateway.gateway_parameters
        self._folder = folder
        self._count = 0

    def __enter__(self) -> Self:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYSPARK_GATEWAY_PORT": str(self._gateway.port),
            "PYSPARK_GATEWAY_SECRET": self._gateway.auth_token,
        }
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.batches.killed"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate(timeout=PATIENCE_S)

    def run(self, way: str, *, kill_at: str | None = None, after_s: float | None = None, **job: str) -> JobEnd:
        """Run a job of this ``way`` until nothing is left; kill it right before the first step of a name, or after some
        seconds."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._count += 1
        steps = self._folder / f"{self._count}.steps"
        asked = {"way": way, "kill_at": kill_at, "after_s": after_s, "steps": str(steps), **job}
        self._server.stdin.write(json.dumps(asked).encode() + b"\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        return JobEnd(code, tuple(steps.read_text().splitlines()) if steps.exists() else ())


# ---------------------------------------------------------------- in the server


def _serve() -> None:
    from pyspark.sql import SparkSession  # noqa: F401

    while line := sys.stdin.buffer.readline():
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                _job(asked)
                code = 0
            finally:
                os._exit(code)
        if asked["after_s"] is not None:
            time.sleep(asked["after_s"])
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        sys.stdout.buffer.write(b"%d\n" % os.waitstatus_to_exitcode(status))
        sys.stdout.buffer.flush()


def _job(asked: dict[str, Any]) -> None:
    from reconciler.spark.batches.runner import RangeBatches

    os.dup2(2, 1)  # the server's own line to the test is not the job's
    step = _Steps(asked["kill_at"], Path(asked["steps"]))
    spark = _attached()
    store = None if asked["way"] == "transaction" else asked["store"]
    job = RangeBatches(
        spark, topics=[asked["topic"]], group=asked["way"], bootstrap_servers=asked["bootstrap"], store=store, id="key"
    )
    semantics = _semantics(asked, step)
    _watch(step)
    job.run(semantics)
    step("end")


def _attached() -> Any:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()
    there = gateway.jvm.JavaSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    return SparkSession(SparkContext(gateway=gateway, jsc=there, conf=SparkConf(_jvm=gateway.jvm)))


def _semantics(asked: dict[str, Any], step: _Steps) -> Any:
    from reconciler.spark.batches.hashed_files import HashNamedFiles
    from reconciler.spark.batches.postgresql import PostgresUpsert
    from reconciler.spark.batches.runner import at_least_once, at_most_once, exactly_once
    from reconciler.spark.batches.transactional import PostgresTransaction

    def work(frame: Any, ranges: Any) -> None:
        found = [row.id for row in frame.selectExpr("CAST(value AS STRING) AS id").collect()]
        for part in (found[::2], found[1::2]):
            step("half of the work")
            with open(asked["out"], "a", encoding="utf-8") as file:
                file.write("".join(f"{each}\n" for each in part))

    def results(frame: Any, ranges: Any) -> Any:
        step("results")
        return frame.selectExpr("CAST(value AS STRING) AS id", "offset")

    sinks = {
        "transaction": lambda: PostgresTransaction(asked["database"], "clicks"),
        "upsert": lambda: PostgresUpsert(asked["database"], "kept", key=["id"]),
        "files": lambda: HashNamedFiles(asked["out"]),
    }
    if asked["way"] in sinks:
        return exactly_once(results, into=sinks[asked["way"]]())
    return {"at least": at_least_once, "at most": at_most_once}[asked["way"]](work)


class _Steps:
    def __init__(self, kill_at: str | None, file: Path) -> None:
        self._kill_at = kill_at
        self._file = file

    def __call__(self, name: str) -> None:
        with self._file.open("a") as file:
            file.write(f"{name}\n")
        if self._kill_at == name:
            os.kill(os.getpid(), signal.SIGKILL)


def _watch(step: _Steps) -> None:
    """Make these methods steps: right before each is called."""
    from reconciler.places.folder import LocalFolder
    from reconciler.places.postgresql.connection import Database
    from reconciler.spark.batches.hashed_files import Directory
    from reconciler.spark.batches.offsets import GroupOffsets

    watched: dict[type, tuple[str, ...]] = {
        GroupOffsets: ("save",),
        LocalFolder: ("publish", "remove"),
        Directory: ("write", "_rename", "remove"),
        Database: ("_commit",),
    }
    for kind, names in watched.items():
        for name in names:
            _wrap(kind, name, step)


def _wrap(kind: type, name: str, step: _Steps) -> None:
    original = getattr(kind, name)

    def stepping(self: Any, *arguments: Any, **named: Any) -> Any:
        step(f"{kind.__name__}.{name}")
        return original(self, *arguments, **named)

    setattr(kind, name, stepping)


if __name__ == "__main__":
    _serve()
