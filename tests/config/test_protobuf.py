"""Fields of Protobuf values, by their numbers. The bytes are those of Protobuf's own page on its encoding."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.config.identity import identity_from_spec
from tests.memory_log import MemoryRecord

NUMBER, TEXT = bytes.fromhex("089601"), bytes.fromhex("120774657374696e67")
"""Field 1 is 150; field 2 is "testing"."""
WITHIN = bytes.fromhex("1a03089601")
"""Field 3 is a message with the field 1, 150."""
FIXED = bytes.fromhex("2101000000000000003502000000")
"""Field 4 has eight bytes: 1; field 6 has four: 2."""
WHOLE = NUMBER + TEXT + WITHIN + FIXED
FRAME = b"\0\0\0\0\7"


def id_at(path: str, value: bytes | None, *headers: tuple[str, bytes]) -> bytes | None:
    read = identity_from_spec(id=f"protobuf:{path}").id_of
    assert read is not None
    return read(MemoryRecord(3, 1234, b"k", value, headers))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        *(("$.1", b"150"), ("$.2", b"testing"), ("$.3.1", b"150"), ("$.4", b"1"), ("$.6", b"2")),
        *(("$.3", NUMBER), ("$.9", None), ("$.1.1", None), ("$.3.7", None)),
    ],
)
def test_a_field_is_read_by_its_number(path: str, expected: bytes | None) -> None:
    assert id_at(path, WHOLE) == expected


def test_of_several_fields_with_a_number_the_last_counts() -> None:
    assert id_at("$.1", NUMBER + b"\x08\x01") == b"1"


@pytest.mark.parametrize("types", [b"\0", b"\x02\x04", b"\x04\0\x02"], ids=["first", "third", "nested"])
def test_a_registry_frame_and_the_place_of_the_type_are_skipped(types: bytes) -> None:
    assert id_at("$.2", FRAME + types + WHOLE) == b"testing"


def test_a_time_is_a_number_in_the_setting_unit() -> None:
    found = identity_from_spec("protobuf:$.3.1", unit="s")
    assert found.timestamp_of(MemoryRecord(3, 1234, b"k", WHOLE)) == 150_000


@pytest.mark.parametrize("value", [b'{"id": 1}', TEXT[:-1], NUMBER[:-1], b"\x0b", b"\x01", FRAME, b"\xff" * 12])
def test_a_value_that_is_no_message_has_no_id_and_is_named_once(value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    read = identity_from_spec(id="protobuf:$.1").id_of
    assert read is not None
    assert [read(MemoryRecord(3, 1, b"k", each)) for each in (value, value, WHOLE)] == [None, None, b"150"]
    (said,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert "the value at offset 3 is no Protobuf message" in said


def test_a_tombstone_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    assert id_at("$.1", None) is None
    assert not caplog.records


@given(st.binary(max_size=40))
def test_no_value_raises(value: bytes) -> None:
    assert isinstance(id_at("$.1.2", value), bytes | None)
