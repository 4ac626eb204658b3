"""Reads in a process of their own, with a memory limit.

The client library decompresses a batch of records as a whole before anything of it can be seen, and where memory runs
out it aborts its process. A batch of 34 kB may hold gigabytes. So another process (``worker``) reads the records. While
this one waits for it, it looks at its memory, and ends it above the limit; the system may end it, too.

Invariants: a partition is withheld only if reading it alone, one batch at a time, ended the process (or if
``MOST_ENDED`` processes have ended in one call); every other partition is answered as if it had been read here. Answers
that came before the process ended count: only the partitions without one are read again, in halves.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.core.errors import NotRead, Refused
from reconciler.core.probes import Chunk, Withheld
from reconciler.kafka import starter
from reconciler.kafka.sent import unpack
from reconciler.kafka.starter import Started
from reconciler.kafka.worker import CHUNKS, DONE, FAILED, IN_BULK, error_of, receive, send
from reconciler.ports import ReadRequest, TopicInfo, TopicPartition
from reconciler.waits import for_seconds, heard, waited_s, waiting

LOOK_S = 0.005
"""Seconds between two looks at the process's memory: in that time it takes some 10 MB."""
MOST_ENDED = 100
MIB = 1024 * 1024
PAGE = os.sysconf("SC_PAGE_SIZE")

log = logging.getLogger(__name__)


class _Ended(Exception):
    """The process ended within a read."""


class ApartReader:
    """Reads as ``KafkaLogReader.read`` does. ``settings``: its client, timeout_s and who; ``memory`` is in bytes."""

    def __init__(self, settings: Mapping[str, Any], memory: int) -> None:
        self._orders = json.dumps({**settings, "memory": memory}).encode()
        self._place = str(settings["client"].get("bootstrap.servers", "?"))
        self._timeout_s = float(settings["timeout_s"])
        self._memory = memory
        self._worker: Started | None = None
        self._heavy: set[TopicPartition] = set()
        """Partitions that have ended a process: they are read alone, one batch at a time."""
        self._told: set[TopicPartition] = set()
        self._least = 0
        """What the process held when it was started: it shares that with the one that it was forked from."""
        self._over = False
        """Whether the last process that ended held more memory than it may."""
        self._lock = threading.Lock()
        with contextlib.suppress(OSError):  # a read tries again, and says it
            starter.prepare()

    def expect(self, topics: Mapping[str, TopicInfo]) -> None:
        """Have the process loaded and connected when many partitions are read, while this one looks offsets up."""
        if self._worker is not None or sum(len(each.partitions) for each in topics.values()) < IN_BULK:
            return
        with self._lock, contextlib.suppress(Refused, OSError):
            connection = self._started().connection
            connection.settimeout(None)
            send(connection, json.dumps({"expect": sorted(topics)}).encode())

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
            hint="Raise memory_mib if they are the job's; else find out who wrote them"
            + (", and delete the log up to it." if self._over else "."),
        )
        log.log(logging.DEBUG if tp in self._told else logging.WARNING, "%s", error.message)
        self._told.add(tp)
        return Withheld(error)

    def _ask(
        self, requests: Sequence[ReadRequest], group: Sequence[int], *, sparing: bool
    ) -> Iterator[tuple[int, Chunk]]:
        """One read by the process: indexes and answers. Raises ``_Ended`` if it ended meanwhile, or its error."""
        worker, self._over = self._started(), False
        asked = (requests[index] for index in group)
        places = [
            (*each.partition, each.offset, each.max_records, each.committed, each.full_until_ms) for each in asked
        ]
        whole = False
        with waiting(self._place, for_seconds(self._timeout_s)):
            try:
                worker.connection.settimeout(None)
                question = {"sparing": sparing, "places": places, "waited_s": waited_s()}
                send(worker.connection, json.dumps(question).encode())
                worker.connection.settimeout(LOOK_S)
                while (kind := bytes((frame := receive(worker.connection, self._look))[:1])) != DONE:
                    if kind == FAILED:
                        whole = True
                        raise error_of(bytes(frame[1:]))
                    heard()
                    if kind == CHUNKS:
                        for index, chunk in unpack(frame[1:]):
                            yield group[index], chunk
                whole = True
            except (EOFError, OSError, ValueError, KeyError, IndexError) as error:
                log.debug("the process that reads records has ended: %r", error)
                raise _Ended from error
            finally:
                if not whole:  # a later read must not see the rest of this one
                    self.close()

    def _started(self) -> Started:
        if self._worker is None:
            try:
                self._worker = starter.start()
                self._least = self._held()
                send(self._worker.connection, self._orders)
            except OSError as error:
                self.close()
                raise Refused(
                    f"No process to read records in could be started: {error.strerror or error}.",
                    hint="See the limits of processes and memory here, then run this again.",
                ) from error
        return self._worker

    def _look(self) -> None:
        """End the process if it holds more memory than it may. Without /proc only the system's own limits hold."""
        assert self._worker is not None
        held = self._held() - self._least
        if held > self._memory:
            log.debug("the process that reads records holds %d MiB: it is ended", held // MIB)
            self._over = True
            self._worker.kill()

    def _held(self) -> int:
        """The bytes of memory that the process holds; 0 where the system does not say."""
        assert self._worker is not None
        try:
            with open(f"/proc/{self._worker.pid}/statm", "rb") as file:
                return int(file.read().split()[1]) * PAGE
        except (OSError, IndexError):
            return 0

    def close(self) -> None:
        """End the process. A later read starts another."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
