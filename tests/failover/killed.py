"""Reconcilers that are killed at a chosen step of a write. The product has no hooks for it.

Run as a program this is a server: it has loaded the product once, and forks a process of its own for every command
it is told to run. In that process everything that outlives it is watched: files being made, written, synced and
renamed, a SQLite store's statements, a group's commits, and becoming another program. Each such thing is a step. A
command can be killed (SIGKILL, by itself) right before its n-th step; after the last one comes a step named "end".
"""

from __future__ import annotations

import builtins
import fcntl
import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from tests import ROOT

if TYPE_CHECKING:
    from tests.demo.lab.kafka import KafkaCluster

Rows: TypeAlias = dict[tuple[Any, ...], tuple[Any, ...]]
"""The content of a store, to the byte: by store and row."""

PATIENCE_S = 100
"""A command that takes longer ends by SIGALRM, which no test takes for an exit code."""

# ---------------------------------------------------------------- what a test uses


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended: ``code`` is negative for a signal, as in subprocess. The last of ``steps`` of a killed one
    is the step that did not happen."""

    code: int
    out: str
    err: str
    steps: tuple[str, ...]

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def output(self) -> str:
        return self.out + self.err


class Driver:
    """The server, started in a ``with`` block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def __enter__(self) -> Self:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.failover.killed"]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate(timeout=PATIENCE_S)

    def run(self, *arguments: object, kill_at: int | None = None, by: int = signal.SIGKILL) -> Outcome:
        """One command; killed right before its step ``kill_at`` (the first is 1) if it comes so far."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir(parents=True)
        words = [str(word) for word in arguments]
        asked = {"command": words, "folder": str(folder), "kill_at": kill_at, "by": by}
        self._server.stdin.write(json.dumps(asked).encode() + b"\n")
        self._server.stdin.flush()
        return _outcome(folder, int(self._server.stdout.readline()))

    def killed(self, *arguments: object, at_every_step: bool) -> Iterator[Outcome]:
        """The command unharmed, then again and again, each time killed at another step: at every one, or at the first
        of each name. A caller puts back between two of them what the command has changed.

        A killed run can have more steps than the unharmed one, as it may find files of those before it. At every step
        means until the last one, by its name."""
        whole = self.run(*arguments)
        yield whole
        firsts = sorted({whole.steps.index(name) + 1 for name in whole.steps})
        for number in count(1) if at_every_step else firsts:
            killed = self.run(*arguments, kill_at=number)
            yield killed
            if not killed.killed or killed.steps[-1] == whole.steps[-1]:
                return


def _outcome(folder: Path, code: int) -> Outcome:
    out, err, steps = (
        (folder / name).read_text(encoding="utf-8", errors="replace") for name in ("out", "err", "steps")
    )
    return Outcome(code, out, err, tuple(steps.splitlines()))


# ---------------------------------------------------------------- what stores hold, read without the product


def table(file: Path) -> Rows:
    """All columns but ``change``, which only ever grows."""
    db = sqlite3.connect(file)
    try:
        found = db.execute("SELECT * FROM reconciler_offsets")
        names = [column[0] for column in found.description]
        rows = [dict(zip(names, values, strict=True)) for values in found]
    finally:
        db.close()
    return {
        (file.name, row["topic"], row["partition"]): tuple(row[name] for name in names if name != "change")
        for row in rows
    }


def committed(cluster: KafkaCluster, group: str) -> Rows:
    """A group's commits with their metadata."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(group)]
    (future,) = cluster.admin().list_consumer_group_offsets(asked).values()
    found = future.result().topic_partitions or []
    return {("kafka", row.topic, row.partition): (row.offset, row.metadata) for row in found}


# ---------------------------------------------------------------- the server


def serve() -> None:
    """Read requests until there are no more."""
    import confluent_kafka.admin  # noqa: F401  (loaded once, for all commands)

    from reconciler.places.kafka import group as kafka_group

    kafka_group.BATCH = 2  # so that a plan of a few rows takes several commits
    for line in sys.stdin.buffer:
        request = json.loads(line)
        code = os.waitstatus_to_exitcode(os.waitpid(_fork(request), 0)[1])
        os.write(1, b"%d\n" % code)


