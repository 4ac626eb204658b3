"""Admin requests, one deadline a call, asked again while a group's coordinator is moving.

librdkafka (2.16) has a fault in requests that go to a group's coordinator: where one times out because no broker
can be reached, the process is aborted when brokers come back (``eonce->refcnt > 0``, librdkafka issue 4605), or the
client never recovers. So each call first asks any broker something that has no such fault (``await_answer``), gives the
coordinator its own full time, and a client that once got no answer is not used again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from reconciler.core.errors import ReconcilerError
from reconciler.kafka.connection import Connection
from reconciler.kafka.errors import COORDINATOR_MOVING, UNANSWERED, Needs
from reconciler.retry import insist

T = TypeVar("T")
Ask: TypeAlias = Callable[[AdminClient, float], T]


class _NoBroker(KafkaException):  # type: ignore[misc]
    """No broker could be asked at all; what was to be asked was not sent."""


class Admin:
    """An admin client of one cluster, which may be used by many threads."""

    def __init__(self, client: Mapping[str, str], *, timeout_s: float) -> None:
        """``client`` holds librdkafka properties. Raises ConfigError for those it does not take."""
        self._connection = Connection(client, timeout_s=timeout_s)
        self._client = self._connection.admin()

    def call(self, doing: str, ask: Ask[T], needs: Needs) -> T:
        """The result of one admin request, asked again while the coordinator is moving.

        ``ask`` gets the client and a timeout in seconds, and may raise KafkaException. ``doing`` names the action in
        a sentence, ``needs`` the permissions it takes. Raises Unreachable where no broker answers in time, or the
        right one does not within as long again, Refused when the cluster says no; their cause is the client's error.
        """
        client, timeout_s = self._client, self._connection.timeout_s
        client.poll(0)

        def once() -> T:
            try:
                self._connection.await_answer(client, doing)
            except KafkaException as error:
                raise _NoBroker(*error.args) from error
            return ask(client, timeout_s)

        began = monotonic()
        try:
            return insist(once, give_up=lambda: monotonic() - began >= timeout_s, helps=_is_moving)
        except KafkaException as error:
            client.poll(0)  # lets the error callback speak
            if code_of(error) in UNANSWERED:
                self._client = self._connection.admin()
            raise self.failure(error, doing, needs) from error

    def consumer(self, properties: Mapping[str, Any]) -> Consumer:
        """A new consumer of the same cluster. Raises ConfigError for properties that it does not take."""
        return self._connection.consumer(properties)

    def failure(self, error: KafkaException, doing: str, needs: Needs) -> ReconcilerError:
        """The product's error for the client's, as ``call`` raises it."""
        return self._connection.failure(error, doing, needs)

    def close(self) -> None:
        """Let the last log lines out; the connections end with the object."""
        self._client.poll(0)


def code_of(error: BaseException | None) -> int | None:
    """The error code in a KafkaException, None for anything else."""
    return error.args[0].code() if isinstance(error, KafkaException) else None


def may_have_happened(error: BaseException | None) -> bool:
    """True where a request was sent, and may or may not have been carried out."""
    return not isinstance(error, _NoBroker) and code_of(error) in UNANSWERED


def _is_moving(error: BaseException) -> bool:
    return code_of(error) in COORDINATOR_MOVING
