"""The listener: what is served to whom, over TLS and behind a login, and that no visitor can hold it up."""

from __future__ import annotations

import base64
import gzip
import http.client
import itertools
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge, Metric
from prometheus_client.registry import Collector

from reconciler.config.settings import WatchSettings
from reconciler.core.errors import ConfigError
from reconciler.watch.listener import MOST_THREADS, Access, ListenAddress, MetricsListener, Site
from tests.waiting import wait_until

HOME = ListenAddress("127.0.0.1", 0)
LIMIT_S = 120.0


class Served:
    """A listener of this test, and how to ask it."""

    def __init__(
        self,
        access: Access | None = None,
        address: ListenAddress = HOME,
        longest_s: float = 10.0,
        patience_s: float = 1.0,
    ) -> None:
        self.trouble: str | None = None
        registry = self.registry = CollectorRegistry()
        Gauge("answer", "", registry=registry).set(42)
        Gauge("question", "", registry=registry).set(7)
        self.site = Site(registry, lambda: self.trouble, access or Access())
        self.listener = MetricsListener(address, self.site, longest_s=longest_s, patience_s=patience_s)

    @property
    def place(self) -> tuple[str, int]:
        return self.listener.address.host, self.listener.address.port

    def get(
        self, path: str, method: str = "GET", tls: ssl.SSLContext | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection: http.client.HTTPConnection
        if tls is None:
            connection = http.client.HTTPConnection(*self.place, timeout=30)
        else:
            connection = http.client.HTTPSConnection(*self.place, timeout=30, context=tls)
        try:
            connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def status(self, path: str, **headers: str) -> int:
        return self.get(path, **headers)[0]


@contextmanager
def served(access: Access | None = None, **more: object) -> Iterator[Served]:
    here = Served(access, **more)  # type: ignore[arg-type]
    try:
        yield here
    finally:
        here.listener.close()


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("text", "host", "port", "is_loopback"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464, True),
        ("127.9.9.9:1", "127.9.9.9", 1, True),
        ("[::1]:9464", "::1", 9464, True),
        ("localhost:0", "localhost", 0, True),
        ("0.0.0.0:9464", "0.0.0.0", 9464, False),
        ("[::]:9464", "::", 9464, False),
        (":9464", "", 9464, False),
        ("metrics.example.org:80", "metrics.example.org", 80, False),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int, is_loopback: bool) -> None:
    address = ListenAddress.parse(text)
    assert (address.host, address.port, address.is_loopback, str(address)) == (host, port, is_loopback, text)


@pytest.mark.parametrize(
    "text", ["", "9464", "host", "host:", "host:port", "::1:9464", "h:70000", "http://h:1", "h:-1"]
)
def test_anything_else_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="is not HOST:PORT"):
        ListenAddress.parse(text)


def test_a_port_in_use_is_a_usage_error() -> None:
    with served() as here:
        with pytest.raises(
            ConfigError, match=r"Nothing can listen on 127\.0\.0\.1:\d+: Address already in use"
        ) as caught:
            MetricsListener(ListenAddress(*here.place), here.site)
        assert "--listen" in str(caught.value)


def test_an_unknown_host_name_is_a_usage_error() -> None:
    with pytest.raises(ConfigError, match=r"Nothing can listen on \.no-such-host:0: .*label empty"):
        Served(address=ListenAddress(".no-such-host", 0))
    with pytest.raises(ConfigError, match="Nothing can listen on no-such-host"):
        Served(address=ListenAddress("no-such-host.invalid", 0))


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_ipv6_is_served_too_and_every_address_is_both() -> None:
    with served(address=ListenAddress.parse("[::1]:0")) as here:
        assert here.status("/metrics") == 200
        assert str(here.listener.address).startswith("[::1]:")
    with served(address=ListenAddress.parse(":0")) as here:
        port = here.listener.address.port
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, port), timeout=30) as connection:
                connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.0 200")


# ---------------------------------------------------------------- answers


def test_metrics_are_served_as_text_and_as_openmetrics_and_compressed_where_asked() -> None:
    with served() as here:
        status, headers, body = here.get("/metrics")
        assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
        assert b"\nanswer 42.0\n" in body
        status, headers, body = here.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert headers["Content-Type"].startswith("application/openmetrics-text")
        assert body.endswith(b"# EOF\n")
        status, headers, body = here.get("/metrics", Accept_Encoding="gzip")
        assert headers["Content-Encoding"] == "gzip"
        assert b"answer 42.0" in gzip.decompress(body)
        _, _, body = here.get("/metrics?name[]=question")
        assert (b"answer" in body, b"question 7.0" in body) == (False, True)


def test_health_is_200_or_503_with_the_reason() -> None:
    with served() as here:
        assert here.get("/healthz")[::2] == (200, b"ok\n")
        here.trouble = "No round has ended."
        assert here.get("/healthz")[::2] == (503, b"No round has ended.\n")