def _fork(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.alarm(PATIENCE_S)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, kind in ((1, "out"), (2, "err")):
            os.dup2(_create(request, kind), descriptor)
        step = Steps(_create(request, "steps"), request["kill_at"], request["by"])
        os._exit(_run(request["command"], step))
    finally:
        os._exit(99)  # nothing may go back into the server's loop


def _create(request: dict[str, Any], name: str) -> int:
    return os.open(Path(request["folder"]) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _run(arguments: list[str], step: Steps) -> int:
    from reconciler.cli.main import main

    watch_files(step)
    watch_sqlite(step)
    watch_groups(step)
    try:
        code = main(arguments)
    except SystemExit as stop:  # argparse
        code = int(stop.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    step("end")
    return code


# ---------------------------------------------------------------- steps


class Steps:
    """Called with a step's name right before it happens."""

    def __init__(self, record: int, kill_at: int | None, by: int) -> None:
        self._record = record
        self._kill_at = kill_at
        self._by = by
        self._count = 0

    def __call__(self, name: str) -> None:
        self._count += 1
        os.write(self._record, name.encode() + b"\n")
        if self._count == self._kill_at:
            os.kill(os.getpid(), self._by)


class Torn:
    """A file whose every write happens in two halves, each of which reaches the file at once."""

    def __init__(self, file: Any, step: Callable[[str], None]) -> None:
        self._file = file
        self._step = step

    def write(self, text: Any) -> int:
        half = len(text) // 2
        for word, part in (("first", text[:half]), ("second", text[half:])):
            self._step(f"write the {word} half")
            self._file.write(part)
            self._file.flush()
        return len(text)

    def writelines(self, texts: Iterable[Any]) -> None:
        for text in texts:
            self.write(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def watch_files(step: Callable[[str], None]) -> None:
    """Files that are made, opened for writing, written, synced, renamed or deleted; and becoming another program."""
    real_open = io.open

    def watched_open(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if not set(mode) & set("wax+"):
            return real_open(file, mode, *rest, **more)
        if not isinstance(file, int):
            step(f"open {Path(file).name}")
        return Torn(real_open(file, mode, *rest, **more), step)

    io.open = builtins.open = watched_open
    tempfile.mkstemp = _before(step, "make a temporary file", tempfile.mkstemp)
    fcntl.flock = _before(step, "wait for the lock", fcntl.flock)
    os.execve = _before(step, "become the command", os.execve)
    for name in ("fsync", "fdatasync", "replace", "rename", "link", "unlink", "remove", "truncate", "mkdir"):
        setattr(os, name, _before(step, name, getattr(os, name)))


def _before(step: Callable[[str], None], name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*arguments: Any, **more: Any) -> Any:
        step(name)
        return real(*arguments, **more)

    return watched


def watch_sqlite(step: Callable[[str], None]) -> None:
    """Every statement but those that only look."""
    real_connect = sqlite3.connect

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:
            if not re.match(r"\s*(SELECT|PRAGMA)", sql):
                step(" ".join(sql.split()[:2]))
            return super().execute(sql, *rest)

    def watched_connect(*arguments: Any, **more: Any) -> sqlite3.Connection:
        return real_connect(*arguments, factory=Watched, **more)

    sqlite3.connect = watched_connect


def watch_groups(step: Callable[[str], None]) -> None:
    """Commits and deletions: before one is sent, when it is under way, and when it is done and the answer is lost."""
    from confluent_kafka.admin import AdminClient

    for method, name in (("alter_consumer_group_offsets", "commit offsets"), ("delete_consumer_groups", "delete")):
        setattr(AdminClient, method, _watched_request(step, name, getattr(AdminClient, method)))


def _watched_request(step: Callable[[str], None], name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*arguments: Any, **more: Any) -> Any:
        step(f"{name}: send")
        futures = real(*arguments, **more)
        step(f"{name}: under way")
        wait(futures.values(), PATIENCE_S)
        step(f"{name}: answered")
        return futures

    return watched


if __name__ == "__main__":
    serve()
