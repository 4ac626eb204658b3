"""A proxy that delivers a server's answers no faster than a slow link does. All connections share the link."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from reconciler.demo.lab.kafka import HOST, free_ports
from tests.demo.lab.kafka import KafkaCluster

PIECE = 16 * 1024


class SlowLink:
    """The link to the server at ``where()``, HOST:PORT. Used in a ``with`` block.

    ``bytes_a_second`` may be changed at any time; infinite at first. ``delivered`` counts the answers' bytes.
    """

    def __init__(self, where: Callable[[], str]) -> None:
        (self.port,) = free_ports(1)
        self.bytes_a_second = float("inf")
        self.delivered = 0
        self._where = where
        self._listener: socket.socket | None = None
        self._free_at = 0.0
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Self:
        self._listener = socket.create_server((HOST, self.port))
        threading.Thread(target=self._listen, args=(self._listener,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()

    def _listen(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                host, _, port = self._where().rpartition(":")
                try:
                    server = socket.create_connection((host, int(port)))
                except OSError:
                    client.close()
                    continue
                self._join(client, server)

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        """Begin to pass on what the two say to each other."""
        for ends in ((client, server, lambda count: None), (server, client, self._take_time)):
            threading.Thread(target=_pass_on, args=ends, daemon=True).start()

    def _take_time(self, count: int) -> None:
        """Wait until the link has delivered so many bytes more."""
        with self._lock:
            self._free_at = max(self._free_at, time.monotonic()) + count / self.bytes_a_second
            self.delivered += count
            left_s = self._free_at - time.monotonic()
        time.sleep(max(left_s, 0))


def _pass_on(giver: socket.socket, taker: socket.socket, take_time: Callable[[int], None]) -> None:
    with suppress(OSError), giver, taker:
        while piece := giver.recv(PIECE):
            take_time(len(piece))
            taker.sendall(piece)
        taker.shutdown(socket.SHUT_RDWR)


@contextmanager
def far_cluster(directory: Path, jars: Path) -> Iterator[tuple[KafkaCluster, SlowLink]]:
    """A cluster, and the link by which all its clients reach it."""
    made: list[KafkaCluster] = []
    with SlowLink(lambda: made[0].bootstrap) as link:
        told = {"advertised.listeners": f"PLAINTEXT://{link.address}"}
        made.append(KafkaCluster("b", directory, jars, heap="768m", properties=told))
        with made[0] as cluster:
            yield cluster, link