def test_other_paths_and_methods_are_refused() -> None:
    with served() as here:
        assert b'href="metrics"' in here.get("/")[2]
        assert here.status("/metrics/../../etc/passwd") == 404
        assert here.get("/metrics", method="HEAD")[::2] == (200, b"")
        assert int(here.get("/metrics", method="HEAD")[1]["Content-Length"]) > 0
        assert [here.get("/metrics", method=method)[0] for method in ("POST", "PUT", "DELETE")] == [501] * 3
        assert "Python" not in here.get("/")[1]["Server"]


# ---------------------------------------------------------------- logins


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_only_the_right_login_sees_metrics_and_every_client_sees_health() -> None:
    with served(Access(login=("prometheus", "geheim: ü"))) as here:
        assert here.status("/metrics", Authorization=basic("prometheus", "geheim: ü")) == 200
        for wrong in (
            basic("prometheus", "geheim"),
            basic("other", "geheim: ü"),
            basic("", ""),
            "Basic ???",
            "Basic",
            "Bearer abc",
            "",
        ):
            status, headers, body = here.get("/metrics", Authorization=wrong)
            assert (status, b"answer" in body) == (401, False)
            assert headers["WWW-Authenticate"].startswith("Basic")
        assert here.status("/") == 401
        assert here.status("/healthz") == 200


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], WatchSettings]:
    """Makes a certificate for localhost that signs itself, in files of the given name."""
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


def test_over_tls_nothing_is_served_in_plain(pair: Callable[[str], WatchSettings]) -> None:
    settings = replace(pair("one"), username="u", password="p")
    with served(Access.of(settings)) as here:
        tls = trusting(settings)
        assert here.get("/metrics", tls=tls, Authorization=basic("u", "p"))[0] == 200
        assert here.get("/metrics", tls=tls)[0] == 401
        with pytest.raises((http.client.HTTPException, OSError)):
            here.get("/healthz")
        assert here.get("/healthz", tls=tls)[0] == 200


def test_versions_before_tls_1_2_are_refused(pair: Callable[[str], WatchSettings]) -> None:
    settings = pair("old")
    access = Access.of(settings)
    assert access.tls is not None
    assert access.tls.minimum_version == ssl.TLSVersion.TLSv1_2
    with served(access) as here:
        modern = trusting(settings)
        modern.minimum_version = modern.maximum_version = ssl.TLSVersion.TLSv1_2
        assert here.get("/healthz", tls=modern)[0] == 200


