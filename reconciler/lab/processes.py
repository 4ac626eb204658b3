"""Child processes that end with their parent, and can be killed, frozen and waited for.

Three mechanisms end a child: ``stop`` (or leaving its ``with`` block); ``kill_all``, at the latest at exit, if an
interrupt came before that; and on Linux the kernel, if the parent dies by SIGKILL. A detached child has only the first:
it runs until it is stopped.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self, TypeVar

from reconciler.core.errors import Unreachable

T = TypeVar("T")
_POLL_SECONDS = 0.1
HALT_SECONDS = 60
TAIL_LINES = 12

# Runs between fork and the real program, as a separate program: a preexec_fn is not safe in a process with threads.
# PR_SET_PDEATHSIG is 1 and survives exec. The kernel does not report a parent that died before the call, hence the
# check of getppid.
_DIE_WITH_PARENT = (
    "import ctypes,os,signal,sys\n"
    "ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))\n"
    "if os.getppid() != int(sys.argv[1]): os._exit(1)\n"
    "os.execvp(sys.argv[2], sys.argv[2:])\n"
)


class Child:
    """A child process in its own session, with its output in a log file."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        cwd: Path,
        detached: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._detached = detached
        wrapped = list(command)
        if sys.platform == "linux" and not detached:
            wrapped = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *wrapped]
        self._process: subprocess.Popen[bytes]
        _spawner.run(functools.partial(self._start, wrapped, cwd, env))

    def _start(self, command: Sequence[str], cwd: Path, env: Mapping[str, str] | None) -> None:
        """In the spawner's thread, which no interrupt reaches: a child that was started is known."""
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if not self._detached:
            _living.add(self)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait_until(self, condition: Callable[[], T | None], timeout: float, what: str) -> T:
        """Poll ``condition`` until its answer is true, and return that answer.

        Raises Unreachable with the end of the log when the process has died, or after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            running = self.running  # read before the condition: an answer just before the end counts
            if answer := condition():
                return answer
            if not running:
                raise Unreachable(
                    f"{self.name} ended with status {self._process.returncode} while waiting for {what}.",
                    hint=f"Its log, {self.log}, ends: {self.log_tail()}",
                )
            if time.monotonic() > deadline:
                raise Unreachable(
                    f"{self.name} is running, but timed out after {timeout:.0f} s waiting for {what}.",
                    hint=f"Its log, {self.log}, ends: {self.log_tail()}",
                )
            time.sleep(_POLL_SECONDS)

    def wait(self, timeout: float) -> int:
        """Wait for the process to end by itself, and return its exit status."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Unreachable(
                f"{self.name} did not end within {timeout:.0f} s.", hint=f"Its log is {self.log}."
            ) from None
        finally:
            self._forget_if_ended()

    def stop(self, patience: float = 15.0) -> None:
        """Send SIGTERM, then SIGKILL after ``patience`` seconds. Stopping twice is fine."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)  # a paused process cannot act on TERM
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._forget_if_ended()

    def pause(self) -> None:
        """Freeze it: it keeps its connections and answers nothing, like a server behind a broken network.

        On Linux it has halted when this returns: on a busy machine it may still answer for a while after the signal.
        """
        self._signal(signal.SIGSTOP)
        if sys.platform == "linux" and self.running:
            halted = functools.partial(os.waitid, os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
            self.wait_until(halted, HALT_SECONDS, "its halt")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def log_tail(self) -> str:
        """The last lines of its output, as one: a message is one line."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 20_000))
                text_lines = log.read().decode(errors="replace").splitlines()
        except OSError as error:
            return f"(unreadable: {error.strerror})"
        return " | ".join(text_lines[-TAIL_LINES:]) if text_lines else "(empty)"

    def _signal(self, number: int) -> None:
        if self.running:  # the pid of an ended child may belong to another process by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def _forget_if_ended(self) -> None:
        if not self.running:
            _living.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._detached:
            self.stop()


class _Spawner:
    """Forks all children in one thread that lives as long as this process.

    The kernel ties PR_SET_PDEATHSIG to the *thread* that forked: a child started by a pool's thread would be killed
    when the pool shuts down. The thread is a daemon, so that it still runs during atexit.
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[tuple[Callable[[], None], Future[None]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._owner = 0

    def run(self, start: Callable[[], None]) -> None:
        """Run ``start`` there, after what was ordered before. An interrupt does not take an order back."""
        done: Future[None] = Future()
        with self._lock:
            if self._owner != os.getpid():  # first use, or in a forked copy of this process, which has no threads
                self._orders = queue.SimpleQueue()
                threading.Thread(target=self._work, name="lab-spawner", daemon=True).start()
                self._owner = os.getpid()
        self._orders.put((start, done))
        done.result()

    def finish(self) -> None:
        """Wait until all orders of this process are done."""
        if self._owner == os.getpid():
            self.run(lambda: None)

    def _work(self) -> None:
        while True:
            start, done = self._orders.get()
            try:
                start()
            except Exception as error:  # noqa: BLE001 - it is raised where the order came from
                done.set_exception(error)
            else:
                done.set_result(None)


_spawner = _Spawner()
_living: set[Child] = set()


def kill_all() -> None:
    """Kill every child that is not detached, also one whose start was interrupted and is still under way."""
    _spawner.finish()
    for child in list(_living):
        child.kill()


atexit.register(kill_all)
