"""Ports for the servers of the lab."""

from __future__ import annotations

import contextlib
import random
import socket

from reconciler.core.errors import Unreachable

HOST = "127.0.0.1"
PORTS = range(15_000, 32_000)
"""Below the ports of outgoing connections, so that a restarted server finds its own port still free."""
_TRIED = 200


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports without a listener; all are bound at once while searching. Raises Unreachable if none is left."""
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


def this_or_free(port: int) -> int:
    """``port`` if nothing listens on it, else a free one."""
    with socket.socket() as caller, socket.socket() as probe:
        caller.settimeout(1)
        if caller.connect_ex((HOST, port)) == 0:
            return free_ports(1)[0]
        # As a server does: connections that have just ended there do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return free_ports(1)[0]
    return port
