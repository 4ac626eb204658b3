"""The topic store's own guarantees: records byte for byte, mirrored topics, transactions, and faults."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass

import pytest
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError, OutcomeUnknown, Refused, Unreachable
from reconciler.ports import Change, TopicPartition
from reconciler.stores.kafka import topic as kafka_topic
from reconciler.stores.kafka import topic_log, topic_rows, topic_writer
from reconciler.stores.kafka.topic_rows import RowName
from reconciler.stores.registry import open_store
from tests import ROOT
from tests.stores.store_cases import NOW, put
from tests.waiting import LIMIT_S, wait_until

ANCHOR = Anchor(41, NOW - 1, b"\x00id", fingerprint(b"k", b"v"), "cluster-a", "topic-1")
EVENTS = TopicPartition("events", 0)

system = pytest.mark.system


@dataclass(frozen=True)
class Place:
    """The test's own topic of rows on a cluster, with plain clients."""

    cluster: object
    name: str
    group: str = "clicks"

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def client(self) -> dict[str, str]:
        return {"bootstrap.servers": self.bootstrap}

    def open(self, more: str = ""):
        return open_store(f"kafka-topic:{self.name}{more}", kafka_client=self.client)

    def made(self, name: str | None = None, **config: str) -> None:
        """A topic as this product or a mirror creates it."""
        self.cluster.create_topic(name or self.name, 1, {"cleanup.policy": "compact", **config})

    def key(self, topic: str = "events", partition: int = 0, group: str | None = None) -> bytes:
        return topic_rows.encode_key(RowName(group or self.group, topic, partition))

    def produce(self, *records: tuple[bytes | None, bytes | None], topic: str | None = None) -> None:
        from confluent_kafka import Producer

        producer = Producer(self.client)
        for key, value in records:
            producer.produce(topic or self.name, value, key)
        assert producer.flush(30) == 0

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        """Every record that a reader of committed records sees, once no transaction is open: a commit is answered
        before its marker is in the log."""
        from confluent_kafka import Consumer, KafkaError
        from confluent_kafka import TopicPartition as KafkaPartition

        settings = {"group.id": "unused", "enable.partition.eof": True, "isolation.level": "read_committed"}
        consumer = Consumer({**self.client, **settings, "auto.offset.reset": "earliest"})
        consumer.assign([KafkaPartition(self.name, 0, 0)])
        found, position, end = [], 0, self.cluster.end_offsets(self.name)[0]
        while position < end:
            message = consumer.poll(LIMIT_S)
            if message.error() is None:
                found.append((message.key(), message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                position = message.offset()
        consumer.close()
        return found


@pytest.fixture
def place(clusters, topic_name) -> Place:
    return Place(clusters.destination, topic_name)


@pytest.fixture
def store(place):
    opened = place.open()
    opened.create()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def mortal(tmp_path_factory, kafka_jars):
    from reconciler.lab.kafka import KafkaCluster

    # Brokers look for the transactions of writers that died every 10 s unless told otherwise.
    properties = {
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KafkaCluster("mortal", tmp_path_factory.mktemp("mortal"), kafka_jars, properties=properties) as cluster:
        yield cluster


def only(store, group="clicks"):
    (row,) = store.read(group)
    return row


def only_in_the_end(hasty):
    """The row of a store with little time for each answer, which a busy cluster may need more than once."""
    return Retrying(
        retry=retry_if_exception_type(Unreachable), stop=stop_after_delay(LIMIT_S), wait=wait_fixed(0.1), reraise=True
    )(only, hasty)


# ---------------------------------------------------------------- records


@system
def test_a_plain_client_finds_the_documented_bytes(store, place):
    put(store, "clicks", {EVENTS: StoredOffset(42, ANCHOR, NOW)})
    key, value = place.records()[0]
    assert key == b'["reconciler.rows/1","clicks","events",0]'
    assert value == (
        b'{"v":1,"s":42,"w":1700000000000,"a":{"o":41,"t":1699999999999,"i":"AGlk",'
        b'"f":"61a95fb188692f93d8a0ee5223b2369a","c":"cluster-a","p":"topic-1"}}'
    )


@system
def test_rows_of_another_program_are_read_and_restored_byte_for_byte(store, place):
    theirs = b'{ "v": 1, "s": 7, "by": "hand" }'
    place.produce((place.key(), theirs))
    row = only(store)
    assert row.stored == StoredOffset(7)
    put(store, "clicks", {EVENTS: StoredOffset(9, ANCHOR)})
    back = Change.restoring(EVENTS, only(store).version, row.stored, row.text)
    assert store.write("clicks", [back], reason="rollback", now_ms=NOW).written == (EVENTS,)
    assert only(store).stored == StoredOffset(7)
    assert place.records()[-1] == (place.key(), theirs)


@system
def test_a_tombstone_of_another_program_deletes_the_row(store, place):
    put(store, "clicks", {EVENTS: StoredOffset(1), TopicPartition("events", 1): StoredOffset(2)})
    place.produce((place.key(), None))
    assert only(store).key.partition == 1


@system
def test_foreign_records_are_ignored_with_one_warning(store, place, caplog):
    place.produce((b"", b"hello"), (b"k", None), (b'["clicks","events",0]', b'{"v":1,"s":1}'), (b"\xff", b"\xff"))
    put(store, "clicks", {EVENTS: StoredOffset(3)})
    caplog.clear()
    assert [row.stored.offset for _ in range(2) for row in place.open("?mirrored=").read("clicks")] == [3, 3]
    warning, again = (record.getMessage() for record in caplog.records)
    assert warning == again
    assert "holds 4 records that are not rows of a store (the first at offset 0); they are ignored" in warning


@system
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"\xff", "the value is not text"),
        (b"{", "is not JSON"),
        (b'{"v":1}', "s is missing"),
        (b'{"v":9,"s":1}', "the version of a newer release"),
        (b'{"v":1,"s":1,"a":{"f":"12"}}', "a.f is not 32 hex digits"),
    ],
)
def test_a_damaged_record_is_named_and_blocks_no_other_rows(store, place, value, problem):
    put(store, "clicks", {TopicPartition("other", 0): StoredOffset(5)})
    place.produce((place.key(), value), (place.key(group="others"), b'{"v":1,"s":6}'))
    bad, sound = store.read("clicks")
    assert (bad.key, sound.stored.offset) == (EVENTS, 5)
    assert "holds the offset of group 'clicks' for events-0, is damaged" in bad.malformed.message
    assert problem in bad.malformed.message
    assert f"of topic '{place.name}'" in bad.malformed.message
    with pytest.raises(Refused, match="is damaged"):
        put(store, "clicks", {EVENTS: StoredOffset(6)})
    assert only(store, "others").stored.offset == 6
    place.produce((place.key(), None))
    assert only(store).stored.offset == 5, "the hint's way out"