def test_another_certificate_is_used_from_the_next_connection_on(pair: Callable[[str], WatchSettings]) -> None:
    before, after = pair("before"), pair("after")
    with served(Access.of(before)) as here:
        assert here.get("/healthz", tls=trusting(before))[0] == 200
        here.site.access = Access.of(after)
        assert here.get("/healthz", tls=trusting(after))[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            here.get("/healthz", tls=trusting(before))


def test_unusable_files_are_a_usage_error(pair: Callable[[str], WatchSettings], tmp_path: Path) -> None:
    good, other = pair("good"), pair("other")
    with pytest.raises(ConfigError, match="which is not there"):
        Access.of(replace(good, tls_key=str(tmp_path / "none")))
    with pytest.raises(ConfigError, match="names the file"):  # the system refuses to look, as in another's folder
        Access.of(replace(good, tls_key=str(tmp_path / ("k" * 300))))
    with pytest.raises(ConfigError, match="cannot be used"):
        Access.of(replace(good, tls_key=other.tls_key))
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    with pytest.raises(ConfigError, match="cannot be used"):
        Access.of(replace(good, tls_certificate=str(garbage)))
    locked = tmp_path / "locked.key"
    command = ["openssl", "ec", "-in", str(good.tls_key), "-aes256", "-passout", "pass:x", "-out", locked]
    subprocess.run(command, check=True, capture_output=True)
    with pytest.raises(ConfigError, match="cannot be used"):
        Access.of(replace(good, tls_key=str(locked)))


@pytest.mark.parametrize(
    "settings",
    [
        WatchSettings(username="", password=""),
        WatchSettings(username="prometheus", password=""),
        WatchSettings(tls_certificate="", tls_key=""),
        WatchSettings(tls_certificate="/watch.pem"),
    ],
)
def test_an_empty_login_or_certificate_does_not_open_the_listener_to_all(settings: WatchSettings) -> None:
    with pytest.raises(ConfigError, match="belong together, and one is missing or empty"):
        Access.of(settings)


# ---------------------------------------------------------------- visitors that hold on


def dangling(here: Served, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(here.place, timeout=60)
    connection.sendall(sent)
    return connection


def test_a_visitor_who_says_nothing_or_too_slowly_is_cut_off() -> None:
    with served(longest_s=0.5) as here:
        for said in (b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"):
            with dangling(here, said) as connection:
                while part := connection.recv(1_000):
                    assert part
    # A server that waited for the rest would have waited for the test's own 60 s, which raises.


def test_a_visitor_who_drips_is_cut_off_all_the_same() -> None:
    """One letter of one header after the other, each well in time."""
    with served(longest_s=0.5) as here, dangling(here, b"GET /metrics HTTP/1.1\r\nX: ") as connection:
        connection.settimeout(0.05)
        for number in itertools.count():
            assert number < 400
            try:
                connection.sendall(b"y")
                if connection.recv(1_000) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break


def test_a_crowd_of_silent_visitors_does_not_keep_a_scrape_away() -> None:
    with served() as here:
        crowd = [dangling(here) for _ in range(3 * MOST_THREADS)]
        try:
            for _ in range(3):
                assert here.status("/metrics") == 200
            threads = [thread for thread in threading.enumerate() if thread.name == "visitor"]
            assert len(threads) <= MOST_THREADS
        finally:
            for connection in crowd:
                connection.close()


def test_a_crowd_that_never_shakes_hands_does_not_keep_a_scrape_away(pair: Callable[[str], WatchSettings]) -> None:
    settings = pair("crowd")
    with served(Access.of(settings)) as here:
        crowd = [dangling(here) for _ in range(2 * MOST_THREADS)]
        try:
            assert here.get("/metrics", tls=trusting(settings))[0] == 200
        finally:
            for connection in crowd:
                connection.close()


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"GET " + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n\r\n\r\n",
        b"GET /metrics?name[]=%ff&name[]=\xff HTTP/1.1\r\n\r\n",
    ],
)
def test_nonsense_is_answered_or_dropped_and_the_next_scrape_is_served(said: bytes) -> None:
    with served(longest_s=1.0) as here:
        with dangling(here, said) as connection, suppress(ConnectionResetError):
            while connection.recv(65_536):
                pass
        assert here.status("/metrics") == 200


@pytest.mark.parametrize("version", ["abc", "", "²", "1.0.0.0.0", "-1", "1" * 5000, "1.0;1.0"])
@pytest.mark.parametrize("kind", ["application/openmetrics-text", "text/plain", "*/*"])
def test_an_accept_header_of_anything_is_answered(kind: str, version: str) -> None:
    with served() as here:
        accept = f"{kind}; version={version}; escaping=allow-utf-8; q=x".encode().decode("latin-1")
        status, _, body = here.get("/metrics", Accept=accept)
        assert (status, b"answer 42.0" in body) == (200, True)


@pytest.mark.parametrize("crowds", [1, pytest.param(3, marks=pytest.mark.thorough)])
def test_a_crowd_that_never_reads_its_answer_does_not_keep_a_probe_away(crowds: int) -> None:
    with served(longest_s=600.0, patience_s=0.3) as here:
        for number in range(4_000):  # an answer that fits into no socket's buffers
            Gauge(f"large_{number}", "x" * 2_000, registry=here.registry).set(1)
        crowd = []
        try:
            for _ in range(crowds * MOST_THREADS):
                connection = socket.socket()
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                connection.connect(here.place)
                connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                crowd.append(connection)
            assert here.status("/healthz") == 200, "long before the crowd's time is over"
        finally:
            for connection in crowd:
                connection.close()


class Made(Collector):
    """A figure that takes as long to make as the machine is busy."""

    def __init__(self) -> None:
        self.begun, self.may_end = 0, threading.Event()

    def collect(self) -> Iterator[Metric]:
        self.begun += 1
        assert self.may_end.wait(LIMIT_S)
        yield Metric("made", "", "gauge")

    def describe(self) -> list[Metric]:
        return []


@contextmanager
def busy(patience_s: float) -> Iterator[tuple[Served, Made]]:
    """All threads are making an answer."""
    with served(longest_s=LIMIT_S, patience_s=patience_s) as here:
        made = Made()
        here.registry.register(made)
        crowd = [socket.create_connection(here.place) for _ in range(MOST_THREADS)]
        try:
            for connection in crowd:
                connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            wait_until(lambda: made.begun == MOST_THREADS, "all answers are being made")
            yield here, made
        finally:
            made.may_end.set()
            for connection in crowd:
                connection.close()


def test_a_probe_waits_for_the_threads_of_those_whose_answers_are_still_being_made() -> None:
    """On a busy machine that takes longer than the visitors that are cut were given."""
    with busy(patience_s=0.0) as (here, made), ThreadPoolExecutor() as pool:
        probe = pool.submit(here.status, "/healthz")
        visits = here.listener._server._visits
        wait_until(lambda: all(visit.is_cut for visit in [*visits.values()]), "every slow visitor was cut")
        assert not probe.done()
        made.may_end.set()
        assert probe.result() == 200


def test_a_probe_that_waits_does_not_keep_the_listener_open() -> None:
    with ThreadPoolExecutor() as pool, busy(patience_s=LIMIT_S) as (here, _), socket.create_connection(here.place):
        pool.submit(here.listener.close).result(LIMIT_S / 2)


def test_many_scrapes_at_once_are_all_served() -> None:
    with served() as here:
        seen: list[int] = []
        threads = [threading.Thread(target=lambda: seen.append(here.status("/metrics"))) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [200] * 12


def test_after_close_nothing_listens() -> None:
    with served() as here:
        place = here.place
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(place, timeout=30)
