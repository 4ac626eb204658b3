"""The group store's own guarantees, against a real broker; and its errors, which need none."""

import logging
import subprocess
import sys
import time
from contextlib import closing, contextmanager

import pytest

from reconciler.core import anchor_fields
from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError, OutcomeUnknown, Refused, Unreachable
from reconciler.places.kafka import group as kafka_group
from reconciler.places.kafka.group import KafkaGroupStore
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition
from tests.places.store_cases import NOW, kafka_case, put
from tests.waiting import wait_until

ANCHOR = Anchor(41, NOW - 1, b"\x00id", fingerprint(b"k", b"v"), "cluster-a", "topic-1")

system = pytest.mark.system


@pytest.fixture
def bootstrap(request) -> str:
    return request.getfixturevalue("clusters").destination.bootstrap


@pytest.fixture
def case(bootstrap):
    return kafka_case(bootstrap)


@pytest.fixture
def store(case):
    opened = case.open()
    yield opened
    opened.close()


@pytest.fixture
def group(case):
    return case.group()


@contextmanager
def plain_consumer(bootstrap, group, **settings):
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    if settings.get("group.protocol") == "consumer":
        del settings["session.timeout.ms"]
    consumer = Consumer(settings)
    try:
        yield consumer
    finally:
        consumer.close()


def committed(bootstrap, group, key):
    """The commits as another client sees them."""
    from confluent_kafka import TopicPartition as KafkaPartition

    with plain_consumer(bootstrap, group) as consumer:
        (found,) = consumer.committed([KafkaPartition(key.topic, key.partition)], timeout=20)
    return found.offset, found.metadata


def commit(bootstrap, group, key, offset, metadata=None):
    """A commit of a program without anchors."""
    from confluent_kafka import TopicPartition as KafkaPartition

    row = KafkaPartition(key.topic, key.partition, offset, *([] if metadata is None else [metadata]))
    with plain_consumer(bootstrap, group) as consumer:
        consumer.commit(offsets=[row], asynchronous=False)


# ---------------------------------------------------------------- rows


@system
def test_a_plain_client_sees_offset_and_metadata(store, case, group, bootstrap):
    stored = StoredOffset(42, ANCHOR, NOW)
    put(store, group, {case.key(): stored})
    offset, metadata = committed(bootstrap, group, case.key())
    assert offset == 42
    assert metadata == anchor_fields.encode(stored)


def test_all_rows_of_a_group_are_found_in_whatever_topics_they_are(monkeypatch):
    """In the client library's own cluster: it has groups' offsets, and neither a controller nor their descriptions."""
    from confluent_kafka import Producer

    from reconciler.kafka.connection import Connection
    from reconciler.places.kafka import requests

    monkeypatch.setattr(Connection, "await_answer", lambda *_: None)
    monkeypatch.setattr(requests, "_described_group", lambda *_: None)
    monkeypatch.setattr(requests, "AT_ONCE", 3)
    cluster = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=30).brokers.values()
    for topic in ("a.events", "views"):
        cluster.produce(topic, b"makes the topic")
    assert cluster.flush(30) == 0
    place = f"{broker.host}:{broker.port}"
    commit(place, "readers", TopicPartition("a.events", 0), 5, "host-17")
    commit(place, "readers", TopicPartition("views", 3), 7)
    with closing(KafkaGroupStore({"bootstrap.servers": place}, timeout_s=30)) as store:
        assert read_offsets(store, "readers") == {("a.events", 0): 5, ("views", 3): 7}
        assert store.read("nobody") == []


@system
@pytest.mark.parametrize("metadata", [None, "", "host-17", '{"v":99}', "é" * 100])
def test_commits_of_other_programs_are_rows_without_anchor(store, case, group, bootstrap, metadata):
    commit(bootstrap, group, case.key(), 7, metadata)
    (row,) = store.read(group)
    assert row.stored == StoredOffset(7)
    result = store.write(group, [Change(row.key, row.version, StoredOffset(8, ANCHOR))], reason="test", now_ms=NOW)
    assert result.written == (row.key,)
    assert store.read(group)[0].stored == StoredOffset(8, ANCHOR, NOW)


@system
def test_a_commit_of_another_program_is_a_conflict(store, case, group, bootstrap):
    put(store, group, {case.key(): StoredOffset(5, ANCHOR)})
    (row,) = store.read(group)
    commit(bootstrap, group, case.key(), 5)  # the same offset, but no longer our anchor
    assert group in store.group_names()
    result = store.write(group, [Change(row.key, row.version, StoredOffset(6))], reason="test", now_ms=NOW)
    assert result.conflicts == (row.key,)
    assert committed(bootstrap, group, case.key())[0] == 5


