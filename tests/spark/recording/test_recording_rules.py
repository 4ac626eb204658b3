"""Which row may replace which, and a recorder's behaviour with faulty stores and clusters."""

from __future__ import annotations

import pickle

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, Refused, Unreachable
from reconciler.identity import identity_from_spec
from reconciler.ports import Capabilities, Change, ClusterInfo, Row, TopicInfo, TopicPartition, WriteResult
from reconciler.spark.last_records import LastRecord
from reconciler.spark.recording import recording
from reconciler.spark.recording.store import Recorder, moves
from reconciler.spark.target import AnchorTarget, ClusterAccess
from reconciler.stores.memory import MemoryStore

AT = TopicPartition("events", 0)
IDENTITY = identity_from_spec()


def stored(offset: int, cluster: str | None = "here", topic_id: str | None = "t1") -> StoredOffset:
    return StoredOffset(offset, Anchor(offset=offset - 1, cluster_id=cluster, topic_id=topic_id))


def end(offset: int, at: TopicPartition = AT) -> LastRecord:
    return LastRecord(at, offset, timestamp_ms=5, append_time=False, key=b"k", value=b"v")


@pytest.mark.parametrize(
    ("found", "new", "expected"),
    [
        (stored(10), stored(11), True),
        (stored(10), stored(10), False),
        (stored(10), stored(9), False),
        (stored(10, topic_id=None), stored(9), False),
        (stored(10), stored(9, topic_id=None), False),
        (stored(10, cluster="there"), stored(9), True),
        (stored(10, cluster="there"), stored(10), True),
        (stored(10, topic_id="t0"), stored(9), True),
        (stored(10, cluster=None), stored(9), True),
        (StoredOffset(10), stored(9), True),
        (StoredOffset(-1, Anchor(cluster_id="here")), stored(1), True),
    ],
)
def test_only_the_same_numbering_holds_an_offset_back(found, new, expected):
    assert moves(Row(AT, found, "1"), new) is expected


def test_the_first_row_is_always_written():
    assert moves(None, stored(1))


# ---------------------------------------------------------------- the recorder


class Cluster:
    """Answers like a cluster with these topics, and counts the questions."""

    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.asked: list[set[str]] = []

    def __call__(self, topics):
        self.asked.append(set(topics))
        return ClusterInfo("here", {t: TopicInfo(t, f"id-{t}", (0,)) for t in topics if t in self.topics})


class Shaky(MemoryStore):
    """A store that runs ``before_write`` right before each write, as another program might."""

    def __init__(self, name: str, *before_write) -> None:
        super().__init__(name)
        self._before_write = list(before_write)

    def write(self, group, changes, *, reason, now_ms):
        if self._before_write:
            self._before_write.pop(0)()
        return super().write(group, changes, reason=reason, now_ms=now_ms)


@pytest.fixture
def name(request) -> str:
    return request.node.nodeid


def target(store) -> AnchorTarget:
    return AnchorTarget("g", ClusterAccess.at("nowhere:1"), IDENTITY, store, now_ms=lambda: 99)


def recorder(store, *topics: str) -> Recorder:
    return Recorder(target(store), describe=Cluster(*(topics or ("events",))))


def put(store: MemoryStore, new: StoredOffset) -> None:
    versions = {row.key: row.version for row in store.read("g")}
    assert store.write("g", [Change(AT, versions.get(AT), new)], reason="other", now_ms=1).written


def only_row(store: MemoryStore) -> Row:
    (row,) = store.read("g")
    return row


def test_the_row_holds_the_next_offset_and_the_last_records_anchor(name):
    store = MemoryStore(name)
    recorder(store).batch(3, [end(41)])
    expected = Anchor(41, 5, None, fingerprint(b"k", b"v"), "here", "id-events")
    assert only_row(store).stored == StoredOffset(42, expected, written_at_ms=99)
    assert store.history("g")[0].reason == "batch 3"


def test_a_replay_writes_nothing(name):
    store = MemoryStore(name)
    mine = recorder(store)
    mine.batch(3, [end(41)])
    before = only_row(store)
    for offset in (41, 30):
        mine.batch(3, [end(offset)])
    assert only_row(store) == before


def test_a_conflict_with_a_writer_further_ahead_keeps_its_row(name):
    further = stored(100, topic_id="id-events")
    store = Shaky(name, lambda: put(MemoryStore(name), further))
    recorder(store).batch(3, [end(41)])
    assert only_row(store).stored.offset == 100


