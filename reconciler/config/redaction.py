"""The last safeguard: known secrets are removed from every line before it is logged, however they got there.

No other code relies on it. Addresses are shown without their secrets, client settings are never shown, and errors have
messages of our own; but client libraries write their own messages, and a traceback shows what was raised. Loading a
configuration adds its secrets (``config/secrets.py``); the command line passes every line through ``redacted``.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from reconciler.core.text import visible

SHORTEST = 4
"""Characters. A shorter text protects nothing, and occurs in any sentence."""
_WORDS_BELOW = 8
"""Characters. A shorter secret may be a part of ordinary words: it is removed only where it is a word of its own."""
_SHORTEST_BASE64 = 5
"""Characters: long enough not to be a word by chance."""
_LINE_OF_A_KEY = 16
"""Characters. A line of a private key that is this long is a secret by itself."""


class Redactor:
    """Secrets of this process, and the text that replaces each."""

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._expressions: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    def add(self, secret: str, shown: str) -> None:
        """Remove ``secret``, in every way it may be written, from every text from now on; too short ones stay."""
        if len(secret) < SHORTEST or secret in self._shown:
            return
        for text in _ways_to_write(secret):
            self._shown.setdefault(text, shown)
            bounds = (r"(?<!\w)", r"(?!\w)") if len(text) < _WORDS_BELOW else ("", "")
            self._expressions[text] = re.escape(text).join(bounds)
        for text in _in_base64(secret.encode("utf-8", "surrogatepass")):
            self._shown.setdefault(text, shown)
            self._expressions[text] = re.escape(text)
        longest_first = sorted(self._expressions, key=len, reverse=True)
        self._pattern = re.compile("|".join(self._expressions[text] for text in longest_first))

    def redacted(self, text: str) -> str:
        pattern = self._pattern
        return text if pattern is None else pattern.sub(lambda found: self._shown[found[0]], text)

    def first_in(self, text: str) -> str | None:
        """What replaces the first secret in ``text``; None if it holds none."""
        found = None if self._pattern is None else self._pattern.search(text)
        return None if found is None else self._shown[found[0]]

    def clear(self) -> None:
        self._shown, self._expressions, self._pattern = {}, {}, None


KNOWN = Redactor()
"""The redactor of this process's log, for all configurations that it loads."""


def _ways_to_write(secret: str) -> Iterator[str]:
    """Unchanged, as errors show it, in Python's and JSON's quotes, percent-encoded; and each line of a private key."""
    yield secret
    yield visible(secret)
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield json.dumps(secret, ensure_ascii=False)[1:-1]
    safe = secret.encode("utf-8", "surrogatepass")
    yield quote(safe)
    yield quote(safe, safe="")
    yield quote_plus(safe)
    if "PRIVATE KEY" in secret:
        yield from (line.strip() for line in secret.splitlines() if len(line.strip()) >= _LINE_OF_A_KEY)


def _in_base64(secret: bytes) -> Iterator[str]:
    """The Base64 characters that encode nothing but the secret, for each of its three positions in a longer text."""
    for before in range(3):
        first, last = -(-before * 8 // 6), (before + len(secret)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(bytes(before) + secret).decode()[first:last]
            if len(text) >= _SHORTEST_BASE64:
                yield text
