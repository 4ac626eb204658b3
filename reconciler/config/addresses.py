"""Store addresses: their scheme, and how they look without secrets. Pure text; nothing is opened here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):")
_HOSTS = re.compile(r"(?:(?:[^:,\[\]]+|\[[^\]]*\])(?::\d+)?(?:,|$))*")
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
    """For addresses of several hosts, where some versions of ``urllib.parse.urlsplit`` refuse an IPv6 address."""
    rest, _, fragment = address.partition("://")[2].partition("#")
    rest, _, query = rest.partition("?")
    authority, slash, path = rest.partition("/")
    user, _, hosts = authority.rpartition("@")
    return Parts(user, hosts, slash + path, query, fragment)


def without_secrets(address: str) -> str:
    """``address`` without user and password, and without query values that look like secrets.

    Text that is not an address is not shown at all: it may be a password in the wrong place.
    """
    if scheme_of(address) is None:
        return "(no address)"
    base, mark, rest = address.partition("?")
    begin, slashes, place = base.partition("://")
    if slashes:
        authority, slash, path = place.partition("/")
        hosts = authority.rpartition("@")[2]
        if hosts == authority and "@" in path + rest and not _HOSTS.fullmatch(authority):
            return f"{begin}://…"  # a password with an unencoded slash or question mark
        base = f"{begin}://{hosts}{slash}{path}"
    query, hash_mark, fragment = rest.partition("#")
    pairs = parse_qsl(query, keep_blank_values=True)
    if any(_SECRET.search(name) for name, _ in pairs):
        query = urlencode([(name, value) for name, value in pairs if not _SECRET.search(name)])
        mark = "?" if query else ""
    return f"{base}{mark}{query}{hash_mark}{fragment}"
