"""Where servers of the lab listen: a port must still be theirs after they have been away."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from reconciler.core.errors import Unreachable
from reconciler.lab import ports
from reconciler.lab.ports import HOST, free_ports

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_ports_that_are_handed_out_together_differ() -> None:
    assert len(set(free_ports(5))) == 5


@pytest.mark.skipif(not OUTGOING.exists(), reason="only Linux tells which ports it gives to outgoing connections")
def test_no_outgoing_connection_is_given_such_a_port() -> None:
    first = int(OUTGOING.read_text().split()[0])
    assert max(free_ports(20)) < first


def test_a_port_in_use_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        (port,) = free_ports(1)
        taken.bind((HOST, port))
        monkeypatch.setattr(ports, "PORTS", range(port, port + 1))
        monkeypatch.setattr(ports, "_TRIED", 1)
        with pytest.raises(Unreachable, match="No port is free on this machine"):
            free_ports(1)
