"""Secrets of the configuration: put in from the environment or from files, and kept out of every message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reconciler.core.errors import ConfigError

_ENVIRONMENT = re.compile(r"\$\{([^}]*)\}")
SHORTEST_SECRET = 4
"""Characters. What is shorter hides nothing, and occurs in any sentence."""


def filled(value: Any, environment: Mapping[str, str], secrets: dict[str, str]) -> Any:
    """Replace ``${NAME}`` and ``file:PATH`` in every text. What was put in is never looked at again.

    ``secrets`` receives what was put in, and what stood there.
    """
    if isinstance(value, dict):
        return {key: filled(item, environment, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, environment, secrets) for item in value]
    if not isinstance(value, str):
        return value
    if value.startswith("file:"):
        path = Path(value.removeprefix("file:"))
        try:
            found = path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the secret file {path} cannot be read: {error}.") from error
        secrets[found] = value
        return found

    def lookup(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise ConfigError(f"${{{match[1]}}} is not set in the environment.", hint="Set it, or use file:PATH.")
        found = environment[match[1]]
        secrets[found] = match[0]
        return found

    return _ENVIRONMENT.sub(lookup, value)


def hidden(message: str, secrets: Mapping[str, str]) -> str:
    """The message with each secret as the file spells it: one may stand where it does not belong."""
    for secret, spelled in sorted(secrets.items(), key=lambda pair: -len(pair[0])):
        for text in (secret, repr(secret)[1:-1]):
            message = message.replace(text, spelled) if len(text) >= SHORTEST_SECRET else message
    return message
