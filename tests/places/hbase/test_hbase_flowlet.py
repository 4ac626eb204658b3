"""The functions that a flowlet's developer may override, and the message ids read from the log for its rows."""

from __future__ import annotations

import json
import socket
from functools import partial
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.errors import ConfigError, Refused, Unreachable
from reconciler.places.hbase.cdap import NewRow, long
from reconciler.places.hbase.flowlet import PAGE, VALUE, Flowlet, message_ids
from reconciler.places.hbase.table import HBaseCell
from reconciler.ports import TopicPartition

KEY = TopicPartition("events", 3)


def flowlet(**hooks: Any) -> Flowlet:
    return Flowlet(dict.fromkeys, **hooks)


def raising(*_: object) -> None:
    raise RuntimeError("no such thing")


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("function", "row"),
    [
        (None, b"events:3"),
        (lambda topic, partition: f"app:{topic}:{partition}", b"app:events:3"),
        (lambda topic, partition: topic.encode() + bytes([partition]), b"events\x03"),
    ],
)
def test_the_key_function_makes_a_rows_key(function, row):
    assert flowlet(key_of=function).row_key(KEY) == row


@pytest.mark.parametrize("function", [raising, lambda *_: None, lambda *_: 5, lambda *_: b"", lambda *_: ""])
def test_a_key_function_that_returns_no_key_is_a_configuration_error(function):
    with pytest.raises(ConfigError, match=r"The key function (raised RuntimeError|returned ).* for events-3"):
        flowlet(key_of=function).row_key(KEY)


class Rows:
    """A table of some rows, and the keys that were read."""

    def __init__(self, *rows: bytes) -> None:
        self._rows = rows
        self.keys_read: list[bytes] = []

    def rows(self, keys: list[bytes]) -> dict[bytes, dict[bytes, HBaseCell]]:
        self.keys_read += keys
        return {key: {VALUE: HBaseCell(long(1), 1)} for key in keys if key in self._rows}


def test_rows_with_overridden_keys_are_read_up_to_the_first_page_without_any():
    layout, table = flowlet(key_of=lambda topic, n: f"{topic}/{n}"), Rows(b"t/0", b"t/255", b"t/256", b"t/9999")
    found = layout.find(table, frozenset({"t"}))
    assert {key.partition for key in found} == {0, 255, 256}
    assert len(table.keys_read) == 3 * PAGE


def test_a_key_function_that_gives_two_partitions_one_row_is_refused():
    with pytest.raises(ConfigError, match="gives two partitions of topic 't' one row"):
        flowlet(key_of=lambda topic, _: topic).find(Rows(), frozenset({"t"}))


def test_with_a_key_function_topics_must_be_named():
    with pytest.raises(ConfigError, match="Name the topics to read"):
        flowlet(key_of=lambda topic, n: f"{topic}/{n}").find(Rows(), None)


# ---------------------------------------------------------------- where a message is


@pytest.mark.parametrize(
    ("function", "offset"),
    [
        (None, 300),
        (lambda topic, partition, number: number * 2, 34),
        (lambda *_: None, None),
        (lambda *_: -1, None),
        (lambda *_: True, None),
        (lambda *_: "5", None),
        (raising, None),
    ],
)
def test_the_find_function_gives_the_offset_to_try_first(function, offset):
    anchor = Anchor(offset=300, id=b"17", names=Names.NEXT)
    assert flowlet(find_message=function).with_hint(KEY, anchor).offset == offset
    processed = Anchor(offset=299, id=b"16")
    assert flowlet(find_message=function).with_hint(KEY, processed) == processed


# ---------------------------------------------------------------- message ids


def test_an_id_in_the_anchor_is_not_read_from_the_log():
    def no_log(places: Any) -> Any:
        raise AssertionError("nothing to read")

    named = StoredOffset(5, Anchor(offset=5, id=b"17", names=Names.NEXT))
    cells = Flowlet(no_log).new_cells([NewRow(KEY, named, {}), NewRow(TopicPartition("t", 0), StoredOffset(-1), {})])
    assert cells == {
        KEY: {b"d:c": long(5) + long(17)},
        TopicPartition("t", 0): {b"d:c": long(-1)},
    }


def test_without_a_cluster_no_row_can_be_written():
    with pytest.raises(ConfigError, match="takes the cluster's client settings"):
        message_ids({KEY: 5}, id_of=lambda record: b"1", client=None)


def test_without_an_answer_the_call_times_out():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        client = {"bootstrap.servers": f"127.0.0.1:{probe.getsockname()[1]}"}
    with pytest.raises(Unreachable, match="Could not describe the cluster"):
        message_ids({KEY: 5}, id_of=lambda record: b"1", client=client, timeout_s=0.5)


@pytest.fixture(scope="module")
def log(clusters) -> tuple[dict[str, str], str]:
    """Partition 0: records 0 to 4, a marker at 5, records 6 to 8, a marker at 9. Partition 1: empty. 2: no ids."""
    import uuid

    from confluent_kafka import Producer

    cluster, topic = clusters.destination, f"flowlet-{uuid.uuid4().hex[:8]}"
    cluster.create_topic(topic, 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for numbers in (range(5), range(5, 8)):
        producer.begin_transaction()
        for number in numbers:
            producer.produce(topic, json.dumps({"id": 100 + number}), partition=0)
            producer.produce(topic, b"no id", partition=2)
        producer.commit_transaction(30)
    return {"bootstrap.servers": cluster.bootstrap}, topic


def payload_id(record: Any) -> bytes | None:
    try:
        return b"%d" % json.loads(record.value)["id"]
    except ValueError:
        return None


@pytest.mark.system
def test_the_id_is_that_of_the_first_record_at_or_after_the_offset(log):
    client, topic = log
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    ids = partial(message_ids, id_of=payload_id, client=client, timeout_s=60)
    for offset, number in ((0, 100), (4, 104), (5, 105), (8, 107), (9, None), (10, None), (11, None)):
        assert ids({first: offset, second: 0}) == {first: number, second: None}
    elsewhere = TopicPartition(f"{topic}-none-such", 0)
    assert ids({elsewhere: 5, first: 1}) == {elsewhere: None, first: 101}


@pytest.mark.system
def test_a_record_whose_id_is_no_number_is_refused(log):
    client, topic = log
    with pytest.raises(Refused, match=r"offset 3, has no message id that is a number of 8 bytes") as caught:
        message_ids({TopicPartition(topic, 2): 3}, id_of=payload_id, client=client, timeout_s=60)
    assert "Correct id_of" in caught.value.hint