@system
def test_a_key_written_in_another_way_is_reported_and_ignored(store, place, caplog):
    place.produce((b'["reconciler.rows/1","clicks", "events",0]', b'{"v":1,"s":1}'))
    assert store.read("clicks") == []
    assert "offset 0: the key is not written as this format writes it; the record is ignored" in caplog.text
    place.produce((b'["reconciler.rows/1","clicks","events",00]', b'{"v":1,"s":1}'))
    assert store.read("clicks") == []
    assert "offset 1: the key is not JSON; the record is ignored" in caplog.text


# ---------------------------------------------------------------- the topic


@system
def test_only_create_creates_the_topic(place):
    store = place.open()
    change = Change(EVENTS, None, StoredOffset(1))
    for attempt in (
        lambda: store.read("clicks"),
        lambda: store.check_writable("clicks"),
        lambda: store.write("clicks", [change], reason="test", now_ms=NOW),
    ):
        with pytest.raises(Refused, match=f"has no topic '{place.name}'") as caught:
            attempt()
        assert "anchors import" in caught.value.hint
    assert place.cluster.partitions(place.name) == 0
    store.create()
    store.create()
    from confluent_kafka.admin import ConfigResource

    resource = ConfigResource(ConfigResource.Type.TOPIC, place.name)
    config = place.cluster.admin().describe_configs([resource])[resource].result()
    assert config["cleanup.policy"].value == "compact"
    assert place.cluster.partitions(place.name) == 1
    store.check_writable("clicks")
    assert store.read("clicks") == []


