"""Reading time and id off records: every setting, and nothing that a record holds may raise."""

from __future__ import annotations

import json
import logging
import pickle
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.config.identity import identity_from_spec
from reconciler.core.anchors import IdOrder, Record
from reconciler.core.errors import ConfigError
from tests.memory_log import MemoryRecord


def record(value: object = None, key: bytes | None = None, **headers: bytes | None) -> MemoryRecord:
    """A record whose value is bytes as they are, or anything else as JSON."""
    payload = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
    return MemoryRecord(3, 1234, key, payload, tuple(headers.items()))


def time_of(spec: str, found: Record, unit: str = "ms") -> int | None:
    return identity_from_spec(timestamp=spec, unit=unit).timestamp_of(found)


def id_of(spec: str, found: Record) -> bytes | None:
    read = identity_from_spec(id=spec).id_of
    assert read is not None
    return read(found)


# ---------------------------------------------------------------- times


def test_the_default_is_the_records_own_time_and_no_id() -> None:
    identity = identity_from_spec()
    assert identity.record_time
    assert identity.timestamp_of(record()) == 1234
    assert identity.id_of is None
    assert identity.id_order is IdOrder.OPAQUE


def test_a_time_from_the_payload_or_a_header_is_not_the_records_own() -> None:
    assert not identity_from_spec(timestamp="json:$.ts").record_time
    assert not identity_from_spec(timestamp="header:ts").record_time


@pytest.mark.parametrize(
    ("value", "unit", "ms"),
    [
        (17, "ms", 17),
        (17, "s", 17_000),
        (17_999, "us", 17),
        (17_999_999, "ns", 17),
        (-1, "us", -1),
        (1.5, "s", 1500),
        (17.9, "ms", 17),
        ("17", "s", 17_000),
        ("-5", "ms", -5),
        ("1700000000.5", "s", 1_700_000_000_500),
        ("1700000000.129", "s", 1_700_000_000_129),
        ("1700000000.1289999", "s", 1_700_000_000_128),
        ("-0.0001", "s", -1),
        ("17.9", "ms", 17),
        ("17999.9", "us", 17),
        ("17999999.9", "ns", 17),
        ("1970-01-01T00:00:01Z", "ms", 1000),
        ("1970-01-01T01:00:00+01:00", "s", 0),
        ("1970-01-01T00:00:00.0019+00:00", "ms", 1),
    ],
)
def test_times_are_epoch_milliseconds_rounded_down(value: object, unit: str, ms: int) -> None:
    assert time_of("json:$.ts", record({"ts": value}), unit) == ms


@pytest.mark.parametrize(
    ("value", "unit", "ms"),
    [
        (1700000000.008, "s", 1_700_000_000_007),
        ("2038-02-01T00:00:00.002Z", "ms", 2_148_595_200_001),
        ("1_700_000_000", "s", 1_700_000_000_000),
        (" 17\n", "s", 17_000),
    ],
)
def test_a_time_is_read_as_by_the_jobs_that_have_recorded_anchors(value: object, unit: str, ms: int) -> None:
    """Exact or not: an anchor's time is compared with the record's, and one that is read otherwise is not found."""
    assert time_of("json:$.ts", record({"ts": value}), unit) == ms


@pytest.mark.parametrize("value", ["1.", ".5", "1.5e3", "1_0.5", "1.5.1", "1,5", "1." + "9" * 5000, "9" * 5000 + ".5"])
def test_other_texts_with_a_point_are_no_times(value: str) -> None:
    assert time_of("json:$.ts", record({"ts": value}), "s") is None


@pytest.mark.parametrize(
    "value", [None, True, False, "", "soon", "1970-01-01T00:00:01", "9" * 5000, [], {}, float("inf"), float("nan")]
)
def test_an_invalid_time_is_none(value: object) -> None:
    assert time_of("json:$.ts", record({"ts": value})) is None


def test_a_time_beyond_64_bits_is_none() -> None:
    assert time_of("json:$.ts", record({"ts": 1e308}), "s") is None


