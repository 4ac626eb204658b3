"""Writing one group's rows to a topic: by one writer at a time, all of a batch or nothing.

Kafka has no compare-and-set for records. It has transactions, and of the producers that use one transactional id only
the one that came last can commit. All writers of a group's rows use the same id, so:

- W1  When a producer has been admitted (``init_transactions``), every earlier writer's transaction has ended, committed
      or aborted, and none of them can commit any more.
- W2  A commit succeeds only if no other writer was admitted since. So what was read between the two is still so when
      it is replaced.
- W3  A producer that was displaced before its commit reached the coordinator has written nothing. Where the answer to
      a commit got lost, it may look displaced although it committed: its records, named by a token, tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Refused, Unreachable
from reconciler.kafka.connection import Connection
from reconciler.kafka.errors import Needs, plainly
from reconciler.kafka.requests import code_of
from reconciler.stores.kafka.topic_log import TOKEN

TRANSACTION_S = 5.0
"""Seconds after which the brokers abort the transaction of a writer that died; they look every 10 s."""

_DISPLACED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
_BEING_DISPLACED = frozenset({KafkaError.UNKNOWN, KafkaError.INVALID_TXN_STATE, KafkaError.CONCURRENT_TRANSACTIONS})
"""What a coordinator (Kafka 4.1) may answer to a commit while it is admitting another writer."""
_FORGOTTEN = frozenset({KafkaError.INVALID_PRODUCER_ID_MAPPING, KafkaError.UNKNOWN_PRODUCER_ID})
"""What it answers to a writer that has been silent for a week (``transactional.id.expiration.ms``)."""


class Displaced(Exception):
    """Another writer of the group was admitted; what this one sent was not committed, as far as it knows (W3)."""


class _Client(Connection):
    def producer(self, transactional_id: str) -> Any:
        return self._made(
            Producer,
            {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": int(TRANSACTION_S * 1000),
                "linger.ms": 0,
                "socket.keepalive.enable": True,
            },
        )


class Writer:
    """An admitted writer of one group's rows in one topic."""

    def __init__(self, client: Mapping[str, str], topic: str, group: str, *, timeout_s: float) -> None:
        """Wait until admitted, which displaces every other writer.

        Raises Unreachable and Refused; nothing was written.
        """
        self._connection = _Client(client, timeout_s=timeout_s)
        self._topic = topic
        # No topic's name has a slash in it, so no two pairs share an id.
        self._id = f"reconciler/{topic}/{group}"
        self._doing = f"write to topic {topic!r}"
        self._producer = self._connection.producer(self._id)
        try:
            # Without a connection yet, the client looks for its coordinator only every half second.
            self._producer.list_topics(topic, timeout=timeout_s)
            self._producer.init_transactions(timeout_s)
        except (KafkaException, KafkaError) as err:
            raise self._failure(_exception(err)) from _exception(err)

    def write(self, records: Mapping[bytes, bytes | None], token: bytes) -> None:
        """Write the records, all or none; None is a tombstone. ``token`` goes with each.

        Raises Displaced; Unreachable or Refused, and nothing was written; OutcomeUnknown where the commit was not
        answered. After any of these the writer is of no more use.
        """
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
            raise self._connection.no_answer(f"Could not {self._doing}; nothing was written")
        self._commit()

    def _commit(self) -> None:
        began = monotonic()
        while True:
            left_s = self._connection.timeout_s - (monotonic() - began)
            try:
                self._producer.commit_transaction(max(left_s, 0.1))
                return
            except (KafkaException, KafkaError) as caught:
                err = _exception(caught)
                if code_of(err) in _BEING_DISPLACED | _FORGOTTEN:
                    raise Displaced from err
                if code_of(err) in _DISPLACED or err.args[0].txn_requires_abort():
                    raise self._not_written(err) from err
                if not err.args[0].retriable() or monotonic() - began >= self._connection.timeout_s:
                    raise OutcomeUnknown(
                        f"Whether the rows were written to topic {self._topic!r} is not known: "
                        f"{self._connection.cluster.name} gave the commit no answer in "
                        f"{self._connection.timeout_s:g} s ({plainly(err.args[0])}).",
                        hint="Run this again: it reads what is there and writes only what is missing.",
                    ) from err

    def _not_written(self, err: KafkaException) -> Exception:
        """The error for a transaction that was not committed. Aborts it where that is still possible."""
        if code_of(err) in _DISPLACED:
            return Displaced()
        if err.args[0].txn_requires_abort():
            with suppress(KafkaException, KafkaError):  # the brokers abort it then, or the next writer does
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
    """The client raises some fatal errors bare."""
    return err if isinstance(err, KafkaException) else KafkaException(err)