@system
@pytest.mark.parametrize(("partitions", "policy"), [(1, "delete"), (1, "compact,delete"), (3, "compact")])
def test_a_topic_that_would_lose_rows_is_refused_before_anything_is_written(place, partitions, policy):
    place.cluster.create_topic(place.name, partitions, {"cleanup.policy": policy})
    with pytest.raises(Refused, match="cannot keep rows"):
        place.open().check_writable("clicks")
    if partitions > 1:
        with pytest.raises(Refused, match="has 3 partitions; rows are kept in topics of one"):
            place.open().read("clicks")


@system
def test_rows_of_a_recreated_topic_have_other_versions(store, place):
    put(store, "clicks", {EVENTS: StoredOffset(1)}, now_ms=5)
    before = only(store)
    place.cluster.admin().delete_topics([place.name])[place.name].result(30)
    wait_until(lambda: place.cluster.partitions(place.name) == 0, "the topic is gone")
    store.create()
    assert store.read("clicks") == [], "nothing is remembered"
    put(store, "clicks", {EVENTS: StoredOffset(1)}, now_ms=5)
    after = only(store)
    assert (after.stored, after.version == before.version) == (before.stored, False)


@system
def test_history_is_read_once_and_a_reader_keeps_only_what_lives(store, place, caplog, monkeypatch):
    monkeypatch.setattr(topic_log, "PROGRESS_S", 0.0)
    caplog.set_level(logging.INFO, "reconciler.notes")
    place.produce(*((place.key(partition=number % 10), b'{"v":1,"s":%d}' % number) for number in range(20_000)))
    assert [row.stored.offset for row in store.read("clicks")] == list(range(19_990, 20_000))
    assert len(store._log(place.name, "clicks")._seen.rows) == 10
    assert "20,000 of 20,000 offsets read" in caplog.text
    place.produce((place.key(), b'{"v":1,"s":7}'))
    caplog.clear()
    assert store.read("clicks")[0].stored.offset == 7
    assert "1 of 1 offsets read" in caplog.text


# ---------------------------------------------------------------- mirrored topics


@system
@pytest.mark.parametrize("named", [True, False])
def test_the_mirrored_topic_is_read_beside_its_namesake(place, named):
    mirrored = f"a.{place.name}"
    place.made(mirrored)
    place.produce((place.key("events"), b'{"v":1,"s":5,"w":10}'), topic=mirrored)
    store = place.open(f"?mirrored={mirrored}" if named else "")
    assert only(store).stored == StoredOffset(5, None, 10), "after a disaster it may be all there is"
    with pytest.raises(Refused, match="has no topic"):
        store.check_writable("clicks")
    store.create()
    put(store, "clicks", {TopicPartition("a.events", 0): StoredOffset(3, ANCHOR)})
    assert {row.key.topic: row.stored.offset for row in store.read("clicks")} == {"a.events": 3, "events": 5}
    assert place.records()[0][0] == place.key("a.events"), "what is written is written here"


