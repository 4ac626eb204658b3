"""Store addresses: their scheme, and how they look without secrets. Pure text; nothing is opened here."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):")
_SECRET = re.compile(r"pass|pwd|secret|token|credential|key$", re.IGNORECASE)


def scheme_of(address: str) -> str | None:
    """The part before the colon in lower case, None where there is no scheme."""
    found = _SCHEME.match(address.lower())
    return found.group(1) if found else None


def without_secrets(address: str) -> str:
    """``address`` without user and password, and without query values that look like secrets."""
    scheme = scheme_of(address) or ""
    rest = address[len(scheme) + 1 :]
    if not rest.startswith("//"):
        return address
    try:
        parts = urlsplit(address)
    except ValueError:  # a bracket too few: whoever opens it will complain, here nothing may leak
        return f"{scheme}:"
    hosts = parts.netloc.rpartition("@")[2]
    query = parse_qsl(parts.query, keep_blank_values=True)
    if any(_SECRET.search(name) for name, _ in query):
        kept = urlencode([(name, value) for name, value in query if not _SECRET.search(name)])
    else:
        kept = parts.query
    if hosts == parts.netloc and kept == parts.query:
        return address
    return urlunsplit((parts.scheme, hosts, parts.path, kept, parts.fragment))
