"""Faults at a chosen moment: a reader that acts at a call, a broker struck while it has a request in its hands."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from reconciler.core.probes import Chunk
from reconciler.ports import ClusterInfo, LogReader, ReadRequest, TopicPartition
from tests.demo.lab.kafka import Node as Broker
from tests.waiting import wait_until

Act = Callable[[], object]
Moment = int | str | tuple[str, int]


class Acting:
    """A log reader through which something happens right before chosen calls. ``calls`` names those made so far.

    A moment is a number (the first call is 1), a method's name (its first call), or a name with a number.
    """

    def __init__(self, reader: LogReader, acts: Mapping[Moment, Act] | None = None) -> None:
        self.reader = reader
        self.calls: list[str] = []
        self._acts = dict(acts or {})

    def describe(self, topics: Iterable[str]) -> ClusterInfo:
        self._begin("describe")
        return self.reader.describe(topics)

    def log_starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._begin("log_starts")
        return self.reader.log_starts(partitions)

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._begin("log_ends")
        return self.reader.log_ends(partitions)

    def offsets_for_times(self, asked: Sequence[tuple[TopicPartition, int]]) -> Sequence[int | None]:
        self._begin("offsets_for_times")
        return self.reader.offsets_for_times(asked)

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        self._begin("read")
        return self.reader.read(requests)

    def close(self) -> None:
        self.reader.close()

    def _begin(self, name: str) -> None:
        self.calls.append(name)
        for moment in (len(self.calls), name, (name, self.calls.count(name))):
            act = self._acts.pop(moment, None)
            if act is not None:
                act()


class Ambush:
    """Strikes a broker in the middle of a call: an act for ``Acting``, used in a ``with`` block.

    The broker is frozen before the call begins; as soon as a request of the call lies at its door, unread, ``strike``
    is called. What the broker does then, it does with the call under way. It begins when the strike of ``after`` is
    over, so that a broker which that one brings back is not struck while its start is waited for.
    """

    def __init__(self, broker: Broker, strike: Act, *, after: Ambush | None = None) -> None:
        self._broker = broker
        self._strike = strike
        self._after = after
        self._thread = threading.Thread(target=self._lie_in_wait)
        self._error: BaseException | None = None
        self.struck = False

    def __call__(self) -> None:
        if self._after is not None:
            self._after.wait()
        self._broker.pause()
        self._thread.start()

    def _lie_in_wait(self) -> None:
        try:
            wait_until(lambda: request_waits(self._broker), f"a request to {self._broker.address}", look_s=0.01)
            self._strike()
            self.struck = True
        except BaseException as error:  # noqa: BLE001 - it is raised again where the test looks
            self._error = error

    def __enter__(self) -> Self:
        return self

    def wait(self) -> None:
        """Until the strike, if it has begun, is over. Raises what it raised."""
        if self._thread.is_alive():
            self._thread.join()
        if self._error is not None:
            raise self._error

    def __exit__(self, *_: object) -> None:
        self.wait()


def request_waits(broker: Broker) -> bool:
    """True if a connection to the broker holds bytes that it has not read (Linux's /proc/net/tcp, proc(5))."""
    port = f"{broker.ports[0]:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text(encoding="ascii").splitlines()[1:]:
            _, local, _, state, queues, *_ = line.split()
            if local.endswith(f":{port}") and state == "01" and int(queues.partition(":")[2], 16) > 0:
                return True
    return False


def flip_a_byte(segment: Path, text: bytes) -> None:
    """Damage the record that holds ``text`` in a log segment on disk: one bit, as a bad disk does."""
    content = bytearray(segment.read_bytes())
    (found,) = re.finditer(re.escape(text), content)
    content[found.start()] ^= 1
    segment.write_bytes(content)


def quiet(bootstrap: str) -> dict[str, Any]:
    """Client settings that keep refused connections out of the test's log."""
    return {"bootstrap.servers": bootstrap, "log_level": "0"}
