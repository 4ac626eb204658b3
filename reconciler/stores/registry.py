"""Opening a store by its address. A store's module is imported when an address asks for it, and not before.

To add a store, write a module with ``open_address(address, *, kafka_client) -> OffsetStore`` and add its line to
``SCHEMES``.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.config.addresses import scheme_of
from reconciler.core.errors import ConfigError
from reconciler.ports import OffsetStore

DISTRIBUTION = "failover-offset-reconciler"


@dataclass(frozen=True, slots=True)
class Scheme:
    """Where a scheme's store lives, the client package it needs, and the extra that installs that client."""

    module: str
    example: str
    client: str | None = None
    extra: str | None = None


SCHEMES: Mapping[str, Scheme] = {
    "sqlite": Scheme("reconciler.stores.sqlite.store", "sqlite:///offsets.db"),
    "kafka-group": Scheme("reconciler.stores.kafka.group", "kafka-group:", client="confluent_kafka"),
    "kafka-topic": Scheme("reconciler.stores.kafka.topic", "kafka-topic:NAME", client="confluent_kafka"),
    "hbase": Scheme("reconciler.stores.hbase.address", "hbase://HOST:PORT/TABLE?layout=anchored", client="happybase"),
    "zookeeper": Scheme(
        "reconciler.stores.zookeeper.store",
        "zookeeper://HOSTS/CHROOT?layout=consumers",
        client="kazoo",
        extra="zookeeper",
    ),
    "postgresql": Scheme(
        "reconciler.stores.postgresql.opening", "postgresql://HOST/DATABASE", client="psycopg", extra="postgresql"
    ),
    "checkpoint": Scheme("reconciler.stores.checkpoint", "checkpoint:PATH", client="fsspec", extra="files"),
    "files": Scheme("reconciler.stores.files.store", "files:PATH", client="fsspec", extra="files"),
    "memory": Scheme("reconciler.stores.memory", "memory:NAME"),
}


def open_store(
    address: str, *, kafka_client: Mapping[str, str] | None = None, anchors: str | None = None
) -> OffsetStore:
    """The store at ``address``; nothing is contacted or created yet.

    ``kafka_client`` is the destination's client settings (librdkafka properties), for the stores that live there.
    ``anchors`` is the address of the store that keeps anchors for one with no room for them, and what ``track`` copied
    of a group's commits ([anchors] store).
    Raises ConfigError for an unknown scheme, an address the scheme does not understand, and a client package that is
    not installed.
    """
    name = scheme_of(address)
    scheme = SCHEMES.get({"postgres": "postgresql"}.get(name or "", name or ""))
    if scheme is None:
        raise _unknown(name)
    if scheme.client is not None and importlib.util.find_spec(scheme.client) is None:
        target = f"{DISTRIBUTION}[{scheme.extra}]" if scheme.extra else DISTRIBUTION
        raise ConfigError(
            f"The store {name}: needs the Python package {scheme.client}, which is not installed.",
            hint=f"Run: pip install '{target}'",
        )
    module = importlib.import_module(scheme.module)
    store: OffsetStore = module.open_address(address, kafka_client=kafka_client)
    able = store.capabilities
    if anchors is None or (able.keeps_anchors and not able.translated_by_mirror):
        return store
    from reconciler.stores.paired.store import paired

    return paired(store, open_store(anchors, kafka_client=kafka_client), kafka_client)


def _unknown(name: str | None) -> ConfigError:
    # The address itself is not repeated: it may hold a password.
    what = f"There is no store with the scheme {name!r}." if name else "A store's address has no scheme."
    known = " · ".join(scheme.example for scheme in SCHEMES.values())
    return ConfigError(what, hint=f"Supported store addresses: {known}.")
