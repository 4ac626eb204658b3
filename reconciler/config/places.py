"""Whether two addresses lead to one store, or to one server, and which jobs would share stored offsets.

Addresses are compared by the place that they lead to, in a normal form for each scheme. Nothing is contacted, so two
names of one host count as two places: a program that writes to both must not rely on this alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from urllib.parse import unquote

from reconciler.config.addresses import Parts, has_port, pairs, scheme_of, split
from reconciler.config.settings import Job
from reconciler.config.stores import ALIASES, STORES, Behind, spec_of
from reconciler.config.streams import Naming, Stream
from reconciler.config.table import Unknown
from reconciler.core.errors import ConfigError

_HOW = frozenset(
    {
        *("timeout", "transport", "protocol", "keep", "walk", "number"),
        *("newest_by", "written_by", "time", "id", "ssl_ca", "ssl_cert", "ssl_key", "ssl_check_hostname"),
    }
)
"""Parameters that say how a store is read or written, and not where it is."""
_LOCAL = ("file:", "local:")
"""Protocols of folders on this machine."""
_WRITTEN_TOO = {"s3a": "s3", "gcs": "gs", "abfss": "abfs", "az": "abfs"}
"""Schemes of object stores that lead to the same files as another one."""
_OF_ROWS = frozenset({"schema", "table", "topic", "partition", "offset", "group", "of_group"})
"""PostgreSQL's parameters that choose rows; the others are libpq's."""
_OF_SERVER = frozenset({"service", "options", "hostaddr"})
"""libpq's parameters that choose the server, the database or the schema beside host, port, dbname and user."""


def place_of(address: str) -> Hashable:
    """The store that an address leads to, in a normal form. It may look at links on this machine."""
    scheme, rest = _scheme(address), address.partition(":")[2]
    spec = spec_of(scheme)
    behind = Behind.NAME if spec is None else spec.behind
    if spec is STORES["postgresql"]:
        return _database(split(address))
    if behind is Behind.FILE:
        return scheme, _real(rest.removeprefix("///"))
    base, _, query = rest.partition("?")
    where = frozenset(_with_schema({name: value for name, value in pairs(query) if name not in _HOW}).items())
    if behind is Behind.FOLDER:
        return scheme, _folder(base), where
    if behind is Behind.SERVERS:
        parts = split(address)
        path = unquote(parts.path).strip("/")
        if scheme == "hbase":
            path = path.removeprefix("default:")
        return scheme, _hosts(scheme, parts.hosts), path, where
    return scheme, base, where


def server_of(address: str) -> Hashable:
    """The server of an address, which many may share and lose together: hosts, a bucket, a catalog, the destination.

    Two addresses on this machine have nothing in common.
    """
    scheme, rest = _scheme(address), address.partition(":")[2].partition("?")[0]
    spec = spec_of(scheme)
    behind = Behind.NAME if spec is None else spec.behind
    if spec is STORES["postgresql"]:
        parts = split(address)
        given = dict(pairs(parts.query))
        return "postgresql", _libpq_hosts(parts, given), given.get("service"), given.get("hostaddr")
    if behind is Behind.SERVERS:
        return scheme, _hosts(scheme, split(address).hosts)
    if behind is Behind.FOLDER and "://" in rest and not rest.startswith(_LOCAL):
        return rest.partition("://")[0], split(rest).hosts.lower()
    if scheme == "iceberg":
        return scheme, rest.partition("/")[0]
    return address


def one_store(address: str, other: str, place: Callable[[str], Hashable] = place_of) -> bool:
    """True if both addresses lead to the same store. In doubt they do not: ``track`` keeps a job's own row anyway.

    ``place`` is ``place_of``, or one that remembers: for many addresses.
    """
    if address == other:
        return True
    return place(address) == place(other) and not _have_own_schemas(address, other)


def has_groups(address: str) -> bool:
    """True if each group has rows of its own there. If not, every group reads the same ones."""
    spec = spec_of(scheme_of(address))
    return spec is None or spec.has_groups(dict(pairs(address.partition("?")[2])))


def _database(parts: Parts) -> tuple[object, ...]:
    """As libpq reads it: what the query says replaces what the authority and the path say."""
    given = dict(pairs(parts.query))
    database = given.get("dbname") or unquote(parts.path.strip("/")) or _user(parts)  # libpq's own default
    rows = _with_schema({name: value for name, value in given.items() if name in _OF_ROWS})
    server = frozenset((name, value) for name, value in given.items() if name in _OF_SERVER)
    return "postgresql", _libpq_hosts(parts, given), database, server, frozenset(rows.items())


def _with_schema(given: Mapping[str, str]) -> Mapping[str, str]:
    if "schema" in given or "." not in given.get("table", ""):
        return given
    schema, _, table = given["table"].partition(".")
    return {**given, "schema": schema, "table": table}


def _scheme(address: str) -> str:
    scheme = scheme_of(address) or ""
    return ALIASES.get(scheme, scheme)


def _libpq_hosts(parts: Parts, given: Mapping[str, str]) -> frozenset[str]:
    return _hosts("postgresql", given.get("host") or unquote(parts.hosts), given.get("port", ""))


