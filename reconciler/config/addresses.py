"""Addresses of stores and files: their scheme, and how they look without secrets. Nothing is opened here.

The table of file systems says which package opens each scheme, and what its URLs have before an ``@``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import unquote, unquote_plus

from reconciler.config.stores import STORES, Behind, spec_of
from reconciler.core.errors import ConfigError

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):")
_HOSTS = re.compile(r"(?:(?:[^:,\[\]]+|\[[^\]]*\])(?::\d+)?(?:,|$))*")
_SHOWN = frozenset(
    (
        *("timeout", "number", "group", "of_group", "topic", "partition", "offset"),
        *(name for spec in STORES.values() for name in spec.parameters.split()),
    )
)
"""Parameters that hold no secret. The value of any other is not shown: it may be misplaced."""
SINK_SCHEMES = frozenset({"files", "delta", "iceberg", "python"})
SINKS_WITH_ROWS = frozenset({"files", "delta", "iceberg"})
"""Sinks whose address says where the rows are, and not only the batches."""
SINK_COLUMNS = ("id", "key", "value", "topic", "partition")
"""What ``sink_columns`` may name."""
_NAME = re.compile(r"[\w.-]+")
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
    """True if librdkafka can use ``bootstrap_servers``: HOST:PORT, with commas between them."""
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
    """True if a port follows the name or address. One of IPv6 is in brackets then."""
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
    """``address`` without its login, and without text that no store uses, since it may be a secret.

    A container before the ``@`` is a part of the place, and stays.
    Of parameters that are not known only the name is shown, of a fragment nothing. Text that is not an address is not
    shown at all.
    """
    scheme = scheme_of(address)
    if scheme is None:
        return "(no address)"
    spec = spec_of(scheme)
    has_servers = spec is not None and spec.behind is Behind.SERVERS
    base, _, rest = address.partition("?")
    begin, slashes, place = base.partition("://")
    if slashes:
        authority, slash, path = place.partition("/")
        login, _, hosts = authority.rpartition("@")
        hosts, is_cut, _ = hosts.partition("#")
        path, is_cut_too, _ = path.partition("#")
        # A login at a wrong place, or an unencoded slash in a password.
        has_login = has_servers and "@" in path
        if has_login or not _HOSTS.fullmatch(hosts):
            return f"{begin}://…"
        if "://" in path:  # a second address
            path = "…"
        login = shown_login(begin.rpartition(":")[2], login)
        base, cut = f"{begin}://{login}{hosts}{slash}{path}", bool(is_cut or is_cut_too)
    else:
        if has_servers:  # slashes are missing, and what follows may be a login
            return f"{scheme}:…"
        base, is_cut, _ = base.partition("#")
        cut = bool(is_cut)
        if spec is not None and spec.behind is Behind.NOTHING and base[len(scheme) + 1 :]:
            base = f"{base[: len(scheme) + 1]}…"
    if cut:
        return f"{base}#…"
    query, is_cut, _ = rest.partition("#")
    query = "&".join(part for part in map(_shown, query.split("&")) if part)
    return base + ("?" if query else "") + query + ("#…" if is_cut else "")


def _shown(parameter: str) -> str:
    """One parameter, unchanged if it holds no secret; empty if it may be one."""
    name, equals, _ = parameter.partition("=")
    name = unquote_plus(name)
    if name in _SHOWN:
        return parameter if "://" not in parameter else f"{name}=…"
    return "" if not equals or _SECRET.search(name) or not _NAME.fullmatch(name) else f"{name}=…"


class BeforeAt(Enum):
    """The meaning of ``user`` in ``SCHEME://user@host/path``."""

    SECRET = auto()
    """A part of a login: never shown."""
    USER = auto()
    """A user's name, which the address needs: shown, unless a password follows it."""
    PLACE = auto()
    """A container or bucket: another one is another place, so it is always shown."""


@dataclass(frozen=True, slots=True)
class FileSystem:
    """``package``: the Python package that fsspec needs. ``instead``: the advice where no package opens the scheme."""

    before_at: BeforeAt = BeforeAt.SECRET
    package: str | None = None
    instead: str = ""

    @property
    def advice(self) -> str:
        return f"Run: pip install {self.package}" if self.package is not None else self.instead


_WEBHDFS = "Write webhdfs://HOST:9870/PATH, with the host of the active NameNode"
_LIBHDFS = f"{_WEBHDFS}; or install Hadoop's libhdfs, and set CLASSPATH and ARROW_LIBHDFS_DIR."
_DBFS = (
    "On a Databricks cluster, write /dbfs/PATH. Elsewhere write dbfs:///PATH, and set FSSPEC_DBFS_INSTANCE and "
    "FSSPEC_DBFS_TOKEN."
)

