"""The ZooKeeper store with a real server: other programs' znodes keep their bytes, and races end in a conflict or an
error."""

from __future__ import annotations

import re
from typing import Any

import pytest

from reconciler.core.anchors import UNKNOWN_PARTITION, Anchor, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError, OutcomeUnknown, Refused, Unreachable
from reconciler.places.zookeeper import store as zookeeper_store
from reconciler.places.zookeeper.store import ZookeeperStore
from reconciler.ports import Change, TopicPartition
from tests.places.store_cases import NOW, put
from tests.places.zookeeper.fixtures import PATIENT_S, change, only

ANCHOR = Anchor(41, NOW - 1, b"\x00id", fingerprint(b"k", b"v"), "cluster-a", "topic-1")
KEY = TopicPartition("events", 0)

system = pytest.mark.system


@pytest.fixture
def store(open_zookeeper) -> ZookeeperStore:
    return open_zookeeper()


@pytest.fixture
def single(open_zookeeper) -> ZookeeperStore:
    return open_zookeeper("single")


@pytest.fixture
def offset_path(chroot) -> str:
    return f"{chroot}/consumers/g/offsets/events/0"


# ---------------------------------------------------------------- consumers


@system
def test_an_offset_is_the_plain_number_and_nothing_is_beside_it(store, kazoo, offset_path):
    put(store, "g", {KEY: StoredOffset(42, ANCHOR)})
    assert kazoo.get(offset_path)[0] == b"42"
    assert only(store).stored == StoredOffset(42, None, kazoo.get(offset_path)[1].mtime)
    assert kazoo.get_children(offset_path.rpartition("/offsets")[0]) == ["offsets"]


@system
@pytest.mark.parametrize("data", [b"430497589", b" 17\n", b"0042", b"+5"])
def test_a_jobs_offset_is_read_and_replaced(store, kazoo, offset_path, data):
    kazoo.create(offset_path, data, makepath=True)
    time_ms = kazoo.get(offset_path)[1].mtime
    before = only(store)
    assert before.stored == StoredOffset(int(data), None, time_ms)
    change(store, StoredOffset(99, ANCHOR))
    assert kazoo.get(offset_path)[0] == b"99"


@system
def test_an_unchanged_offset_is_not_written(store, kazoo, offset_path):
    kazoo.create(offset_path, b" 42", makepath=True)
    before = kazoo.get(offset_path)
    change(store, StoredOffset(42, ANCHOR, NOW))
    assert kazoo.get(offset_path) == before


@system
def test_other_znodes_are_not_taken_for_offsets(store, kazoo, chroot, offset_path):
    group = f"{chroot}/consumers/g"
    for path in (f"{group}/owners/events/0", f"{group}/offsets/events/07", f"{group}/offsets/events/x", f"{group}/ids"):
        kazoo.create(path, b"consumer-1", makepath=True)
    kazoo.create(offset_path, b"3", makepath=True)
    assert [row.key for row in store.read("g")] == [KEY]
    assert [row.key for row in store.read("g", ["events", "none"])] == [KEY]


@system
@pytest.mark.parametrize("data", [b"", b"consumer-1", b"\x00\x00\x00\x00\x00\x00\x00\x05", b"\xff"])
def test_a_znode_that_holds_no_offset_is_malformed_hides_no_other_and_is_not_written(store, kazoo, offset_path, data):
    kazoo.create(offset_path, data, makepath=True)
    kazoo.create(f"{offset_path[:-1]}1", b"7", makepath=True)
    bad, sound = store.read("g")
    assert (bad.key, sound.stored.offset) == (KEY, 7)
    sentence = f"The znode {offset_path} .* should hold an offset in decimal"
    assert re.match(sentence, bad.malformed.message)
    assert "zkCli.sh" in bad.malformed.hint
    with pytest.raises(Refused, match=sentence):
        store.write("g", [Change(KEY, None, StoredOffset(1))], reason="test", now_ms=NOW)
    assert kazoo.get(offset_path)[0] == data


