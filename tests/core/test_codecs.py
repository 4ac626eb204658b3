"""The codecs read back everything that they write, and answer any other text with a reason, never an exception."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core import anchor_fields
from reconciler.core.anchors import Anchor, Names, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError
from reconciler.state.lines import FORMAT, AnchorLine, dump_line, load_lines

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
FINGERPRINTS = st.binary(max_size=8).map(lambda value: fingerprint(None, value))


def anchors(id_size: int) -> st.SearchStrategy[Anchor]:
    def build(names: Names, timestamp_ms: int, known_time: bool, rest: dict) -> Anchor:
        known = known_time or names is Names.MAX_TIME
        return Anchor(names=names, timestamp_ms=timestamp_ms if known else None, **rest)

    rest = st.fixed_dictionaries(
        {
            "offset": st.none() | st.integers(0, 2**63 - 1),
            "id": st.none() | st.binary(max_size=id_size),
            "fingerprint": st.none() | FINGERPRINTS,
            "cluster_id": st.none() | TEXT.filter(lambda text: len(text.encode()) < 40),
            "topic_id": st.none() | TEXT.filter(lambda text: len(text.encode()) < 40),
        }
    )
    return st.builds(build, st.sampled_from(Names), INT64, st.booleans(), rest)


def stored_offsets(id_size: int) -> st.SearchStrategy[StoredOffset]:
    return st.builds(StoredOffset, INT64, st.none() | anchors(id_size), st.none() | INT64)


# ---------------------------------------------------------------- commit metadata


@given(stored_offsets(id_size=64))
def test_metadata_reads_back_what_was_written(stored):
    text = anchor_fields.encode(stored)
    found = anchor_fields.decode(text)
    assert (found.anchor, found.written_at_ms) == (stored.anchor, stored.written_at_ms)
    assert (found.reason is None) == (stored.anchor is not None)
    assert len(text) <= anchor_fields.MAX_BYTES
    assert text.isascii()


@given(st.none() | st.text())
def test_arbitrary_metadata_is_read_without_an_exception(text):
    found = anchor_fields.decode(text)
    assert found.anchor is not None or found.reason


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("vwaotifcpnx"), inner),
    max_leaves=20,
)


@given(JSON_VALUES, st.dictionaries(st.sampled_from("otifcpn"), JSON_VALUES))
def test_metadata_of_the_right_shape_and_wrong_types_is_read_without_an_exception(any_value, fields):
    for content in (
        any_value,
        {"v": 1, "a": fields},
        {"v": any_value, "a": fields},
        {"v": 1, "w": any_value},
    ):
        found = anchor_fields.decode(json.dumps(content))
        assert found.anchor is not None or found.reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "no metadata"),
        ("", "no metadata"),
        ("host-17.example", "is not JSON"),
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ("[" * 60000, "is not JSON"),
        ('{"v":' + "9" * 5000 + "}", "is not JSON"),
        ('{"v":1,"v":1}', "repeats a key"),
        ('{"v":1,"w":NaN}', "NaN"),
        ('{"offset":17}', "another program"),
        ('{"v":"1"}', "not a version number"),
        ('{"v":true}', "not a version number"),
        ('{"v":2,"a":{"o":[]}}', "newer release"),
        ('{"v":1}', "without an anchor"),
        ('{"v":1,"a":7}', "'a' of the metadata is not a JSON object"),
        ('{"v":1,"a":{"o":1.5}}', "'o' of the metadata is not a whole number"),
        ('{"v":1,"a":{"o":9223372036854775808}}', "'o' of the metadata is not between"),
        ('{"v":1,"a":{"i":"?"}}', "'i' of the metadata is not base64"),
        ('{"v":1,"a":{"f":"12"}}', "'f' of the metadata is not 32 hex digits"),
        ('{"v":1,"a":{"n":"previous"}}', "'n' of the metadata is not one of last, next, max-time"),
        ('{"v":1,"a":{"n":"max-time"}}', "contradicts itself"),
        ('{"v":1,"a":{"c":"\\ud800"}}', "'c' of the metadata is not valid Unicode"),
        (" " * 70000, "longer than"),
    ],
)
def test_metadata_without_an_anchor_gives_the_reason(text, reason):
    found = anchor_fields.decode(text)
    assert found.anchor is None
    assert reason in found.reason


def test_metadata_from_a_later_writer_may_have_more_keys():
    found = anchor_fields.decode('{"v":1,"w":5,"zz":[],"a":{"o":3,"q":{}}}')
    assert found == anchor_fields.Decoded(anchor=Anchor(offset=3), written_at_ms=5)


def test_an_id_too_long_gives_way_to_the_fingerprint():
    anchor = Anchor(offset=8, timestamp_ms=1, id=b"k" * 5000, fingerprint=fingerprint(b"k" * 5000, b""))
    text = anchor_fields.encode(StoredOffset(9, anchor))
    found = anchor_fields.decode(text).anchor
    assert len(text) <= anchor_fields.MAX_BYTES
    assert found.id is None
    assert found.fingerprint == anchor.fingerprint
    assert found.names_a_record


def test_an_impossible_cluster_id_is_refused_rather_than_cut():
    with pytest.raises(ConfigError, match="does not fit"):
        anchor_fields.encode(StoredOffset(9, Anchor(cluster_id="c" * 5000)))


def test_the_metadata_format_is_fixed():
    anchor = Anchor(8, 1700000000000, b"\x00id", "0" * 32, "cluster", "topic", Names.NEXT)
    assert anchor_fields.encode(StoredOffset(9, anchor, 1700000000001)) == (
        '{"v":1,"w":1700000000001,"a":{"o":8,"t":1700000000000,"i":"AGlk",'
        '"f":"00000000000000000000000000000000","c":"cluster","p":"topic","n":"next"}}'
    )


# ---------------------------------------------------------------- anchor lines


@given(st.lists(st.tuples(TEXT.filter(bool), TEXT.filter(bool), stored_offsets(id_size=2000)), max_size=4))
def test_lines_read_back_what_was_written(rows):
    written = [AnchorLine(group, topic, n, stored) for n, (group, topic, stored) in enumerate(rows)]
    texts = [dump_line(line) for line in written]
    assert [dump_line(line) for line in load_lines(texts)] == texts
    assert list(load_lines(texts)) == written


def test_an_exported_line_has_the_keys_of_the_contract():
    anchor = Anchor(8, 1700000000000, b"\x00id", "0" * 32, "cluster", "topic")
    content = json.loads(dump_line(AnchorLine("g", "events", 3, StoredOffset(9, anchor, 5))))
    assert content == {
        "format": "reconciler.anchors/1",
        "group": "g",
        "topic": "events",
        "partition": 3,
        "stored_offset": 9,
        "anchor": {
            "offset": 8,
            "timestamp_ms": 1700000000000,
            "id_base64": "AGlk",
            "fingerprint": "0" * 32,
            "cluster_id": "cluster",
            "topic_id": "topic",
        },
        "written_at_ms": 5,
    }
    bare = json.loads(dump_line(AnchorLine("g", "events", 3, StoredOffset(9))))
    assert bare["anchor"] is None
    assert "written_at_ms" not in bare


def test_absent_values_may_be_left_out_and_blank_lines_are_skipped():
    least = {"format": FORMAT, "group": "g", "topic": "t", "partition": 0, "stored_offset": -2}
    lines = ["\n", json.dumps(least) + "\n", "  \n", json.dumps({**least, "partition": 1, "anchor": {}})]
    assert [line.stored for line in load_lines(lines)] == [StoredOffset(-2), StoredOffset(-2, Anchor())]


GOOD = {"format": FORMAT, "group": "g", "topic": "t", "partition": 0, "stored_offset": 5}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": None}, "format is not 'reconciler.anchors/1'"),
        ({"format": "reconciler.anchors/2", "more": 1}, "format is not 'reconciler.anchors/1'"),
        ({"group": None}, "group is missing or empty"),
        ({"group": ""}, "group is missing or empty"),
        ({"group": 7}, "group is not text"),
        ({"topic": "\ud800"}, "topic is not valid Unicode"),
        ({"partition": None}, "partition is missing"),
        ({"partition": -1}, "partition is not between 0 and 2147483647"),
        ({"partition": "0"}, "partition is not a whole number"),
        ({"stored_offset": 5.0}, "stored_offset is not a whole number"),
        ({"stored_offset": True}, "stored_offset is not a whole number"),
        ({"offset": 5}, "offset is not a field of this format"),
        ({"anchor": []}, "anchor is not a JSON object"),
        ({"anchor": {"ofset": 4}}, "anchor.ofset is not a field of this format"),
        ({"anchor": {"offset": "4"}}, "anchor.offset is not a whole number"),
        ({"anchor": {"id_base64": "a"}}, "anchor.id_base64 is not base64"),
        ({"anchor": {"fingerprint": "zz"}}, "anchor.fingerprint is not 32 hex digits"),
        ({"anchor": {"names": "max-time"}}, "anchor contradicts itself"),
    ],
)
def test_a_wrong_line_is_named_with_its_field(change, problem):
    lines = [json.dumps(GOOD), "", json.dumps({**GOOD, "partition": 1, **change})]
    with pytest.raises(ConfigError) as caught:
        list(load_lines(lines))
    assert caught.value.message.startswith(f"Line 3 of the anchor lines: {problem}")


@pytest.mark.parametrize("text", ["nonsense", "[]", "[" * 100000, '{"format":1,"format":1}', '{"a":NaN}'])
def test_a_line_that_is_no_json_object_is_refused(text):
    with pytest.raises(ConfigError, match="Line 1 of the anchor lines: it "):
        list(load_lines([text]))


def test_two_lines_for_one_partition_are_refused():
    with pytest.raises(ConfigError, match=r"Line 2 .* line 1 already has"):
        list(load_lines([json.dumps(GOOD), json.dumps(GOOD)]))


def test_more_lines_than_fit_into_memory_are_refused():
    endless = itertools.repeat("\n")
    with pytest.raises(ConfigError, match="Line 500001 of the anchor lines: at most 500,000 lines"):
        list(load_lines(endless))


def test_lines_are_read_one_by_one():
    lines = load_lines([json.dumps(GOOD), "nonsense"])
    assert next(lines).stored == StoredOffset(5)
    with pytest.raises(ConfigError):
        next(lines)
