"""Values in Avro as columns, decoded by fastavro in Python: needs no jar, and reads the frames of schema registries.

    from reconciler.spark.ranges.avro import decoded

    rows = decoded(frame, schema, frame_bytes="registry").select("topic", "offset", "decoded.*")

Spark's own ``from_avro`` is faster where its package (``org.apache.spark:spark-avro_2.13`` in Spark's exact version) is
on the class path; it does not read frames. Needs the extra ``avro`` here and on the executors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

from reconciler.core.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Frame = Literal["none", "registry", "single-object"]
_HEADS = {"none": (b"", 0), "registry": (b"\x00", 5), "single-object": (b"\xc3\x01", 10)}
"""The first bytes and the length of each frame: a registry's magic byte and schema id; Avro's marker and schema
fingerprint (Avro specification, single-object encoding)."""

_PLAIN = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
"""By Avro type and logical type. All others are ignored, as the specification demands; so is uuid, which fastavro
decodes to an object that Spark cannot put into a column: it stays the text, or the bytes, that were written."""
_DECIMALS = (("bytes", "decimal"), ("fixed", "decimal"))
_UNFIT = (("int", "time-millis"), ("long", "time-micros"), ("fixed", "duration"))


def decoded(
    frame: DataFrame,
    schema: str | Mapping[str, Any],
    *,
    column: str = "value",
    into: str = "decoded",
    frame_bytes: Frame = "none",
    broken: Literal["fail", "null"] = "fail",
) -> DataFrame:
    """``frame`` with the column ``into``: the decoded bytes of ``column``. Null bytes give null.

    ``schema`` is the writer's schema, as JSON text or decoded. ``broken="null"`` gives null for bytes that do not fit
    it; else the batch fails, and nothing is saved. Raises ConfigError for an invalid schema, and for types that Spark
    does not have.
    """
    from pyspark.sql import functions as f

    parsed = parsed_schema(schema)
    text, kind = json.dumps(parsed), spark_type(parsed)

    def decode(data):  # type: ignore[no-untyped-def]  # Spark would read type hints as a kind of UDF
        return decode_value(text, frame_bytes, broken, data)

    return frame.withColumn(into, f.udf(decode, kind)(f.col(column)))


def spark_type(schema: Any) -> str:
    """The Spark type, as DDL, for values of an Avro schema (decoded JSON). Raises ConfigError if there is none."""
    try:
        return _ddl(schema, {})
    except (KeyError, TypeError) as error:
        raise _no_schema(error) from error


def _ddl(schema: Any, named: dict[str, str]) -> str:
    if isinstance(schema, list):
        some = [each for each in schema if each != "null"]
        if len(some) != 1:
            raise _unfit(f"a union of {len(some)} types")
        return _ddl(some[0], named)
    if isinstance(schema, str):
        if schema in named:
            return named[schema]
        if schema not in _PLAIN:
            raise _unfit(f"the type {schema!r}")
        return _PLAIN[schema]
    kind = schema["type"]
    if isinstance(kind, list | dict):
        return _ddl(kind, named)
    found = _complex(kind, schema, named)
    if "name" in schema:
        named[schema["name"]] = found
        named[".".join(filter(None, (schema.get("namespace"), schema["name"])))] = found
    return found


def _complex(kind: str, schema: Mapping[str, Any], named: dict[str, str]) -> str:
    logical = (kind, schema.get("logicalType"))
    if kind == "record":
        fields = (f"`{each['name']}`: {_ddl(each['type'], named)}" for each in schema["fields"])
        return f"struct<{', '.join(fields)}>"
    if kind == "array":
        return f"array<{_ddl(schema['items'], named)}>"
    if kind == "map":
        return f"map<string, {_ddl(schema['values'], named)}>"
    if logical in _DECIMALS:
        return f"decimal({schema['precision']},{schema.get('scale', 0)})"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if logical in _UNFIT:
        raise _unfit(f"the logical type {logical[1]}")
    return _ddl(kind, named)


def _unfit(content: str) -> ConfigError:
    return ConfigError(
        f"The Avro schema has {content}, which no Spark column can hold.", hint="Decode it in your own function."
    )


def parsed_schema(schema: str | Mapping[str, Any]) -> Any:
    """The schema as JSON values. Raises ConfigError if it is none, or fastavro is not installed."""
    try:
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError as error:
        raise ConfigError(
            "Avro needs the Python package fastavro, which is not installed.",
            hint="Run: pip install 'failover-offset-reconciler[avro]'",
        ) from error
    try:
        plain: Any = json.loads(schema) if isinstance(schema, str) else schema
        parse_schema(plain)
    except (ValueError, SchemaParseException, UnknownType) as error:
        raise _no_schema(error) from error
    return plain


def _no_schema(error: Exception) -> ConfigError:
    return ConfigError(f"This is not an Avro schema: {error}.", hint="Give the JSON of an .avsc file.")


def _without_others(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without a logical type that its Spark type ignores: no version of fastavro shall decode it."""
    kind, logical = schema.get("type"), schema.get("logicalType")
    if isinstance(kind, str) and (kind, logical) in (*_LOGICAL, *_DECIMALS):
        return schema
    return {name: value for name, value in schema.items() if name != "logicalType"}


_parsed_once: dict[str, Any] = {}


def decode_value(schema: str, frame_bytes: Frame, broken: str, data: bytes | None) -> Any:
    """Decode one value, in a task."""
    from fastavro import parse_schema, schemaless_reader

    if data is None:
        return None
    if schema not in _parsed_once:
        _parsed_once[schema] = parse_schema(json.loads(schema, object_hook=_without_others))
    head, length = _HEADS[frame_bytes]
    stream = BytesIO(bytes(data))
    if stream.read(length)[: len(head)] == head:
        with suppress(Exception):  # fastavro raises many kinds for broken bytes
            found = schemaless_reader(stream, _parsed_once[schema], None)
            if not stream.read(1):
                return found
    if broken == "null":
        return None
    raise ValueError(f"{len(data)} bytes are not one value of the Avro schema (frame: {frame_bytes})")
