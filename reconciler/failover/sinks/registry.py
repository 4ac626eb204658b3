"""Opens a sink by its address. Its library is imported then, and not before.

==================================  ===============================================================================
``files:PATH``                      Spark's file sink: Parquet, JSON, text, …
``delta:PATH``                      a Delta table; ``?app_id=`` where the job writes under a ``txnAppId`` of its own
``iceberg:CATALOG/TABLE``           an Iceberg table of one of pyiceberg's catalogs
``iceberg:PATH``                    an Iceberg table by its folder, or its metadata file
``postgresql://…?table=TABLE``      a table of batches that the job keeps
``python:MODULE:FUNCTION``          what a function says
==================================  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reconciler.config.addresses import pairs, scheme_of
from reconciler.config.identity import load_function
from reconciler.core.errors import ConfigError
from reconciler.failover.sinks.taken import Sink
from reconciler.places.parameters import Parameters
from reconciler.places.registry import require_installed

EXAMPLES = (
    *("files:PATH", "delta:PATH", "delta:PATH?app_id=NAME", "iceberg:CATALOG/NAMESPACE.TABLE", "iceberg:PATH"),
    *("postgresql://HOST/DATABASE?table=TABLE", "python:MODULE:FUNCTION"),
)
_CLIENTS = {
    "delta": ("deltalake", "delta"),
    "iceberg": ("pyiceberg", "iceberg"),
    "postgresql": ("psycopg", "postgresql"),
}
"""The package that reads each scheme, and the extra that installs it."""


def _files(address: str) -> Sink:
    from reconciler.failover.sinks.files import FileSink

    return FileSink(_without_parameters(address))


def _delta(address: str) -> Sink:
    from reconciler.failover.sinks.delta import DeltaSink

    path, parameters = _split(address)
    app_id = parameters.text("app_id")
    parameters.check_all_known()
    return DeltaSink(path, app_id)


def _iceberg(address: str) -> Sink:
    from reconciler.failover.sinks.iceberg import IcebergSink

    return IcebergSink(_without_parameters(address))


def _postgresql(address: str) -> Sink:
    from reconciler.failover.sinks.others import TableSink

    own = {"table": "", "app_id": "", "app_column": "app_id", "batch_column": "batch_id"}
    base, _, query = address.partition("?")
    theirs = [part for part in query.split("&") if part and part.partition("=")[0] not in own]
    given = {name: value for name, value in pairs(query) if name in own and value}
    if not given.get("table"):
        raise _wrong("it names no table=")
    columns = (given.get("app_column") or own["app_column"], given.get("batch_column") or own["batch_column"])
    place = "?".join((base, "&".join(theirs))) if theirs else base
    return TableSink(place, given["table"], app_id=given.get("app_id"), columns=columns)


def _python(address: str) -> Sink:
    from reconciler.failover.sinks.others import FunctionSink

    base, parameters = _split(address)
    app_id = parameters.text("app_id")
    parameters.check_all_known()
    return FunctionSink(address, load_function("sink", f"python:{base}"), app_id)


_OPENERS: Mapping[str, Callable[[str], Sink]] = {
    "files": _files,
    "delta": _delta,
    "iceberg": _iceberg,
    "postgresql": _postgresql,
    "python": _python,
}


def open_sink(address: str) -> Sink:
    """The sink at ``address``. Contacts nothing. Raises ConfigError for an address or a library that is not usable."""
    scheme = scheme_of(address) or ""
    opener = _OPENERS.get(scheme)
    if opener is None or not address.partition(":")[2]:
        raise _wrong("it names no sink")
    client, extra = _CLIENTS.get(scheme, ("reconciler", ""))
    require_installed(f"The sink {scheme}:", client, extra)
    return opener(address)


def _split(address: str) -> tuple[str, Parameters]:
    rest, _, query = address.partition(":")[2].partition("?")
    return rest, Parameters(query, _wrong)


def _without_parameters(address: str) -> str:
    rest, parameters = _split(address)
    parameters.check_all_known()
    return rest


def _wrong(why: str) -> ConfigError:
    # The message leaves the address out: it may hold a password.
    return ConfigError(f"A sink's address is wrong: {why}.", hint=f"Supported sinks: {' · '.join(EXAMPLES)}.")
