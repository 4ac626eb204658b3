"""Secrets of the configuration: from the environment or from files only, and kept out of every message and log line.

A value is secret by the name of its key (``sasl.password``, ``ssl.key.pem``, …), by its place in an address
(``scheme://USER:PASSWORD@host``, ``?password=…``), or because it came out of a file or of a variable with such a name.

``Redactor`` is the last safeguard: known secrets are removed from every line before it is logged, however they got
there. No other code relies on it. Addresses are shown without their secrets, client settings are never shown, and
errors have messages of our own; but client libraries write their own messages, and a traceback shows what was raised.
Loading a configuration adds its secrets; the command line passes every line through ``redacted``.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote

from reconciler.config.addresses import split
from reconciler.config.table import Faults, Unknown
from reconciler.core.anchors import encodable
from reconciler.core.errors import ConfigError
from reconciler.core.text import visible
from reconciler.fileio import why

_ENVIRONMENT = re.compile(r"\$\{([^{}]*)\}")
_FILE = "file:"
_SECRET_KEY = re.compile(r"(password|passwd|passphrase|pwd|secret|token|key\.pem|jaas\.config)$", re.IGNORECASE)
_USER_INFO = "user.info"
"""The end of a key with ``NAME:PASSWORD``."""
_SECRET_WORD = re.compile(r"pass|pwd|secret|token|credential|key", re.IGNORECASE)
_ASSIGNED = re.compile(r"""(?:password|passwd|passphrase|pwd|secret|token)\s*=\s*["']?([^"'\s;,&#]+)""", re.IGNORECASE)
"""``password="…"`` within a value, as in JAAS, connection strings, and an address's parameters."""
_FREE_NAMES = ("topics.names.",)
"""Tables with keys of the user's choice."""
_LONGEST_SECRET = 1024 * 1024
"""Bytes of a secret file; a bundle of certificates takes a quarter of it."""
_LONGEST_WORD = 40
_ENDS_A_PASSWORD = re.compile(r"[/?#@&\s]")


def fill(content: dict[str, Any], environment: Mapping[str, str], secrets: dict[str, str], faults: Faults) -> Any:
    """``content`` with its variables and secret files filled in as by ``filled``; its secrets are remembered.

    Every plain-text secret and every missing variable or file is added to ``faults``, by the name of its key and never
    by its content; an ``Unknown`` replaces that text. A secret may be a number, a date or a boolean, too.
    """

    def each(key: str, value: Any) -> Any:
        text = value if isinstance(value, str) else "***"
        if holds_plain_secret(key, text):
            faults.add(
                f"{_where(key)} holds a secret in plain text.",
                'Put it into the environment and write "${NAME}" in its place, or into a file and write "file:PATH" '
                "for the whole value.",
            )
            return Unknown()
        if text is not value:
            return value
        with faults.collect():
            found = _filled_text(text, environment, secrets)
            remember(key, text, found)
            return found
        return Unknown()

    return _replaced(content, each)


def holds_plain_secret(key: str, text: str) -> bool:
    """True if ``text`` may not be in the file at ``key`` (its path with dots), because it contains a secret itself."""
    if _is_free(key) or text.startswith(_FILE):
        return False
    return any(_ENVIRONMENT.sub("", secret) for secret in _secret_parts(key, text))


def remember(key: str, in_file: str, content: str) -> None:
    """From now on the secrets of a text are removed from this process's log.

    ``key`` is its path with dots; ``in_file`` is the text of the file, ``content`` the same text filled in.
    """
    if _is_free(key):
        return
    secrets = set(_secret_parts(key, content))
    if in_file.startswith(_FILE) or _names_a_secret(in_file):
        secrets.add(content)
    user = unquote(split(content).user.partition(":")[0]) if "://" in content else ""
    for secret in secrets - {user}:
        for written in {secret, unquote(secret)}:
            KNOWN.add(written, _reference(in_file))


def filled(value: Any, environment: Mapping[str, str], secrets: dict[str, str]) -> Any:
    """``value`` with ``${NAME}`` and ``file:PATH`` replaced in every text. The replacement is not expanded again.

    ``secrets`` receives each replacement, with the text that it stands for. Raises ConfigError for a variable that is
    not set and a file that cannot be read.
    """
    return _replaced(value, lambda _, each: _filled_text(each, environment, secrets) if isinstance(each, str) else each)


def _filled_text(value: str, environment: Mapping[str, str], secrets: dict[str, str]) -> str:
    if value.startswith(_FILE):
        found = _content(Path(value.removeprefix(_FILE)))
        secrets[found] = value
        return found

    may_be_a_password = _password_places(value)

    def lookup(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise ConfigError(f"${{{match[1]}}} is not set in the environment.", hint="Set it, or use file:PATH.")
        found = environment[match[1]]
        if not encodable(found):  # no address, client or file of the product could hold it
            raise ConfigError(f"${{{match[1]}}} holds bytes that are not UTF-8 text.", hint="Correct that variable.")
        secrets[found] = match[0]
        if _SECRET_WORD.search(match[1]):  # wherever in a value it stands
            KNOWN.add(found, match[0])
        if may_be_a_password(match.start()) and _ENDS_A_PASSWORD.search(found):
            raise ConfigError(
                f"{match[0]} is a part of an address, and its value has a character that would end a password there.",
                hint="Percent-encode it: / as %2F, ? as %3F, # as %23, @ as %40, & as %26.",
            )
        return found

    return _ENVIRONMENT.sub(lookup, value)


def hidden(message: str, secrets: Mapping[str, str]) -> str:
    """The message with each secret replaced by the file's text for it: a secret may appear in an unexpected place."""
    for secret, in_file in sorted(secrets.items(), key=lambda pair: -len(pair[0])):
        for text in (secret, repr(secret)[1:-1], visible(secret)):
            message = message.replace(text, in_file) if len(text) >= SHORTEST else message
    return message


# ---------------------------------------------------------------- secret or not


def _secret_parts(key: str, text: str) -> Iterator[str]:
    """The secret parts of a value, by the name of its key and by their place in an address or an assignment."""
    if text and _SECRET_KEY.search(key):
        yield text
    elif key.endswith(_USER_INFO):
        yield text.partition(":")[2] or text
    elif "://" in text:
        _, colon, password = split(text).user.partition(":")
        if colon and password:
            yield password
    yield from (found[1] for found in _ASSIGNED.finditer(text))


def _names_a_secret(in_file: str) -> bool:
    """True if the whole value is one variable whose name is that of a secret."""
    whole = _ENVIRONMENT.fullmatch(in_file)
    return whole is not None and _SECRET_WORD.search(whole[1]) is not None


def _password_places(text: str) -> Callable[[int], bool]:
    """Whether a position in an address is in its user part, or behind ``password=``."""
    begin = text.find("://")
    bare = _ENVIRONMENT.sub(lambda found: "x" * len(found[0]), text) if begin >= 0 else ""
    hosts = begin + 3 + len(split(bare).user)

    def is_one(place: int) -> bool:
        in_front = text[max(0, place - _LONGEST_WORD) : place].rstrip("=")
        return 0 <= begin < place and (place < hosts or _SECRET_KEY.search(in_front) is not None)

    return is_one


def _is_free(key: str) -> bool:
    return key.startswith(_FREE_NAMES)


def _reference(in_file: str) -> str:
    """The text shown instead of a secret: the file's reference to it, without the surrounding text."""
    if in_file.startswith(_FILE) or _ENVIRONMENT.fullmatch(in_file):
        return in_file
    found = _ENVIRONMENT.search(in_file)
    return found[0] if found else "***"


# ---------------------------------------------------------------- texts of the file


def _replaced(content: Any, replace: Callable[[str, Any], Any], key: str = "") -> Any:
    """``content`` with each value in it replaced by the result of ``replace`` for its key and itself."""
    if isinstance(content, dict):
        return {name: _replaced(value, replace, f"{key}.{name}" if key else name) for name, value in content.items()}
    if isinstance(content, list):
        return [_replaced(value, replace, key) for value in content]
    return replace(key, content)


_NESTED = re.compile(r"(clusters\.[^.]+(?:\.client)?|topics\.names(?:\.[^.]+)?|jobs\.identity)\.")
"""The tables within tables, at the front of a key."""


def _where(key: str) -> str:
    """``[clusters.b.client] sasl.password``, as other faults name a key."""
    if nested := _NESTED.match(key):
        return f"[{nested[1]}] {key[nested.end() :]}"
    table, _, name = key.partition(".")
    return f"[{table}] {name}" if name else f"[{key}]"


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            found = file.read(_LONGEST_SECRET + 1)
        if len(found) > _LONGEST_SECRET:
            raise ValueError("it is larger than a secret can be")
        return found.decode("utf-8-sig").strip()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the secret file {path} cannot be read: {why(error)}.",
            hint="Correct the path, or let this user read the file.",
        ) from error


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
        """The replacement of the first secret in ``text``; None if it holds none."""
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
