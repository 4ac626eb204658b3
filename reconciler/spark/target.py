"""Whose anchors are kept, where, and how a record is identified: the values behind the public functions of this room.

``RangeBatches`` and ``audit`` keep their own keyword arguments. Each of them makes one of these values from its
arguments and passes only that on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from reconciler.clock import clock_ms
from reconciler.core.anchors import Identity
from reconciler.core.errors import ConfigError
from reconciler.ports import LogReader, OffsetStore


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """One cluster, as Kafka's client and Spark's Kafka source reach it. Both may hold passwords, so its repr is empty.

    ``client``: librdkafka properties, ``bootstrap.servers`` among them. ``options``: further options of Spark's Kafka
    source (``kafka.*`` for a login, ``includeHeaders``).
    """

    client: Mapping[str, Any] = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def at(
        cls,
        bootstrap_servers: str,
        kafka_client: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> ClusterAccess:
        return cls({"bootstrap.servers": bootstrap_servers, **(kafka_client or {})}, dict(options or {}))

    @property
    def bootstrap_servers(self) -> str:
        return str(self.client["bootstrap.servers"])

    def reader(
        self, who: str = "job's", *, timeout_s: float = 10.0, committed_only: bool = False, deadline_s: float = 0.0
    ) -> LogReader:
        """A connection to the cluster's log. ``who`` says in errors whose settings these are.

        With ``deadline_s``, a call is repeated for so long while the cluster is away or its leaders move.
        """
        from reconciler.kafka.patient import PatientReader
        from reconciler.kafka.reader import KafkaLogReader

        reader = KafkaLogReader(self.client, timeout_s=timeout_s, who=who, committed_only=committed_only)
        return PatientReader(reader, monotonic, deadline_s) if deadline_s else reader


@dataclass(frozen=True)
class AnchorTarget:
    """One group's anchors: the cluster whose records they name, the store that keeps them, how they name a record.

    ``store`` is an address or an opened store; None where a sink keeps the offsets itself. ``now_ms``
    gives epoch ms.
    """

    group: str
    cluster: ClusterAccess
    identity: Identity
    store: str | OffsetStore | None
    now_ms: Callable[[], int] = clock_ms


def require_room_for_anchors(store: OffsetStore, consequence: str) -> None:
    """Raise ConfigError unless the store can be written and keeps anchors. ``consequence`` ends the first sentence."""
    able = store.capabilities
    if not (able.writable and able.keeps_anchors):
        lack = "hold anchors" if able.writable else "be written"
        raise ConfigError(
            f"The store {store.address} cannot {lack}, {consequence}.",
            hint="Use another store, for example sqlite:///offsets.db.",
        )
