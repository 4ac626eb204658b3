"""Addresses of offset stores in HBase; ``open_address`` opens the store of the layout that an address names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from reconciler.config.addresses import without_secrets
from reconciler.config.identity import identity_from_spec, load_function
from reconciler.core.errors import ConfigError
from reconciler.core.json_fields import INT32_MAX
from reconciler.core.text import whole_number
from reconciler.places import common
from reconciler.places.hbase import cdap, cloudera
from reconciler.places.hbase.table import HBaseTable, ThriftEndpoint, endpoint_of
from reconciler.places.parameters import Parameters, number_in, wrong_address
from reconciler.ports import OffsetStore

EXAMPLE = "hbase://thrift-host:9090/TABLE?layout=cloudera"
_wrong = partial(wrong_address, "The address of an HBase store", EXAMPLE)


@dataclass(frozen=True, slots=True)
class _Parts:
    """An address taken apart; ``shown`` is the address without secrets."""

    endpoint: ThriftEndpoint
    table_name: str
    shown: str
    parameters: Parameters
    kafka_client: Mapping[str, str] | None

    def table(self, families: Mapping[bytes, Mapping[str, int]]) -> HBaseTable:
        return HBaseTable(self.endpoint, self.table_name, families)

    def function(self, name: str) -> Callable[..., object] | None:
        spec = self.parameters.given_text(name)
        return load_function(name, spec) if spec else None


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``hbase://HOST:PORT/TABLE?layout=…``; the table may have a namespace, as in ``cdap_system:log.meta``.

    Raises ConfigError for any other address. Nothing is contacted yet.
    """
    url = _split(address)
    if "#" in address:
        raise _wrong("it has a # in it, which must be written as %23")
    if ":" in url.hostname:
        raise _wrong("its host is an IPv6 address, and HBase's Python client connects by IPv4 only")
    parameters = Parameters(url.query, _wrong)
    layout = parameters.choice("layout", *_STORES, required=True)
    endpoint = endpoint_of(url.hostname, url.port, parameters)
    parts = _Parts(endpoint, unquote(url.path[1:]), without_secrets(address), parameters, kafka_client)
    store = _STORES[layout](parts)
    parameters.check_all_known()
    return store


def _split(address: str) -> Any:
    try:
        url = urlsplit(address)
        if url.username is None and url.hostname and url.path.count("/") == 1 and len(url.path) > 1:
            _ = url.port
            common.check_name("table of the HBase store", unquote(url.path[1:]))
            return url
    except ValueError:
        pass
    raise ConfigError(
        f"{without_secrets(address)!r} is not the address of an HBase store.",
        hint=f"Write {EXAMPLE}; HBase's Thrift 1 server takes no user and no password.",
    )


# ---------------------------------------------------------------- layouts


def _cloudera(parts: _Parts) -> OffsetStore:
    number = number_in(parts.parameters)
    table = parts.table({cloudera.FAMILY: {"timeToLive": cloudera.TTL_SECONDS}})
    return cloudera.ClouderaStore(table, parts.shown, number=number)


def _log_saver(parts: _Parts) -> OffsetStore:
    prefix = parts.parameters.text("prefix") or ""
    number = whole_number(prefix, INT32_MAX)
    if number is None:
        raise ConfigError(
            f"prefix={prefix} is not the prefix of a log saver's rows."
            if prefix
            else "The log saver's prefix is missing.",
            hint="Write prefix=100 for the log writer, prefix=101 for the log metrics.",
        )
    return _cdap(parts, cdap.LogSaver(number))


def _metrics(parts: _Parts) -> OffsetStore:
    return _cdap(parts, cdap.Metrics())


def _flowlet(parts: _Parts) -> OffsetStore:
    from reconciler.places.hbase import flowlet  # reads the log

    spec = parts.parameters.given_text("id_of")
    id_of = None if spec is None else identity_from_spec(id=spec).id_of
    if id_of is None:
        raise ConfigError(
            "A flowlet's store needs id_of=, which says how a record's message id is read.",
            hint="For example id_of=python:package.module:function, or id_of=json:$.id",
        )
    key_of, find_message = parts.function("key_of"), parts.function("find")
    name = parts.parameters.given_text("column")
    column = flowlet.VALUE if name is None else name.encode()
    if not column.startswith(cdap.FAMILY + b":"):
        raise ConfigError(f"column={column.decode()} is not a column of CDAP's family d.", hint="The usual one is d:c.")
    ids = partial(flowlet.message_ids, id_of=id_of, client=parts.kafka_client)
    return _cdap(parts, flowlet.Flowlet(ids, key_of, find_message, column))


def _cdap(parts: _Parts, layout: cdap.CdapLayout) -> OffsetStore:
    of_group = parts.parameters.given_text("of_group")
    table = parts.table({cdap.FAMILY: {}})
    return cdap.CdapStore(table, layout, parts.shown, of_group=of_group)


_STORES: Mapping[str, Callable[[_Parts], OffsetStore]] = {
    "cloudera": _cloudera,
    "cdap-logsaver": _log_saver,
    "cdap-metrics": _metrics,
    "cdap-flowlet": _flowlet,
}