@system
@pytest.mark.parametrize("topic", ["thème", "主題", "a b", "x" * 400, "'; DROP TABLE--", "%s?#", "a%2Fb"])
def test_odd_topic_names_are_znodes_of_the_same_name(store, kazoo, chroot, topic):
    put(store, "g", {TopicPartition(topic, 7): StoredOffset(1, ANCHOR)})
    assert only(store).key == TopicPartition(topic, 7)
    assert kazoo.get_children(f"{chroot}/consumers/g/offsets") == [topic]


@system
@pytest.mark.parametrize("layout", ["consumers", "single"])
@pytest.mark.parametrize("name", ["a/b", "..", "a\nb", "😀"])
def test_a_name_that_no_znode_can_have_is_a_configuration_error(open_zookeeper, layout, name):
    store = open_zookeeper(layout)
    for attempt in (
        lambda: store.read(name),
        lambda: store.read("g", [name]),
        lambda: store.check_writable(name),
        lambda: put(store, "g", {TopicPartition(name, 0): StoredOffset(1)}),
    ):
        with pytest.raises(ConfigError, match="use another store"):
            attempt()


# ---------------------------------------------------------------- a missing store


@system
@pytest.mark.parametrize(("layout", "base"), [("consumers", "/consumers"), ("single", "")])
def test_a_missing_store_is_refused_and_created_only_on_request(zookeeper, chroot, kazoo, layout, base):
    store = ZookeeperStore(zookeeper.hosts, chroot, layout, timeout_s=PATIENT_S)
    for attempt in (
        lambda: store.read("g"),
        lambda: store.read("g", ["events"]),
        lambda: store.check_writable("g"),
        lambda: store.write("g", [Change(KEY, None, StoredOffset(1))], reason="test", now_ms=NOW),
    ):
        with pytest.raises(Refused, match=f"There is no znode {chroot}{base} at ZooKeeper") as caught:
            attempt()
        assert "reconciler anchors import" in caught.value.hint
    assert kazoo.exists(chroot) is None
    store.create()
    assert store.read("g") == []
    store.close()


@system
def test_a_chroot_may_be_the_root(zookeeper):
    store = ZookeeperStore(zookeeper.hosts, "", "single", timeout_s=PATIENT_S)
    store.create()
    assert [row.key.topic for row in store.read("g", ["no-such-topic"])] == []
    store.close()


# ---------------------------------------------------------------- several transactions, and races


@system
def test_a_partly_written_batch_has_an_unknown_outcome(store, monkeypatch):
    monkeypatch.setattr(zookeeper_store, "TRANSACTION_BYTES", 1)
    put(store, "g", {TopicPartition("events", n): StoredOffset(n) for n in range(3)})
    changes = [Change(row.key, row.version, StoredOffset(9)) for row in store.read("g")]
    real, done = store._ensemble.commit, []

    def commit(operations: Any) -> bool:
        if done:
            raise Unreachable("It is away.")
        done.append(1)
        return bool(real(operations))

    monkeypatch.setattr(store._ensemble, "commit", commit)
    with pytest.raises(OutcomeUnknown, match=r"1 of 3 rows were written, then: It is away"):
        store.write("g", changes, reason="test", now_ms=NOW)
    assert [row.stored.offset for row in store.read("g")] == [9, 1, 2]


def before_next_transaction(store: ZookeeperStore, monkeypatch: pytest.MonkeyPatch, call: Any) -> None:
    """Call something right before the next transaction, after the rows were read."""
    real = store._ensemble.commit

    def commit(operations: Any) -> bool:
        monkeypatch.setattr(store._ensemble, "commit", real)
        call()
        return real(operations)

    monkeypatch.setattr(store._ensemble, "commit", commit)


@system
def test_a_job_that_writes_between_read_and_transaction_is_a_conflict(store, kazoo, offset_path, monkeypatch):
    put(store, "g", {TopicPartition("events", n): StoredOffset(n) for n in range(2)})
    first, second = store.read("g")
    before_next_transaction(store, monkeypatch, lambda: kazoo.set(offset_path, b"77"))
    changes = [Change(row.key, row.version, StoredOffset(9)) for row in (first, second)]
    result = store.write("g", changes, reason="test", now_ms=NOW)
    assert (result.written, result.conflicts) == ((second.key,), (first.key,))
    assert [row.stored.offset for row in store.read("g")] == [77, 9]


