"""Reads a field of a Protobuf value by its number: ``protobuf:$.1.2`` is field 2 of the message in field 1.

Numbers are in the bytes, and names are not. So no schema is needed, and no registry that could be down in a failover.
The wire format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import logging

from reconciler.core.anchors import FRAME_BYTES, VALUE_SCHEMA, Record, is_framed, last_header

log = logging.getLogger(__name__)

VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
_WIDTHS = {EIGHT_BYTES: 8, FOUR_BYTES: 4}
_SEVEN_BITS, _MORE, _LONGEST = 0x7F, 0x80, 70


class FieldReader:
    """Reads the field at a path of numbers: bytes of a text, bytes or message field, an unsigned number of others."""

    def __init__(self, path: tuple[int, ...]) -> None:
        self._path = path
        self._has_reported = False

    def __call__(self, record: Record) -> object:
        """The field's value; None if the message lacks it, and for a value that is no message, which is logged once."""
        found: object = record.value
        if found is None:
            return None
        try:
            if is_framed(record.value) and last_header(record, VALUE_SCHEMA) is None:  # no message begins with a byte 0
                found = _behind_frame(record.value or b"")
            for number in self._path:
                found = _field(found, number) if isinstance(found, bytes) else None
        except ValueError as error:
            if not self._has_reported:
                log.warning(
                    "the value at offset %d is no Protobuf message (%s): it counts as one without an id and a time, "
                    "and so does every other such value",
                    record.offset,
                    error,
                )
            self._has_reported = True
            return None
        return found


def _behind_frame(value: bytes) -> bytes:
    """The message behind a registry's frame, which ends with the place of its type in the schema: a list of numbers."""
    count, at = _varint(value, FRAME_BYTES)
    for _ in range(count >> 1):  # zigzag
        _, at = _varint(value, at)
    return value[at:]


def _field(message: bytes, wanted: int) -> bytes | int | None:
    """The field's last value, as Protobuf reads it; None if it is not there."""
    found: bytes | int | None = None
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        value: bytes | int
        if kind == VARINT:
            value, at = _varint(message, at)
        elif kind == LENGTH:
            size, at = _varint(message, at)
            value, at = message[at : at + size], at + size
        elif kind in _WIDTHS and number:
            value, at = int.from_bytes(message[at : at + _WIDTHS[kind]], "little"), at + _WIDTHS[kind]
        else:
            raise ValueError(f"byte {at} begins no field")
        if at > len(message):
            raise ValueError("it ends within a field")
        found = value if number == wanted else found
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins at ``at``, and where it ends. Raises ValueError."""
    found = shift = 0
    while at < len(data) and shift < _LONGEST:
        found |= (data[at] & _SEVEN_BITS) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & _MORE:
            return found, at
    raise ValueError("it ends within a number")
