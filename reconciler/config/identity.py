"""From a job's ``[jobs.identity]`` to functions that read a record's timestamp and id.

The functions return None for anything that is missing or unreadable (a tombstone, broken JSON, a missing header, a
user's function that raises): a poisoned record is not the anchor, and must not stop a reconciliation. Only the schema
of an Avro value may not be missing: then they raise (``avro.Decoder``).
"""

from __future__ import annotations

import importlib
import json
import logging
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from reconciler.config.avro import Decoder, Properties
from reconciler.config.protobuf import FieldReader
from reconciler.core.anchors import (
    Identity,
    IdOrder,
    Record,
    is_framed,
    last_header,
    record_timestamp,
    unframed,
    unframed_key,
)
from reconciler.core.errors import ConfigError, ReconcilerError, together

log = logging.getLogger(__name__)

UNITS_PER_MS = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}
"""Units per millisecond."""

_STEP = re.compile(r"\.([^.\[\]\\'\"][^.\[\]\\]*)|\['([^'\\]+)'\]|\[(\d+)\]")
_PATH = re.compile(r"\$(?:\.[^.\[\]\\'\"][^.\[\]\\]*|\['[^'\\]+'\]|\[\d+\])+")
_PATHS = '"json:$.path", "avro:$.path" or "protobuf:$.1"'
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_FRACTION = re.compile(r"([+-]?)([0-9]{1,20})\.([0-9]{1,40})")

