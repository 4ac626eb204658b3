"""The file systems that paths and URLs name, as Spark, Hadoop and Databricks write them: one table of schemes.

Nothing is opened here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from reconciler.core.errors import ConfigError


class BeforeAt(Enum):
    """What ``user`` is in ``SCHEME://user@host/path``."""

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

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
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
    found = _SCHEME.fullmatch(path)
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
    """What a message shows of ``login`` in ``SCHEME://login@host/path``, with its ``@``; empty for a secret."""
    name, colon, _ = login.partition(":")
    kind = FILE_SYSTEMS.get(scheme.lower(), _UNKNOWN).before_at
    if not _PLAIN.fullmatch(name) or kind is BeforeAt.SECRET or (kind is BeforeAt.USER and colon):
        return ""
    return f"{name}:…@" if colon else f"{name}@"


def without_user(url: str) -> str:
    """The URL without a user's name, which is no part of the place; a container stays."""
    scheme, slashes, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    if FILE_SYSTEMS.get(scheme.lower(), _UNKNOWN).before_at is BeforeAt.PLACE:
        return url
    return f"{scheme}{slashes}{authority.rpartition('@')[2]}{slash}{path}"


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
