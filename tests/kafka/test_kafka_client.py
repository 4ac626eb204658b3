"""The Kafka client's errors as the product's, also of servers that are not Kafka or speak another protocol.

A deleted position is reported for the read that asked for it, and for no other. A record without a time has none.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from reconciler.core.errors import Changed, ConfigError, ReconcilerError, Refused, Unreachable
from reconciler.kafka import reader
from reconciler.kafka.connection import Connection
from reconciler.kafka.errors import ClusterErrors, Needs, addresses, plain_text
from reconciler.kafka.reader import KafkaLogReader
from reconciler.kafka.reading_process import open_log
from reconciler.ports import ReadRequest, TopicPartition
from reconciler.waits import waiting
from tests.kafka.mock_cluster import PLACE, mock_cluster

LOGIN = KafkaError(
    KafkaError._AUTHENTICATION,
    "sasl_ssl://b:9092/bootstrap: SASL authentication error: Authentication failed (after 311ms in state AUTH_REQ)",
)


def cluster(client: dict[str, str] | None = None) -> ClusterErrors:
    return ClusterErrors("the destination cluster at b:9092", "user 'clicks'", 10.0, client or {})


def explained(code: int, reported: ClusterErrors | None = None, needs: Needs | None = None) -> ReconcilerError:
    return (reported or cluster()).explain(KafkaError(code), "read a.events-0", needs or Needs())


@pytest.mark.parametrize(
    ("code", "kind", "retry", "words"),
    [
        (KafkaError._TIMED_OUT, Unreachable, True, "gave no answer in 10 s (Timed out)"),
        (KafkaError._ALL_BROKERS_DOWN, Unreachable, True, "gave no answer in 10 s"),
        (KafkaError.UNKNOWN, Unreachable, True, "gave no answer in 10 s"),
        (KafkaError.NOT_LEADER_FOR_PARTITION, Unreachable, True, "was not ready for it ("),
        (KafkaError._NOENT, Unreachable, True, "was not ready for it ("),
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, Unreachable, True, "was not ready for it ("),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Changed, True, "no longer knows the topic or partition"),
        (KafkaError._AUTHENTICATION, Refused, False, "refused the login of user 'clicks'"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Refused, False, "user 'clicks' needs Read on topic 'a.events'"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Refused, False, "user 'clicks' needs Read on group 'g'"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, Refused, False, "lacks a permission (Cluster authorization failed)"),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, Refused, False, "b:9092 refused ("),
    ],
)
def test_each_code_says_whose_move_it_is_and_whether_a_retry_helps(
    code: int, kind: type[ReconcilerError], retry: bool, words: str
) -> None:
    error = explained(code, needs=Needs(topic="Read on topic 'a.events'", group="Read on group 'g'"))
    assert type(error) is kind
    assert error.retryable is retry
    assert error.message.startswith("Could not read a.events-0: the destination cluster at b:9092 ")
    assert words in error.message
    assert error.hint


def test_a_cluster_that_was_not_ready_is_told_with_the_time_it_was_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr("reconciler.waits.monotonic", lambda: now[0])
    with waiting("b:9092", lambda: 2.0), waiting("b:9092", lambda: 10.0):
        now[0] += 2.2
        error = explained(KafkaError.NOT_LEADER_FOR_PARTITION)
    assert "b:9092 was not ready for it after 2 s (" in error.message


def test_a_call_that_timed_out_because_the_login_was_refused_is_no_timeout() -> None:
    reported = cluster()
    reported(LOGIN)
    reported(KafkaError(KafkaError._TRANSPORT, "b:9092/1: Disconnected (after 2ms in state UP)"))
    error = explained(KafkaError._TIMED_OUT, reported)
    assert isinstance(error, Refused)
    assert "(SASL authentication error: Authentication failed)" in error.message


def test_a_refused_login_of_an_earlier_call_explains_nothing() -> None:
    reported = cluster()
    reported(LOGIN)
    reported(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    reported.clear()
    assert not reported.all_down
    assert type(explained(KafkaError._TIMED_OUT, reported)) is Unreachable


def test_a_group_that_may_not_be_looked_up_is_not_about_the_connection() -> None:
    reported = cluster()
    reported(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "FindCoordinator response error"))
    assert reported.last is None


@pytest.mark.parametrize(
    ("said", "plain"),
    [
        (
            "ssl://b:9092/bootstrap: SSL handshake failed: x (after 3ms in state SSL_HANDSHAKE)",
            "SSL handshake failed: x",
        ),
        (
            "b:9092/1: Connect to ipv4#127.0.0.1:1 failed: refused (after 0ms in state CONNECT, 1 identical error(s) "
            "suppressed)",
            "Connect to ipv4#127.0.0.1:1 failed: refused",
        ),
        ("Broker: Group authorization failed", "Group authorization failed"),
    ],
)
def test_the_clients_text_loses_its_decoration(said: str, plain: str) -> None:
    assert plain_text(KafkaError(KafkaError._FAIL, said)) == plain


@pytest.mark.parametrize("value", ["-----BEGIN PRIVATE KEY-----\nhush\n", "hush\nhush"])
def test_a_key_in_the_place_of_its_path_is_not_repeated(value: str) -> None:
    client = {"bootstrap.servers": "b:9092", "security.protocol": "SSL", "ssl.key.location": value}
    with pytest.raises(ConfigError) as caught:
        Connection(client, timeout_s=1).admin()
    assert "hush" not in str(caught.value)
    assert "ssl.key.pem" in str(caught.value)


def test_every_unknown_property_is_named_at_once() -> None:
    client = {"bootstrap.servers": "b:9092", "sasl.passwrod": "hush", "client.id": "x", "no.such": "hush"}
    with pytest.raises(ConfigError) as caught:
        Connection(client, timeout_s=1).admin()
    assert 'No such configuration properties: "sasl.passwrod", "no.such".' in str(caught.value)
    assert "Did you mean sasl.password?" in str(caught.value)
    assert "hush" not in str(caught.value)


# ---------------------------------------------------------------- connections that break off

CLIENT = {"bootstrap.servers": "b:9092", "security.protocol": "SSL"}
NOT_VERIFIED = "ssl://b:9092/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: x"
ALERT = "ssl://b:9092/bootstrap: Receive failed: error:0A00045C:SSL routines::tlsv13 alert certificate required: SSL"


def after(said: str | None, client: dict[str, str]) -> ClusterErrors:
    reported = cluster(client)
    if said is not None:
        reported(KafkaError(KafkaError._SSL, said))
    reported(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    return reported


@pytest.mark.parametrize(
    ("said", "client", "words"),
    [
        (NOT_VERIFIED, {}, "shows a certificate that is not trusted here"),
        (ALERT, {}, "asks for a client certificate, and none is configured"),
        (ALERT, {"ssl.certificate.pem": "x"}, "does not accept the client's certificate (Receive failed: error:0A00"),
        (ALERT.replace("certificate required", "protocol version"), {}, None),
        ("ssl://b:9092/bootstrap: Connect to ipv4#127.0.0.1:9092 failed: Connection refused", {}, None),
        (None, {}, None),
    ],
)
def test_a_certificate_is_blamed_only_where_the_client_does_so(
    said: str | None, client: dict[str, str], words: str | None
) -> None:
    found = after(said, {**CLIENT, **client}).tls_refused("read a.events-0")
    if words is None:
        assert found is None
    else:
        assert found is not None
        assert found.message.startswith(f"Could not read a.events-0: the destination cluster at b:9092 {words}")
        assert found.hint


@pytest.mark.parametrize(
    "why",
    [
        "SSL handshake failed: Disconnected: connection reset by peer: connecting to a PLAINTEXT broker listener?",
        "Disconnected: SSL connection closed by peer",
        "Disconnected: connection reset by peer",
    ],
)
def test_a_plain_port_is_told_by_any_of_the_texts_that_the_client_has_for_it(why: str) -> None:
    said = f"ssl://b:9092/bootstrap: {why} (after 0ms in state SSL_HANDSHAKE)"
    assert "That port may speak without TLS" in (after(said, CLIENT).other_protocol() or "")


def test_a_port_of_another_program_is_told_by_the_size_of_its_answer() -> None:
    said = "b:9092/bootstrap: Receive failed: Invalid response size 1008813135 (0..100000000): increase …"
    assert "does not speak Kafka over PLAINTEXT: correct bootstrap_servers" in (after(said, {}).other_protocol() or "")


@pytest.mark.parametrize(
    ("servers", "places"),
    [
        ("b1:9092,b2:9093", [("b1", 9092), ("b2", 9093)]),
        ("SASL_SSL://b:9094", [("b", 9094)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("b", [("b", 9092)]),
        (" b:1 , ", [("b", 1)]),
        ("", []),
    ],
)
def test_bootstrap_servers_are_read_as_the_client_reads_them(servers: str, places: list[tuple[str, int]]) -> None:
    assert addresses(servers) == places


@contextmanager
def server(talk: Callable[[socket.socket], object]) -> Iterator[str]:
    """Something else at an address: ``talk`` has each connection until it returns."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    try:
                        talk(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def hangs_up(connection: socket.socket) -> None:
    connection.recv(1)


def speaks_http(connection: socket.socket) -> None:
    connection.recv(1024)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def answers_too_much(connection: socket.socket) -> None:
    connection.recv(1024)
    connection.sendall((2**31 - 1).to_bytes(4, "big"))


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("talk", [hangs_up, speaks_http, answers_too_much])
def test_a_server_that_is_not_kafka_gives_no_answer_and_a_retry_may_help(
    talk: Callable[[socket.socket], object], protocol: str
) -> None:
    with server(talk) as address:
        reader = KafkaLogReader({"bootstrap.servers": address, "security.protocol": protocol}, timeout_s=1.0)
        with pytest.raises(Unreachable, match=f"the destination cluster at {address} gave no answer in 1 s") as caught:
            reader.describe(())
    assert caught.value.retryable
    if talk is hangs_up:
        assert "security.protocol" in str(caught.value.hint)


def test_a_server_that_hangs_up_may_speak_another_protocol() -> None:
    with server(hangs_up) as address:
        said = after(None, {"bootstrap.servers": address}).other_protocol()
    assert said is not None
    assert said.startswith("It accepts connections and closes them")


def test_a_server_that_hangs_is_not_blamed_for_its_protocol() -> None:
    """A frozen broker's connections are accepted by its kernel; security.protocol is right, and no cure."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        assert after(None, {"bootstrap.servers": address}).other_protocol() is None


def test_without_a_listener_no_protocol_is_blamed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert after(None, {"bootstrap.servers": f"127.0.0.1:{port}"}).other_protocol() is None


def test_the_size_of_the_jobs_own_messages_does_not_limit_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client refused every look-up and read, or those after a broker was slow once."""
    place, size = TopicPartition("large", 0), 3 * 1024 * 1024
    with mock_cluster() as bootstrap:
        settings = {"bootstrap.servers": bootstrap, "log_level": 0, "message.max.bytes": 10 * 1024 * 1024}
        producer = Producer(settings)
        producer.produce(place.topic, bytes(size), partition=place.partition)
        assert producer.flush(10) == 0
        for answer_bytes in (reader.ANSWER_BYTES, reader.SMALL_ANSWER_BYTES):
            monkeypatch.setattr(reader, "ANSWER_BYTES", answer_bytes)
            for sparing in (False, True):
                with closing(KafkaLogReader(settings, sparing=sparing)) as log:
                    assert log.log_ends([place]) == {place: 1}
                    (chunk,) = log.read([ReadRequest(place, 0, 1)])
                    assert [len(record.value or b"") for record in chunk.records] == [size]


DATED_MS = 1_700_000_000_000


@pytest.mark.parametrize("opened", [KafkaLogReader, partial(open_log, memory=128 * 1024 * 1024)], ids=["here", "apart"])
def test_a_record_without_a_time_has_none(opened: Callable[[dict[str, object]], KafkaLogReader]) -> None:
    with mock_cluster() as bootstrap:
        client: dict[str, object] = {"bootstrap.servers": bootstrap, "log_level": 0}
        producer = Producer(client)
        for stamp in (-1, DATED_MS):
            producer.produce("undated", b"value", partition=0, timestamp=stamp)
        assert producer.flush(30) == 0
        with closing(opened(client)) as log:
            (chunk,) = log.read([ReadRequest(TopicPartition("undated", 0), 0, 2)])
    assert [record.timestamp_ms for record in chunk.records] == [None, DATED_MS]


GONE = 1_000


@pytest.fixture
def client() -> Iterator[dict[str, Any]]:
    with mock_cluster() as bootstrap:
        yield {"bootstrap.servers": bootstrap, "log_level": 0}


class ReportsTwice:
    """A consumer that says of a gone position once more, after the next ``assign``, that it is gone."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._reports: list[Any] = []
        self._late: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def assign(self, places: list[KafkaPartition]) -> None:
        self._reports, self._late = [], self._reports
        self._consumer.assign(places)

    def consume(self, count: int, timeout: float) -> list[Any]:
        late, self._late = self._late, []
        messages = self._consumer.consume(count, timeout)
        self._reports += [each for each in messages if each.error() is not None and is_gone(each)]
        return late + messages


def is_gone(message: Any) -> bool:
    return bool(message.error().code() == KafkaError._AUTO_OFFSET_RESET)


def test_the_next_read_is_not_told_that_its_position_is_gone(
    client: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer_of, made = Connection.consumer, []

    def consumer(self: Connection, properties: Mapping[str, Any]) -> ReportsTwice:
        made.append(ReportsTwice(consumer_of(self, properties)))
        return made[-1]

    monkeypatch.setattr(Connection, "consumer", consumer)
    with closing(KafkaLogReader(client)) as reader:
        for offset in (GONE, 3, GONE, GONE + 1, 4):
            (chunk,) = reader.read([ReadRequest(PLACE, offset, 1)])
            assert chunk.out_of_range is (offset >= GONE)
            assert [record.value for record in chunk.records] == ([] if offset >= GONE else [b"value %d" % offset])
    assert len(made) == 4, "a client stops fetching when it reports, also if that is late"
