"""Values in Avro: decoded values, and bytes that do not fit the schema."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import pytest
from fastavro import schemaless_writer

from reconciler.core.errors import ConfigError
from reconciler.spark.ranges.avro import decode_value, parsed_schema, spark_type

CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "before", "type": ["null", "Kind"]},
    ],
}
VALUE = {
    "id": "one",
    "at": datetime(2026, 7, 22, 1, 2, 3, 456789, UTC),
    "price": Decimal("12.34"),
    "tags": ["x"],
    "kind": "B",
    "before": None,
}


def written(value: Any = VALUE) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, CLICK, value)
    return stream.getvalue()


def decode(data: bytes | None, frame: Any = "none", broken: str = "fail") -> Any:
    return decode_value(json.dumps(CLICK), frame, broken, data)


def test_a_value_is_decoded_as_it_was_encoded():
    assert decode(written()) == VALUE
    assert decode(None) is None


def test_frames_are_taken_off():
    assert decode(b"\x00\x00\x00\x00\x07" + written(), "registry") == VALUE
    assert decode(b"\xc3\x01" + bytes(8) + written(), "single-object") == VALUE


@pytest.mark.parametrize("data", [b"", b"\x01\x00\x00\x00\x07" + written(), written(), written()[:-1], b"\x00" * 5])
def test_bytes_that_do_not_fit_the_schema_fail_the_batch_or_are_null(data: bytes):
    with pytest.raises(ValueError, match="not one value"):
        decode(data, "registry")
    assert decode(data, "registry", "null") is None


def test_spark_types_fit_the_decoded_values():
    assert spark_type(CLICK) == (
        "struct<`id`: string, `at`: timestamp, `price`: decimal(9,2), `tags`: array<string>, `kind`: string, "
        "`before`: string>"
    )


@pytest.mark.parametrize("schema", ["{", '{"type": "nothing"}', {"type": "record", "name": "X"}])
def test_an_invalid_schema_is_refused(schema: Any):
    with pytest.raises(ConfigError, match="not an Avro schema"):
        spark_type(parsed_schema(schema))
