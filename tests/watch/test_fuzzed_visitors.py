"""Visitors of the listener, whatever they send: an answer or a closed connection, and the next scrape is served."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge

from reconciler.core.errors import ExitCode
from reconciler.watch.listener import Access, ListenAddress, MetricsListener, Site
from tests.fuzz import AS_TYPED, JUNK, attempt, fuzz, sized, slips, words

LOGIN = "Basic cHJvbWV0aGV1czpnZWhlaW0="
HEADERS = [
    *(b"Host: x", b"Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5,*/*;q=0.1"),
    *(b"Accept-Encoding: gzip", b"Authorization: " + LOGIN.encode(), b"Content-Length: 5"),
    *(b"Transfer-Encoding: chunked",),
    *(b"Connection: keep-alive", b"Expect: 100-continue", b"Upgrade: h2c", b"Range: bytes=0-1", b" folded: x"),
    *(b"X: " + b"y" * 70_000,),
    *(b"Accept: application/openmetrics-text;version=" + b"1" * 5_000, b"Accept: " + b"text/plain;q=\xff," * 20),
    *(b"Host",),
]  # fmt: skip
METHODS = [b"GET", b"HEAD", b"POST", b"OPTIONS", b"get", b"CONNECT", b"", b"PRI"]
TARGETS = [
    *(b"/metrics", b"/healthz", b"/", b"//metrics", b"/metrics?name[]=answer", b"/metrics?name[]=%ff&name[]=\xff&&="),
    *(b"*",),
    *(b"http://x/metrics", b"/metrics/../healthz", b"/%6detrics", b"/metrics?" + b"a=b&" * 5_000, b"/\xe4"),
    *(b"/" + b"a" * 70_000,),
]  # fmt: skip
VERSIONS = [
    b" HTTP/1.1",
    b" HTTP/1.0",
    b"",
    b" HTTP/9.9",
    b" HTTP/1.1.1",
    b" HTTP/" + b"1" * 5_000,
    b" HTTP/-1.1",
    b" ICY",
]


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    line = b" ".join([draw(st.sampled_from(METHODS)), draw(slips(TARGETS, 1))]) + draw(st.sampled_from(VERSIONS))
    headers = draw(st.lists(st.sampled_from(HEADERS) | slips(HEADERS, 1), max_size=3))
    breaks = draw(st.sampled_from([b"\r\n", b"\r\n", b"\n", b"\r"]))
    return breaks.join([line, *headers, b"", b""])


@pytest.fixture
def site() -> Site:
    registry = CollectorRegistry()
    Gauge("answer", "", registry=registry).set(42)
    return Site(registry, lambda: None, Access())


@pytest.fixture
def listener(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[MetricsListener]:
    """Fails if any of its threads ends by an exception."""
    ended: list[object] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    here = MetricsListener(ListenAddress("127.0.0.1", 0), site, longest_s=5.0)
    yield here
    here.close()
    assert ended == []


@sized
def test_any_bytes_of_a_visitor_are_answered_or_dropped(listener: MetricsListener, site: Site, runs: int) -> None:
    def claim(drawn: tuple[bytes, bool]) -> None:
        sent, with_login = drawn
        site.access = replace(site.access, login=("prometheus", "geheim") if with_login else None)
        answer = visited(listener, sent)
        assert b"Traceback" not in answer
        if with_login and LOGIN.encode() not in sent:
            assert b"answer 42" not in answer
        site.access = Access()
        assert b"\nanswer 42.0\n" in visited(listener, b"GET /metrics HTTP/1.0\r\n\r\n")

    fuzz(runs, st.tuples(requests() | slips(JUNK), st.booleans()), claim)


def visited(listener: MetricsListener, sent: bytes) -> bytes:
    """The answer to what was sent; the connection's end is the end of both."""
    answer = b""
    with socket.create_connection((listener.address.host, listener.address.port), timeout=60) as connection:
        with suppress(OSError):
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        with suppress(OSError):
            while part := connection.recv(65_536):
                answer += part
    return answer


@sized
def test_any_header_and_query_have_an_answer(site: Site, runs: int) -> None:
    def claim(drawn: tuple[str, dict[str, str]]) -> None:
        target, headers = drawn
        answer = attempt(lambda: site.get(target, headers))
        assert answer is not None
        assert answer.status in (200, 401, 404)

    latin = slips([*TARGETS, *HEADERS]).map(lambda data: data.decode("latin-1"))
    names = ["Accept", "Accept-Encoding", "Authorization"]
    values = slips([header.partition(b": ")[2] for header in HEADERS]).map(lambda data: data.decode("latin-1"))
    fuzz(runs, st.tuples(latin, st.fixed_dictionaries({}, optional=dict.fromkeys(names, values))), claim)


@sized
def test_any_login_is_right_or_wrong(runs: int) -> None:
    access = Access(login=("prometheus", "geheim"))

    def claim(data: bytes) -> None:
        text = data.decode("latin-1")
        assert not access.lets_in(text) or text.lower().split() == LOGIN.lower().split()

    fuzz(runs, slips([LOGIN.encode(), b"Bearer x", b"Basic"]), claim)


@sized
def test_any_address_to_listen_on_is_one_or_is_refused_with_a_sentence(runs: int) -> None:
    def claim(text: str) -> None:
        address = attempt(lambda: ListenAddress.parse(text), ExitCode.USAGE, longest=AS_TYPED)
        if address is not None:
            assert 0 <= address.port < 65_536
            assert address.is_loopback in (True, False)

    fuzz(runs, words(["127.0.0.1:9464", "[::1]:9464", ":0", "localhost:1", "[fe80::1%eth0]:1", "h:٣"]), claim)
