"""Writing one group's rows to a topic: one writer at a time, and all of a batch or nothing.

Kafka has no compare-and-set for records. It has transactions: of the producers with one transactional id, only the last
one can commit. All writers of a group's rows use the same id, so:

- W1  When a producer has been admitted (``init_transactions``), every earlier writer's transaction has ended, committed
      or aborted, and none of them can commit any more.
- W2  A commit succeeds only if no other writer was admitted since. So rows that this writer reads after its admission
      do not change before its commit.
- W3  A producer that was fenced before its commit reached the coordinator has written nothing. If the answer to a
      commit was lost, the producer may look fenced although it committed: then its records, marked by a token, exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from time import monotonic

from confluent_kafka import KafkaError, KafkaException, Producer

from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.kafka.connection import Connection
from reconciler.kafka.errors import Needs, plain_text
from reconciler.kafka.requests import code_of
from reconciler.stores.kafka.topic_log import TOKEN

TRANSACTION_S = 5.0
"""Seconds after which the brokers abort the transaction of a dead writer; they check every 10 s."""

_WRITING = {
    "transaction.timeout.ms": int(TRANSACTION_S * 1000),
    "message.timeout.ms": int(TRANSACTION_S * 1000),
    "socket.timeout.ms": int(TRANSACTION_S * 1000) - 100,
    "enable.idempotence": True,
    "acks": "all",
    "retries": 2**31 - 1,
    "max.in.flight.requests.per.connection": 5,
    "queuing.strategy": "fifo",
    "linger.ms": 0,
    "socket.keepalive.enable": True,
}
"""The client refuses a transactional producer with other values. These are its own then, whatever the user's are, which
may be meant for consumers."""

_FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_BEING_FENCED = frozenset({KafkaError.UNKNOWN, KafkaError.INVALID_TXN_STATE, KafkaError.CONCURRENT_TRANSACTIONS})
"""A coordinator's possible answers to a commit while it admits another writer (Kafka 4.1)."""
_FORGOTTEN = frozenset({KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID})
"""Its answers to a writer that was idle for a week (``transactional.id.expiration.ms``)."""


class Fenced(Exception):
    """Another writer of the group was admitted; as far as this one can tell, its records were not committed (W3)."""


class Writer:
    """An admitted writer of one group's rows in one topic."""

    def __init__(self, client: Mapping[str, str], topic: str, group: str, *, timeout_s: float) -> None:
        """Wait until admitted; that fences every other writer.

        Raises Unreachable and Refused, with nothing written.
        """
        self._connection = Connection(client, timeout_s=timeout_s)
        self._topic = topic
        # Topic names have no slash, so no two pairs share an id.
        self._id = f"reconciler/{topic}/{group}"
        self._doing = f"write to topic {topic!r}"
        self._producer = self._connection.made(Producer, {**_WRITING, "transactional.id": self._id})
        try:
            # Connects first: without a connection, the client looks for its coordinator only every 0.5 s.
            with self._connection.waiting():
                self._producer.list_topics(topic, timeout=timeout_s)
                self._producer.init_transactions(timeout_s)
        except (KafkaException, KafkaError) as err:
            raise self._failure(_exception(err)) from _exception(err)

    def write(self, records: Mapping[bytes, bytes | None], token: bytes) -> None:
        """Write the records, all or none; None is a tombstone. ``token`` becomes a header of each.

        Raises Fenced; Unreachable or Refused, with nothing written; OutcomeUnknown if the commit was not answered.
        After any of these the writer must not be used again.
        """
        with self._connection.waiting():
            self._send(records, token)
            self._commit()

    def _send(self, records: Mapping[bytes, bytes | None], token: bytes) -> None:
        try:
            self._producer.begin_transaction()
            for key, value in records.items():
                self._producer.produce(self._topic, value, key, partition=0, headers=[(TOKEN, token)])
            left = self._producer.flush(self._connection.timeout_s)
        except (KafkaException, KafkaError) as err:
            raise self._not_written(_exception(err)) from _exception(err)
        except BufferError as err:
            raise Unreachable(f"Could not {self._doing}: too many rows at once.") from err
        if left:
            raise self._connection.cluster.no_answer(f"Could not {self._doing}; nothing was written")

    def _commit(self) -> None:
        began = monotonic()
        while True:
            left_s = self._connection.timeout_s - (monotonic() - began)
            try:
                self._producer.commit_transaction(max(left_s, 0.1))
                return
            except (KafkaException, KafkaError) as caught:
                err = _exception(caught)
                if code_of(err) in _BEING_FENCED | _FORGOTTEN:
                    raise Fenced from err
                if code_of(err) in _FENCED or err.args[0].txn_requires_abort():
                    raise self._not_written(err) from err
                if not err.args[0].retriable() or monotonic() - began >= self._connection.timeout_s:
                    raise OutcomeUnknown(
                        f"Whether the rows were written to topic {self._topic!r} is not known: "
                        f"{self._connection.cluster.name} gave the commit no answer in "
                        f"{self._connection.timeout_s:g} s ({plain_text(err.args[0])}).",
                        hint="Run this again: it reads what is there and writes only what is missing.",
                    ) from err

    def _not_written(self, err: KafkaException) -> Exception:
        """The error for a transaction that was not committed. Aborts it where that is still possible."""
        if code_of(err) in _FENCED:
            return Fenced()
        if err.args[0].txn_requires_abort():
            with suppress(KafkaException, KafkaError):  # if this fails, the brokers or the next writer abort it
                self._producer.abort_transaction(self._connection.timeout_s)
        return self._failure(err)

    def _failure(self, err: KafkaException) -> ReconcilerError:
        if code_of(err) == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return Refused(
                f"Could not {self._doing}: {self._connection.cluster.name} does not allow it, "
                f"{self._connection.cluster.user} needs Write on transactional id {self._id!r}.",
                hint="Ask its administrator for that permission (a prefix, reconciler/, covers all groups).",
            )
        return self._connection.failure(err, self._doing, Needs(topic=f"Write on topic {self._topic!r}"))


def _exception(err: BaseException) -> KafkaException:
    """The client raises some fatal errors as a bare KafkaError."""
    return err if isinstance(err, KafkaException) else KafkaException(err)
