"""Python modules that a configuration names: only those that ``[policy] python`` lists are ever imported.

A module's code runs with the rights of the command. Job tables are often written by users other than the file's owner,
or generated; the list is the owner's permission, in one place.
"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from reconciler.config.addresses import pairs, split
from reconciler.core.errors import ConfigError

_KIND = "python:"


def refuse_unlisted(where: str, text: str, allowed: tuple[str, ...]) -> None:
    """Raise ConfigError where ``text``, an id or a store's address, names a module that is not allowed."""
    for module in _modules(text):
        if module not in allowed:
            raise ConfigError(
                f"{where} names the Python module {module!r}, which [policy] python does not allow: its code would run "
                "with the rights of this command.",
                hint=f'If you trust it, allow it: [policy] python = ["{module}"]. Nothing of it was run.',
            )


def _modules(text: str) -> Iterator[str]:
    for value in (text, *_parameters(text)):
        if value.strip().startswith(_KIND):
            yield value.strip().removeprefix(_KIND).partition(":")[0]


def _parameters(address: str) -> list[str]:
    """The values of an address's parameters, as stores parse them."""
    try:
        queries = {split(address).query, urlsplit(address).query}
    except ValueError:  # the standard library knows one host only
        queries = {split(address).query}
    return [value for query in queries for _, value in pairs(query)]
