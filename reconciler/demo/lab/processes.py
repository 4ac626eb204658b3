"""Processes of servers: started, waited for and ended, and found again by their command lines.

A process id kept in a file can belong to another program after a reboot. A command line that names a program of the lab
and a file in a folder of the lab is that lab's process, whichever command started it, and however that command ended.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from reconciler.core.errors import Unreachable

T = TypeVar("T")
_PROC = Path("/proc")
_POLL_SECONDS = 0.1
HALT_SECONDS = 60
END_SECONDS = 15
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
    """A child process in its own session, with its output in a log file.

    Unless it is detached, it ends on Linux with the thread that started it, also if that is killed.
    """

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
        wrapped = list(command)
        if sys.platform == "linux" and not detached:
            wrapped = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *wrapped]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                wrapped,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

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
            if not running or time.monotonic() > deadline:
                ended = f"ended with status {self._process.returncode} while"
                state = f"is running, but timed out after {timeout:.0f} s" if running else ended
                raise Unreachable(
                    f"{self.name} {state} waiting for {what}.",
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
            text_lines = self.log.read_text(errors="replace").splitlines()
        except OSError as error:
            return f"(unreadable: {error.strerror})"
        return " | ".join(text_lines[-TAIL_LINES:]) if text_lines else "(empty)"

    def _signal(self, number: int) -> None:
        if self.running:  # the pid of an ended child may belong to another process by now
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def processes_in(folder: Path, programs: Sequence[str]) -> dict[int, str]:
    """The living processes that run one of ``programs`` on a file below ``folder``, an absolute path.

    With each, the name in ``folder`` that comes first on its command line.
    """
    names = "|".join(map(re.escape, programs))
    runs = re.compile(rf" (?:{names}) (?:.*?[ =])?{re.escape(str(folder))}/([^/ ]+)")
    return {pid: found[1] for pid, command in _commands() if (found := runs.search(command))}


def kill_all(folder: Path, programs: Sequence[str], *names: str) -> bool:
    """Kill those processes, all or the ones of ``names``, and wait for their end. False if there is none.

    Raises Unreachable if one does not end.
    """

    def living() -> list[int]:
        return [pid for pid, name in processes_in(folder, programs).items() if not names or name in names]

    found = left = living()
    deadline = time.monotonic() + END_SECONDS
    while left:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            numbers = " ".join(map(str, left))
            raise Unreachable(f"Processes in {folder} do not end.", hint=f"End them by hand: kill -9 {numbers}")
        time.sleep(_POLL_SECONDS)
        left = living()
    return bool(found)


def _commands() -> Iterator[tuple[int, str]]:
    """Every process that this user may inspect: its id and its command line, words parted by a space."""
    if not _PROC.joinpath("self", "cmdline").exists():
        listing = ["ps", "-axww", "-o", "pid=,command="]
        for line in subprocess.run(listing, capture_output=True, text=True, check=True).stdout.splitlines():
            pid, _, command = line.strip().partition(" ")
            yield int(pid), command.strip()
        return
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has just ended, or belongs to another user
                words = entry.joinpath("cmdline").read_bytes().split(b"\0")
                yield int(entry.name), " ".join(map(os.fsdecode, words)).rstrip()
