"""What Kafka's stores make of answers that do not come, come late, or are partial. Needs no cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, OutcomeUnknown, Refused, Unreachable
from reconciler.kafka.connection import Connection
from reconciler.kafka.reader import KafkaLogReader
from reconciler.ports import Change, ReadRequest, TopicPartition
from reconciler.stores.kafka import topic as kafka_topic
from reconciler.stores.kafka import topic_rows
from reconciler.stores.kafka.group import KafkaGroupStore
from reconciler.stores.kafka.group_requests import GroupRequests
from reconciler.stores.kafka.group_state import Committed, GroupState, KnownTopic
from reconciler.stores.kafka.topic import KafkaTopicStore
from reconciler.stores.kafka.topic_log import TopicLog
from reconciler.stores.kafka.topic_requests import Look, TopicRequests
from reconciler.stores.kafka.topic_rows import RowName
from reconciler.stores.kafka.topic_writer import Fenced, Writer
from tests.kafka.mock_cluster import mock_cluster
from tests.stores.store_cases import NOW

KEY = TopicPartition("events", 0)
ANCHOR = Anchor(899, NOW - 1, b"id", None, "b", "b/events")
CLIENT = {"bootstrap.servers": "localhost:1"}


# ---------------------------------------------------------------- a write, and no answer about it


class Group:
    """Accepts commits, and answers the first question about them only."""

    def __init__(self) -> None:
        self.rows: dict[TopicPartition, Committed] = {}

    def state(self, _group: str) -> GroupState:
        return GroupState("EMPTY")

    def topics(self, names: Iterable[str], *, why: str) -> dict[str, KnownTopic]:
        return {name: KnownTopic(frozenset({0})) for name in names}

    def committed(self, _group: str, _keys: Sequence[TopicPartition]) -> dict[TopicPartition, Committed]:
        if self.rows:
            raise Unreachable("Could not read the offsets: no answer.")
        return {}

    def commit(self, _group: str, rows: Mapping[TopicPartition, Committed]) -> None:
        self.rows.update(rows)


@pytest.mark.parametrize("moment", ["commit", "committed"])
def test_a_topic_that_is_deleted_behind_the_first_part_of_a_commit_leaves_the_outcome_unknown(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.stores.kafka.group.BATCH", 1)
    store, group = KafkaGroupStore(CLIENT), Group()
    store.__dict__["_requests"] = group
    real = getattr(group, moment)

    def gone(*asked: Any) -> Any:
        if group.rows:
            raise Changed("The cluster no longer knows the topic.")
        return real(*asked)

    monkeypatch.setattr(group, moment, gone)
    changes = [Change(key, None, StoredOffset(7)) for key in (KEY, TopicPartition("more", 0))]
    with pytest.raises(OutcomeUnknown, match=r"(1 of 2 were|the commit was accepted), then: .* no longer knows"):
        store.write("g", changes, reason="apply", now_ms=NOW)
    assert group.rows


def test_a_commit_that_was_accepted_and_cannot_be_read_again_is_unknown() -> None:
    store, group = KafkaGroupStore(CLIENT), Group()
    store.__dict__["_requests"] = group
    with pytest.raises(OutcomeUnknown, match=r"the commit was accepted, then: .*no answer"):
        store.write("g", [Change(KEY, None, StoredOffset(7))], reason="apply", now_ms=NOW)
    assert group.rows[KEY].offset == 7


def sent(answers: Mapping[TopicPartition, int], *, reachable: bool = True) -> None:
    """Commit rows to a coordinator that gives these answers, each time."""

    def commit(requests: Sequence[Any], request_timeout: float) -> dict[str, Any]:
        rows = [replace(Answered(*key), error=KafkaError(code)) for key, code in answers.items()]
        return {"g": SimpleNamespace(result=lambda: SimpleNamespace(topic_partitions=rows))}

    def await_answer(*_: object) -> None:
        if not reachable:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    requests = GroupRequests(CLIENT, timeout_s=0.1)
    requests._admin._client = SimpleNamespace(poll=lambda _: None, alter_consumer_group_offsets=commit)  # type: ignore
    requests._admin.connection.await_answer = await_answer  # type: ignore[method-assign]
    requests.commit("g", dict.fromkeys(answers, Committed(7, "")))


@dataclass(frozen=True)
class Answered:
    """One row of a coordinator's answer."""

    topic: str
    partition: int
    error: KafkaError | None = None