def test_a_header_may_hold_the_time_as_text() -> None:
    assert time_of("header:ts", record(ts=b"99")) == 99
    assert time_of("header:ts", record(ts=b"1700000000.5"), "s") == 1_700_000_000_500
    assert time_of("header:ts", record(ts=b"1970-01-01T00:00:01Z")) == 1000
    for poison in (b"\xff\xfe", b"", None):
        assert time_of("header:ts", record(ts=poison)) is None
    assert time_of("header:ts", record(other=b"99")) is None


# ---------------------------------------------------------------- ids


@pytest.mark.parametrize(
    ("spec", "found", "expected"),
    [
        ("key", record(key=b"\x00k"), b"\x00k"),
        ("key", record(), None),
        ("header:id", record(id=b"\xff"), b"\xff"),
        ("header:id", record(id=None), None),
        ("header:id", record(), None),
        ("header:a:b", replace(record(), headers=(("a:b", b"x"),)), b"x"),
        ("json:$.id", record({"id": "a b"}), b"a b"),
        ("json:$.id", record({"id": 17}), b"17"),
        ("json:$.id", record({"id": None}), None),
        ("json:$.id", record({"id": {"x": [1, "é"]}}), '{"x":[1,"é"]}'.encode()),
        ("json:$.meta.id", record({"meta": {"id": "m"}}), b"m"),
        ("json:$.items[1].id", record({"items": [{}, {"id": True}]}), b"true"),
        ("json:$.it's", record({"it's": "x"}), b"x"),
        ("json:$[0]", record(["first"]), b"first"),
        ("json:$.items[9]", record({"items": []}), None),
        ("json:$.a.b", record({"a": "text"}), None),
        ("json:$.a[0]", record({"a": "text"}), None),
        ("json:$.id", record(b"{not json"), None),
        ("json:$.id", record(b"\xff\xfe\x00"), None),
        ("json:$.id", record(b"[" * 100_000), None),
        ("json:$.id", record(b""), None),
        ("json:$.id", record(), None),
    ],
)
def test_ids_are_bytes_or_none(spec: str, found: Record, expected: bytes | None) -> None:
    assert id_of(spec, found) == expected


def test_the_last_header_of_a_name_counts() -> None:
    twice = replace(record(), headers=(("id", b"first"), ("other", b"x"), ("id", b"last")))
    assert id_of("header:id", twice) == b"last"


@given(st.binary(max_size=60), st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=9)), max_size=3))
def test_any_payload_and_headers_are_read_without_an_exception(
    payload: bytes, headers: list[tuple[str, bytes | None]]
) -> None:
    poison = replace(record(payload, key=payload), headers=tuple(headers))
    for spec in ("json:$.ts", "header:a"):
        assert isinstance(time_of(spec, poison), int | None)
    for spec in ("key", "json:$.id", "json:$[0]", "header:a"):
        assert isinstance(id_of(spec, poison), bytes | None)


# ---------------------------------------------------------------- a function of one's own


def from_key(found: Record) -> object:
    """What the user's function makes of a record: here the key decides."""
    answers: dict[bytes | None, object] = {b"bytes": b"\x01", b"number": 17, b"text": "t", b"nothing": None}
    return answers[found.key]


NOT_A_FUNCTION = 17


@pytest.mark.parametrize(
    ("key", "expected"), [(b"bytes", b"\x01"), (b"number", b"17"), (b"text", b"t"), (b"nothing", None)]
)
def test_a_function_may_return_bytes_or_a_json_value(key: bytes, expected: bytes | None) -> None:
    assert id_of(f"python:{__name__}:from_key", record(key=key)) == expected


def test_a_function_that_raises_means_no_id_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert id_of(f"python:{__name__}:from_key", record(key=b"unknown")) is None
    assert "KeyError" in caplog.text
    assert "offset 3" in caplog.text


def returns_a_set(found: Record) -> object:
    return {found.offset}