Steps = tuple[str | int, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """The texts of ``[jobs.identity]``. Jobs with equal settings can share one Identity."""

    timestamp: str = "record"
    id: str = "none"
    id_order: str = "opaque"
    unit: str = "ms"
    unique_ids: bool = False
    source_offset: str = "none"
    frame: str = "none"
    schema: str = "none"
    """The text of the Avro schema of all values."""
    registry: Properties = field(default=(), repr=False)
    """With its login: not for files."""

    @property
    def is_avro(self) -> bool:
        return any(spec.startswith("avro:") for spec in (self.timestamp, self.id, self.source_offset))


@dataclass(frozen=True, slots=True)
class SpecifiedIdentity(Identity):
    """An Identity that is pickled as the settings it was made from, and recreated from them in another process."""

    settings: IdentitySettings = IdentitySettings()

    def __reduce__(self) -> tuple[Callable[..., Identity], tuple[IdentitySettings]]:
        return identity_from_settings, (self.settings,)


def identity_from_spec(
    timestamp: str = "record",
    id: str = "none",
    *,
    id_order: str = "opaque",
    unit: str = "ms",
    unique_ids: bool = False,
    source_offset: str = "none",
    frame: str = "none",
) -> Identity:
    """The Identity of these settings. Raises as ``identity_from_settings`` does."""
    return identity_from_settings(IdentitySettings(timestamp, id, id_order, unit, unique_ids, source_offset, frame))


def identity_from_settings(settings: IdentitySettings) -> Identity:
    """The Identity that the settings describe. Raises one ``ConfigError`` that holds the faults of all settings."""
    faults: list[ReconcilerError] = []
    if settings.id_order not in ("opaque", "increasing"):
        faults.append(ConfigError(f'id_order = "{settings.id_order}" is not known: use "opaque" or "increasing".'))
    if settings.unit not in UNITS_PER_MS:
        faults.append(ConfigError(f'unit = "{settings.unit}" is not known: use one of {", ".join(UNITS_PER_MS)}.'))
    if settings.frame not in ("none", "confluent"):
        faults.append(ConfigError(f'frame = "{settings.frame}" is not known: use "none" or "confluent".'))
    framed = settings.frame == "confluent"
    if settings.unique_ids and settings.id == "none":
        faults.append(ConfigError('unique_ids = true says something of ids, and id is "none".', hint="Set id, too."))
    decode = Decoder(settings.registry, None if settings.schema == "none" else settings.schema, framed=framed)
    if settings.is_avro and settings.schema == "none" and not settings.registry:
        hint = 'Add [registry] url = "http://host:8081", or the schema\'s file: [jobs.identity] schema.'
        faults.append(ConfigError('"avro:" needs a schema, and none is named.', hint=hint))
    timestamp_of = _made(faults, lambda: _timestamp_function(settings.timestamp, settings.unit, decode))
    id_of = _made(faults, lambda: _id_function(settings.id, decode, framed=framed))
    source_value_of = _made(faults, lambda: _source_value_function(settings.source_offset, decode))
    if faults or timestamp_of is None:
        raise together(faults)
    return SpecifiedIdentity(
        timestamp_of=timestamp_of,
        id_of=id_of,
        id_order=IdOrder(settings.id_order),
        record_time=settings.timestamp == "record",
        unique_ids=settings.unique_ids,
        id_name=_name(settings.id),
        time_name=_name(settings.timestamp),
        source_value_of=source_value_of,
        source_value_name=_name(settings.source_offset),
        framed=framed,
        settings=settings,
    )


def _made(faults: list[ReconcilerError], make: Callable[[], T]) -> T | None:
    """The result of ``make``; None if it raises ConfigError, which is added to ``faults``."""
    try:
        return make()
    except ConfigError as error:
        faults.append(error)
        return None


def _name(spec: str) -> str:
    """The part of a record that a setting names, in words."""
    kind, _, rest = spec.partition(":")
    names = {"header": f'the header "{rest}"', "python": f"an id by {rest}"}
    return names.get(kind) or (f"a value at {rest}" if kind in ("json", "avro", "protobuf") else f"a {kind}")


def settings_of(identity: Identity) -> IdentitySettings:
    """The settings that the identity was made from; the defaults for one that was made without settings."""
    return identity.settings if isinstance(identity, SpecifiedIdentity) else IdentitySettings()


def may_read_headers(settings: IdentitySettings) -> bool:
    """True if the identity is, or may be, read off a record's headers: a Python function gets them too, and they may
    name an Avro value's schema.
    """
    specs = (settings.timestamp, settings.id, settings.source_offset)
    return any(spec.startswith(("header:", "python:", "avro:", "protobuf:")) for spec in specs)


def _timestamp_function(spec: str, unit: str, decode: Decoder) -> Callable[[Record], int | None]:
    if spec == "record":
        return record_timestamp
    if (value_of := _value_function(spec, decode)) is not None:
        return lambda record: _epoch_ms(value_of(record), unit)
    raise ConfigError(f'timestamp = "{spec}" is not known: use "record", "header:NAME", {_PATHS}.')


def _id_function(spec: str, decode: Decoder, *, framed: bool) -> Callable[[Record], bytes | None] | None:
    if spec == "none":
        return None
    if spec == "key":
        return unframed_key if framed else (lambda record: record.key)
    kind, _, rest = spec.partition(":")
    if kind == "header" and rest:  # the usual id, and it is read off many records: without another call
        return lambda record: last_header(record, rest)
    if (value_of := _value_function(spec, decode)) is not None:
        other = _avro_text if kind == "avro" else None
        return lambda record: json_text(value_of(record), other)
    if kind == "python":
        return _guarded(load_function("id", spec))
    raise ConfigError(
        f'id = "{spec}" is not known: use "none", "key", "header:NAME", "python:module:function", {_PATHS}.'
    )


def _source_value_function(spec: str, decode: Decoder) -> Callable[[Record], object] | None:
    if spec == "none":
        return None
    if (value_of := _value_function(spec, decode)) is not None:
        return value_of
    raise ConfigError(f'source_offset = "{spec}" is not known: use "header:NAME", {_PATHS}.')


def _value_function(spec: str, decode: Decoder) -> Callable[[Record], object] | None:
    """Reads the bytes of ``header:NAME``, or the value at a path in JSON, Avro or Protobuf. None for another kind."""
    kind, _, rest = spec.partition(":")
    if kind == "header" and rest:
        return lambda record: last_header(record, rest)
    if kind == "json":
        steps = _path_steps(spec, rest)
        return lambda record: _at(_json_value(record.value), steps)
    if kind == "avro":
        steps = _path_steps(spec, rest)
        return lambda record: _at(decode(record), steps)
    if kind == "protobuf":
        return FieldReader(_field_numbers(spec, rest))
    return None


def _field_numbers(spec: str, path: str) -> tuple[int, ...]:
    steps = _path_steps(spec, path)
    if not all(isinstance(each, str) and each.isdecimal() and each.isascii() for each in steps):
        raise ConfigError(
            f'"{spec}" has a name or an index, and a Protobuf value has neither.',
            hint='Write the numbers of the fields, as in the .proto file: "protobuf:$.1", "protobuf:$.4.1".',
        )
    return tuple(map(int, steps))


def json_text(value: object, other: Callable[[object], str] | None = None) -> bytes | None:
    """A value as an id's bytes: its compact JSON, a string without its quotes; null is not an id, bytes are.

    ``other`` gives the text of what JSON does not have. Raises TypeError for it otherwise.
    """
    if value is None or isinstance(value, bytes):
        return value
    if other is not None and not isinstance(value, int | float | str | list | dict):
        value = other(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=other)
        return text.encode("utf-8", "surrogatepass")
    except RecursionError:  # nested too deeply to be written, though not to be read
        return None


def _avro_text(value: object) -> str:
    """Of a UUID, a decimal, a time, and of bytes within a record."""
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _path_steps(spec: str, path: str) -> Steps:
    found = _STEP.findall(path) if _PATH.fullmatch(path) else []
    # Elsewhere a star is every member: taken for a name, no record would have it.
    if not found or any(name == "*" for name, _, _ in found):
        kind = spec.partition(":")[0]
        raise ConfigError(
            f'"{spec}" is not a path this product reads: write it like "{kind}:$.meta.id" or "{kind}:$.items[0]", and '
            f"a name with dots like \"{kind}:$['trace.id']\"."
        )
    return tuple(name or quoted or int(index) for name, quoted, index in found)


def json_step(name: str) -> str | None:
    """A member's name as a step of a path; None for one that no path can hold."""
    step = f"['{name}']" if "." in name else f".{name}"
    return step if _STEP.fullmatch(step) and name != "*" else None


def _json_value(payload: bytes | None) -> object:
    value = _parsed(payload)
    if value is None and is_framed(payload):  # JSON text does not begin with a byte 0
        value = _parsed(unframed(payload))
    return value


def _at(value: object, steps: Steps) -> object:
    for step in steps:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def _parsed(payload: bytes | None) -> object:
    try:
        return None if payload is None else json.loads(payload)
    except (ValueError, RecursionError):
        return None


def _epoch_ms(value: object, unit: str) -> int | None:
    """A number, decimal text or ISO 8601 text with an offset, as epoch ms rounded down; None beyond 64 bits."""
    found = _any_epoch_ms(value, unit)
    return found if found is not None and -(2**63) <= found < 2**63 else None


def _any_epoch_ms(value: object, unit: str) -> int | None:
    """A time is compared with those of anchors that jobs have recorded: what is read today is to be read the same
    tomorrow, or such an anchor is not found. So a double stays one, though its last millisecond may be lost.
    """
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            return None
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, datetime):  # of an Avro schema, which gives its unit
        return None if value.tzinfo is None else (value - _EPOCH) // _MS
    if isinstance(value, str):
        text = value
        try:
            value = int(text)
        except ValueError:
            found = _FRACTION.fullmatch(text.strip())
            return _iso_ms(text) if found is None else _decimal_ms(found[1] + found[2], found[3], unit)
    if isinstance(value, int):
        return value * 1000 if unit == "s" else value // int(UNITS_PER_MS[unit])
    if isinstance(value, float) and math.isfinite(value / UNITS_PER_MS[unit]):
        return math.floor(value / UNITS_PER_MS[unit])
    return None


