"""Addresses of offset stores in HBase; ``open_address`` opens the store of the layout that an address names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from reconciler.config.addresses import without_secrets
from reconciler.core.errors import ConfigError
from reconciler.identity import identity_from_spec, load_function
from reconciler.ports import OffsetStore
from reconciler.stores import common
from reconciler.stores.hbase.layouts import cdap, cloudera
from reconciler.stores.hbase.table import TIMEOUT_S, HBaseTable, ThriftEndpoint

PORT = 9090
_COMMON_PARAMETERS = ("transport", "protocol", "timeout", "saves")
_EXAMPLE = "hbase://thrift-host:9090/TABLE?layout=anchored"


class _Parameters:
    """The parameters of an address. Each is taken once; those left over are unknown."""

    def __init__(self, query: str) -> None:
        pairs = parse_qsl(query, keep_blank_values=True)
        self._values = dict(pairs)
        repeated = sorted({name for name, _ in pairs if [each for each, _ in pairs].count(name) > 1})
        if repeated:
            raise ConfigError(f"{repeated[0]}= stands twice in the address of an HBase store.", hint="Remove one.")

    def take(self, name: str, default: str = "") -> str:
        return self._values.pop(name, default)

    def choice(self, name: str, *choices: str) -> str:
        """The parameter's value, the first choice without one. Raises ConfigError for any other value."""
        value = self.take(name, choices[0])
        if value not in choices:
            known = " or ".join(filter(None, choices))
            raise ConfigError(f"{name}={value} is not known in the address of an HBase store.", hint=f"Use {known}.")
        return value

    def function(self, name: str) -> Callable[..., object] | None:
        spec = self.take(name)
        return load_function(name, spec) if spec else None

    def check_all_taken(self, layout: str) -> None:
        if self._values:
            known = ", ".join(("layout", *_LAYOUTS[layout].parameters, *_COMMON_PARAMETERS))
            raise ConfigError(
                f"{min(self._values)}= is not known in the address of an HBase store of layout {layout}.",
                hint=f"Known: {known}.",
            )


