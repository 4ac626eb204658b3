"""Requests of the admin client: when a client is kept, and when a new one takes its place."""

from __future__ import annotations

from contextlib import closing, nullcontext

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from reconciler.core.errors import Away, Refused, Unreachable
from reconciler.kafka.connection import Connection
from reconciler.kafka.errors import Needs
from reconciler.kafka.requests import Admin

NEEDS = Needs(topic="Describe on the topic")


def clients_of_two_calls(patch: pytest.MonkeyPatch, code: int, error: type[Exception]) -> list[AdminClient]:
    """The clients that were asked; the first call fails with this code, the second succeeds."""
    asked: list[AdminClient] = []

    def ask(client: AdminClient, _: float) -> int:
        asked.append(client)
        if len(asked) == 1:
            raise KafkaException(KafkaError(code))
        return len(asked)

    patch.setattr(Connection, "await_answer", lambda *_: None)  # there is no server
    with closing(Admin({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, timeout_s=10)) as admin:
        with pytest.raises(error):
            admin.call("look", ask, NEEDS)
        assert admin.call("look", ask, NEEDS) == 2
    return asked


@pytest.mark.parametrize("code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH])
def test_a_client_with_an_old_leader_epoch_is_not_asked_again(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """It would send the same epoch until its metadata expires."""
    first, second = clients_of_two_calls(monkeypatch, code, Unreachable)
    assert first is not second


def test_a_client_that_was_refused_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = clients_of_two_calls(monkeypatch, KafkaError.INVALID_REQUEST, Refused)
    assert first is second


@pytest.mark.parametrize(
    ("code", "error", "clients"),
    [
        (KafkaError._TIMED_OUT, None, 2),
        (KafkaError.INVALID_REQUEST, Refused, 1),
    ],
)
def test_what_the_controller_did_not_answer_is_looked_up_by_a_new_client(
    monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception] | None, clients: int
) -> None:
    """The client can miss that the controller is connected, and waits in vain for as long as it is given."""
    asked: list[AdminClient] = []

    def ask(client: AdminClient, _: float) -> str:
        asked.append(client)
        if len(asked) == 1:
            raise KafkaException(KafkaError(code))
        return "found"

    monkeypatch.setattr(Connection, "await_answer", lambda *_: None)
    admin = Admin({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, timeout_s=10)
    with closing(admin), nullcontext() if error is None else pytest.raises(error):
        assert admin.look_up("look", ask, NEEDS) == "found"
    assert len(asked) == len(set(map(id, asked))) == clients


def test_a_broker_that_does_not_answer_at_all_is_asked_for_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def silent(*_: object) -> None:
        calls.append(1)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(Connection, "await_answer", silent)
    admin = Admin({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, timeout_s=10)
    with closing(admin), pytest.raises(Away):
        admin.look_up("look", lambda client, timeout_s: None, NEEDS)
    assert len(calls) == 1
