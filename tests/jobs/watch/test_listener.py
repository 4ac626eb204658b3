"""The listener: where it listens, over TLS and for whom, and that no client keeps another away."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from reconciler.config.settings import WatchSettings
from reconciler.core.errors import ConfigError
from reconciler.jobs.watch import metrics
from reconciler.jobs.watch.metrics import ListenAddress, MetricsListener, check_tls

HOME = ListenAddress("127.0.0.1", 0)
PLAIN = WatchSettings()
Pair = Callable[[str], WatchSettings]


@contextmanager
def served(settings: WatchSettings = PLAIN, address: ListenAddress = HOME) -> Iterator[MetricsListener]:
    registry = CollectorRegistry()
    Gauge("answer", "", registry=registry).set(42)
    with closing(MetricsListener(address, settings, registry)) as here:
        yield here


def status(here: MetricsListener, tls: ssl.SSLContext | None = None, **headers: str) -> int:
    """Of a scrape, which must show the figures."""
    place = "127.0.0.1" if here.address.host == "::" else here.address.host, here.address.port
    connection = (
        http.client.HTTPConnection(*place, timeout=30)
        if tls is None
        else http.client.HTTPSConnection(*place, timeout=30, context=tls)
    )
    with closing(connection):
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
        MetricsListener(here.address, PLAIN, CollectorRegistry())
    assert "--listen" in str(caught.value)
    for host, why in ((".no-such-host", "label empty"), ("no-such-host.invalid", "")):
        with pytest.raises(ConfigError, match=f"Nothing can listen on {host}:0: .*{why}"):
            MetricsListener(ListenAddress(host, 0), PLAIN, CollectorRegistry())


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_ipv6_is_served_too_and_every_address_is_both() -> None:
    with served(address=ListenAddress.parse("[::1]:0")) as here:
        assert (status(here), here.url.startswith("http://[::1]:")) == (200, True)
    with served(address=ListenAddress.parse(":0")) as here:
        assert status(here) == 200
        with socket.create_connection(("::1", here.address.port), timeout=30):
            pass


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Makes a certificate for this machine that signs itself, in files of the given name."""
    folder = tmp_path_factory.mktemp("tls")

    def make(name: str) -> WatchSettings:
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
        subprocess.run([*command, "-keyout", key, "-out", certificate, *subject], check=True, capture_output=True)
        return WatchSettings(tls_certificate=str(certificate), tls_key=str(key))

    return make


def trusting(settings: WatchSettings) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=settings.tls_certificate)


def test_over_tls_nothing_is_served_in_plain_nor_to_versions_before_1_2(pair: Pair) -> None:
    settings = pair("one")
    with served(settings) as here:
        assert here.url.startswith("https://")
        assert isinstance(here._server.socket, ssl.SSLSocket)
        assert here._server.socket.context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert status(here, trusting(settings)) == 200
        with pytest.raises((http.client.HTTPException, OSError)):
            status(here)


def test_with_an_authority_only_its_clients_are_served(pair: Pair) -> None:
    server, client, other = pair("server"), pair("client"), pair("other client")
    with served(replace(server, tls_client_ca=client.tls_certificate)) as here:
        for each, is_served in ((client, True), (other, False), (None, False)):
            tls = trusting(server)
            if each is not None:
                tls.load_cert_chain(str(each.tls_certificate), str(each.tls_key))
            if is_served:
                assert status(here, tls) == 200
            else:
                with pytest.raises((http.client.HTTPException, OSError)):
                    status(here, tls)


def test_a_renewed_certificate_is_used_from_the_next_connection_on(pair: Pair) -> None:
    before, after = pair("before"), pair("after")
    with served(before) as here:
        assert status(here, trusting(before)) == 200
        here.renew(HOME, after)
        assert status(here, trusting(after)) == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            status(here, trusting(before))


def test_another_address_or_tls_needs_a_restart_and_the_log_says_so(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    settings = pair("restart")
    with served(settings) as here:
        here.renew(HOME, settings)
        assert caplog.messages == []
        changed = (replace(settings, tls_client_ca="x"), WatchSettings())
        for address, now in ((ListenAddress("0.0.0.0", 0), settings), *((HOME, each) for each in changed)):
            caplog.clear()
            here.renew(address, now)
            assert [f"still serves {here.url}. Restart it" in line for line in caplog.messages] == [True]


def test_unusable_files_are_a_usage_error(pair: Pair, tmp_path: Path) -> None:
    good, other, garbage, locked = pair("good"), pair("other"), tmp_path / "garbage.pem", tmp_path / "locked.key"
    garbage.write_text("no certificate")
    command = ["openssl", "ec", "-in", str(good.tls_key), "-aes256", "-passout", "pass:x", "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    for settings, why in (
        (replace(good, tls_key=str(tmp_path / "none")), "which cannot be read: No such file"),
        (replace(good, tls_key=str(tmp_path / ("k" * 300))), "which cannot be read"),  # as in another's folder
        (replace(good, tls_key=other.tls_key), "tls_key cannot be used"),
        (replace(good, tls_certificate=str(garbage)), "tls_key cannot be used"),
        (replace(good, tls_key=str(locked)), "tls_key cannot be used"),
        (replace(good, tls_client_ca=str(garbage)), "tls_client_ca cannot be used"),
    ):
        with pytest.raises(ConfigError, match=why):
            check_tls(settings)
        with pytest.raises(ConfigError, match=why), served(settings):
            pass


# ---------------------------------------------------------------- clients that hold on, or talk nonsense


def dangling(here: MetricsListener, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection((here.address.host, here.address.port), timeout=60)
    connection.sendall(sent)
    return connection


@pytest.mark.parametrize("is_tls", [False, True])
def test_silent_clients_keep_no_scrape_away_and_are_cut_off(
    is_tls: bool, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = pair("silent") if is_tls else PLAIN
    with served(settings) as here:
        crowd = [dangling(here, said) for said in (b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n") for _ in range(3)]
        assert status(here, trusting(settings) if is_tls else None) == 200
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
