"""The state store at an address: ``[state] store``. Nothing is contacted here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from secrets import token_hex
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from reconciler.config.addresses import scheme_of, without_secrets
from reconciler.core.errors import ConfigError
from reconciler.places.folder import open_folder
from reconciler.places.parameters import Parameters, wrong_address
from reconciler.places.registry import require_installed
from reconciler.state.store import Backend, StateStore

HBASE_PORT = 9090


class Scheme(NamedTuple):
    """How an address is opened, an example of one, and the client package with the extra that installs it."""

    open: Callable[[str], Backend]
    example: str
    client: str | None = None
    extra: str | None = None


def open_state(address: str) -> StateStore:
    """The store at ``address``, which need not exist. Raises ConfigError for an address that is wrong."""
    name = scheme_of(address) or ""
    scheme = SCHEMES.get(name)
    if scheme is None:
        what = f"There is no state store with the scheme {name!r}." if name else "[state] store has no scheme."
        raise ConfigError(what, hint=f"Write one of: {' · '.join(each.example for each in SCHEMES.values())}.")
    if scheme.client is not None:
        require_installed(f"The state store {name}:", scheme.client, scheme.extra)
    return StateStore(scheme.open(address), new_nonce=partial(token_hex, 16))


def _memory(address: str) -> Backend:
    from reconciler.state import memory

    return memory.named(address.partition(":")[2])


def _sqlite(address: str) -> Backend:
    from reconciler.state.sqlite import SqliteState

    path = address.removeprefix("sqlite:///")
    if path == address or not path:
        raise wrong_address("[state] store", SCHEMES["sqlite"].example, "it names no file")
    return SqliteState(path)


def _files(address: str) -> Backend:
    from reconciler.state.files import FilesState

    url = address.partition(":")[2]
    if not url:
        raise wrong_address("[state] store", SCHEMES["files"].example, "it names no folder")
    return FilesState(open_folder(url))


def _postgresql(address: str) -> Backend:
    from reconciler.places.postgresql.address import parse
    from reconciler.state.postgresql import PostgresqlState

    parsed = parse(address)
    if parsed.columns is not None:
        raise wrong_address("[state] store", SCHEMES["postgresql"].example, "it names a table, and state has its own")
    return PostgresqlState(parsed)


def _hbase(address: str) -> Backend:
    from reconciler.places.hbase.table import TIMEOUT_S, HBaseTable, ThriftEndpoint
    from reconciler.state.hbase import FAMILIES, HBaseState

    wrong = partial(wrong_address, "[state] store", SCHEMES["hbase"].example)
    try:
        url = urlsplit(address)
        port = url.port or HBASE_PORT
    except ValueError as err:
        raise wrong("its host or port cannot be read") from err
    table = unquote(url.path[1:])
    if url.username is not None or not url.hostname or not table or "/" in table:
        raise wrong("it is not a host, a port and a table")
    parameters = Parameters(url.query, wrong)
    transport = parameters.choice("transport", "buffered", "framed")
    protocol = parameters.choice("protocol", "binary", "compact")
    timeout_s = parameters.timeout_s(TIMEOUT_S)
    parameters.check_all_known()
    endpoint = ThriftEndpoint(url.hostname, port, transport, protocol, timeout_s)
    return HBaseState(HBaseTable(endpoint, table, FAMILIES), without_secrets(address))


SCHEMES: Mapping[str, Scheme] = {
    "postgresql": Scheme(_postgresql, "postgresql://HOST/DATABASE", "psycopg", "postgresql"),
    "hbase": Scheme(_hbase, "hbase://HOST:PORT/TABLE", "happybase"),
    "files": Scheme(_files, "files:PATH", "fsspec", "files"),
    "sqlite": Scheme(_sqlite, "sqlite:///FILE"),
    "memory": Scheme(_memory, "memory:NAME"),
}