@system
def test_of_two_rows_for_one_partition_the_one_written_later_counts(store, place):
    mirrored = f"a.{place.name}"
    place.made(mirrored)
    put(store, "clicks", {EVENTS: StoredOffset(1)}, now_ms=20)
    place.produce((place.key(), b'{"v":1,"s":2,"w":10}'), topic=mirrored)
    store = place.open()
    assert only(store).stored.offset == 1
    seen = only(store).version
    place.produce((place.key(), b'{"v":1,"s":3,"w":30}'), topic=mirrored)
    assert only(store).stored.offset == 3
    late = store.write("clicks", [Change(EVENTS, seen, StoredOffset(9))], reason="test", now_ms=40)
    assert late.conflicts == (EVENTS,), "what the mirror brought is a change, too"
    put(store, "clicks", {EVENTS: StoredOffset(4)}, now_ms=40)
    assert only(store).stored.offset == 4


@system
def test_deleting_a_row_hides_the_mirrored_one(store, place):
    mirrored = f"a.{place.name}"
    place.made(mirrored)
    place.produce((place.key(), b'{"v":1,"s":2,"w":10}'), topic=mirrored)
    store = place.open()
    row = only(store)
    store.write("clicks", [Change(EVENTS, row.version, None)], reason="test", now_ms=20)
    assert store.read("clicks") == []
    assert place.records() == [(place.key(), b'{"v":1,"d":20}')], "not a tombstone, which compaction removes"
    place.produce((place.key(), b'{"v":1,"s":3,"w":30}'), topic=mirrored)
    assert only(store).stored.offset == 3


@system
def test_topics_that_only_look_mirrored_are_not_read_and_of_two_copies_none_is_guessed(store, place):
    place.cluster.create_topic(f"team.{place.name}", 1, {"cleanup.policy": "delete"})
    place.made(f"x.y.{place.name}")
    place.made(f"a.{place.name}")
    assert place.open()._others == (f"a.{place.name}",)
    place.made(f"b.{place.name}")
    with pytest.raises(Refused, match=f"More than one .*: a.{place.name}, b.{place.name}") as caught:
        place.open().read("clicks")
    assert f"?mirrored=a.{place.name}" in caught.value.hint
    assert place.open(f"?mirrored=a.{place.name}&mirrored=b.{place.name}").read("clicks") == []
    assert place.open("?mirrored=").read("clicks") == []


# ---------------------------------------------------------------- transactions


def unfinished(place, *records):
    """A transaction of another program that has written and is still open."""
    from confluent_kafka import Producer

    producer = Producer({**place.client, "transactional.id": f"other-{place.name}", "log_level": 0})
    producer.init_transactions(30)
    producer.begin_transaction()
    for key, value in records:
        producer.produce(place.name, value, key)
    assert producer.flush(30) == 0
    return producer


@system
@pytest.mark.parametrize("commits", [True, False])
def test_a_read_waits_for_transactions_that_were_open_before_it(store, place, commits, monkeypatch):
    put(store, "clicks", {EVENTS: StoredOffset(1)})
    producer = unfinished(place, (place.key(), b'{"v":1,"s":2}'))
    at_the_end = threading.Event()
    taken = topic_log.TopicLog._take_error

    def take_error(*arguments):
        stuck = taken(*arguments)
        if stuck:
            at_the_end.set()
        return stuck

    monkeypatch.setattr(topic_log.TopicLog, "_take_error", take_error)
    found = []
    reading = threading.Thread(target=lambda: found.append(only(store).stored.offset))
    reading.start()
    assert at_the_end.wait(30)
    assert found == []
    (producer.commit_transaction if commits else producer.abort_transaction)(30)
    reading.join(30)
    assert found == [2 if commits else 1]


@system
def test_a_transaction_that_does_not_end_is_reported(store, place, monkeypatch):
    monkeypatch.setattr(topic_log, "UNFINISHED_S", 1.0)
    put(store, "clicks", {EVENTS: StoredOffset(1)})
    producer = unfinished(place, (b"any", b"thing"))
    with pytest.raises(Unreachable, match="could not be read to its end: a transaction") as caught:
        store.read("clicks")
    assert "find-hanging" in caught.value.hint
    producer.abort_transaction(30)
    assert only(store).stored.offset == 1


