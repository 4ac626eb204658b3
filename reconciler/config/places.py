"""Whether two addresses lead to one store, or to one server: two jobs, or a job and its anchors, must not share rows.

Addresses are compared by the place that they lead to, in a normal form for each scheme. Nothing is contacted, so two
names of one host count as two places: a program that writes to both must not rely on this alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from urllib.parse import unquote

from reconciler.config.addresses import Parts, has_port, pairs, scheme_of, split

_PORTS = {"hbase": "9090", "zookeeper": "2181", "postgresql": "5432"}
_HOW = frozenset({"timeout", "transport", "protocol", "keep", "walk", "number"})
"""Parameters that say how a store is read or written, and not where it is."""
_FOLDERS = frozenset({"files", "checkpoint", "delta"})
"""Schemes that a path or a URL follows."""
_LOCAL = ("file:", "local:")
"""Protocols of folders on this machine."""
_OF_ROWS = frozenset({"schema", "table", "topic", "partition", "offset", "group", "of_group"})
"""PostgreSQL's parameters that choose rows; the others are libpq's."""
_OF_SERVER = frozenset({"service", "options", "hostaddr"})
"""libpq's parameters that choose the server, the database or the schema beside host, port, dbname and user."""


def place_of(address: str) -> Hashable:
    """The store that an address leads to, in a normal form. It may look at links on this machine."""
    scheme, rest = scheme_of(address) or "", address.partition(":")[2]
    if scheme in ("postgres", "postgresql"):
        return _database(split(address))
    if scheme == "sqlite":
        return scheme, _real(rest.removeprefix("///"))
    base, _, query = rest.partition("?")
    where = frozenset((name, value) for name, value in pairs(query) if name not in _HOW)
    if scheme in _FOLDERS:
        return scheme, _folder(base), where
    if scheme in _PORTS:
        parts = split(address)
        path = unquote(parts.path).strip("/")
        if scheme == "hbase":
            path = path.removeprefix("default:")
        return scheme, _hosts(scheme, parts.hosts), path, where
    return scheme, base, where


def server_of(address: str) -> Hashable:
    """What many addresses may have in common, and lose together: hosts, a bucket, a catalog, the destination.

    Two addresses on this machine have nothing in common.
    """
    scheme, rest = scheme_of(address) or "", address.partition(":")[2].partition("?")[0]
    if scheme in ("postgres", "postgresql"):
        parts = split(address)
        given = dict(pairs(parts.query))
        return "postgresql", _libpq_hosts(parts, given), given.get("service"), given.get("hostaddr")
    if scheme in _PORTS:
        return scheme, _hosts(scheme, split(address).hosts)
    if scheme in _FOLDERS and "://" in rest and not rest.startswith(_LOCAL):
        return rest.partition("://")[0], split(rest).hosts.lower()
    if scheme == "iceberg":
        return scheme, rest.partition("/")[0]
    return address


def one_store(address: str, other: str, place: Callable[[str], Hashable] = place_of) -> bool:
    """Whether both addresses lead to the same store. In doubt they do not: ``track`` keeps a job's own row anyway.

    ``place`` is ``place_of``, or one that remembers: for many addresses.
    """
    if address == other:
        return True
    return place(address) == place(other) and not _have_own_schemas(address, other)


def has_groups(address: str) -> bool:
    """Whether each group has rows of its own there. If not, every group reads the same ones."""
    scheme, given = scheme_of(address), dict(pairs(address.partition("?")[2]))
    match scheme:
        case "checkpoint":
            return False
        case "postgres" | "postgresql":
            return "table" not in given or "group" in given
        case "zookeeper":
            return given.get("layout") != "single"
        case "hbase":
            return not given.get("layout", "").startswith("cdap-")
        case "delta" | "iceberg":
            return "group" in given or any("{group}" in given.get(name, "") for name in ("property", "app_id"))
    return True


def _database(parts: Parts) -> tuple[object, ...]:
    """As libpq reads it: what the query says replaces what the authority and the path say."""
    given = dict(pairs(parts.query))
    database = given.get("dbname") or unquote(parts.path.strip("/")) or _user(parts)  # libpq's own default
    rows = {name: value for name, value in given.items() if name in _OF_ROWS}
    if "schema" not in rows and "." in rows.get("table", ""):
        rows["schema"], _, rows["table"] = rows["table"].partition(".")
    server = frozenset((name, value) for name, value in given.items() if name in _OF_SERVER)
    return "postgresql", _libpq_hosts(parts, given), database, server, frozenset(rows.items())


def _libpq_hosts(parts: Parts, given: Mapping[str, str]) -> frozenset[str]:
    return _hosts("postgresql", given.get("host") or unquote(parts.hosts), given.get("port", ""))


def _user(parts: Parts) -> str:
    return dict(pairs(parts.query)).get("user") or unquote(parts.user.partition(":")[0])


def _have_own_schemas(address: str, other: str) -> bool:
    """Whether two users of one database may see different tables: its search path begins with the user's schema."""
    if scheme_of(address) not in ("postgres", "postgresql"):
        return False
    parts = split(address)
    names = {_user(parts), _user(split(other))}
    given = dict(pairs(parts.query))
    return "" not in names and len(names) > 1 and "schema" not in given and "." not in given.get("table", "")


def _hosts(scheme: str, hosts: str, ports: str = "") -> frozenset[str]:
    """Each with its port, in any order: a client may ask any of them. ``ports``: one for all, or one for each."""
    ends = [host.rpartition(":") if has_port(host) else (host, "", "") for host in hosts.split(",")]
    given = ports.split(",") if "," in ports else [ports] * len(ends)
    return frozenset(
        f"{name if name.startswith(('/', '@')) else name.lower()}:{port or number or _PORTS[scheme]}"
        for (name, _, number), port in zip(ends, given, strict=False)  # libpq refuses other numbers of ports
    )


def _folder(path: str) -> str:
    if path.startswith(_LOCAL):
        path = path.partition(":")[2].removeprefix("//")
    elif "://" in path:
        return path.rstrip("/")
    return _real(path, home=True)


def _real(path: str, *, home: bool = False) -> str:
    try:
        return os.path.realpath(os.path.expanduser(path) if home else path)
    except ValueError:  # a NUL byte: the store refuses the address, with a sentence
        return path
