"""Whether a JSON value is what Grafana's published schema of dashboards allows.

The foundation SDK's classes are generated from that schema. Reading JSON into them drops unknown keys and checks no
types, so both is done here: nothing may be lost on the way in and out, and every value must fit its annotation.
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def problems(dashboard: dict[str, Any]) -> list[str]:
    """Violations of the schema, by path; empty for a valid dashboard."""
    register_default_plugins()
    return list(_unread(dashboard, Dashboard, "dashboard"))


def _unread(value: dict[str, Any], kind: Any, path: str) -> Iterator[str]:
    read = kind.from_json(value)
    yield from _lost(value, json.loads(json.dumps(read, cls=JSONEncoder)), path)
    yield from _unfit(read, kind, path)


def _lost(before: Any, after: Any, path: str) -> Iterator[str]:
    """Keys and values that are not there after reading and writing. The schema's defaults may have been added."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from _lost(value, after[key], f"{path}.{key}")
            elif value is not None:
                yield f"{path}.{key} is unknown"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _lost(one, other, f"{path}[{number}]")
    elif before != after:
        yield f"{path} is {before!r}, and was read as {after!r}"


def _unfit(value: Any, hint: Any, path: str) -> Iterator[str]:
    """Values that are not of their annotated type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is not None or type(None) not in arguments:
            others = [each for each in arguments if each is not type(None)]
            kinds = [each for each in others if each is type(value)] or others
            yield from min((list(_unfit(value, each, path)) for each in kinds), key=len)
    elif origin is list and isinstance(value, list):
        for number, each in enumerate(value):
            yield from _unfit(each, arguments[0], f"{path}[{number}]")
    elif origin is dict and isinstance(value, dict):
        for key, each in value.items():
            yield from _unfit(each, arguments[1], f"{path}.{key}")
    elif isinstance(value, dict) and hasattr(hint, "from_json"):  # the SDK leaves some as they were
        yield from _unread(value, hint, path)
    elif hasattr(value, "to_json"):
        if not isinstance(value, hint):
            yield f"{path} is a {type(value).__name__}, not a {hint.__name__}"
            return
        for name, each in typing.get_type_hints(type(value)).items():
            yield from _unfit(getattr(value, name), each, f"{path}.{name}")
    elif not _is_plain(value, hint, origin, arguments):
        yield f"{path} is {value!r}, not {hint}"


def _is_plain(value: Any, hint: Any, origin: Any, arguments: tuple[Any, ...]) -> bool:
    if hint in (object, Any):
        return True
    if origin is typing.Literal:
        return value in arguments
    if hint in (None, type(None)):
        return value is None
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in [each.value for each in hint]
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    return isinstance(hint, type) and isinstance(value, hint)