def _decimal_ms(whole: str, fraction: str, unit: str) -> int:
    """Decimal text as epoch ms, exactly rounded down: not by way of a double."""
    number, parts = int(whole + fraction), int("1" + "0" * len(fraction))
    return number * 1000 // parts if unit == "s" else number // (parts * int(UNITS_PER_MS[unit]))


def _iso_ms(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None  # a local time is not a point in time
    return math.floor(moment.timestamp() * 1000)


def load_function(setting: str, spec: str) -> Callable[..., object]:
    """The user's function that ``python:package.module:function`` names.

    Raises ConfigError where there is none; ``setting`` is the name of the setting with the value ``spec``.
    """
    kind, _, target = spec.partition(":")
    module_name, _, function_name = target.partition(":")
    if kind != "python" or not module_name or not function_name:
        raise ConfigError(f'{setting} = "{spec}" must read "python:package.module:function".')
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f'{setting} = "{spec}": {error}.', hint="Put the module on the PYTHONPATH of this command."
        ) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f'{setting} = "{spec}": the module raised {type(error).__name__} when it was imported.',
            hint="Correct the module.",
        ) from error
    if not callable(function):
        raise ConfigError(f'{setting} = "{spec}": {function_name} is not a function.')
    return function  # type: ignore[no-any-return]


def _guarded(function: Callable[[Record], object]) -> Callable[[Record], bytes | None]:
    """The user's function, wrapped: an exception is logged and counts as "no id"."""

    def id_of(record: Record) -> bytes | None:
        try:
            return json_text(function(record))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the user's code may raise anything
            log.warning("the id function raised %s at offset %d: treated as no id", type(error).__name__, record.offset)
            return None

    return id_of