MOVES, OTHER = KafkaError.COORDINATOR_NOT_AVAILABLE, TopicPartition("events", 1)


@pytest.mark.parametrize("moves", [MOVES, KafkaError.NOT_COORDINATOR, KafkaError.REQUEST_TIMED_OUT])
def test_a_commit_that_the_coordinator_may_have_in_its_own_log_is_unknown(moves: int) -> None:
    """It answers so when a replica was lost after it wrote the commit, and before the others had it."""
    with pytest.raises(OutcomeUnknown, match="Whether all offsets of group 'g' were written is not known"):
        sent({KEY: moves})
    with pytest.raises(OutcomeUnknown):
        sent({KEY: KafkaError.TOPIC_AUTHORIZATION_FAILED, OTHER: moves})


def test_a_commit_that_was_refused_or_never_sent_has_written_nothing() -> None:
    with pytest.raises(Refused):
        sent({KEY: KafkaError.TOPIC_AUTHORIZATION_FAILED})
    with pytest.raises(Unreachable):
        sent({KEY: MOVES}, reachable=False)


def test_a_group_that_is_deleted_may_have_rows_that_this_user_cannot_see(caplog: pytest.LogCaptureFixture) -> None:
    row, deleted = Committed(7, ""), list[str]()
    store = KafkaGroupStore(CLIENT)
    store.__dict__["_requests"] = SimpleNamespace(
        state=lambda _: GroupState("EMPTY"),
        committed=lambda _, keys: dict.fromkeys(keys, row),
        all_committed=lambda _: {KEY: row},
        topics=lambda *_, **__: {},
        delete_group=deleted.append,
    )
    store.write("g", [Change(KEY, row.version, None)], reason="rollback", now_ms=NOW)
    assert deleted == ["g"]
    assert (
        "group g will be deleted with all its offsets, also those of topics that this user may not describe"
        in caplog.text
    )


def away(*_: object) -> NoReturn:
    raise Unreachable("No answer.")


def gone(*_: object) -> NoReturn:
    raise Changed("The cluster no longer knows the topic.")


