"""Reads in a process of their own, with a memory limit.

The client library decompresses a batch of records as a whole before anything of it can be seen, and where memory runs
out it aborts its process. A batch of 34 kB may hold gigabytes. So another process (``worker``) reads the records, and
the system gives it no more memory than the limit.

Invariants: a partition is withheld only if reading it alone, one batch at a time, ended the process (or if
``MOST_ENDED`` processes have ended in one call); every other partition is answered as if it had been read here. Answers
that came before the process ended count: only the partitions without one are read again, in halves.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler import waits
from reconciler.core.errors import NotRead, Refused
from reconciler.core.probes import Chunk, Withheld
from reconciler.kafka import worker
from reconciler.kafka.reader import KafkaLogReader
from reconciler.kafka.sent import unpack
from reconciler.kafka.worker import DONE, FAILED, IN_BULK, error_of, receive, send
from reconciler.ports import ReadRequest, TopicInfo, TopicPartition
from reconciler.waits import for_seconds, note_answer, waited_s, waiting

MOST_ENDED = 100
MIB = 1024 * 1024
_PROGRAM = "import sys; from reconciler.kafka.worker import main; main(int(sys.argv[1]))"

log = logging.getLogger(__name__)


class _Ended(Exception):
    """The process ended within a read."""


class ProcessReader:
    """Reads as ``KafkaLogReader.read`` does. ``settings``: its client, timeout_s and who; ``memory`` is in bytes."""

    def __init__(self, settings: Mapping[str, Any], memory: int) -> None:
        self._orders = json.dumps({**settings, "memory": memory}).encode()
        self._place = str(settings["client"].get("bootstrap.servers", "?"))
        self._timeout_s = float(settings["timeout_s"])
        self._memory = memory
        self._process: _Process | None = None
        self._heavy: set[TopicPartition] = set()
        """Partitions that have ended a process: they are read alone, one batch at a time."""
        self._told: set[TopicPartition] = set()
        self._lock = threading.Lock()
        if _may_fork():  # no longer once this process has a client
            with contextlib.suppress(Refused):  # a read tries again, and says it
                self._started()

    def expect(self, topics: Mapping[str, TopicInfo]) -> None:
        """Have the process loaded and connected when many partitions are read, while this one looks offsets up."""
        if sum(len(each.partitions) for each in topics.values()) < IN_BULK:
            return
        with self._lock, contextlib.suppress(Refused, OSError):
            send(self._started().connection, json.dumps({"expect": sorted(topics)}).encode())

    def read(self, requests: Sequence[ReadRequest]) -> list[Chunk]:
        with self._lock:
            return self._read(requests)

    def _read(self, requests: Sequence[ReadRequest]) -> list[Chunk]:
        answers: dict[int, Chunk] = {}
        indexes = range(len(requests))
        light = [index for index in indexes if requests[index].partition not in self._heavy]
        groups = [[index] for index in indexes if requests[index].partition in self._heavy]
        groups += [light] if light else []
        ended = 0
        while groups and ended < MOST_ENDED:
            group = groups.pop()
            sparing = len(group) == 1 and requests[group[0]].partition in self._heavy
            try:
                for index, chunk in self._ask(requests, group, sparing=sparing):
                    answers[index] = chunk
            except _Ended:
                ended += 1
                left = [index for index in group if index not in answers]
                if not sparing:
                    groups += self._halves(requests, left)
                elif left:
                    answers[left[0]] = self._withheld(requests[left[0]])
        for index in (each for group in groups for each in group):
            answers[index] = self._withheld(requests[index])
        return [answers[index] for index in indexes]

    def _halves(self, requests: Sequence[ReadRequest], group: list[int]) -> list[list[int]]:
        """Two groups of one. One that is alone in its group is heavy."""
        half = (len(group) + 1) // 2
        parts = [part for part in (group[:half], group[half:]) if part]
        self._heavy.update(requests[part[0]].partition for part in parts if len(part) == 1)
        return parts

    def _withheld(self, request: ReadRequest) -> Withheld:
        tp = request.partition
        error = NotRead(
            f"{tp} could not be read from offset {request.offset:,} on: the records there "
            f"decompress to more than {self._memory // MIB:,} MiB ([search] memory_mib), or to more than can be read "
            f"here in {self._timeout_s:g} s, or they are damaged.",
            hint="Raise memory_mib if they are the job's; else find out who wrote them.",
        )
        log.log(logging.DEBUG if tp in self._told else logging.WARNING, "%s", error.message)
        self._told.add(tp)
        return Withheld(error)

    def _ask(
        self, requests: Sequence[ReadRequest], group: Sequence[int], *, sparing: bool
    ) -> Iterator[tuple[int, Chunk]]:
        """One read by the process: indexes and answers. Raises ``_Ended`` if it ended meanwhile, or its error."""
        connection = self._started().connection
        asked = (requests[index] for index in group)
        places = [
            (*each.partition, each.offset, each.max_records, each.committed, each.full_until_ms) for each in asked
        ]
        whole = False
        with waiting(self._place, for_seconds(self._timeout_s)):
            try:
                question = {"sparing": sparing, "places": places, "waited_s": waited_s()}
                send(connection, json.dumps(question).encode())
                while (kind := bytes((frame := receive(connection))[:1])) != DONE:
                    if kind == FAILED:
                        whole = True
                        raise error_of(bytes(frame[1:]))
                    note_answer()
                    for index, chunk in unpack(frame[1:]):
                        yield group[index], chunk
                whole = True
            except (EOFError, OSError, ValueError, KeyError, IndexError) as error:
                log.debug("the process that reads records has ended: %r", error)
                raise _Ended from error
            finally:
                if not whole:  # a later read must not see the rest of this one
                    self.close()

    def _started(self) -> _Process:
        if self._process is None:
            try:
                self._process = _Process()
                send(self._process.connection, self._orders)
            except OSError as error:
                self.close()
                raise Refused(
                    f"No process to read records in could be started: {error.strerror or error}.",
                    hint="Check the limits of processes and memory here, then run this again.",
                ) from error
        return self._process

    def close(self) -> None:
        """End the process. A later read starts another."""
        if self._process is not None:
            self._process.close()
            self._process = None


class _Process:
    """The reading process, and this end of the connection to it. It ends when that is closed, however this one ends.

    It is a copy of this process (5 ms) before that has the first client: a client's threads, and the locks that these
    hold, do not survive a fork. Later it is a program of its own (0.2 s).
    """

    def __init__(self) -> None:
        self.connection, there = socket.socketpair()
        try:
            with there:
                self._pid = _forked(there.fileno()) if _may_fork() else _run(there.fileno())
        except OSError:
            self.connection.close()
            raise

    def close(self) -> None:
        self.connection.close()
        with contextlib.suppress(ChildProcessError):  # somebody else has waited for it, and its number may be another's
            if not os.waitpid(self._pid, os.WNOHANG)[0]:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)


def _may_fork() -> bool:
    """True if Python started every thread of this process: a library's may hold a lock that the copy needs."""
    try:
        return len(os.listdir("/proc/self/task")) == threading.active_count()
    except OSError:
        return False


def _forked(descriptor: int) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of other threads: see _may_fork
        pid = os.fork()
    if pid == 0:
        try:
            waits.forget()
            worker.main(descriptor)
        finally:
            os._exit(0)
    return pid


def _run(descriptor: int) -> int:
    import subprocess

    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(descriptor)],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    process.returncode = 0  # it is waited for by its id
    return process.pid


def open_log(
    client: Mapping[str, Any], *, memory: int, timeout_s: float = 10.0, who: str = "destination"
) -> KafkaLogReader:
    """A log whose records are read by a process of its own with a limit of ``memory`` bytes.

    Settings that cannot be sent there (functions, as ``oauth_cb``) are used here, without that limit.
    """
    settings = {"client": dict(client), "timeout_s": timeout_s, "who": who}
    try:
        records = ProcessReader(settings, memory)
    except TypeError:
        records = None
    return KafkaLogReader(client, timeout_s=timeout_s, who=who, records=records)