FILE_SYSTEMS: Mapping[str, FileSystem] = {
    "abfs": FileSystem(BeforeAt.PLACE, "adlfs"),
    "abfss": FileSystem(BeforeAt.PLACE, "adlfs"),
    "az": FileSystem(BeforeAt.PLACE, "adlfs"),
    "dbfs": FileSystem(instead=_DBFS),
    "gcs": FileSystem(package="gcsfs"),
    "gs": FileSystem(package="gcsfs"),
    "hdfs": FileSystem(BeforeAt.USER, instead=_LIBHDFS),
    "s3": FileSystem(package="s3fs"),
    "s3a": FileSystem(package="s3fs"),
    "sftp": FileSystem(BeforeAt.USER, "paramiko"),
    "ssh": FileSystem(BeforeAt.USER, "paramiko"),
    "swebhdfs": FileSystem(BeforeAt.USER, instead=f"{_WEBHDFS}."),
    "webhdfs": FileSystem(BeforeAt.USER),
}
_UNKNOWN = FileSystem(instead="Write a local path, or a URL such as webhdfs://HOST:9870/PATH or s3://BUCKET/PATH.")
LOCAL = ("file", "local")
"""Schemes of this machine's own files. Hadoop writes one slash after them, or three."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]")
_PLAIN = re.compile(r"[\w.$-]+")


def scheme_of_path(path: str) -> str | None:
    """The scheme of a URL; None for a local path.

    Raises ConfigError for text that is neither, or that other programs read as an address and this one cannot.
    """
    if _WINDOWS.match(path) and not path[2:].startswith("//"):
        raise ConfigError(
            f"{path} is a path of Windows.",
            hint="Write the path by which this machine reaches the folder, such as /mnt/c/PATH.",
        )
    found = _URL.fullmatch(path)
    if found is None:
        return None
    scheme, rest = found[1], found[2]
    if scheme in LOCAL:
        _refuse_host(scheme, path)
        return scheme
    if rest.startswith("//"):
        return scheme
    if not rest.startswith("/") and scheme.lower() not in FILE_SYSTEMS:
        return None  # a local name with a colon
    known = FILE_SYSTEMS.get(scheme.lower())
    advice = known.instead if known is not None and known.instead else f"Write {scheme}://HOST/PATH."
    shown = rest if "@" not in rest else "/…"  # it may hold a password
    raise ConfigError(f"{scheme}:{shown} is neither a local path nor a URL.", hint=advice)


def is_local(path: str) -> bool:
    """False for a URL, and for text that ``scheme_of_path`` refuses."""
    try:
        return scheme_of_path(path) is None
    except ConfigError:
        return False


def _refuse_host(scheme: str, url: str) -> None:
    """Raise ConfigError for ``file://data/x``: Hadoop takes ``data`` for a host, and fsspec for a folder."""
    host = url.partition("://")[2].partition("/")[0] if url.startswith(f"{scheme}://") else ""
    if host:
        raise ConfigError(
            f"A {scheme}:// URL names the host {host.rpartition('@')[2]}.",
            hint=f"Write a local path with three slashes, {scheme}:///PATH, or alone.",
        )


def shown_login(scheme: str, login: str) -> str:
    """The part of ``login`` in ``SCHEME://login@host/path`` that messages may show, with its ``@``."""
    name, colon, _ = login.partition(":")
    kind = FILE_SYSTEMS.get(scheme.lower(), _UNKNOWN).before_at
    if not _PLAIN.fullmatch(name) or kind is BeforeAt.SECRET or (kind is BeforeAt.USER and colon):
        return ""
    return f"{name}:…@" if colon else f"{name}@"


def not_installed(scheme: str, error: ImportError | ValueError) -> ConfigError:
    """The error for a scheme of which fsspec has no class, or cannot import it."""
    known = FILE_SYSTEMS.get(scheme.lower(), _UNKNOWN)
    if isinstance(error, ImportError):
        advice = "Install it." if known is _UNKNOWN else known.advice
        return ConfigError(f"Files under {scheme}:// need a Python package: {str(error).rstrip('.')}.", hint=advice)
    lacks = f" without the package {known.package}" if known.package is not None else ""
    return ConfigError(f"fsspec knows no file system {scheme!r}{lacks}.", hint=known.advice)


def not_set_up(scheme: str, error: Exception) -> ConfigError | None:
    """The error for a file system that cannot be opened before its settings change; None for any other error."""
    if str(error).startswith("Unable to load lib"):  # pyarrow's, before it contacts anything
        return ConfigError(f"{scheme}:// needs Hadoop's native library libhdfs.", hint=_LIBHDFS)
    if scheme == "dbfs" and isinstance(error, TypeError):  # fsspec's class lacks arguments
        return ConfigError("dbfs:// needs the workspace's address and a token.", hint=_DBFS)
    return None
