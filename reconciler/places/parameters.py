"""The parameters of a store's address, ``…?NAME=VALUE&NAME=VALUE``."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from reconciler.config.addresses import pairs
from reconciler.core.errors import ConfigError
from reconciler.core.text import whole_number
from reconciler.places import common

ENCODED = "write / ? @ : % as %2F %3F %40 %3A %25"
_NAME = re.compile(r"[\w.-]+")


def wrong_address(address: str, example: str, why: str) -> ConfigError:
    """The error for what ``address`` describes. The address itself is not repeated: it may hold a password."""
    return ConfigError(f"{address} is wrong: {why}.", hint=f"Write it like {example}.")


def shown_name(name: str, value: str) -> str:
    """An unknown parameter's name for a message, unless it may be a part of a password with a ``?`` in it."""
    return ascii(name) if _NAME.fullmatch(name) and "@" not in value else f"what follows the ? (in a login, {ENCODED})"


class Parameters:
    """The parameters of ``query``, which a store takes one by one; those left over at the end are unknown.

    ``wrong`` makes the store's ConfigError of the end of a sentence about its address; all methods raise it.
    """

    def __init__(self, query: str, wrong: Callable[[str], ConfigError]) -> None:
        given = pairs(query)
        self._values = dict(given)
        self._wrong = wrong
        self._known: list[str] = []
        if repeated := [name for name, times in Counter(name for name, _ in given).items() if times > 1]:
            raise wrong(f"{min(repeated)}= is given twice")

    def text(self, name: str) -> str | None:
        """The parameter's text, None where the address does not have it."""
        self._known.append(name)
        return self._values.pop(name, None)

    def filled(self, name: str) -> str | None:
        """The parameter's text, which must not be empty; None where the address does not have it."""
        text = self.text(name)
        if text == "":
            raise self._wrong(f"{name}= is empty")
        return text

    def number(self, name: str, default: int | None, most: int) -> int:
        """A number from 1 to ``most``; without a default it is required."""
        text = self.text(name)
        if text is None and default is None:
            raise self._wrong(f"{name}= is missing")
        found = default if text is None else whole_number(text, most)
        if not found:
            raise self._wrong(f"{name}={text!a} is not a number from 1 to {most:,}")
        return found

    def choice(self, name: str, *choices: str, required: bool = False) -> str:
        """One of the choices; the first is the default, unless the parameter is required."""
        value = self.text(name)
        if value is None and not required:
            return choices[0]
        known = ", ".join(filter(None, choices))
        if value is None:
            raise self._wrong(f"it has no {name}=, which is one of {known}")
        if value not in choices:
            raise self._wrong(f"{name}={value!a} is not one of {known}")
        return value

    def timeout_s(self, default_s: float) -> float:
        """``timeout=`` in seconds, above 0 and up to 600."""
        text = self.text("timeout")
        seconds = default_s if text is None else common.timeout_s(text)
        if seconds is None:
            raise self._wrong(f"timeout={text!a} is not a time in seconds, above 0 and up to 600")
        return seconds

    def check_all_known(self) -> None:
        """Refuse the parameters that nothing has taken."""
        if self._values:
            name, value = min(self._values.items())
            raise self._wrong(f"{shown_name(name, value)} is not one of its parameters ({', '.join(self._known)})")
