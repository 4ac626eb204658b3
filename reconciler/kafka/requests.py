"""Admin requests with one deadline per call, repeated while a group's coordinator is moving.

librdkafka (2.16) has a bug in requests to a group's coordinator: after a timeout because no broker could be reached, it
aborts the process when brokers come back (``eonce->refcnt > 0``, librdkafka issue 4605), or never recovers. So each
call first sends a harmless request to any broker (``await_answer``) and then gives the coordinator a full timeout. A
client that got no answer is replaced, and so is one that asks with an old leader epoch.

It can also miss that the controller is connected ("Failed while waiting for controller": on a busy machine it waited 64
s for a broker that answered other clients). So a request that only looks something up there is repeated once, by a new
client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from typing import TypeAlias, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from reconciler.core.errors import Away, Unreachable
from reconciler.kafka.connection import Connection
from reconciler.kafka.errors import COORDINATOR_MOVING, STALE_EPOCH, UNANSWERED, Needs
from reconciler.retry import insist
from reconciler.waits import for_seconds

T = TypeVar("T")
SURVEY_S = 10.0
Ask: TypeAlias = Callable[[AdminClient, float], T]


class _NoBroker(KafkaException):  # type: ignore[misc]
    """No broker could be reached; the request was not sent."""


class Admin:
    """An admin client of one cluster, which may be used by many threads. ``connection`` makes further clients."""

    def __init__(self, client: Mapping[str, str], *, timeout_s: float) -> None:
        """``client`` holds librdkafka properties. Raises ConfigError for those it does not take."""
        self.connection = Connection(client, timeout_s=timeout_s)
        self._client = self.connection.admin()

    def look_up(self, doing: str, ask: Ask[T], needs: Needs) -> T:
        """As ``call``, for a request to the controller that changes nothing."""
        try:
            return self.call(doing, ask, needs)
        except Unreachable as error:
            if isinstance(error, Away) or code_of(error.__cause__) not in UNANSWERED:
                raise
            return self.call(doing, ask, needs)

    def call(self, doing: str, ask: Ask[T], needs: Needs) -> T:
        """The result of one admin request, repeated while the coordinator is moving.

        ``ask`` gets the client and a timeout in seconds, and may raise KafkaException. ``doing`` names the action in
        a sentence, ``needs`` the permissions it takes. Raises Unreachable where no broker answers in time, or the
        right one does not within as long again, Refused when the cluster says no; their cause is the client's error.
        """
        client, timeout_s = self._client, self.connection.timeout_s
        client.poll(0)

        def once() -> T:
            try:
                self.connection.await_answer(client, doing)
            except KafkaException as error:
                raise _NoBroker(*error.args) from error
            with self.connection.waiting():
                return ask(client, timeout_s)

        try:
            return insist(once, left_s=for_seconds(timeout_s), helps=_is_moving)
        except KafkaException as error:
            client.poll(0)  # runs the error callback
            if code_of(error) in UNANSWERED | STALE_EPOCH:
                self._client = self.connection.admin()
            found = self.connection.failure(error, doing, needs)
            if isinstance(error, _NoBroker) and type(found) is Unreachable:
                found = Away(found.message, hint=found.hint)
            raise found from error

    def close(self) -> None:
        """Deliver the last log lines; the connections end with the object."""
        self._client.poll(0)


class Surveyor:
    """A cluster by its client settings. Every method raises Unreachable and Refused as ``Admin.call`` does."""

    def __init__(self, client: Mapping[str, str], *, timeout_s: float = SURVEY_S) -> None:
        self._admin = Admin(client, timeout_s=timeout_s)

    def topics(self) -> dict[str, int]:
        """Names of all topics that this user may describe, internal ones too, and their numbers of partitions."""

        def ask(client: AdminClient, timeout_s: float) -> dict[str, int]:
            listed = client.list_topics(timeout=timeout_s).topics
            return {name: len(topic.partitions) for name, topic in sorted(listed.items()) if topic.error is None}

        return self._admin.call("list the topics", ask, Needs(topic="Describe on the topics"))

    def groups(self) -> list[str]:
        """Names of all consumer groups that this user may describe."""

        def ask(client: AdminClient, timeout_s: float) -> list[str]:
            listed = client.list_consumer_groups(request_timeout=timeout_s).result()
            if listed.errors and not listed.valid:
                raise listed.errors[0]
            return sorted(group.group_id for group in listed.valid)

        return self._admin.call("list the groups", ask, Needs(group="Describe on the groups"))

    def close(self) -> None:
        self._admin.close()


def topics_of(client: Mapping[str, str], *, timeout_s: float = SURVEY_S) -> list[str]:
    """The names of all topics that this user may describe. Raises as ``Surveyor`` does."""
    with closing(Surveyor(client, timeout_s=timeout_s)) as surveyor:
        return list(surveyor.topics())


def code_of(error: BaseException | None) -> int | None:
    """The error code in a KafkaException, None for anything else."""
    return error.args[0].code() if isinstance(error, KafkaException) else None


def _is_moving(error: BaseException) -> bool:
    return code_of(error) in COORDINATOR_MOVING