@system
def test_a_long_id_stays_within_the_brokers_limit(store, case, group):
    anchor = Anchor(1, 2, b"i" * 5000, fingerprint(b"i" * 5000, None), "c", "t")
    put(store, group, {case.key(): StoredOffset(2, anchor)})
    (row,) = store.read(group)
    assert row.stored.anchor.id is None
    assert row.stored.anchor.fingerprint == anchor.fingerprint


@system
def test_many_partitions_go_in_several_commits(store, case, group, monkeypatch):
    monkeypatch.setattr(kafka_group, "BATCH", 3)
    rows = {
        case.key(partition, topic): StoredOffset(partition + 1, ANCHOR, NOW)
        for partition in range(4)
        for topic in (0, 1)
    }
    assert set(put(store, group, rows).written) == set(rows)
    assert {row.key: row.stored for row in store.read(group)} == rows


@contextmanager
def offsets_in_a_transaction(bootstrap, group, *rows):
    """A transaction of a consume-transform-produce program, open within the block; yields its producer."""
    from confluent_kafka import Producer
    from confluent_kafka import TopicPartition as KafkaPartition

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{group}-job", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    with plain_consumer(bootstrap, group) as consumer:
        offsets = [KafkaPartition(key.topic, key.partition, offset, "theirs") for key, offset in rows]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        yield producer


def read_offsets(store, group, topics=None):
    return {(row.key.topic, row.key.partition): row.stored.offset for row in store.read(group, topics)}


@system
def test_offsets_that_a_transaction_committed_are_rows_of_every_topic_and_aborted_ones_of_none(case, group, bootstrap):
    store = case.open()
    with offsets_in_a_transaction(bootstrap, group, (case.key(0, 0), 5), (case.key(1, 1), 6)) as producer:
        producer.commit_transaction(30)
    with offsets_in_a_transaction(bootstrap, group, (case.key(0, 0), 50), (case.key(2, 0), 7)) as producer:
        producer.abort_transaction(30)
    here, there = case.topics
    expected = {(here, 0): 5, (there, 1): 6}
    assert read_offsets(store, group) == read_offsets(store, group, case.topics) == expected
    assert read_offsets(store, group, [there]) == {(there, 1): 6}


@system
def test_a_partitions_first_offset_is_waited_for_while_its_transaction_is_open(case, group, bootstrap):
    put(case.open(), group, {case.key(0): StoredOffset(1)})
    hasty = KafkaGroupStore({"bootstrap.servers": bootstrap}, timeout_s=5)
    with offsets_in_a_transaction(bootstrap, group, (case.key(1), 9)) as producer:
        with pytest.raises(Unreachable, match="unstable offsets"):
            hasty.read(group, case.topics)
        for call in (
            lambda: hasty.read(group),
            lambda: hasty.write(group, [Change(case.key(1), None, StoredOffset(2))], reason="test", now_ms=NOW),
        ):
            with pytest.raises(Unreachable, match="unstable offsets"):
                call()
        producer.commit_transaction(30)
    both = {(case.topics[0], 0): 1, (case.topics[0], 1): 9}
    assert read_offsets(case.open(), group, case.topics) == read_offsets(case.open(), group) == both


@system
def test_a_transaction_on_another_topic_of_the_group_blocks_no_read(case, group, bootstrap):
    rows = {case.key(0, 0): StoredOffset(1), case.key(0, 1): StoredOffset(2)}
    put(case.open(), group, rows)
    store = KafkaGroupStore({"bootstrap.servers": bootstrap}, timeout_s=30)
    with offsets_in_a_transaction(bootstrap, group, (case.key(0, 0), 9)) as producer:
        assert read_offsets(store, group, [case.topics[1]]) == {(case.topics[1], 0): 2}
        producer.abort_transaction(30)


# ---------------------------------------------------------------- refusals


@system
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_live_members_is_refused(store, case, group, bootstrap, protocol):
    put(store, group, {case.key(): StoredOffset(5)})
    (row,) = store.read(group)
    change = Change(row.key, row.version, StoredOffset(6))
    with plain_consumer(bootstrap, group, client_id="st-job", group_protocol=protocol) as consumer:
        consumer.subscribe([case.topics[0]])
        wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), "the group has a live member", look_s=0)
        for attempt in (
            lambda: store.check_writable(group),
            lambda: store.write(group, [change], reason="test", now_ms=NOW),
        ):
            with pytest.raises(Refused, match=r"has 1 live member \(st-job at .*nothing was written") as caught:
                attempt()
            assert "Stop the job" in caught.value.hint
        assert [member.partition(" at ")[0] for member in store.members(group)] == ["st-job"]
        assert store.read(group) == [row]
    assert store.members(group) == ()
    store.check_writable(group)
    assert store.write(group, [change], reason="test", now_ms=NOW).written == (row.key,)


