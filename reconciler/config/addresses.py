"""Store addresses: their scheme, and how they look without secrets. Pure text; nothing is opened here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote, unquote_plus

from reconciler.config.file_systems import shown_login

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):")
_HOSTS = re.compile(r"(?:(?:[^:,\[\]]+|\[[^\]]*\])(?::\d+)?(?:,|$))*")
_SHOWN = frozenset(
    (
        *("layout", "timeout", "group", "of_group", "schema", "table", "topic", "partition", "offset", "prefix"),
        *("column", "protocol", "transport", "id_of", "key_of", "find"),
        *("keep", "position", "walk", "app_id", "app_column", "batch_column"),
        *("number", "newest_by", "written_by", "property", "field", "lists", "branch", "topic_name", "partitions"),
        *("user", "host", "hostaddr", "port", "dbname", "ssl", "sslmode", "sslrootcert", "connect_timeout"),
        *("application_name", "target_session_attrs", "load_balance_hosts", "gssencmode", "channel_binding"),
    )
)
"""Parameters of stores, and of libpq, that hold no secret. The value of any other is not shown: it may be misplaced."""
SINK_SCHEMES = frozenset({"files", "delta", "iceberg", "postgresql", "python"})
SINKS_WITH_ROWS = frozenset({"files", "delta", "iceberg"})
"""Sinks whose address says where the rows are, and not only the batches."""
SINK_COLUMNS = ("id", "key", "value", "topic", "partition")
"""What ``sink_columns`` may name."""
_NAME = re.compile(r"[\w.-]+")
_ALONE = frozenset({"kafka-group"})
"""Schemes that nothing follows."""
_SERVERS = frozenset({"hbase", "zookeeper", "postgresql", "postgres"})
"""Schemes that two slashes and a host follow."""
_BROKER = re.compile(
    r"(?:(?:(?:plaintext|ssl|sasl_plaintext|sasl_ssl)://)?(?:\[[^\]\s]+\]|[^\s,;:@/\[\]]+)(?::[0-9]{1,5})?/?|[0-9a-f:]+)",
    re.IGNORECASE,
)
"""One broker of ``bootstrap_servers``, as librdkafka reads it. It would never get an answer over another protocol."""
BROKERS_TOO = "metadata.broker.list"
"""Another name of the Kafka client for ``bootstrap.servers``; of two values it takes the later one."""
_PORT = 9092
"""The port of a broker that is given without one."""
_SECRET = re.compile(r"pass|pwd|secret|token|credential|key$", re.IGNORECASE)


def scheme_of(address: str) -> str | None:
    """The part before the colon in lower case, None where there is no scheme."""
    found = _SCHEME.match(address.lower())
    return found.group(1) if found else None


def are_brokers(text: str) -> bool:
    """Whether librdkafka can use ``bootstrap_servers``: HOST:PORT, with commas between them."""
    brokers = [broker for each in text.split(",") if (broker := each.strip())]
    return bool(brokers) and all(map(_BROKER.fullmatch, brokers))


def shared_brokers(one: str, other: str) -> list[str]:
    """The brokers that two ``bootstrap_servers`` have in common, as HOST:PORT, sorted."""
    return sorted({*_brokers(one)} & {*_brokers(other)})


def _brokers(text: str) -> Iterator[str]:
    for broker in filter(None, (each.strip().lower() for each in text.split(","))):
        place = broker.rpartition("://")[2].rstrip("/")
        yield place if has_port(place) else f"{place}:{_PORT}"


def has_port(host: str) -> bool:
    """Whether a port follows the name or address. One of IPv6 is in brackets then."""
    return host.rpartition("]")[2].count(":") == 1


@dataclass(frozen=True, slots=True)
class Parts:
    """``SCHEME://[USER[:PASSWORD]@]HOSTS[PATH][?QUERY][#FRAGMENT]``, as written; ``path`` begins with a slash."""

    user: str
    hosts: str
    path: str
    query: str
    fragment: str


def split(address: str) -> Parts:
    """For addresses of several hosts, where some versions of ``urllib.parse.urlsplit`` refuse an IPv6 address."""
    rest, _, fragment = address.partition("://")[2].partition("#")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    user, _, hosts = authority.rpartition("@")
    return Parts(user, hosts, slash + path, query, fragment)


def pairs(query: str) -> list[tuple[str, str]]:
    """The names and values of ``query``, decoded as a URI's (RFC 3986): a plus is a plus, and no space as in forms."""
    parts = (part.partition("=") for part in query.split("&") if part)
    return [(unquote(name), unquote(value)) for name, _, value in parts]


def without_secrets(address: str) -> str:
    """``address`` without its login, and without whatever a store has no use for: a secret may stand there.

    A container before the ``@`` is a part of the place, and stays.
    Of parameters that are not known only the name is shown, of a fragment nothing. Text that is not an address is not
    shown at all.
    """
    scheme = scheme_of(address)
    if scheme is None:
        return "(no address)"
    base, _, rest = address.partition("?")
    begin, slashes, place = base.partition("://")
    if slashes:
        authority, slash, path = place.partition("/")
        login, _, hosts = authority.rpartition("@")
        hosts, is_cut, _ = hosts.partition("#")
        path, is_cut_too, _ = path.partition("#")
        # A login at a wrong place, or an unencoded slash in a password.
        has_login = scheme in _SERVERS and "@" in path
        if has_login or not _HOSTS.fullmatch(hosts):
            return f"{begin}://…"
        if "://" in path:  # a second address
            path = "…"
        login = shown_login(begin.rpartition(":")[2], login)
        base, cut = f"{begin}://{login}{hosts}{slash}{path}", bool(is_cut or is_cut_too)
    else:
        if scheme in _SERVERS:  # slashes are missing, and what follows may be a login
            return f"{scheme}:…"
        base, is_cut, _ = base.partition("#")
        cut = bool(is_cut)
        if scheme in _ALONE and base[len(scheme) + 1 :]:
            base = f"{base[: len(scheme) + 1]}…"
    if cut:
        return f"{base}#…"
    query, is_cut, _ = rest.partition("#")
    query = "&".join(part for part in map(_shown, query.split("&")) if part)
    return base + ("?" if query else "") + query + ("#…" if is_cut else "")


def _shown(parameter: str) -> str:
    """One parameter: as it is written if it holds no secret; empty if it may be one."""
    name, equals, _ = parameter.partition("=")
    name = unquote_plus(name)
    if name in _SHOWN:
        return parameter if "://" not in parameter else f"{name}=…"
    return "" if not equals or _SECRET.search(name) or not _NAME.fullmatch(name) else f"{name}=…"
