"""Rows of every store, whatever they hold, are read as a row, as no row, or as a malformed one: never as a bug."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.core import anchor_fields
from reconciler.core.anchors import Malformed, StoredOffset
from reconciler.core.errors import Refused
from reconciler.places import range_manifests
from reconciler.places.hbase import cdap
from reconciler.places.hbase.cloudera import BatchRow
from reconciler.places.hbase.table import HBaseCell
from reconciler.places.sql_rows import COLUMNS, Decoder
from reconciler.ports import Row

RUNS = [pytest.param(200, id="200"), pytest.param(10_000, id="10000", marks=pytest.mark.thorough)]
NUMBERS = st.integers() | st.integers(-(2**65), 2**65) | st.floats() | st.booleans()
WORDS = st.sampled_from(["last", "next", "max-time", "a" * 32, "{}", "[]", "null", "0:5", "-1"])
CELL = st.none() | NUMBERS | st.text(max_size=40) | st.binary(max_size=40) | WORDS
SHORT_NAMES = "v s w a o t i f c p n d z"
LONG_NAMES = (
    "format group topic partition until from anchor offset written_at_ms deleted timestamp_ms id_base64 fingerprint "
    "cluster_id topic_id names nonce change reason at_ms"
)
JSON = st.recursive(
    st.none() | NUMBERS | st.text(max_size=9) | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(SHORT_NAMES.split()), inner, max_size=5)
        | st.dictionaries(st.sampled_from(LONG_NAMES.split()), inner, max_size=6)
    ),
    max_leaves=12,
)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


BYTES = st.binary(max_size=80) | JSON.map(_json) | st.text(max_size=40).map(lambda text: text.encode())
CELLS = st.dictionaries(
    st.sampled_from([b"d:o", b"d:t", b"d:nextOffset", b"d:maxEventTime", b"offsets:0", b"offsets:7", b"o:v"]),
    st.builds(
        HBaseCell, st.binary(max_size=20) | st.integers(-(2**63), 2**63 - 1).map(cdap.long), st.integers(-1, 2**63 - 1)
    ),
    max_size=4,
)


def _sound(row: Row) -> None:
    """Its values are usable, or its use is refused in words."""
    if row.malformed is None:
        assert isinstance(row.stored.offset, int)
    else:
        with pytest.raises(Refused, match=r".+\..+"):
            _ = row.stored.offset


def _refused_or(read: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a codec, whose only error is a ValueError that a store turns into a malformed row."""
    try:
        return read(*arguments)
    except ValueError:
        return None


@pytest.mark.parametrize("runs", RUNS)
def test_any_row_of_sql_columns_is_read_or_marked(runs: int) -> None:
    decoder = Decoder("a place")

    @settings(max_examples=runs)
    @given(st.tuples(CELL, CELL, *[CELL] * len(COLUMNS)))
    def any_row(values: tuple[object, ...]) -> None:
        _sound(decoder.row("name", "g", "events", *values))
        _sound(decoder.misnamed("g", b"\xff", values[0]))

    any_row()


@pytest.mark.parametrize("runs", RUNS)
def test_any_cells_of_hbase_are_read_or_marked(runs: int) -> None:
    layouts = [cdap.LogSaver(100), cdap.Metrics()]

    @settings(max_examples=runs)
    @given(CELLS, BYTES)
    def any_cells(cells: dict[bytes, HBaseCell], value: bytes) -> None:
        for layout in layouts:
            found = _refused_or(layout.read, cells)
            assert found is None or isinstance(found, StoredOffset)
        batch = BatchRow(b"row", 0, cells)
        assert not batch.offsets.keys() & batch.faults.keys()

    any_cells()


@pytest.mark.parametrize("runs", RUNS)
def test_the_metadata_and_manifests_of_kafka_and_files(runs: int) -> None:
    @settings(max_examples=runs)
    @given(BYTES, JSON)
    def any_text(data: bytes, line: object) -> None:
        anchor_fields.decode(data.decode(errors="replace"))
        _refused_or(range_manifests.load, data)
        header = range_manifests.dump("g", (), written_at_ms=None).splitlines()[0].decode()
        found = _refused_or(range_manifests.load, _whole(header, _json(line).decode()))
        for each in found.ranges if found else ():
            assert each.stored is None or isinstance(each.stored, StoredOffset | Malformed)

    any_text()


def _whole(*lines: str) -> bytes:
    """A complete manifest of these lines."""
    body = "".join(f"{line}\n" for line in lines).encode()
    return body + _json({"end": len(lines), "sha256": hashlib.sha256(body).hexdigest()}) + b"\n"
