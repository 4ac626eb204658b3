"""Kafka's admin client for stores: one deadline a call, retries for a coordinator that is moving, sentences for errors.

librdkafka would print its log to stderr and answer a refused login with a bare timeout. Here its log goes to this
module's logger at debug level, and what its error callback said last becomes part of the sentence.

librdkafka (2.16) has a fault in requests that go to a group's coordinator: where one times out because no broker
can be reached, the process is aborted when brokers come back (``eonce->refcnt > 0``, librdkafka issue 4605), or the
client never recovers. So each call first asks any broker for the cluster's description, which has no such fault,
gives the coordinator its own full time, and a client that once got no answer is not used again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from reconciler.core.errors import ConfigError, ReconcilerError, Refused, Unreachable
from reconciler.retry import insist

T = TypeVar("T")
Ask: TypeAlias = Callable[[AdminClient, float], T]

_log = logging.getLogger(__name__)

_MOVING = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Nothing was done, and the same call will soon be answered: a broker just started, a transaction is ending."""

_UNANSWERED = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._SSL,
        KafkaError._DESTROY,
        KafkaError._WAIT_COORD,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.BROKER_NOT_AVAILABLE,
    }
)
"""No answer, so that a write that was sent may or may not have happened."""

_FORBIDDEN = frozenset(
    {
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_LOGIN = frozenset({KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})


class _NoBroker(KafkaException):  # type: ignore[misc]
    """No broker could be asked at all; what was to be asked was not sent."""


class Admin:
    """An admin client of one cluster, which may be used by many threads."""

    def __init__(self, client: Mapping[str, str], *, timeout_s: float) -> None:
        """``client`` holds librdkafka properties. Raises ConfigError for those it does not take."""
        self.servers = client.get("bootstrap.servers", "?")
        self.timeout_s = timeout_s
        self._heard: deque[KafkaError] = deque(maxlen=20)
        self._settings = {"client.id": "reconciler", **client, "error_cb": self._heard.append}
        self._client = self._connected()

    def _connected(self) -> AdminClient:
        try:
            return AdminClient(self._settings, logger=_Demoted(_log.name))
        except KafkaException as err:
            raise ConfigError(
                f"The Kafka client does not take its settings: {err.args[0].str()}.",
                hint="Correct them under [destination.client] in the configuration.",
            ) from err

    def call(self, doing: str, ask: Ask[T]) -> T:
        """The result of one admin request, asked again while the coordinator is moving.

        ``ask`` gets the client and a timeout in seconds, and may raise KafkaException. ``doing`` names the action in
        a sentence. Raises Unreachable where no broker answers within ``timeout_s``, or the right one does not within
        as long again, Refused when the cluster says no; their cause is the client's own error.
        """
        client = self._client
        client.poll(0)
        self._heard.clear()  # what happened in earlier calls does not explain this one

        def once() -> T:
            try:
                client.describe_cluster(request_timeout=self.timeout_s).result()
            except KafkaException as err:
                raise _NoBroker(*err.args) from err
            return ask(client, self.timeout_s)

        began = monotonic()
        try:
            return insist(once, give_up=lambda: monotonic() - began >= self.timeout_s, helps=_is_moving)
        except KafkaException as err:
            client.poll(0)  # lets the error callback speak
            if code_of(err) in _UNANSWERED:
                self._client = self._connected()
            raise self._explain(err.args[0], doing) from err

    def _explain(self, error: KafkaError, doing: str) -> ReconcilerError:
        code = error.code()
        login = next((heard for heard in (error, *self._heard) if heard.code() in _LOGIN), None)
        if code in _MOVING or (code in _UNANSWERED and login is None):
            return self._unreachable(doing, error.str())
        if login is not None:
            return Refused(
                f"Could not {doing}: the cluster at {self.servers} refused the login ({login.str()}).",
                hint="Correct the credentials under [destination.client].",
            )
        if code in _FORBIDDEN:
            return Refused(
                f"Could not {doing}: the cluster at {self.servers} does not allow it ({error.str()}).",
                hint="Ask its administrator for Read and Describe on the group and its topics.",
            )
        return Refused(
            f"Could not {doing}: the cluster at {self.servers} said no ({error.str()}).",
            hint="Correct what it names, then run again.",
        )

    def _unreachable(self, doing: str, why: str) -> Unreachable:
        heard = f"; last heard: {self._heard[-1].str()}" if self._heard else ""
        return Unreachable(
            f"Could not {doing}: the cluster at {self.servers} gave no answer in {self.timeout_s:g} s ({why}{heard}).",
            hint="Check that it runs and can be reached from here, then run again.",
        )

    def close(self) -> None:
        """Let the last log lines out; the connections end with the object."""
        self._client.poll(0)


def code_of(err: BaseException | None) -> int | None:
    """The error code in a KafkaException, None for anything else."""
    return err.args[0].code() if isinstance(err, KafkaException) else None


def may_have_happened(err: BaseException | None) -> bool:
    """True where a request was sent, and may or may not have been carried out."""
    return not isinstance(err, _NoBroker) and code_of(err) in _UNANSWERED


def _is_moving(err: BaseException) -> bool:
    return code_of(err) in _MOVING


class _Demoted(logging.Logger):
    """Takes librdkafka's log. Whatever level its lines come with, they are details: the errors are judged here."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        _log.debug(msg, *args, **kwargs)
