"""The public face of the stores: open a store by its address, and what an address alone says of its store.

A store's module is imported when its address is opened. It has ``open_address(address, *, kafka_client) ->
OffsetStore``; a store of commits (``Traits.holds_commits``) takes a ``timeout_s`` as well.
CONTRIBUTING.md has all steps to add one.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, replace

from reconciler.config.addresses import pairs, scheme_of
from reconciler.core.anchors import encodable
from reconciler.core.errors import ConfigError
from reconciler.places.common import KAFKA_TIMEOUT_S
from reconciler.ports import OffsetStore, Traits

DISTRIBUTION = "failover-offset-reconciler"
NO_TRAITS = Traits()


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme's module, an example of its address, the client package, the extra that installs it, and its traits.

    ``by_job_with``: the parameters with which only the job writes to the store.
    """

    module: str
    example: str
    client: str | None = None
    extra: str | None = None
    traits: Traits = NO_TRAITS
    by_job_with: frozenset[str] = frozenset()


SCHEMES: Mapping[str, Scheme] = {
    "sqlite": Scheme("reconciler.places.sqlite.store", "sqlite:///offsets.db"),
    "kafka-group": Scheme(
        "reconciler.places.kafka.group",
        "kafka-group:",
        client="confluent_kafka",
        traits=Traits(holds_commits=True),
    ),
    "hbase": Scheme("reconciler.places.hbase.address", "hbase://HOST:PORT/TABLE?layout=anchored", client="happybase"),
    "zookeeper": Scheme(
        "reconciler.places.zookeeper.store",
        "zookeeper://HOSTS/CHROOT?layout=consumers",
        client="kazoo",
        extra="zookeeper",
    ),
    "postgresql": Scheme(
        "reconciler.places.postgresql",
        "postgresql://HOST/DATABASE",
        client="psycopg",
        extra="postgresql",
        by_job_with=frozenset({"newest_by", "written_by"}),
    ),
    "checkpoint": Scheme(
        "reconciler.places.checkpoint.show",
        "checkpoint:PATH",
        client="fsspec",
        extra="files",
        traits=Traits(corrected_in_copy=True),
    ),
    "files": Scheme("reconciler.places.files", "files:PATH", client="fsspec", extra="files"),
    "delta": Scheme(
        "reconciler.places.delta.store",
        "delta:PATH?layout=commit&number=next",
        client="deltalake",
        extra="delta",
        traits=Traits(corrected_by_job=True),
    ),
    "iceberg": Scheme(
        "reconciler.places.iceberg.store",
        "iceberg:CATALOG/NAMESPACE.TABLE?layout=summary&number=next&property=NAME",
        client="pyiceberg",
        extra="iceberg",
        traits=Traits(corrected_by_job=True),
    ),
    "memory": Scheme("reconciler.places.memory", "memory:NAME"),
}
_ALIASES = {"postgres": "postgresql"}
END_OF_BATCH = "?position=end"
"""Suffix of a checkpoint's address, for the end of the batch that a restart repeats."""


def traits(address: str) -> Traits:
    """The traits of the store at ``address``; none for an unknown scheme."""
    scheme = _scheme(address)
    if scheme is None:
        return NO_TRAITS
    given = dict(pairs(address.partition("?")[2]))
    by_job = scheme.traits.corrected_by_job or not scheme.by_job_with.isdisjoint(given)
    return replace(scheme.traits, corrected_by_job=by_job)


def checkpoint_at(path: str) -> str:
    """The address of the checkpoint at a path or URL."""
    return f"checkpoint:{path}"


def checkpoint_path(address: str) -> str:
    """The path or URL in the address of a checkpoint, including an ``END_OF_BATCH``."""
    return address.partition(":")[2]


def end_of_batch(address: str) -> str:
    """The address of the end of a checkpoint's last batch, from the checkpoint's own."""
    return address + END_OF_BATCH


def is_end_of_batch(address: str) -> bool:
    """True for an address that ``end_of_batch`` returns."""
    return address.endswith(END_OF_BATCH)


def open_store(
    address: str,
    *,
    kafka_client: Mapping[str, str] | None = None,
    timeout_s: float = KAFKA_TIMEOUT_S,
) -> OffsetStore:
    """The store at ``address``. Contacts no server and creates nothing.

    ``kafka_client`` is the destination's client settings (librdkafka properties), for the stores that live there, and
    ``timeout_s`` is how long one request to that cluster may take.
    Raises ConfigError for an unknown scheme, an invalid address, and a client package that is not installed.
    """
    if not encodable(address):  # of a command line, which may hold any bytes
        raise ConfigError("A store's address is not valid Unicode.", hint="Correct the address.")
    name = scheme_of(address)
    scheme = _scheme(address)
    if scheme is None:
        raise _unknown(name)
    if scheme.client is not None:
        require_installed(f"The store {name}:", scheme.client, scheme.extra)
    module = importlib.import_module(scheme.module)
    timeout = {"timeout_s": timeout_s} if scheme.traits.holds_commits else {}
    store: OffsetStore = module.open_address(address, kafka_client=kafka_client, **timeout)
    return store


def require_installed(subject: str, client: str, extra: str | None) -> None:
    """Raise ConfigError, a sentence about ``subject``, if the package ``client`` of ``extra`` is not installed."""
    if importlib.util.find_spec(client) is None:
        target = f"{DISTRIBUTION}[{extra}]" if extra else DISTRIBUTION
        raise ConfigError(
            f"{subject} needs the Python package {client}, which is not installed.",
            hint=f"Run: pip install '{target}'",
        )


def _scheme(address: str) -> Scheme | None:
    name = scheme_of(address) or ""
    return SCHEMES.get(_ALIASES.get(name, name))


def _unknown(name: str | None) -> ConfigError:
    # The message leaves the address out: it may hold a password.
    what = f"There is no store with the scheme {name!r}." if name else "A store's address has no scheme."
    known = " · ".join(scheme.example for scheme in SCHEMES.values())
    return ConfigError(what, hint=f"Supported store addresses: {known}.")
