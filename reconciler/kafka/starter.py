"""A process that starts processes: it has one thread and no Kafka client, so that it can be forked at any time.

A process with clients cannot: their threads, and the locks that these hold, do not survive a fork. So this one is
forked before the first client is made; a process that has other threads already starts it as a new program, which takes
longer (0.2 s). It ends when its parent ends, however that happens, and what it has started ends with the connections.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from reconciler import waits

PID = 8
_BEGIN = "import sys; from reconciler.kafka.starter import main; main(int(sys.argv[1]))"


@dataclass(frozen=True, slots=True)
class Started:
    """A started process: its id, this end of the connection to it, and the system's own reference to it.

    Its id may be another process's once it has ended. The reference (a pidfd) is never another's; None before Linux 5.3
    and on other systems.
    """

    pid: int
    connection: socket.socket
    reference: int | None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            if self.reference is None:
                os.kill(self.pid, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(self.reference, signal.SIGKILL)

    def close(self) -> None:
        """End it, if it has not ended."""
        self.kill()
        self.connection.close()
        if self.reference is not None:
            os.close(self.reference)


class _Starter:
    """The one of this process; ``owner`` is the process that it was made in."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._control, other = socket.socketpair()
        with other:
            self._child = _forked(self._control, other) if _may_fork() else _run(other)

    def start(self) -> Started:
        here, there = socket.socketpair()
        with there:
            socket.send_fds(self._control, [b"+"], [there.fileno()])
        answer = self._control.recv(PID)
        if not answer:
            here.close()
            raise OSError("the process that starts others has ended")
        pid = int.from_bytes(answer, "little")
        return Started(pid, here, _reference(pid))

    def stop(self) -> None:
        self._control.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._child, 0)


_lock = threading.Lock()
_current: _Starter | None = None


def prepare() -> None:
    """Have the starter ready: called before a first client is made, it costs some milliseconds."""
    global _current
    with _lock:
        if _current is None or _current.owner != os.getpid():
            _current = _Starter()


def start() -> Started:
    """Start a process that serves one connection (``worker.serve``). Raises OSError if it cannot be started."""
    global _current
    prepare()
    with _lock:
        assert _current is not None
        try:
            return _current.start()
        except OSError:  # it was killed
            _current = _Starter()
            return _current.start()


def stop() -> None:
    """End it, before this process becomes another program, which would inherit it as a child."""
    global _current
    with _lock:
        if _current is not None and _current.owner == os.getpid():
            _current.stop()
        _current = None


def _reference(pid: int) -> int | None:
    """A process that has ended already still has its id: the starter lets go of it when it starts the next one."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _may_fork() -> bool:
    """Whether every thread of this process is one of Python's: a library's may hold a lock that the copy needs."""
    try:
        return len(os.listdir("/proc/self/task")) == threading.active_count()
    except OSError:
        return False


def _forked(control: socket.socket, other: socket.socket) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads: see _may_fork
        pid = os.fork()
    if pid == 0:
        try:
            control.close()
            waits.forget()
            _serve(other)
        finally:
            os._exit(0)
    return pid


def _run(other: socket.socket) -> int:
    import subprocess

    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, "-c", _BEGIN, str(other.fileno())],
        pass_fds=[other.fileno()],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    process.returncode = 0  # it is waited for by its id, if at all
    return process.pid


def main(descriptor: int) -> None:
    """The starter as a program of its own."""
    with socket.socket(fileno=descriptor) as control:
        _serve(control)


def _serve(control: socket.socket) -> None:
    """Start a copy of this process for each connection that the parent sends, until the parent ends."""
    from reconciler.kafka import worker  # here, as a command imports this module before it loads the client

    _apart_from_the_parent(control.fileno())
    running: list[int] = []
    while True:
        word, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        running = [pid for pid in running if not os.waitpid(pid, os.WNOHANG)[0]]
        if not word:
            break
        pid = os.fork()
        if pid == 0:
            _copy(worker.serve, control, descriptors[0])
        running.append(pid)
        os.close(descriptors[0])
        control.send(pid.to_bytes(PID, "little"))
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _copy(serve: Callable[[socket.socket], None], control: socket.socket, descriptor: int) -> None:
    try:
        control.close()
        with socket.socket(fileno=descriptor) as connection:
            serve(connection)
    finally:
        os._exit(0)


def _apart_from_the_parent(control: int) -> None:
    """Let go of the parent's files and signals."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent decides
    os.closerange(3, control)
    os.closerange(control + 1, min(os.sysconf("SC_OPEN_MAX"), 65_536))
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):  # where a client library aborts, it would write between the lines of the log
        os.dup2(nothing, standard)
    os.close(nothing)