def _user(parts: Parts) -> str:
    return dict(pairs(parts.query)).get("user") or unquote(parts.user.partition(":")[0])


def _have_own_schemas(address: str, other: str) -> bool:
    """True if two users of one database may see different tables: its search path begins with the user's schema."""
    if spec_of(scheme_of(address)) is not STORES["postgresql"]:
        return False
    parts = split(address)
    names = {_user(parts), _user(split(other))}
    given = dict(pairs(parts.query))
    return "" not in names and len(names) > 1 and "schema" not in given and "." not in given.get("table", "")


def _hosts(scheme: str, hosts: str, ports: str = "") -> frozenset[str]:
    """Each with its port, in any order: a client may ask any of them. ``ports``: one for all, or one for each."""
    ends = [host.rpartition(":") if has_port(host) else (host, "", "") for host in hosts.split(",")]
    given = ports.split(",") if "," in ports else [ports] * len(ends)
    usual = STORES[scheme].port
    return frozenset(
        f"{name if name.startswith(('/', '@')) else name.lower()}:{port or number or usual}"
        for (name, _, number), port in zip(ends, given, strict=False)  # libpq refuses other numbers of ports
    )


def _folder(path: str) -> str:
    if path.startswith(_LOCAL):
        path = path.partition(":")[2].removeprefix("//")
    elif "://" in path:
        return _shared(path)
    return _real(path, home=True)


def _shared(url: str) -> str:
    scheme, _, rest = url.rstrip("/").partition("://")
    host, slash, path = rest.partition("/")
    known = _WRITTEN_TOO.get(scheme, scheme)
    if known == "abfs":  # CONTAINER@ACCOUNT, with or without the name of the account's service
        host = host.partition(".")[0]
    return f"{known}://{host}{slash}{path}"


def _real(path: str, *, home: bool = False) -> str:
    try:
        return os.path.realpath(os.path.expanduser(path) if home else path)
    except ValueError:  # a NUL byte: the store refuses the address, with a sentence
        return path


def faults_beside(
    job: Job,
    others: Sequence[Job],
    naming: Naming,
    clusters: Collection[str],
    place_of: Callable[[str], Hashable],
    *,
    is_recorded: bool,
) -> Iterator[ConfigError]:
    """The faults of a job beside the ``others``, and of the names of its topics.

    ``is_recorded``: a state store says where the jobs live.
    """
    yield from _among(job, naming, clusters, is_recorded=is_recorded)
    has_own = isinstance(job.store, Unknown) or has_groups(job.store)
    mine = None if has_own else place_of(job.store)
    for other in others:
        if other.name == job.name:
            yield ConfigError(f'Two jobs are named "{job.name}".', hint="Rename one of them.")
            return
        if (
            (_share_group(other, job, clusters) or (not has_own and place_of(other.store) == mine))
            and _are_one(other.store, job.store, place_of)
            and (common := _names(job, naming, clusters) & _names(other, naming, clusters))
        ):
            shared = "of a topic" if {*job.topics} & {*other.topics} else f'under the name "{min(common)}"'
            of_store, own = ("one group", "group") if has_own else ("which has no groups", "place for its offsets")
            yield ConfigError(
                f'Jobs "{other.name}" and "{job.name}" share the stored offsets {shared}: one store, {of_store}.',
                hint=f"Give one of them a {own} of its own, or make them one job.",
            )
            return


def _share_group(one: Job, other: Job, clusters: Collection[str]) -> bool:
    if not (one.groups or other.groups):
        return one.group == other.group  # of 500 jobs there are 125,000 pairs
    return any(one.group_on(cluster) == other.group_on(cluster) for cluster in clusters)


def _among(job: Job, naming: Naming, clusters: Collection[str], *, is_recorded: bool) -> Iterator[ConfigError]:
    """Two topics of one job that have one name on a cluster, or a name that is another's on another cluster."""
    streams = [each for each in job.streams if not isinstance(each.topic, Unknown)]
    owners: dict[str, Stream] = {}
    for cluster in clusters:
        try:
            named = naming.by_name(streams, cluster)
        except ValueError as error:
            yield ConfigError(
                f'Two topics of job "{job.name}" have one name: {error}.',
                hint="Correct [topics]: each needs a name of its own.",
            )
            return
        for name, stream in named.items():
            other = owners.setdefault(name, stream)
            if other != stream and not is_recorded:
                yield ConfigError(
                    f'Topics {other} and {stream} of job "{job.name}" are both called "{name}", on different clusters: '
                    "without a [state] store, nothing shows which of them an offset under this name is of.",
                    hint='Add [state] store = "ADDRESS".',
                )
                return


def _names(job: Job, naming: Naming, clusters: Collection[str]) -> set[str]:
    """The names under which the job may have rows."""
    known = [each for each in job.streams if not isinstance(each.topic, Unknown)]
    return {naming.name_on(stream, cluster) for stream in known for cluster in clusters}


def _are_one(store: str, other: str, place_of: Callable[[str], Hashable]) -> bool:
    if isinstance(store, Unknown) or isinstance(other, Unknown):
        return False
    return one_store(store, other, place_of)