@system
def test_folders_that_another_program_creates_in_between_are_no_conflict(store, kazoo, chroot, monkeypatch):
    path = f"{chroot}/consumers/g/offsets/events/5"
    before_next_transaction(store, monkeypatch, lambda: kazoo.create(path, b"1", makepath=True))
    assert put(store, "g", {KEY: StoredOffset(3)}).written == (KEY,)


@system
def test_in_a_shared_znode_another_partitions_change_is_no_conflict(single, kazoo, chroot, monkeypatch):
    put(single, "g", {TopicPartition("events", n): StoredOffset(n) for n in range(2)})
    first, _ = single.read("g")
    before_next_transaction(single, monkeypatch, lambda: kazoo.set(f"{chroot}/events", b"0:0,1:88"))
    assert single.write("g", [Change(first.key, first.version, StoredOffset(9))], reason="test", now_ms=NOW).written
    assert kazoo.get(f"{chroot}/events")[0] == b"0:9,1:88"


@system
def test_a_znode_that_always_changes_is_given_up_with_nothing_written(store, kazoo, offset_path, monkeypatch):
    put(store, "g", {KEY: StoredOffset(1)})
    row = only(store)
    monkeypatch.setattr(store._ensemble, "commit", lambda operations: False)
    with pytest.raises(Unreachable, match="change faster than they can be written; nothing was written"):
        store.write("g", [Change(row.key, row.version, StoredOffset(2))], reason="test", now_ms=NOW)


# ---------------------------------------------------------------- single


LISTINGS = ["0:5,1:6,2:7", " 2 : 7 , 0 : 5 , 1 : 6 \n", "1:6,0:5,2:7,"]


@system
@pytest.mark.parametrize("text", LISTINGS)
def test_a_topics_znode_is_read_and_edited_byte_for_byte(single, kazoo, chroot, text):
    kazoo.create(f"{chroot}/events", text.encode())
    time_ms = kazoo.get(f"{chroot}/events")[1].mtime
    before = single.read("g")
    assert [row.stored for row in before] == [StoredOffset(5 + n, None, time_ms) for n in range(3)]
    changes = [Change(row.key, row.version, StoredOffset(row.stored.offset * 10, ANCHOR)) for row in before[:2]]
    assert len(single.write("g", changes, reason="test", now_ms=NOW).written) == 2
    assert kazoo.get(f"{chroot}/events")[0].decode() == text.replace("5", "50").replace("6", "60")


@system
def test_a_new_topic_has_the_jobs_form(single, kazoo, chroot):
    put(single, "g", {TopicPartition("a.events", n): StoredOffset(100 + n, ANCHOR) for n in (2, 0, 1)})
    assert kazoo.get(f"{chroot}/a.events")[0] == b"0:100,1:101,2:102"


@system
def test_other_znodes_of_the_chroot_are_ignored_unless_named(single, kazoo, chroot):
    kazoo.create(f"{chroot}/events", b"0:5")
    kazoo.create(f"{chroot}/settings", b"colour=blue")
    kazoo.create(f"{chroot}/empty", b"")
    assert [row.key for row in single.read("g")] == [KEY]
    assert single.read("g", ["empty"]) == []
    (row,) = single.read("g", ["settings"])
    assert re.match(
        rf"The znode {chroot}/settings .* should hold PARTITION:OFFSET,…, and is not a", row.malformed.message
    )
    assert row.key.partition == UNKNOWN_PARTITION


@system
def test_a_shared_znode_with_a_malformed_entry_is_not_used_at_all(single, kazoo, chroot):
    kazoo.create(f"{chroot}/events", b"0:5,1:soon,2:7")
    (row,) = single.read("g", ["events"])
    assert (row.key.partition, "should hold PARTITION:OFFSET" in row.malformed.message) == (UNKNOWN_PARTITION, True)
    with pytest.raises(Refused, match="should hold PARTITION:OFFSET"):
        put(single, "g", {TopicPartition("events", 0): StoredOffset(6)})
