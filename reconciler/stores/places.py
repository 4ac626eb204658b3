"""Whether two addresses lead to one store: a job's rows and the anchors kept for them must not be the same rows.

Addresses are compared by the place that they lead to, in a normal form for each scheme. Nothing is contacted, so two
names of one host count as two places: whoever writes to both must not rely on this alone.
"""

from __future__ import annotations

import os
from urllib.parse import unquote

from reconciler.config.addresses import Parts, scheme_of, split
from reconciler.stores.parameters import pairs

_PORTS = {"hbase": "9090", "zookeeper": "2181", "postgresql": "5432"}
_HOW = frozenset({"timeout", "saves", "transport", "protocol", "mirrored", "keep", "walk"})
"""Parameters that say how a store is read or written, and not where it is."""
_OF_ROWS = frozenset({"schema", "table", "topic", "partition", "offset", "group", "of_group"})
"""PostgreSQL's parameters that choose rows; the others are libpq's."""


def one_store(address: str, other: str) -> bool:
    """Whether both addresses lead to the same store."""
    return address == other or _place(address) == _place(other)


def _place(address: str) -> tuple[object, ...]:
    scheme, rest = scheme_of(address) or "", address.partition(":")[2]
    if scheme in ("postgres", "postgresql"):
        return _database(split(address))
    if scheme == "sqlite":
        return scheme, os.path.realpath(rest.removeprefix("///"))
    base, _, query = rest.partition("?")
    where = frozenset(_parameters(query, without=_HOW).items())
    if scheme == "files":
        return scheme, _folder(base), where
    if scheme in _PORTS:
        parts = split(address)
        path = unquote(parts.path).strip("/")
        return scheme, _hosts(scheme, parts.hosts), path.removeprefix("default:"), where
    return scheme, base, where


def _database(parts: Parts) -> tuple[object, ...]:
    given = _parameters(parts.query)
    hosts = parts.hosts or given.get("host") or given.get("hostaddr") or ""
    user = given.get("user") or unquote(parts.user.partition(":")[0])
    database = unquote(parts.path.strip("/")) or given.get("dbname") or user  # libpq's own default
    rows = frozenset((name, value) for name, value in given.items() if name in _OF_ROWS)
    return "postgresql", _hosts("postgresql", hosts, given.get("port")), database, rows


def _hosts(scheme: str, hosts: str, port: str | None = None) -> frozenset[str]:
    """Each with its port, in any order: a client may ask any of them."""
    ends = [host.rpartition(":") if _has_port(host) else (host, "", "") for host in hosts.lower().split(",")]
    return frozenset(f"{name}:{number or port or _PORTS[scheme]}" for name, _, number in ends)


def _has_port(host: str) -> bool:
    return host.rpartition("]")[2].count(":") == 1


def _folder(path: str) -> str:
    if "://" in path and not path.startswith(("file:", "local:")):
        return path.rstrip("/")
    local = path.partition(":")[2] if path.startswith(("file:", "local:")) else path
    return os.path.realpath(os.path.expanduser(local.removeprefix("//")))


def _parameters(query: str, *, without: frozenset[str] = frozenset()) -> dict[str, str]:
    return {name: value for name, value in pairs(query) if name not in without}
