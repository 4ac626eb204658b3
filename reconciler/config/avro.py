"""Decodes Avro values, by the schemas of a registry (``[registry]``) or by one schema that the job names.

An Avro value cannot be read without its schema. So a registry that is down, an unknown schema id and a missing
library are errors. A value that does not fit its schema counts as one without an id, as broken JSON does, and the log
says so. The libraries are imported with the first value that is decoded: most starts decode none.
"""

from __future__ import annotations

import io
import json
import logging
import re
import time
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NoReturn

from reconciler.core.anchors import FRAME_BYTES, VALUE_SCHEMA, Record, is_framed, last_header
from reconciler.core.errors import ConfigError, ReconcilerError, Refused, Unreachable

log = logging.getLogger(__name__)

Properties = tuple[tuple[str, str], ...]
"""The keys of ``[registry]``: those of confluent-kafka's SchemaRegistryClient, ``url`` among them."""

USUAL = {"timeout": 5, "max.retries": 2, "retries.wait.ms": 200}
"""The client's own defaults wait for half a minute, and without a limit for one answer."""
REST_S = 30.0
"""Seconds for which a registry that did not answer is not asked again: ``watch`` has many jobs."""
GUID_BYTES = 17
"""Byte 1 and a GUID, as newer serializers name schemas, in a header."""
NO_SCHEMA = range(40401, 40404)
"""The registry's codes for a subject, a version and a schema that it does not have."""
NUMBERS = ("timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity")
_LOGIN = re.compile(r"//[^/@]*@")
_INSTALL = 'Install it: pip install "failover-offset-reconciler[avro]"'


class Decoder:
    """Decodes records' values: by the text of the one ``schema`` of all of them, or by the registry's schemas.

    With ``schema``, ``framed`` says whether a frame is to be skipped.
    """

    def __init__(self, registry: Properties, schema: str | None, *, framed: bool) -> None:
        self._registry, self._text, self._framed = registry, schema, framed
        self._schema: object = None
        self._reported: set[bytes] = set()

    def __call__(self, record: Record) -> object:
        """The decoded value; None for a tombstone, and for a value that does not fit its schema, which is logged.

        Raises Unreachable or Refused if the registry does not have or give its schema, ConfigError without a library.
        """
        if record.value is None:
            return None
        frame, content = self._parts(record, record.value)
        if not frame and self._text is None:
            self._report(record, b"", "has no schema id, in front of its value or in a header")
            return None
        schema = registry_at(self._registry).schema(frame) if self._text is None else self._own_schema(self._text)
        try:
            stream = io.BytesIO(content)
            found: object = _fastavro().schemaless_reader(stream, schema, None)
            left = len(content) - stream.tell()
        except ReconcilerError:
            raise
        except Exception as error:  # noqa: BLE001 - bytes of another schema make it raise errors of many kinds
            self._report(record, frame, f"does not fit {self._name(frame)} ({type(error).__name__})")
            return None
        if left:
            self._report(record, frame, f"does not fit {self._name(frame)}: {left} bytes are left over")
        return None if left else found

    def _parts(self, record: Record, value: bytes) -> tuple[bytes, bytes]:
        """The name of the schema (a frame, a header, or nothing), and the Avro bytes."""
        header = last_header(record, VALUE_SCHEMA)
        if header is not None:
            return header if len(header) in (FRAME_BYTES, GUID_BYTES) else b"", value
        if is_framed(value) and (self._framed or self._text is None):
            return value[:FRAME_BYTES], value[FRAME_BYTES:]
        return b"", value

    def _name(self, frame: bytes) -> str:
        if self._text is not None:
            return "[jobs.identity] schema"
        return f"schema {shown(frame)} of {registry_at(self._registry).url}"

    def _report(self, record: Record, frame: bytes, why: str) -> None:
        """Log, once for a schema, that such records count as ones without an id."""
        if frame in self._reported:
            return
        self._reported.add(frame)
        log.warning(
            "the record at offset %d %s: it counts as a record without an id and a time, and so does every other such "
            "record; if your records are like that, correct [registry] url, or schema and frame of [jobs.identity]",
            record.offset,
            why,
        )

    def _own_schema(self, text: str) -> object:
        if self._schema is None:
            self._schema = _parsed(text, {}, "[jobs.identity] schema")
        return self._schema


@cache
def registry_at(properties: Properties) -> Registry:
    """The one client of this process for these settings: it keeps the schemas that it was given."""
    return Registry(properties)


