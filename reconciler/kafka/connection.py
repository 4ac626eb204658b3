"""Clients of one cluster, made with the same settings, and the errors of their connections.

The client library reports a refused login or certificate only through a callback, retries, and ends the call with a
bare timeout. So the first call of a client is waited for in short steps, and an error that no wait can mend ends it at
once.

That call, and the one for the cluster's id, name a topic. librdkafka (2.16) aborts the process (``rko_result``, in
``rd_kafka_admin_response_parse``) when a description of the cluster alone has no broker in it, which is what a broker
answers while it shuts down and no other is left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from reconciler import written
from reconciler.core.errors import ReconcilerError, Refused, Unreachable
from reconciler.kafka.errors import (
    UNANSWERED,
    ClusterErrors,
    Needs,
    bad_settings,
    plain_text,
    unknown_properties,
    unknown_property,
)
from reconciler.kafka.tokens import TokenSource, with_token
from reconciler.waits import for_seconds, waiting

STEP_S = 0.05
ANY_TOPIC = "__consumer_offsets"
"""The topic to ask for where no topic matters: nearly every cluster has it. It is not created."""

READS_ONLY = {
    "group.id": "reconciler-reads-only",  # required by the client; never joined, and nothing is committed
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "check.crcs": True,
}
"""Properties of every consumer of records: a deleted position and a damaged batch are errors."""
POINT_READS = {
    **READS_ONLY,
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 1,
    "fetch.error.backoff.ms": 10,
    "queued.min.messages": 1,
    "message.max.bytes": 1_000_000,  # a producer's; librdkafka refuses a smaller fetch.max.bytes
    "receive.message.max.bytes": 512 * 1024 * 1024,
}
"""Settings that reads rely on; a user's client settings never override them."""
ONE_BATCH = {"message.max.bytes": 1_000, "fetch.max.bytes": 1_000}
"""A fetch then brings one batch of one partition: a broker sends the first one whole, however large it is (KIP-74)."""

log = logging.getLogger(__name__)


class Connection:
    """A cluster by its client settings (librdkafka properties); ``whose`` it is, for sentences.

    Raises ConfigError as ``with_token``.
    """

    def __init__(self, client: Mapping[str, Any], *, timeout_s: float, whose: str = "") -> None:
        client = {"client.id": "reconciler", **client}
        self._settings = with_token(client)
        servers = self._settings.get("bootstrap.servers", "?")
        user = self._settings.get("sasl.username")
        who = f"user {user!r}" if user else "this user"
        name = " ".join(filter(None, ("the", whose, "cluster at", servers)))
        self.cluster = ClusterErrors(name, who, timeout_s, client)

    @property
    def timeout_s(self) -> float:
        return self.cluster.timeout_s

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Note a wait for the cluster while a request is under way."""

        def cause() -> str:
            last = self.cluster.last
            return "" if last is None else plain_text(last)

        with waiting(self._settings.get("bootstrap.servers", "?"), for_seconds(self.timeout_s), cause):
            yield

    def admin(self) -> AdminClient:
        """A new admin client. Raises ConfigError for settings that cannot be used."""
        return self.new_client(AdminClient, {"allow.auto.create.topics": "false"})

    def consumer(self, properties: Mapping[str, Any]) -> Consumer:
        """A new consumer; ``properties`` override the user's settings. Raises ConfigError as ``admin`` does."""
        return self.new_client(Consumer, properties)

    def new_client(self, kind: Any, properties: Mapping[str, Any]) -> Any:
        """A new client of this class of the library, as ``consumer``. The error names every unknown property.

        Raises Unreachable where a login's token cannot be made.
        """
        settings, unknown = {**self._settings, **properties, "error_cb": self._hear}, list[str]()
        if isinstance(token := settings.get("oauth_cb"), TokenSource):
            token.fetch(self.cluster.name)
        while True:
            try:
                client = kind(settings, logger=_Demoted(log.name))
            except (KafkaException, TypeError, ValueError) as error:
                name = unknown_property(error)
                if name in settings:
                    unknown.append(name)
                    del settings[name]
                    continue
                if not unknown:  # else the missing property may be a misspelt one
                    raise bad_settings(error, self._settings) from error
            if unknown:
                raise unknown_properties(unknown)
            return client

    def _hear(self, error: Any) -> None:
        log.debug("kafka client: %s", error)
        self.cluster(error)

    def cluster_id(self, admin: AdminClient, doing: str) -> str:
        """The id of the cluster, once it answers. Raises as ``await_answer`` does."""
        self.await_answer(admin, doing)
        return str(admin.list_topics(topic=ANY_TOPIC, timeout=self.timeout_s).cluster_id)

    def await_answer(self, admin: AdminClient, doing: str) -> None:
        """Wait for any answer of the cluster. The first call of a client: it shows whether the cluster lets it in.

        Raises KafkaException where no answer comes in time, and Refused, at once, where none can come: the login
        or a certificate is refused, or no server's name resolves.
        """
        self.cluster.clear()  # errors of earlier calls do not explain this one
        asked = admin.describe_topics(TopicCollection([ANY_TOPIC]), request_timeout=self.timeout_s)[ANY_TOPIC]
        with self.waiting():
            while True:
                try:
                    asked.result(timeout=STEP_S)
                    return
                except TimeoutError:
                    admin.poll(0)  # runs the callback
                    written.check()  # a signal's exception that the callback had is lost in the client
                except KafkaException as error:
                    admin.poll(0)
                    if error.args[0].code() > KafkaError.NO_ERROR:
                        return  # no such topic, or not for this user: a broker has answered
                    raise
                if self.cluster.all_down and (refusal := self.cluster.refusal(doing)) is not None:
                    raise refusal

    def failure(self, error: KafkaException, doing: str, needs: Needs | None = None) -> ReconcilerError:
        """The product's error for the client's: ``doing`` (an infinitive) failed, which ``needs`` permissions."""
        found = self.cluster.explain(error.args[0], doing, needs or Needs())
        if error.args[0].code() not in UNANSWERED or isinstance(found, Refused) or not self.cluster.all_down:
            return found
        refusal = self.cluster.tls_refused(doing)
        hint = None if refusal is not None else self.cluster.other_protocol()
        return refusal or (found if hint is None else Unreachable(found.message, hint=hint))


class _Demoted(logging.Logger):
    """librdkafka's log, at debug level whatever level it chose: its errors are reported by this module."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        log.debug(msg, *args, **kwargs)