def test_a_function_that_returns_what_json_does_not_know_means_no_id() -> None:
    assert id_of(f"python:{__name__}:returns_a_set", record()) is None


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"timestamp": "payload"}, "payload"),
        ({"timestamp": "header:"}, "header:"),
        ({"timestamp": "json:ts"}, "json:ts"),
        ({"timestamp": "json:$"}, "json:"),
        ({"timestamp": "python:x:y"}, "python:x:y"),
        ({"id": "offset"}, "offset"),
        ({"id": "header:"}, "header:"),
        ({"id": "json:$.a[x]"}, "json:"),
        ({"id": "json:$..a"}, "json:"),
        ({"id": "json:$.*.id"}, "json:$.*.id"),
        ({"id": "json:$.items.*"}, "json:$.items.*"),
        ({"id": "json:$.'id'"}, "json:$.'id'"),
        ({"timestamp": 'json:$."ts"'}, 'json:$."ts"'),
        ({"id": "python:no_such_module_here:f"}, "no_such_module_here"),
        ({"id": f"python:{__name__}:no_such_function"}, "no_such_function"),
        ({"id": f"python:{__name__}:NOT_A_FUNCTION"}, "NOT_A_FUNCTION"),
        ({"id": "python:onlymodule"}, "python:onlymodule"),
        ({"id": "python:"}, "python:"),
        ({"id_order": "rising"}, "rising"),
        ({"unit": "h"}, "h"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError) as refused:
        identity_from_spec(**settings)
    assert named in str(refused.value)


def test_another_place_of_the_source_s_offset_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match='source_offset = "key"'):
        identity_from_spec(source_offset="key")


def test_ids_that_are_unique_must_be_there() -> None:
    with pytest.raises(ConfigError, match="unique_ids"):
        identity_from_spec(unique_ids=True)


def test_every_setting_reaches_another_process() -> None:
    made = identity_from_spec(
        "header:t", "header:i", id_order="increasing", unit="s", unique_ids=True, source_offset="header:o"
    )
    again = pickle.loads(pickle.dumps(made))
    assert again.unique_ids
    assert again.source_value_of is not None


# ---------------------------------------------------------------- names with dots, and frames


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$['trace.id']", b"t-1"),
        ("$['a.b'].c", b"1"),
        ("$.meta['x.y']", b"2"),
        ("$['list.s'][1]", b"4"),
        ("$['@timestamp']", b"5"),
        ("$.@timestamp", b"5"),
        ("$.trace.id", None),
    ],
)
def test_a_name_with_dots_is_written_in_brackets(path: str, expected: bytes | None) -> None:
    value = b'{"trace.id": "t-1", "a.b": {"c": 1}, "meta": {"x.y": 2}, "list.s": [3, 4], "@timestamp": 5}'
    id_of = identity_from_spec(id=f"json:{path}").id_of
    assert id_of is not None
    assert id_of(record(value=value)) == expected


@pytest.mark.parametrize(
    "path",
    [
        "$.trace\\.id",
        '$["trace.id"]',
        '$."trace.id"',
        "$.'trace.id'",
        "$['a\\.b']",
        "$['']",
        "$['a'",
        "trace.id",
        "$[*]",
    ],
)
def test_another_spelling_is_refused_with_the_right_one(path: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("a name with dots like \"json:$['trace.id']\"")):
        identity_from_spec(id=f"json:{path}")


FRAME = b"\0\0\0\0\7"


@pytest.mark.parametrize("frame", ["none", "confluent"])
def test_json_is_read_behind_a_frame(frame: str) -> None:
    found = identity_from_spec("json:$.t", "json:$.id", source_offset="json:$.o", frame=frame)
    framed = record(value=FRAME + b'{"id": 17, "t": 1000, "o": 5}')
    assert found.id_of is not None
    assert found.source_value_of is not None
    assert (found.id_of(framed), found.timestamp_of(framed), found.source_value_of(framed)) == (b"17", 1000, 5)
    assert found.id_of(record(value=b'{"id": 18}')) == b"18"
    assert found.id_of(record(value=FRAME)) is None


def test_a_framed_key_is_an_id_without_its_frame_if_the_job_says_so() -> None:
    for frame, expected in (("none", FRAME + b"k"), ("confluent", b"k")):
        id_of = identity_from_spec(id="key", frame=frame).id_of
        assert id_of is not None
        assert id_of(record(key=FRAME + b"k")) == expected
    assert pickle.loads(pickle.dumps(identity_from_spec(frame="confluent"))).framed


def test_an_unknown_frame_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match='frame = "glue" is not known: use "none" or "confluent"'):
        identity_from_spec(frame="glue")
