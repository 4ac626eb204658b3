"""Offset stores in HBase, through its Thrift 1 server. The layouts have a module each; this one reads addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from reconciler.config.addresses import without_secrets
from reconciler.core.errors import ConfigError
from reconciler.identity import identity_from_spec, load_function
from reconciler.ports import OffsetStore
from reconciler.stores import common
from reconciler.stores.hbase.layouts import cdap, cloudera
from reconciler.stores.hbase.table import TIMEOUT_S, Door, HBaseTable

PORT = 9090
_DOOR = ("transport", "protocol", "timeout")
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "anchored": (),
    "cloudera": ("anchor_family",),
    "cdap-logsaver": ("prefix", "of_group"),
    "cdap-metrics": ("anchors", "of_group"),
    "cdap-flowlet": ("id_of", "key_of", "find", "column", "of_group"),
}
"""Layouts, and the parameters that only they have."""
_EXAMPLE = "hbase://thrift-host:9090/TABLE?layout=anchored"


class _Parameters:
    """The parameters of an address, taken one by one; what is left was not known."""

    def __init__(self, query: str) -> None:
        pairs = parse_qsl(query, keep_blank_values=True)
        self._values = dict(pairs)
        repeated = {name for name, _ in pairs if [each for each, _ in pairs].count(name) > 1}
        if repeated:
            raise ConfigError(f"{sorted(repeated)[0]}= stands twice in the address of the HBase store.", hint="Once.")

    def take(self, name: str, default: str = "") -> str:
        return self._values.pop(name, default)

    def choice(self, name: str, *choices: str) -> str:
        value = self.take(name, choices[0])
        if value not in choices:
            raise ConfigError(
                f"{name}={value} is not known in the address of an HBase store.", hint=f"Use {' or '.join(choices)}."
            )
        return value

    def done(self, layout: str) -> None:
        if self._values:
            known = ", ".join(("layout", *_KNOWN[layout], *_DOOR, "saves"))
            raise ConfigError(
                f"{sorted(self._values)[0]}= is not known in the address of an HBase store of layout {layout}.",
                hint=f"Known: {known}.",
            )


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``hbase://HOST:PORT/TABLE?layout=…``; the table may have a namespace, as in ``cdap_system:log.meta``."""
    parts = _split(address)
    parameters = _Parameters(parts.query)
    layout = parameters.take("layout")
    if layout not in _KNOWN:
        what = f"layout={layout} is not known" if layout else "The layout is missing"
        raise ConfigError(f"{what} in the address of an HBase store.", hint=f"Layouts: {', '.join(_KNOWN)}.")
    door = _door(parts, parameters)
    parameters.choice("saves", "", "until", "from")  # whichever it is, the stored number is the next to be read
    store = _STORES[layout](door, unquote(parts.path[1:]), without_secrets(address), parameters, kafka_client)
    parameters.done(layout)
    return store


def _split(address: str) -> Any:
    try:
        parts = urlsplit(address)
        if parts.username is None and parts.hostname and parts.path.count("/") == 1 and len(parts.path) > 1:
            _ = parts.port
            common.check_name("table of the HBase store", unquote(parts.path[1:]))
            return parts
    except ValueError:
        pass
    raise ConfigError(
        f"{without_secrets(address)!r} is not the address of an HBase store.",
        hint=f"Write {_EXAMPLE}; HBase's Thrift 1 server takes no user and no password.",
    )


def _door(parts: Any, parameters: _Parameters) -> Door:
    text = parameters.take("timeout", f"{TIMEOUT_S:g}")
    timeout_s = common.timeout_s(text)
    if timeout_s is None:
        raise ConfigError(f"timeout={text} is not a time in seconds, above 0 and up to 600.", hint="For example 5.")
    transport = parameters.choice("transport", "buffered", "framed")
    protocol = parameters.choice("protocol", "binary", "compact")
    return Door(parts.hostname, parts.port or PORT, transport, protocol, timeout_s)


