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
from reconciler.ports import OffsetStore, Traits

DISTRIBUTION = "failover-offset-reconciler"
NO_TRAITS = Traits()


@dataclass(frozen=True, slots=True)
class Scheme:
    """Where a scheme's store lives, the client package it needs, the extra that installs that client, its traits."""

    module: str
    example: str
    client: str | None = None
    extra: str | None = None
    traits: Traits = NO_TRAITS


SCHEMES: Mapping[str, Scheme] = {
    "sqlite": Scheme("reconciler.stores.sqlite.store", "sqlite:///offsets.db"),
    "kafka-group": Scheme(
        "reconciler.stores.kafka.group",
        "kafka-group:",
        client="confluent_kafka",
        traits=Traits(on_destination=True, client_per_group=True),
    ),
    "kafka-topic": Scheme(
        "reconciler.stores.kafka.topic",
        "kafka-topic:NAME",
        client="confluent_kafka",
        traits=Traits(on_destination=True),
    ),
    "hbase": Scheme("reconciler.stores.hbase.address", "hbase://HOST:PORT/TABLE?layout=anchored", client="happybase"),
    "zookeeper": Scheme(
        "reconciler.stores.zookeeper.address",
        "zookeeper://HOSTS/CHROOT?layout=consumers",
        client="kazoo",
        extra="zookeeper",
    ),
    "postgresql": Scheme(
        "reconciler.stores.postgresql", "postgresql://HOST/DATABASE", client="psycopg", extra="postgresql"
    ),
    "checkpoint": Scheme(
        "reconciler.stores.checkpoint",
        "checkpoint:PATH",
        client="fsspec",
        extra="files",
        traits=Traits(corrected_in_copy=True),
    ),
    "files": Scheme("reconciler.stores.files.store", "files:PATH", client="fsspec", extra="files"),
    "memory": Scheme("reconciler.stores.memory", "memory:NAME"),
}
_ALIASES = {"postgres": "postgresql"}


def traits(address: str) -> Traits:
    """What the address says of its store; of an address that no store has, nothing."""
    scheme = _scheme(address)
    return NO_TRAITS if scheme is None else scheme.traits


# A checkpoint's address: checkpoint:PATH, and behind it, for the end of the batch that a restart repeats, this:
END_OF_BATCH = "?position=end"


def checkpoint_at(path: str) -> str:
    """The address of the checkpoint at a path or URL."""
    return f"checkpoint:{path}"


def checkpoint_path(address: str) -> str:
    """The path or URL in the address of a checkpoint, with the ``END_OF_BATCH`` that may stand behind it."""
    return address.partition(":")[2]


def end_of_batch(address: str) -> str:
    """From the address of a checkpoint to that of the end of its last batch."""
    return address + END_OF_BATCH


def is_end_of_batch(address: str) -> bool:
    return address.endswith(END_OF_BATCH)


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
    scheme = _scheme(address)
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
    if anchors is None or not store.capabilities.needs_tracking:
        return store
    from reconciler.stores.paired import paired

    return paired(store, open_store(anchors, kafka_client=kafka_client), kafka_client)


def _scheme(address: str) -> Scheme | None:
    name = scheme_of(address) or ""
    return SCHEMES.get(_ALIASES.get(name, name))


def _unknown(name: str | None) -> ConfigError:
    # The address itself is not repeated: it may hold a password.
    what = f"There is no store with the scheme {name!r}." if name else "A store's address has no scheme."
    known = " · ".join(scheme.example for scheme in SCHEMES.values())
    return ConfigError(what, hint=f"Supported store addresses: {known}.")
