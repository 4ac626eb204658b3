"""The listener: where it listens, and that no client keeps another away."""

from __future__ import annotations

import http.client
import logging
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from prometheus_client import CollectorRegistry, Gauge

from reconciler.core.errors import ConfigError
from reconciler.jobs.watch import metrics
from reconciler.jobs.watch.metrics import ListenAddress, MetricsListener

HOME = ListenAddress("127.0.0.1", 0)


@contextmanager
def served(address: ListenAddress = HOME) -> Iterator[MetricsListener]:
    registry = CollectorRegistry()
    Gauge("answer", "", registry=registry).set(42)
    with closing(MetricsListener(address, registry)) as here:
        yield here


def status(here: MetricsListener, **headers: str) -> int:
    """Of a scrape, which must show the figures."""
    place = "127.0.0.1" if here.address.host == "::" else here.address.host, here.address.port
    with closing(http.client.HTTPConnection(*place, timeout=30)) as connection:
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        assert b"\nanswer 42.0\n" in answer.read() or answer.status != 200
        return answer.status


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464, True),
        ("127.9.9.9:1", "127.9.9.9", 1, True),
        ("[::1]:9464", "::1", 9464, True),
        ("localhost:0", "localhost", 0, True),
        ("0.0.0.0:9464", "0.0.0.0", 9464, False),
        (":9464", "", 9464, False),
        ("metrics.example.org:80", "metrics.example.org", 80, False),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int, is_loopback: bool) -> None:
    address = ListenAddress.parse(text)
    assert (address.host, address.port, address.is_loopback, str(address)) == (host, port, is_loopback, text)


@pytest.mark.parametrize("text", ["", "9464", "host", "host:", "::1:9464", "h:70000", "http://h:1", "h:-1"])
def test_anything_else_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        ListenAddress.parse(text)


def test_an_address_that_cannot_be_used_is_a_usage_error() -> None:
    with served() as here, pytest.raises(ConfigError, match=r"on 127\.0\.0\.1:\d+: Address already in use.*") as caught:
        MetricsListener(here.address, CollectorRegistry())
    assert "--listen" in str(caught.value)
    for host, why in ((".no-such-host", "label empty"), ("no-such-host.invalid", "")):
        with pytest.raises(ConfigError, match=f"Nothing can listen on {host}:0: .*{why}"):
            MetricsListener(ListenAddress(host, 0), CollectorRegistry())


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_ipv6_is_served_too_and_every_address_is_both() -> None:
    with served(address=ListenAddress.parse("[::1]:0")) as here:
        assert (status(here), here.url.startswith("http://[::1]:")) == (200, True)
    with served(address=ListenAddress.parse(":0")) as here:
        assert status(here) == 200
        with socket.create_connection(("::1", here.address.port), timeout=30):
            pass


# ---------------------------------------------------------------- clients that hold on, or talk nonsense


def dangling(here: MetricsListener, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection((here.address.host, here.address.port), timeout=60)
    connection.sendall(sent)
    return connection


def test_another_address_needs_a_restart_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with served() as here:
        here.keep(HOME)
        assert caplog.messages == []
        here.keep(ListenAddress("0.0.0.0", 0))
        assert [f"still serves {here.url}. Restart it" in line for line in caplog.messages] == [True]


def test_silent_clients_keep_no_scrape_away_and_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as here:
        crowd = [dangling(here, said) for said in (b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n") for _ in range(3)]
        assert status(here) == 200
        for connection in crowd:
            connection.close()
        monkeypatch.setattr(metrics._Visit, "timeout", 0.2)
        with dangling(here) as connection, suppress(ConnectionResetError):
            assert connection.recv(1_000) == b""
    # A server that waited for the rest would have waited for the test's own 60 s, which raises.


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"GET " + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /metrics?name[]=%ff&name[]=\xff HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.0\r\nAccept: application/openmetrics-text;version=abc\r\n\r\n",
    ],
)
def test_nonsense_ends_in_no_traceback_and_the_next_scrape_is_served(
    said: bytes, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with served() as here:
        answer = b""
        with dangling(here, said) as connection, suppress(ConnectionResetError):
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65_536):
                answer += part
        assert b"Traceback" not in answer
        assert status(here) == 200
        place = here.address.host, here.address.port
    assert (capfd.readouterr(), caplog.messages) == (("", ""), [])
    with pytest.raises(ConnectionRefusedError):  # after close nothing listens
        socket.create_connection(place, timeout=30)