class Registry:
    """Schemas by the ids that records name them by. ``monotonic`` gives seconds."""

    def __init__(self, properties: Properties, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.url = _LOGIN.sub("//", dict(properties).get("url", ""))
        self._properties, self._monotonic = properties, monotonic
        self._schemas: dict[bytes, object] = {}
        self._client: Any = None
        self._silent: tuple[float, str] | None = None

    def schema(self, frame: bytes) -> object:
        """The parsed schema that a frame, or a header instead of one, names. Raises as ``Decoder`` does."""
        if frame not in self._schemas:
            name = f"schema {shown(frame)} of the registry {self.url}"
            found = self._ask(partial(_get, frame), name)
            if (kind := found.schema_type or "AVRO") != "AVRO":
                raise ConfigError(
                    f"The {name} is not Avro but {kind}.",
                    hint='Name a field of JSON by "json:$.path", of Protobuf by its number: "protobuf:$.1".',
                )
            self._schemas[frame] = _parsed(found.schema_str, self._named(found, name), name)
        return self._schemas[frame]

    def _named(self, schema: Any, name: str) -> dict[str, Any]:
        """The schemas to which this one refers."""
        named: dict[str, Any] = {}
        for each in schema.references or ():
            there = f"{each.subject}, version {each.version}, to which {name} refers"
            found = self._ask(partial(_get_version, each.subject, each.version), there).schema
            named |= self._named(found, there)
            _parsed(found.schema_str, named, there)
        return named

    def _ask(self, ask: Callable[[Any], Any], what: str) -> Any:
        if self._silent is not None and self._monotonic() < self._silent[0]:
            raise self._unreachable(self._silent[1])
        try:
            self._client = self._client or _open(self._properties)
            return ask(self._client)
        except ReconcilerError:
            raise
        except Exception as error:
            if type(error).__name__ == "SchemaRegistryError":
                self._refuse(error, what)
            reason = f"{type(error).__name__}: {error}"
            if type(error).__name__ == "OAuthTokenError":
                raise self._no_login(reason) from error
            raise self._silenced(reason) from error

    def _refuse(self, error: Any, what: str) -> NoReturn:
        status, code = error.http_status_code, error.error_code
        if status in (401, 403):
            raise self._no_login(f"HTTP {status}") from error
        if status == 404 and code in NO_SCHEMA:
            raise Refused(
                f"There is no {what}, by which a record's id or time is to be read.",
                hint="Let its owner copy the schema there under the same id; or name the registry of the producers in "
                "[registry] url, or the schema's file in [jobs.identity] schema.",
            ) from error
        if status == 404:
            raise Refused(
                f"The server at {self.url} is not a schema registry (HTTP 404).", hint="Correct [registry] url."
            ) from error
        raise self._silenced(f"HTTP {status}, {error.error_message}") from error

    def _no_login(self, reason: str) -> Refused:
        hint = "Correct the login in [registry], or ask its owner for the right to read schemas."
        return Refused(f"The schema registry {self.url} refused this login ({reason}).", hint=hint)

    def _silenced(self, reason: str) -> Unreachable:
        self._silent = self._monotonic() + REST_S, reason
        return self._unreachable(reason)

    def _unreachable(self, reason: str) -> Unreachable:
        hint = "Bring it back, or name another one in [registry] url: without it no id can be read from Avro records."
        return Unreachable(f"The schema registry {self.url} did not answer ({reason}).", hint=hint)


def shown(frame: bytes) -> str:
    """A schema's id, or its GUID, as a registry shows them."""
    digits = frame[1:].hex()
    if len(frame) == GUID_BYTES:
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return str(int(digits, 16))


def _get(frame: bytes, client: Any) -> Any:
    if len(frame) == GUID_BYTES:
        return client.get_schema_by_guid(shown(frame))
    return client.get_schema(int.from_bytes(frame[1:], "big"))


def _get_version(subject: str, version: int, client: Any) -> Any:
    return client.get_version(subject, version)


def _open(properties: Properties) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ModuleNotFoundError as error:
        problem = f"[registry] needs confluent-kafka's client of registries, and {error.name} is not installed."
        raise ConfigError(problem, hint=_INSTALL) from error
    try:
        return SchemaRegistryClient(
            USUAL | {name: _number(text) if name in NUMBERS else text for name, text in properties}
        )
    except (ValueError, TypeError, OSError) as error:
        raise ConfigError(
            f"[registry] is refused by confluent-kafka's client: {error}.",
            hint="Its keys are those of SchemaRegistryClient, such as url and basic.auth.user.info.",
        ) from error


def _number(text: str) -> float:
    return int(text) if text.isdecimal() else float(text)


def _parsed(text: str, named: dict[str, Any], name: str) -> object:
    """Parse a schema, and add the schemas that it defines to ``named``. Raises ConfigError."""
    fastavro = _fastavro()
    try:
        return fastavro.parse_schema(json.loads(text), named_schemas=named)
    except Exception as error:
        raise ConfigError(
            f"The {name} is not an Avro schema: {type(error).__name__}: {error}.", hint="Let its owner correct it."
        ) from error


def _fastavro() -> Any:
    try:
        import fastavro
    except ModuleNotFoundError as error:
        raise ConfigError('An id or a time by "avro:" needs fastavro.', hint=_INSTALL) from error
    return fastavro