@pytest.mark.parametrize("look", [away, lambda _: {}, gone], ids=["no answer", "no topic", "no partition"])
def test_a_fenced_writer_that_cannot_see_whether_it_committed_says_so(
    look: Callable[[object], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = KafkaTopicStore(CLIENT, "rows")

    def fenced(*_: object) -> NoReturn:
        raise Fenced

    monkeypatch.setattr(store, "_write", fenced)
    store.__dict__["_requests"] = SimpleNamespace(look=look)
    with pytest.raises(OutcomeUnknown, match="Whether the rows were written to topic 'rows' is not known"):
        store.write("g", [Change(KEY, None, StoredOffset(7))], reason="apply", now_ms=NOW)


# ---------------------------------------------------------------- mirrored rows of a clock that is ahead


class Topics:
    """``rows`` and the mirrored ``a.rows``, the last record of each row."""

    def __init__(self, store: KafkaTopicStore, mirrored: StoredOffset, monkeypatch: pytest.MonkeyPatch) -> None:
        name = RowName("g", *KEY)
        self.records = {"rows": {}, "a.rows": {name: topic_rows.encode_value(mirrored).encode()}}
        monkeypatch.setattr(store, "_found", self._found)
        store._writers["g"] = self  # type: ignore[assignment]

    def _found(self, _group: str, **_: bool) -> kafka_topic._Found:
        found = kafka_topic._Found({"rows": "1", "a.rows": "2"})
        for topic, records in self.records.items():
            for name, raw in records.items():
                found.records.setdefault(name, []).append(kafka_topic._Record(topic, len(raw), raw))
        return found

    def write(self, records: Mapping[bytes, bytes | None], _token: bytes) -> None:
        for key, value in records.items():
            assert value is not None
            self.records["rows"][topic_rows.decode_key(key)] = value


@pytest.mark.parametrize(
    "new",
    [StoredOffset(900, ANCHOR), StoredOffset(900, ANCHOR, NOW), StoredOffset(-1, None, NOW), None],
    ids=["row", "row of apply", "sentinel", "deletion"],
)
def test_a_write_counts_beside_a_mirrored_row_of_a_later_time(
    new: StoredOffset | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = KafkaTopicStore(CLIENT, "rows", ["a.rows"])
    Topics(store, StoredOffset(5000, None, NOW + 5000), monkeypatch)
    (row,) = store.read("g")
    assert store.write("g", [Change(KEY, row.version, new)], reason="apply", now_ms=NOW).written == (KEY,)
    expected = [] if new is None else [replace(new, written_at_ms=NOW + 5000)]
    assert [row.stored for row in store.read("g")] == expected


@pytest.mark.parametrize(
    ("make", "new", "when", "hint"),
    [
        (Change, StoredOffset(900), f"was written at {NOW} ", "run this again after the later time"),
        (Change.restoring, StoredOffset(900, ANCHOR, NOW), f"was written at {NOW} ", "stop the mirror of a.rows"),
        (Change.restoring, StoredOffset(900, ANCHOR), "has no time of writing,", "stop the mirror of a.rows"),
        (partial(Change, undated=True), StoredOffset(900), "has no time of writing,", "stop the mirror of a.rows"),
    ],
    ids=["no anchor", "restored", "restored without a time", "imported without a time"],
)
def test_a_row_that_must_not_be_dated_later_is_refused_beside_one(
    make: Callable[..., Change], new: StoredOffset, when: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is restored keeps its time, so that waiting would not help."""
    store = KafkaTopicStore(CLIENT, "rows", ["a.rows"])
    topics = Topics(store, StoredOffset(5000, None, NOW + 5000), monkeypatch)
    (row,) = store.read("g")
    with pytest.raises(Refused, match=f"{when}.*a mirrored one was written at {NOW + 5000}") as refused:
        store.write("g", [make(KEY, row.version, new)], reason="rollback", now_ms=NOW)
    assert hint in (refused.value.hint or "")
    assert not topics.records["rows"]
    without = KafkaTopicStore(CLIENT, "rows", [])
    own = Topics(without, StoredOffset(5000), monkeypatch)
    del own.records["a.rows"]
    assert without.write("g", [make(KEY, None, new)], reason="rollback", now_ms=NOW).written == (KEY,)


# ---------------------------------------------------------------- topics listed with an error


@pytest.mark.parametrize("silent", ["earliest", "latest"])
def test_a_topic_whose_edges_no_broker_told_is_not_an_empty_one(silent: str) -> None:
    """librdkafka 2.16 answers -1001, and no error, where a broker stays silent."""

    def list_offsets(asked: Mapping[Any, OffsetSpec], **_: Any) -> dict[Any, Any]:
        edge = -1001 if isinstance(next(iter(asked.values())), type(getattr(OffsetSpec, silent)())) else 5
        return {place: SimpleNamespace(result=lambda: SimpleNamespace(offset=edge)) for place in asked}

    requests = TopicRequests(CLIENT, timeout_s=0.1)
    requests._admin._client = SimpleNamespace(poll=lambda _: None, list_offsets=list_offsets)  # type: ignore
    requests._admin.connection.await_answer = lambda *_: None  # type: ignore[method-assign]
    log = TopicLog(Connection(CLIENT, timeout_s=0.1), requests, "g")
    with pytest.raises(Unreachable, match="look up the offsets of topic 'rows'"):
        log.read(Look("rows", "id", 1, may_write=True))


def test_a_topic_that_has_no_leader_for_a_moment_is_asked_again() -> None:
    answers = [KafkaException(KafkaError(KafkaError._NOENT, "No leaders found")), 3, 5]

    def list_offsets(asked: Mapping[Any, OffsetSpec], **_: Any) -> dict[Any, Any]:
        def result() -> Any:
            answer = answers.pop(0)
            if isinstance(answer, KafkaException):
                raise answer
            return SimpleNamespace(offset=answer)

        return {place: SimpleNamespace(result=result) for place in asked}

    requests = TopicRequests(CLIENT, timeout_s=5)
    requests._admin._client = SimpleNamespace(poll=lambda _: None, list_offsets=list_offsets)  # type: ignore
    requests._admin.connection.await_answer = lambda *_: None  # type: ignore[method-assign]
    assert requests.edges("rows") == (3, 5)


def test_a_mirrored_topic_that_is_named_and_not_there_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = KafkaTopicStore(CLIENT, "rows", ["a.rwos"])
    store.__dict__["_requests"] = SimpleNamespace(look=lambda _: {"rows": Look("rows", "id", 1, may_write=True)})
    monkeypatch.setattr(store, "_log", lambda *_: SimpleNamespace(read=lambda *_, **__: {}))
    assert [store.read("g"), store.read("g")] == [[], []]
    assert caplog.messages == ["the cluster has no topic a.rwos to read mirrored rows of topic rows from"]


def mirrored(topics: Mapping[str, object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics that a cluster with this list would have mirrored copies of ``rows`` in."""

    class Admin:
        def call(self, _doing: str, ask: Callable[[object, float], list[str]], _needs: object) -> list[str]:
            try:
                return ask(SimpleNamespace(list_topics=lambda timeout: SimpleNamespace(topics=topics)), 1.0)
            except KafkaException as error:
                raise Unreachable(str(error)) from error

    requests = TopicRequests(CLIENT, timeout_s=0)
    requests._admin = Admin()  # type: ignore[assignment]
    monkeypatch.setattr(TopicRequests, "is_compacted", lambda *_: True)
    return requests.mirrored("rows")


def test_a_mirrored_topic_without_a_leader_is_not_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    one = SimpleNamespace(partitions={0: None}, error=None)
    moving = SimpleNamespace(partitions={}, error=KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    assert mirrored({"rows": one, "a.rows": one, "others": moving}, monkeypatch) == ["a.rows"]
    with pytest.raises(Unreachable, match="LEADER_NOT_AVAILABLE"):
        mirrored({"rows": one, "a.rows": moving}, monkeypatch)


# ---------------------------------------------------------------- the user's own settings


OF_CONSUMERS = {
    "socket.timeout.ms": "60000",
    "delivery.timeout.ms": "120000",
    "request.required.acks": "1",
    "enable.idempotence": "false",
    "max.in.flight": "1000",
    "message.send.max.retries": "0",
    "queuing.strategy": "lifo",
}


@pytest.mark.parametrize("name", OF_CONSUMERS)
def test_settings_that_no_transaction_may_have_are_left_to_the_users_other_clients(name: str) -> None:
    """``check`` and ``plan`` said 0, and then ``apply`` and the hook ended with 2."""
    with mock_cluster() as bootstrap:
        client = {"bootstrap.servers": bootstrap, "log_level": "0", name: OF_CONSUMERS[name]}
        Writer(client, "events", "g", timeout_s=10).write({b"key": b"value"}, b"token")
        with closing(KafkaLogReader(client, committed_only=True)) as log:
            (chunk,) = log.read([ReadRequest(KEY, 9, 1)])
        assert [(record.key, record.value) for record in chunk.records] == [(b"key", b"value")]
