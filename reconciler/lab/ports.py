"""Ports for the servers of the lab."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Callable

from reconciler.core.errors import Unreachable

HOST = "127.0.0.1"
PORTS = range(15_000, 32_000)
"""Below those that systems give to outgoing connections: who comes back after a while finds its own port free."""
_TRIED = 200
_ATTEMPTS = 3


def free_ports(count: int) -> tuple[int, ...]:
    """Ports nobody listens on now, all different: their sockets are open at once."""
    found: list[int] = []
    with contextlib.ExitStack() as until_all_are_found:
        for port in random.SystemRandom().sample(PORTS, _TRIED):
            probe = until_all_are_found.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                probe.bind((HOST, port))
                found.append(port)
            if len(found) == count:
                return tuple(found)
    raise Unreachable("No port is free on this machine.", hint=f"{_TRIED} of {PORTS[0]} to {PORTS[-1]} were tried.")


def launched_on_free_ports(
    count: int, launch: Callable[[tuple[int, ...]], None], was_taken: Callable[[], bool]
) -> tuple[int, ...]:
    """The ports that a server has been started on. Others are tried where somebody was quicker, as ``was_taken`` says.

    Raises what ``launch`` does; of its ``Unreachable``, the last, or one with another cause.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        ports = free_ports(count)
        try:
            launch(ports)
        except Unreachable:
            if attempt == _ATTEMPTS or not was_taken():
                raise
        else:
            return ports
    raise AssertionError("the last attempt returns or raises")
