"""A real broker behind a proxy that changes its answers to time lookups: no plan skips a record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from reconciler.config.identity import identity_from_spec
from reconciler.core.anchors import Anchor, StoredOffset, TopicPartition, fingerprint
from reconciler.core.question import Question
from reconciler.core.reconcile import reconcile
from reconciler.core.verdicts import Finding
from reconciler.kafka import engine
from reconciler.kafka.reader import KafkaLogReader
from tests.demo.lab.faults.lying_link import Lie, LyingLink
from tests.demo.lab.faults.slow_link import far_cluster

pytestmark = pytest.mark.system

BEGIN, COUNT, PROCESSED = 1_700_000_000_000, 300, 100
PLACE = TopicPartition("a.events", 0)
LIES: dict[str, Lie] = {
    "a few records too high": lambda _, true: min(true + 5, COUNT - 1),
    "many records too high": lambda _, true: min(true + 90, COUNT - 1),
    "none, and an old largest timestamp": lambda *_: -1,
    "the last record": lambda *_: COUNT - 1,
    "too low": lambda _, true: max(0, true - 40),
}


def value(number: int) -> bytes:
    return b"value %d" % number


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Iterator[LyingLink]:
    """To a cluster with one record a second."""
    with far_cluster(tmp_path_factory.mktemp("lying"), kafka_jars, link_to=LyingLink) as (cluster, link):
        cluster.create_topic(PLACE.topic, 1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        for number in range(COUNT):
            producer.produce(
                PLACE.topic,
                value(number),
                b"key",
                0,
                timestamp=BEGIN + 1000 * number,
                headers=[("id", b"r%d" % number)],
            )
        assert producer.flush(30) == 0
        link.newest_ms = BEGIN
        yield link


def resumed(link: LyingLink, *, is_named: bool) -> Finding:
    at = BEGIN + 1000 * PROCESSED
    mark = fingerprint(b"key", value(PROCESSED)) if is_named else None
    anchor = Anchor(7000, at, b"r%d" % PROCESSED if is_named else None, mark, "source")
    identity = identity_from_spec(timestamp="record", id="header:id", id_order="opaque")
    with closing(KafkaLogReader({"bootstrap.servers": link.address})) as reader:
        cluster = reader.describe([PLACE.topic])
        question = Question(StoredOffset(7001, anchor), cluster.cluster_id, None, identity, compacted=False)
        found = engine.run(reader, {0: engine.Inquiry(PLACE, partial(reconcile, question))}, clock=time.monotonic)
    return found.found[0].finding


@pytest.mark.parametrize("name", LIES)
def test_a_broker_whose_lookups_are_wrong_makes_no_record_skipped(link: LyingLink, name: str) -> None:
    link.lie = LIES[name]
    by_id, by_time = resumed(link, is_named=True), resumed(link, is_named=False)
    assert by_id.resume_offset == PROCESSED + 1
    assert by_time.resume_offset == PROCESSED
    assert ("time lookup is wrong" in by_id.detail) == (name != "too low"), by_id.detail


def test_the_link_changes_what_the_client_is_told(link: LyingLink) -> None:
    """Else the tests above could not fail."""
    told = []
    for lie in (None, *LIES.values()):
        link.lie = lie
        with closing(KafkaLogReader({"bootstrap.servers": link.address})) as reader:
            told += reader.offsets_for_times([(PLACE, BEGIN + 1000 * PROCESSED)])
    assert told == [100, 105, 190, None, 299, 60]
