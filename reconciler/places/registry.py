"""Open a store by its address. The table of stores is ``config.stores``.

A store's module is imported when its address is opened. It has ``open_address(address, *, kafka_client) ->
OffsetStore``; a store of commits (``Traits.holds_commits``) takes a ``timeout_s`` as well.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reconciler.config.addresses import pairs, scheme_of
from reconciler.config.stores import NO_TRAITS, STORES, spec_of
from reconciler.core.anchors import encodable
from reconciler.core.errors import ConfigError
from reconciler.places.common import KAFKA_TIMEOUT_S
from reconciler.ports import OffsetStore, Traits

DISTRIBUTION = "failover-offset-reconciler"
END_OF_BATCH = "?position=end"
"""Suffix of a checkpoint's address, for the end of the batch that a restart repeats."""


def traits(address: str) -> Traits:
    """The traits of the store at ``address``; none for an unknown scheme."""
    spec = spec_of(scheme_of(address))
    if spec is None:
        return NO_TRAITS
    given = dict(pairs(address.partition("?")[2]))
    by_job = spec.traits.corrected_by_job or not spec.by_job_with.isdisjoint(given)
    return replace(spec.traits, corrected_by_job=by_job)


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
    spec = spec_of(name)
    if spec is None:
        raise _unknown(name)
    module = load_module(f"The store {name}:", spec.module, spec.client, spec.extra)
    timeout = {"timeout_s": timeout_s} if spec.traits.holds_commits else {}
    store: OffsetStore = module.open_address(address, kafka_client=kafka_client, **timeout)
    return store


def load_module(subject: str, module: str, client: str | None, extra: str | None) -> Any:
    """Import a module of this product whose client package is optional. Raises as ``require_installed`` does."""
    if client is not None:
        require_installed(subject, client, extra)
    return importlib.import_module(module)


def require_installed(subject: str, client: str, extra: str | None) -> None:
    """Raise ConfigError, a sentence about ``subject``, if the package ``client`` of ``extra`` is not installed."""
    if importlib.util.find_spec(client) is None:
        target = f"{DISTRIBUTION}[{extra}]" if extra else DISTRIBUTION
        raise ConfigError(
            f"{subject} needs the Python package {client}, which is not installed.",
            hint=f"Run: pip install '{target}'",
        )


def _unknown(name: str | None) -> ConfigError:
    # The message leaves the address out: it may hold a password.
    what = f"There is no store with the scheme {name!r}." if name else "A store's address has no scheme."
    known = " · ".join(spec.example for spec in STORES.values())
    return ConfigError(what, hint=f"Supported store addresses: {known}.")
