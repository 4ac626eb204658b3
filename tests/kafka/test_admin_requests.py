"""Requests of the admin client: when a client is kept, and when a new one takes its place."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from reconciler.core.errors import Refused, Unreachable
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
