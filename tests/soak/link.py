"""Links to a broker that can be slow and can be cut, or that change its answers."""

from __future__ import annotations

import socket
from contextlib import suppress

from tests.demo.lab.faults.slow_link import SlowLink
from tests.soak.lying_link import Lie

LIES: tuple[Lie, ...] = (
    lambda _, true: true + 5,
    lambda _, true: true + 90,
    lambda _, true: max(0, true - 40),
    lambda _, __: -1,
)
"""To lookups of times: too high, much too high, too low, and that there is no such record."""


class CutLink(SlowLink):
    """``cut`` breaks all connections: answers that are on their way are lost. New connections are fast."""

    _ends: tuple[socket.socket, ...] = ()

    def cut(self) -> None:
        self.bytes_a_second, self._free_at = float("inf"), 0.0
        ends, self._ends = self._ends, ()
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _join(self, client: socket.socket, server: socket.socket) -> None:
        self._ends += (client, server)
        super()._join(client, server)