@system
def test_a_writer_killed_before_its_commit_wrote_nothing_and_blocks_no_writer_of_its_group(store, place, monkeypatch):
    put(store, "clicks", {EVENTS: StoredOffset(1)})
    version = only(store).version
    store.close()
    program = (
        "import os, signal, sys\n"
        "from reconciler.stores.kafka import topic_writer as w\n"
        "w.Writer._commit = lambda self: os.kill(os.getpid(), signal.SIGKILL)\n"
        "w.Writer({'bootstrap.servers': sys.argv[1]}, sys.argv[2], 'clicks', timeout_s=30).write("
        "{sys.argv[3].encode(): b'{\"v\":1,\"s\":2}'}, b'token')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, place.bootstrap, place.name, place.key().decode()],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    # A reading would wait until the brokers end the dead writer's transaction; admission ends it at once.
    monkeypatch.setattr(topic_log, "UNFINISHED_S", 1.0)
    assert store.write("clicks", [Change(EVENTS, version, StoredOffset(3))], reason="t", now_ms=NOW).written
    assert only(store).stored.offset == 3
    assert [json.loads(value)["s"] for _, value in place.records()] == [1, 3]


@system
def test_a_fenced_writer_tries_again_and_finds_out_whether_it_was_late(store, place):
    put(store, "clicks", {EVENTS: StoredOffset(1)})
    version = only(store).version
    # Another writer is admitted, and writes nothing.
    topic_writer.Writer(place.client, place.name, "clicks", timeout_s=30)
    assert store.write("clicks", [Change(EVENTS, version, StoredOffset(2))], reason="t", now_ms=NOW).written
    rival = place.open()
    put(rival, "clicks", {EVENTS: StoredOffset(3)})
    late = store.write("clicks", [Change(EVENTS, version, StoredOffset(4))], reason="t", now_ms=NOW)
    assert (late.written, late.conflicts) == ((), (EVENTS,))
    assert only(store).stored.offset == 3


@system
def test_a_commit_whose_answer_got_lost_is_recognized_by_its_token(store, place, monkeypatch):
    committed = topic_writer.Writer._commit

    def commit_and_forget(self):
        committed(self)
        raise topic_writer.Fenced

    monkeypatch.setattr(topic_writer.Writer, "_commit", commit_and_forget)
    changes = [Change(EVENTS, None, StoredOffset(1)), Change(TopicPartition("events", 1), None, StoredOffset(2))]
    assert len(store.write("clicks", changes, reason="t", now_ms=NOW).written) == 2
    assert len(place.records()) == 2, "written once"


@system
def test_a_writer_fenced_for_the_second_time_does_not_mistake_its_last_success_for_this_one(store, place, monkeypatch):
    put(store, "clicks", {EVENTS: StoredOffset(1)})
    topic_writer.Writer(place.client, place.name, "clicks", timeout_s=30)
    put(store, "clicks", {EVENTS: StoredOffset(2)})  # fenced, and tried again
    version = only(store).version
    committed = topic_writer.Writer._commit

    def rival_first(self):
        monkeypatch.setattr(topic_writer.Writer, "_commit", committed)
        change = Change(EVENTS, version, StoredOffset(3))
        assert place.open("?mirrored=").write("clicks", [change], reason="t", now_ms=NOW).written
        committed(self)

    monkeypatch.setattr(topic_writer.Writer, "_commit", rival_first)
    late = store.write("clicks", [Change(EVENTS, version, StoredOffset(4))], reason="t", now_ms=NOW)
    assert (late.written, late.conflicts) == ((), (EVENTS,))
    assert only(store).stored.offset == 3


@system
def test_writers_that_stay_open_and_race_count_every_success_once(store, place):
    """Each writer adds one to the offset that it read: in the end, the offset is the number of successful writes."""
    put(store, "clicks", {EVENTS: StoredOffset(0)})

    def race(_: int) -> int:
        mine, won = place.open("?mirrored="), 0
        for _ in range(12):
            row = only(mine)
            change = Change(EVENTS, row.version, StoredOffset(row.stored.offset + 1))
            won += len(mine.write("clicks", [change], reason="race", now_ms=NOW).written)
        mine.close()
        return won

    with ThreadPoolExecutor(4) as pool:
        won = sum(pool.map(race, range(4)))
    assert won >= 12
    assert only(store).stored.offset == won


@system
def test_a_writer_that_others_keep_fencing_gives_up_in_time(store, place, monkeypatch):
    monkeypatch.setattr(kafka_topic, "CONTENDED_S", 0.5)

    def fenced(self):
        topic_writer.Writer(place.client, place.name, "clicks", timeout_s=30)
        raise topic_writer.Fenced

    monkeypatch.setattr(topic_writer.Writer, "_commit", fenced)
    with pytest.raises(Unreachable, match=r"Other writers of group 'clicks' kept .* nothing was"):
        store.write("clicks", [Change(EVENTS, None, StoredOffset(1))], reason="t", now_ms=NOW)
    assert store.read("clicks") == []


@system
def test_two_groups_do_not_fence_each_other(store, place):
    other = place.open()
    for turn in range(3):
        put(store, "clicks", {EVENTS: StoredOffset(turn)})
        first = store._writers["clicks"]
        put(other, "others", {EVENTS: StoredOffset(turn)})
        put(store, "clicks", {EVENTS: StoredOffset(turn + 10)})
        assert store._writers["clicks"] is first
    assert (only(store).stored.offset, only(other, "others").stored.offset) == (12, 2)


@system
def test_a_row_too_large_for_the_topic_is_refused_whole(place):
    place.made(**{"max.message.bytes": "2000"})
    store = place.open()
    big = Anchor(1, 2, os.urandom(3000))
    changes = [Change(EVENTS, None, StoredOffset(1)), Change(TopicPartition("e", 1), None, StoredOffset(2, big))]
    with pytest.raises(Refused, match=f"Could not write to topic '{place.name}'"):
        store.write("clicks", changes, reason="t", now_ms=NOW)
    assert store.read("clicks") == []
    put(store, "clicks", {EVENTS: StoredOffset(1)})
    assert only(store).stored.offset == 1


# ---------------------------------------------------------------- faults


@system
def test_a_cluster_that_freezes_at_the_commit_leaves_the_outcome_unknown_and_a_second_write_finishes(
    mortal, topic_name, monkeypatch
):
    place = Place(mortal, topic_name)
    with closing(place.open("?mirrored=&timeout=60")) as patient:
        patient.create()
        put(patient, "clicks", {EVENTS: StoredOffset(1)})
        version = only(patient).version
    hasty = kafka_topic.KafkaTopicStore(place.client, place.name, [], timeout_s=8.0)
    committed = topic_writer.Writer._commit

    def freeze_and_commit(self):
        mortal.pause()
        committed(self)

    change = Change(EVENTS, version, StoredOffset(2, ANCHOR))
    with monkeypatch.context() as patch:
        patch.setattr(topic_writer.Writer, "_commit", freeze_and_commit)
        try:
            with pytest.raises(OutcomeUnknown, match=r"Whether the rows were written .* is not known") as caught:
                hasty.write("clicks", [change], reason="t", now_ms=NOW)
        finally:
            mortal.resume()
    assert caught.value.retryable
    assert "Run this again" in caught.value.hint
    hasty.close()
    fresh = place.open("?mirrored=&timeout=60")
    only_in_the_end(fresh)  # a broker that was frozen for long is out of its cluster until it has registered again
    again = fresh.write("clicks", [change], reason="t", now_ms=NOW)
    assert (again.written, again.conflicts) in (((EVENTS,), ()), ((), (EVENTS,))), "it came through late, or not at all"
    assert only(fresh).stored.offset == 2


@system
def test_a_frozen_cluster_is_an_error_in_time_and_nothing_was_written(mortal, topic_name):
    place = Place(mortal, topic_name)
    with closing(place.open()) as store:
        store.create()
        put(store, "clicks", {EVENTS: StoredOffset(1)})
    hasty = kafka_topic.KafkaTopicStore(place.client, place.name, [], timeout_s=1.5)
    version = only_in_the_end(hasty).version
    mortal.pause()
    try:
        for attempt in (
            lambda: hasty.read("clicks"),
            lambda: hasty.check_writable("clicks"),
            lambda: hasty.write("clicks", [Change(EVENTS, version, StoredOffset(2))], reason="t", now_ms=NOW),
        ):
            with pytest.raises(Unreachable, match="gave no answer in") as caught:
                attempt()
            assert not isinstance(caught.value, OutcomeUnknown | Refused)
    finally:
        mortal.resume()
    assert only_in_the_end(hasty).stored.offset == 1, "the same store still works"


@system
def test_a_write_survives_a_cluster_killed_before_the_commit_and_restarted(mortal, topic_name, monkeypatch):
    place = Place(mortal, topic_name)
    store = place.open("?mirrored=")
    store.create()
    put(store, "clicks", {EVENTS: StoredOffset(2)})
    version = only(store).version
    committed = topic_writer.Writer._commit
    killed = []

    def kill_and_commit(self):
        if not killed:
            mortal.kill()
            killed.append(threading.Thread(target=mortal.restart))
            killed[0].start()
        committed(self)

    monkeypatch.setattr(topic_writer.Writer, "_commit", kill_and_commit)
    monkeypatch.setattr(topic_writer, "TRANSACTION_S", 60.0)
    store._timeout_s = 60.0
    store._writers.clear()
    assert store.write("clicks", [Change(EVENTS, version, StoredOffset(3))], reason="t", now_ms=NOW).written
    killed[0].join()
    assert only(store).stored.offset == 3
    store.close()


@contextmanager
def denied(cluster, kind: str, name: str, operation: str):
    """Deny all users an operation on a resource, within the block."""
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    resource = (ResourceType[kind], name, ResourcePatternType.LITERAL)
    who = ("User:*", "*", AclOperation[operation], AclPermissionType.DENY)
    allowed = ("User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    for rule in (allowed, who):
        (done,) = cluster.admin().create_acls([AclBinding(*resource, *rule)]).values()
        done.result(30)

    def heard() -> bool:
        """Wait until the broker's own authorizer enforces it."""
        return len(cluster.admin().describe_acls(AclBindingFilter(*resource, *who)).result(30)) == 1

    cluster.brokers[0].process.wait_until(heard, 30, "the ACL")
    try:
        yield
    finally:
        (gone,) = cluster.admin().delete_acls([AclBindingFilter(*resource, *who)]).values()
        gone.result(30)


@system
@pytest.mark.parametrize(
    ("kind", "operation", "calls", "lacks"),
    [
        ("TOPIC", "DESCRIBE", ["read", "write", "check_writable"], "Describe on topic"),
        ("TOPIC", "READ", ["read", "write"], "Read on topic"),
        ("TOPIC", "WRITE", ["write", "check_writable"], "Write on topic"),
        ("TRANSACTIONAL_ID", "WRITE", ["write"], "Write on transactional id"),
    ],
)
def test_a_missing_permission_is_named_and_nothing_was_written(mortal, topic_name, kind, operation, calls, lacks):
    place = Place(mortal, topic_name)
    first = place.open("?mirrored=")
    first.create()
    put(first, "clicks", {EVENTS: StoredOffset(1)})
    change = Change(EVENTS, only(first).version, StoredOffset(2))
    name = place.name if kind == "TOPIC" else f"reconciler/{place.name}/clicks"
    attempts = {
        "read": lambda store: store.read("clicks"),
        "write": lambda store: store.write("clicks", [change], reason="t", now_ms=NOW),
        "check_writable": lambda store: store.check_writable("clicks"),
    }
    with denied(mortal, kind, name, operation):
        for call, attempt in attempts.items():
            if call in calls:
                with pytest.raises(Refused) as caught:
                    attempt(place.open("?mirrored="))
                assert lacks in f"{caught.value.message} {caught.value.hint}"
            elif call != "write":
                attempt(place.open("?mirrored="))
    assert only(place.open("?mirrored=")).stored.offset == 1


@system
def test_a_possible_copy_with_unreadable_settings_is_refused(mortal, topic_name):
    place = Place(mortal, topic_name)
    place.made()
    place.made(f"a.{place.name}")
    with denied(mortal, "TOPIC", f"a.{place.name}", "DESCRIBE_CONFIGS"):
        with pytest.raises(Refused, match="may not see its settings") as caught:
            place.open().read("clicks")
        assert f"?mirrored=a.{place.name}" in caught.value.hint
        assert place.open(f"?mirrored=a.{place.name}").read("clicks") == []


# ---------------------------------------------------------------- without a broker


def test_a_cluster_that_is_down_is_an_error_in_time(caplog):
    caplog.set_level(logging.INFO)
    store = kafka_topic.KafkaTopicStore({"bootstrap.servers": "localhost:1"}, "rows", timeout_s=1.5)
    change = Change(EVENTS, None, StoredOffset(1))
    for attempt in (
        lambda: store.read("g"),
        lambda: store.write("g", [change], reason="t", now_ms=NOW),
        lambda: store.check_writable("g"),
        store.create,
    ):
        with pytest.raises(Unreachable, match=r"localhost:1 gave no answer in 1.5 s .*Connection refused"):
            attempt()
    assert caplog.records == [], "the client's own log is a detail"
    store.close()


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("kafka-topic:", "'' is not the name of a topic"),
        ("kafka-topic://rows", "'//rows' is not the name of a topic"),
        ("kafka-topic:a b", "'a b' is not the name of a topic"),
        ("kafka-topic:..", "is not the name of a topic"),
        ("kafka-topic:rows?mirror=a.rows", "'mirror' is not one of its parameters (mirrored, timeout)"),
        ("kafka-topic:rows?mirrored=a/rows", "'a/rows' is not the name of a topic"),
        ("kafka-topic:rows?mirrored=rows", "cannot be its own mirrored copy"),
        ("kafka-topic:rows?timeout=soon", "timeout='soon' is not a time in seconds"),
        ("kafka-topic:rows?timeout=1&timeout=2", "timeout= is given twice"),
        ("kafka-topic:__rows", "MirrorMaker does not mirror"),
        ("kafka-topic:.rows", "MirrorMaker does not mirror"),
        ("kafka-topic:rows.internal", "MirrorMaker does not mirror"),
        ("kafka-topic:rows.replica", "MirrorMaker does not mirror"),
    ],
)
def test_the_error_for_a_wrong_address_shows_a_right_one(address, problem):
    with pytest.raises(ConfigError) as caught:
        open_store(address, kafka_client={"bootstrap.servers": "x"})
    assert problem in caught.value.message
    assert caught.value.hint


def test_the_cluster_is_the_destination_and_capabilities_are_known_without_it():
    with pytest.raises(ConfigError, match="needs the destination's client settings"):
        open_store("kafka-topic:rows")
    program = (
        "import sys, json; from reconciler.stores.registry import open_store;"
        "store = open_store('kafka-topic:rows?mirrored=a.rows', kafka_client={'bootstrap.servers': 'x'});"
        "able = store.capabilities;"
        "print(json.dumps([store.address, able.writable, able.keeps_anchors, able.atomic_batches,"
        " 'confluent_kafka' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["kafka-topic:rows?mirrored=a.rows", True, True, True, False]