def test_two_conflicts_are_another_job(name):
    other = MemoryStore(name)
    store = Shaky(name, lambda: put(other, stored(5)), lambda: put(other, stored(6)))
    with pytest.raises(Changed, match=r"events-0 in group g .* another job writes this group"):
        recorder(store).batch(3, [end(41)])
    assert only_row(store).stored.offset == 6


def test_ids_are_asked_for_once_and_again_for_a_new_topic(name):
    cluster = Cluster("events", "more")
    mine = Recorder(target(MemoryStore(name)), describe=cluster)
    for offset in (1, 2):
        mine.batch(3, [end(offset)])
    mine.batch(3, [end(3), end(0, TopicPartition("more", 0))])
    assert cluster.asked == [{"events"}, {"events", "more"}]


def test_a_topic_that_the_cluster_lacks_means_the_wrong_cluster(name):
    with pytest.raises(ConfigError, match=r"events.*nowhere:1 does not have.*bootstrap_servers"):
        recorder(MemoryStore(name), "others").batch(3, [end(1)])


class ReadOnly(MemoryStore):
    capabilities = Capabilities(writable=False)


class Bare(MemoryStore):
    capabilities = Capabilities(keeps_anchors=False)


@pytest.mark.parametrize(("kind", "why"), [(ReadOnly, "be written"), (Bare, "hold anchors")])
def test_a_store_without_room_for_anchors_is_refused_before_the_work(name, kind, why):
    with pytest.raises(ConfigError, match=f"cannot {why}"):
        recorder(kind(name)).open()


# ---------------------------------------------------------------- stores that come and go


class Faulty:
    """A store whose first writes fail with ``errors``; later ones work."""

    capabilities = Capabilities()
    address = "faulty:"

    def __init__(self, name: str, errors: list[Exception]) -> None:
        self._inner = MemoryStore(name)
        self._errors = errors
        self.closed = 0

    def read(self, group, topics=None):
        return self._inner.read(group, topics)

    def write(self, group, changes, *, reason, now_ms) -> WriteResult:
        if self._errors:
            raise self._errors.pop(0)
        return self._inner.write(group, changes, reason=reason, now_ms=now_ms)

    def check_writable(self, group) -> None: ...

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("error", [Unreachable("gone"), OutcomeUnknown("perhaps")])
def test_a_cut_connection_is_reopened_once(name, monkeypatch, error):
    store = Faulty(name, [error])
    monkeypatch.setattr("reconciler.stores.registry.open_store", lambda address, kafka_client, anchors: store)
    recorder("faulty:").batch(3, [end(41)])
    assert only_row(store).stored.offset == 42
    assert store.closed == 1


@pytest.mark.parametrize("errors", [[Unreachable("gone"), Unreachable("still")], [Refused("no")]])
def test_a_lasting_fault_fails_the_batch(name, monkeypatch, errors):
    store = Faulty(name, list(errors))
    monkeypatch.setattr("reconciler.stores.registry.open_store", lambda address, kafka_client, anchors: store)
    with pytest.raises(type(errors[-1]), match=str(errors[-1])):
        recorder("faulty:").batch(3, [end(41)])


# ---------------------------------------------------------------- set-up


def wrapped(**changes):
    settings = {"store": "memory:", "group": "g", "bootstrap_servers": "x:1", **changes}
    return recording(lambda batch, batch_id: None, **settings)


@pytest.mark.parametrize("wrong", [{"id": "headers:x"}, {"timestamp": "json:ts"}, {"unit": "minutes"}])
def test_wrong_texts_are_found_when_the_query_is_built(wrong):
    with pytest.raises(ConfigError):
        wrapped(**wrong)


def write(batch, batch_id):
    """A job's function, as Spark Connect sends it to its server."""


def test_a_recording_is_not_sent_to_spark_connects_server():
    with pytest.raises(ConfigError, match=r"Spark Connect .*reconciler track"):
        pickle.dumps(recording(write, store="memory:sent", group="g", bootstrap_servers="x:1"))


def test_a_checkpoint_needs_a_store_for_its_anchors():
    with pytest.raises(ConfigError, match=r"no room for anchors.*anchors="):
        wrapped(store="checkpoint:/srv/clicks")


def test_an_anchor_store_goes_with_an_address():
    with pytest.raises(ConfigError, match="Give the store as an address too"):
        wrapped(store=MemoryStore("open"), anchors="sqlite:///anchors.db")