# ---------------------------------------------------------------- layouts

Opener = Callable[[Door, str, str, _Parameters, Mapping[str, str] | None], OffsetStore]


def _anchored(door: Door, name: str, address: str, _: _Parameters, __: object) -> OffsetStore:
    from reconciler.stores.hbase.anchored import FAMILIES, AnchoredStore

    return AnchoredStore(HBaseTable(door, name, FAMILIES), address)


def _cloudera(door: Door, name: str, address: str, parameters: _Parameters, _: object) -> OffsetStore:
    from reconciler.stores.hbase.cloudera import ClouderaStore

    own = parameters.take("anchor_family").encode()
    if own == cloudera.FAMILY or b":" in own:
        raise ConfigError(f"anchor_family={own.decode()} is not a family for anchors.", hint="Name another family.")
    families = {family: {"timeToLive": cloudera.TTL_SECONDS} for family in (cloudera.FAMILY, own) if family}
    return ClouderaStore(HBaseTable(door, name, families), address, anchor_family=own or None)


def _log_saver(door: Door, name: str, address: str, parameters: _Parameters, _: object) -> OffsetStore:
    from reconciler.stores.hbase.cdap import LogSaver

    prefix = parameters.take("prefix")
    if not prefix.isascii() or not prefix.isdigit() or int(prefix) >= 2**31:
        raise ConfigError(
            f"prefix={prefix} is not the prefix of a log saver's rows."
            if prefix
            else "The log saver's prefix is missing.",
            hint="Write prefix=100 for the log writer, prefix=101 for the log metrics.",
        )
    return _beside(door, name, address, LogSaver(int(prefix)), parameters)


def _metrics(door: Door, name: str, address: str, parameters: _Parameters, _: object) -> OffsetStore:
    from reconciler.stores.hbase.cdap import Metrics

    keeps_anchors = parameters.choice("anchors", "beside", "apart") == "beside"
    return _beside(door, name, address, Metrics(), parameters, keeps_anchors=keeps_anchors)


def _flowlet(
    door: Door, name: str, address: str, parameters: _Parameters, kafka_client: Mapping[str, str] | None
) -> OffsetStore:
    from reconciler.stores.hbase.cdap import Flowlet, Hooks
    from reconciler.stores.hbase.messages import LogMessageIds

    id_of = identity_from_spec(id=parameters.take("id_of", "none")).id_of
    if id_of is None:
        raise ConfigError(
            "A flowlet's store needs id_of=, which says how a record's message id is read.",
            hint="For example id_of=python:package.module:function, or id_of=json:$.id",
        )
    hooks = Hooks(_function(parameters, "key_of"), _function(parameters, "find"))
    column = parameters.take("column", cdap.VALUE.decode()).encode()
    if not column.startswith(cdap.FAMILY + b":"):
        raise ConfigError(f"column={column.decode()} is not a column of CDAP's family d.", hint="The usual one is d:c.")
    layout = Flowlet(LogMessageIds(id_of, kafka_client), hooks, column)
    return _beside(door, name, address, layout, parameters)


def _function(parameters: _Parameters, name: str) -> Callable[..., object] | None:
    spec = parameters.take(name)
    return load_function(name, spec) if spec else None


def _beside(
    door: Door, name: str, address: str, layout: Any, parameters: _Parameters, *, keeps_anchors: bool = True
) -> OffsetStore:
    from reconciler.stores.hbase.beside import BesideStore

    of_group = parameters.take("of_group") or None
    table = HBaseTable(door, name, {cdap.FAMILY: {}})
    return BesideStore(table, layout, address, keeps_anchors=keeps_anchors, of_group=of_group)


_STORES: Mapping[str, Opener] = {
    "anchored": _anchored,
    "cloudera": _cloudera,
    "cdap-logsaver": _log_saver,
    "cdap-metrics": _metrics,
    "cdap-flowlet": _flowlet,
}
