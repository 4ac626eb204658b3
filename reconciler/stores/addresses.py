"""Store addresses: their scheme, and how they look without secrets. Pure text; nothing is opened here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):")
_SECRET = re.compile(r"pass|pwd|secret|token|credential|key$", re.IGNORECASE)


def scheme_of(address: str) -> str | None:
    """The part before the colon in lower case, None where there is no scheme."""
    found = _SCHEME.match(address.lower())
    return found.group(1) if found else None


@dataclass(frozen=True, slots=True)
class Parts:
    """``SCHEME://[USER[:PASSWORD]@]HOSTS[PATH][?QUERY][#FRAGMENT]``, as written; ``path`` begins with a slash."""

    user: str
    hosts: str
    path: str
    query: str
    fragment: str


def split(address: str) -> Parts:
    """The standard library's ``urlsplit`` is for one host: of several, it refuses an IPv6 address in some versions."""
    rest, _, fragment = address.partition("://")[2].partition("#")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    user, _, hosts = authority.rpartition("@")
    return Parts(user, hosts, slash + path, query, fragment)


def without_secrets(address: str) -> str:
    """``address`` without user and password, and without query values that look like secrets."""
    scheme = scheme_of(address) or ""
    rest = address[len(scheme) + 1 :]
    if not rest.startswith("//"):
        return address
    parts = split(address)
    query = parse_qsl(parts.query, keep_blank_values=True)
    if any(_SECRET.search(name) for name, _ in query):
        kept = urlencode([(name, value) for name, value in query if not _SECRET.search(name)])
    else:
        kept = parts.query
    if not parts.user and kept == parts.query:
        return address
    end = (f"?{kept}" if kept else "") + (f"#{parts.fragment}" if parts.fragment else "")
    return f"{scheme}://{parts.hosts}{parts.path}{end}"