@system
def test_the_broker_refuses_a_commit_if_a_member_joins_in_between(store, case, group, bootstrap, monkeypatch):
    put(store, group, {case.key(): StoredOffset(5)})
    (row,) = store.read(group)
    monkeypatch.setattr(store, "_refuse_live", lambda group: None)
    with plain_consumer(bootstrap, group) as consumer:
        consumer.subscribe([case.topics[0]])
        while not consumer.assignment():
            consumer.poll(0.1)
        with pytest.raises(Refused, match="it has live members; nothing was written"):
            store.write(group, [Change(row.key, row.version, StoredOffset(6))], reason="test", now_ms=NOW)
    assert store.read(group) == [row]


@system
def test_topics_and_partitions_that_do_not_exist_are_named_before_anything_is_written(store, case, group):
    good = Change(case.key(), None, StoredOffset(1))
    for key, sentence in (
        (TopicPartition("st-none-such", 0), "no topic 'st-none-such'; nothing was written"),
        (TopicPartition("thème d'un", 0), 'no topic "thème d\'un"; nothing was written'),
        (case.key(99), f"no partition 99 of topic '{case.topics[0]}'; nothing was written"),
    ):
        bad = Change(key, None, StoredOffset(1))
        with pytest.raises(Refused, match=sentence):
            store.write(group, [good, bad], reason="test", now_ms=NOW)
    assert store.read(group) == []


@system
def test_a_sentinel_is_refused(store, case, group):
    with pytest.raises(Refused, match="Kafka holds no negative offset: -1"):
        put(store, group, {case.key(1): StoredOffset(1), case.key(): StoredOffset(-1)})
    assert store.read(group) == []


# ---------------------------------------------------------------- outcomes


@system
def test_rows_overwritten_at_once_are_detected(store, case, group, bootstrap, monkeypatch):
    store.check_writable(group)
    written = store._requests.commit

    def write_then_lose(group, rows):
        written(group, rows)
        commit(bootstrap, group, case.key(), 99)

    monkeypatch.setattr(store._requests, "commit", write_then_lose)
    with pytest.raises(OutcomeUnknown, match="read again right after the commit"):
        put(store, group, {case.key(): StoredOffset(2)})


@system
def test_a_request_to_a_loading_coordinator_is_repeated(store, case, group, monkeypatch):
    from confluent_kafka import KafkaError, KafkaException

    put(store, group, {case.key(): StoredOffset(1)})
    real = store._requests._admin.connection.consumer
    answers = [
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
    ]

    class NotYet:
        def __init__(self, properties):
            self._consumer = real(properties)

        def committed(self, *args, **kwargs):
            if answers:
                raise KafkaException(KafkaError(answers.pop()))
            return self._consumer.committed(*args, **kwargs)

        def close(self):
            self._consumer.close()

    codes = list(answers)
    monkeypatch.setattr(store._requests._admin.connection, "consumer", NotYet)
    for topics in ([case.key().topic], None):
        store._requests.close()  # the next read opens another consumer
        answers[:] = codes
        assert len(store.read(group, topics)) == 1
        assert answers == []


# ---------------------------------------------------------------- without a broker


def test_a_cluster_that_is_down_is_an_error_in_time(caplog):
    store = open_store("kafka-group:", kafka_client={"bootstrap.servers": "localhost:1"})
    store._timeout_s = 2.0
    caplog.set_level(logging.INFO)
    started = time.monotonic()
    with pytest.raises(Unreachable, match=r"localhost:1 gave no answer in 2 s .*Connection refused") as caught:
        store.read("st-group")
    assert time.monotonic() - started < 20
    assert caught.value.retryable
    assert caplog.records == [], "the client's own log is a detail"
    store.close()


def test_nothing_is_printed_by_the_client():
    program = (
        "from reconciler.places.kafka.group import KafkaGroupStore\n"
        "from reconciler.core.errors import Unreachable\n"
        "settings = {'bootstrap.servers': 'localhost:1', 'group.id': 'x'}\n"
        "try: KafkaGroupStore(settings, timeout_s=1).check_writable('g')\n"
        "except Unreachable: print('told')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("told\n", "")


def test_settings_that_the_client_rejects_are_a_configuration_error():
    store = KafkaGroupStore({"bootstrap.servers": "localhost:1", "no.such": "x", "sasl.password": "hush"})
    with pytest.raises(ConfigError, match=r"no\.such") as caught:
        store.read("st-group")
    assert "hush" not in str(caught.value)
    assert "[clusters.NAME.client]" in caught.value.hint