@dataclass(frozen=True, slots=True)
class _Parts:
    """An address taken apart; ``shown`` is the address without secrets."""

    endpoint: ThriftEndpoint
    table_name: str
    shown: str
    parameters: _Parameters
    kafka_client: Mapping[str, str] | None

    def table(self, families: Mapping[bytes, Mapping[str, int]]) -> HBaseTable:
        return HBaseTable(self.endpoint, self.table_name, families)


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``hbase://HOST:PORT/TABLE?layout=…``; the table may have a namespace, as in ``cdap_system:log.meta``.

    Raises ConfigError for an address that this scheme does not understand. Nothing is contacted yet.
    """
    url = _split(address)
    parameters = _Parameters(url.query)
    layout = parameters.take("layout")
    if layout not in _LAYOUTS:
        what = f"layout={layout} is not known" if layout else "The layout is missing"
        raise ConfigError(f"{what} in the address of an HBase store.", hint=f"Layouts: {', '.join(_LAYOUTS)}.")
    endpoint = _endpoint(url, parameters)
    parameters.choice("saves", "", "until", "from")  # either way the stored number is the next offset to read
    parts = _Parts(endpoint, unquote(url.path[1:]), without_secrets(address), parameters, kafka_client)
    store = _LAYOUTS[layout].open(parts)
    parameters.check_all_taken(layout)
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
        hint=f"Write {_EXAMPLE}; HBase's Thrift 1 server takes no user and no password.",
    )


def _endpoint(url: Any, parameters: _Parameters) -> ThriftEndpoint:
    text = parameters.take("timeout", f"{TIMEOUT_S:g}")
    timeout_s = common.timeout_s(text)
    if timeout_s is None:
        raise ConfigError(f"timeout={text} is not a time in seconds, above 0 and up to 600.", hint="For example 5.")
    transport = parameters.choice("transport", "buffered", "framed")
    protocol = parameters.choice("protocol", "binary", "compact")
    return ThriftEndpoint(url.hostname, url.port or PORT, transport, protocol, timeout_s)


# ---------------------------------------------------------------- layouts


def _anchored(parts: _Parts) -> OffsetStore:
    from reconciler.stores.hbase.anchored import FAMILIES, AnchoredStore

    return AnchoredStore(parts.table(FAMILIES), parts.shown)


def _cloudera(parts: _Parts) -> OffsetStore:
    from reconciler.stores.hbase.cloudera import ClouderaStore

    family = parts.parameters.take("anchor_family").encode()
    if family == cloudera.FAMILY or b":" in family:
        raise ConfigError(f"anchor_family={family.decode()} is not a family for anchors.", hint="Name another family.")
    families = {name: {"timeToLive": cloudera.TTL_SECONDS} for name in (cloudera.FAMILY, family) if name}
    return ClouderaStore(parts.table(families), parts.shown, anchor_family=family or None)


def _log_saver(parts: _Parts) -> OffsetStore:
    from reconciler.stores.hbase.cdap_layouts import LogSaver

    prefix = parts.parameters.take("prefix")
    if not prefix.isascii() or not prefix.isdigit() or int(prefix) >= 2**31:
        raise ConfigError(
            f"prefix={prefix} is not the prefix of a log saver's rows."
            if prefix
            else "The log saver's prefix is missing.",
            hint="Write prefix=100 for the log writer, prefix=101 for the log metrics.",
        )
    return _cdap(parts, LogSaver(int(prefix)))


def _metrics(parts: _Parts) -> OffsetStore:
    from reconciler.stores.hbase.cdap_layouts import Metrics

    keeps_anchors = parts.parameters.choice("anchors", "beside", "apart") == "beside"
    return _cdap(parts, Metrics(), keeps_anchors=keeps_anchors)


def _flowlet(parts: _Parts) -> OffsetStore:
    from reconciler.stores.hbase.cdap_layouts import Flowlet
    from reconciler.stores.hbase.message_ids import message_ids

    id_of = identity_from_spec(id=parts.parameters.take("id_of", "none")).id_of
    if id_of is None:
        raise ConfigError(
            "A flowlet's store needs id_of=, which says how a record's message id is read.",
            hint="For example id_of=python:package.module:function, or id_of=json:$.id",
        )
    key_of, find_message = parts.parameters.function("key_of"), parts.parameters.function("find")
    column = parts.parameters.take("column", cdap.VALUE.decode()).encode()
    if not column.startswith(cdap.FAMILY + b":"):
        raise ConfigError(f"column={column.decode()} is not a column of CDAP's family d.", hint="The usual one is d:c.")
    ids = partial(message_ids, id_of=id_of, client=parts.kafka_client)
    return _cdap(parts, Flowlet(ids, key_of, find_message, column))


def _cdap(parts: _Parts, layout: Any, *, keeps_anchors: bool = True) -> OffsetStore:
    from reconciler.stores.hbase.cdap import CdapStore

    of_group = parts.parameters.take("of_group") or None
    table = parts.table({cdap.FAMILY: {}})
    return CdapStore(table, layout, parts.shown, keeps_anchors=keeps_anchors, of_group=of_group)


@dataclass(frozen=True, slots=True)
class _Layout:
    """A layout's store, and the parameters that only this layout has."""

    open: Callable[[_Parts], OffsetStore]
    parameters: tuple[str, ...] = ()


_LAYOUTS: Mapping[str, _Layout] = {
    "anchored": _Layout(_anchored),
    "cloudera": _Layout(_cloudera, ("anchor_family",)),
    "cdap-logsaver": _Layout(_log_saver, ("prefix", "of_group")),
    "cdap-metrics": _Layout(_metrics, ("anchors", "of_group")),
    "cdap-flowlet": _Layout(_flowlet, ("id_of", "key_of", "find", "column", "of_group")),
}
