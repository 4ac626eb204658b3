"""The product's commands in this process, on clusters in memory; or in a process of its own that is killed."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import _parser as _PARSER
from tests.failover.killed import Steps, watch_files, watch_sqlite
from tests.memory_log import MemoryLog


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    line: str
    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return f"$ {self.line}\n{self.out}{self.err}exit code {self.code}"

    @property
    def variables(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self.out.splitlines() if "=" in line)


@cache
def _parser(wanted: tuple[str, ...], whole: bool) -> Any:
    """The parsers of the command line, which take longer to make than many commands here take to run."""
    return _PARSER(wanted, whole=whole)


@contextmanager
def in_memory(logs: Mapping[str, MemoryLog], now_ms: Callable[[], int], folder: Path) -> Iterator[None]:
    """Within it the servers ``a:1`` and ``b:1`` are ``logs``, at a time of the story."""
    import time

    from reconciler.cli import main
    from reconciler.kafka import reading_process

    def open_log(client: Mapping[str, Any], **_: object) -> MemoryLog:
        return logs[client["bootstrap.servers"].partition(":")[0]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading_process, "open_log", open_log)
        patch.setattr(main, "_parser", lambda wanted, whole=True: _parser(tuple(wanted), whole))
        patch.setattr(time, "time_ns", lambda: now_ms() * 1_000_000)
        patch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("RECONCILER_")]:
            patch.delenv(name)
        patch.setenv("XDG_STATE_HOME", str(folder / "xdg"))
        yield


def run(*words: object) -> Ended:
    """``reconciler WORDS``."""
    from reconciler.cli.main import main

    arguments = [str(word) for word in words]
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = int(main(arguments))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Ended(" ".join(["reconciler", *arguments]), code, out.getvalue(), err.getvalue())


def run_killed(step: int, *words: object) -> int:
    """The same in a process of its own, killed right before its ``step``-th write: its code, negative for a signal."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        steps = Steps(nowhere, step, signal.SIGKILL)
        watch_files(steps)
        watch_sqlite(steps)
        os._exit(run(*words).code)
    finally:
        os._exit(99)
