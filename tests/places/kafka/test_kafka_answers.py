"""What the store of groups makes of answers that do not come, come late, or are partial. Needs no cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Changed, OutcomeUnknown, Refused, Unreachable
from reconciler.places.kafka.group import Committed, GroupState, KafkaGroupStore, KnownTopic
from reconciler.places.kafka.requests import GroupRequests
from reconciler.ports import Change, TopicPartition
from tests.places.store_cases import NOW

KEY = TopicPartition("events", 0)
CLIENT = {"bootstrap.servers": "localhost:1"}


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
    monkeypatch.setattr("reconciler.places.kafka.group.BATCH", 1)
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
