"""Rewriting offsets in a checkpoint's files: the named lines change, and every other byte stays."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.formats.checkpoint import edit, layout
from reconciler.formats.json_fields import FieldError

METADATA = '{"batchWatermarkMs":7,"unknown":{"x":[1,2]},"conf":{"spark.sql.shuffle.partitions":"2"}}'


def test_only_the_line_of_the_named_source_changes():
    data = f'v1\n{METADATA}\n{{"o":{{"0":30}}}}\n17\n{{"p":{{"0":1}}}}'.encode()
    assert edit.entry_with(4, data, {"0": '{"a.o":{"0":3}}'}) == data.replace(b'{"o":{"0":30}}', b'{"a.o":{"0":3}}')


def test_named_sources_keep_their_names_and_their_order():
    data = f'v2\n{METADATA}\nord:{{"o":{{"0":30}}}}\npay:{{"p":{{"0":1}}}}\n'.encode()
    changed = edit.entry_with(4, data, {"pay": '{"a.p":{"0":9}}'})
    assert changed == data.replace(b'pay:{"p":{"0":1}}', b'pay:{"a.p":{"0":9}}')


def test_where_a_source_began_keeps_its_leading_nul():
    data = b'\0v1\n{"o":{"0":30}}'
    assert edit.initial_with("0", data, '{"a.o":{"0":3}}') == b'\0v1\n{"a.o":{"0":3}}'
    for other in (data + b"\n", data.replace(b"\n", b"\r\n"), b'2{"o":{"0":30}}'):
        assert edit.initial_with("0", other, '{"a.o":{"0":3}}') == b'\0v1\n{"a.o":{"0":3}}'


def test_every_line_break_stays_as_it_is():
    data = f'v1\r\n{METADATA}\n{{"o":{{"0":30}}}}\r17\r\n'.encode()
    assert edit.entry_with(4, data, {"0": '{"a.o":{"0":3}}'}) == data.replace(b'{"o":{"0":30}}', b'{"a.o":{"0":3}}')


def test_a_source_that_is_not_there_or_not_kafka_is_refused():
    data = f'v1\n{METADATA}\n{{"o":{{"0":30}}}}'.encode()
    with pytest.raises(FieldError, match="source 1: is not in this entry"):
        edit.entry_with(4, data, {"1": "{}"})
    with pytest.raises(FieldError, match="holds no Kafka offsets"):
        edit.initial_with("0", b'{"path":"/x"}', "{}")


@pytest.mark.parametrize("offset", [-1, -2, 2**63])
def test_a_number_that_is_no_offset_is_never_written(offset):
    with pytest.raises(FieldError, match="which is not an offset"):
        edit.offsets_text({("o", 0): offset})


def test_offsets_are_written_as_spark_writes_them():
    offsets = {("b", 10): 1, ("b", 9): 2, ("a", 0): 3, ("c", 0): 4}
    assert edit.offsets_text(offsets, ["c", "gone"]) == '{"c":{"0":4},"a":{"0":3},"b":{"9":2,"10":1}}'


TOPICS = st.text("abc._-", min_size=1, max_size=5)
OFFSETS = st.dictionaries(
    st.tuples(TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), min_size=1, max_size=6
)


@settings(deadline=None)
@given(OFFSETS, OFFSETS, st.booleans(), st.sampled_from(["", "\n"]))
def test_what_was_written_is_read_again_and_nothing_else_has_changed(old, new, named, end):
    lines = [edit.offsets_text(old), "-", '{"logOffset":3}']
    if named:
        lines = [f"s{number}:{line}" for number, line in enumerate(lines)]
    data = "\n".join((f"v{2 if named else 1}", METADATA, *lines)).encode() + end.encode()
    before = layout.parse_offsets(5, data)
    name = before.sources[0].name
    after = edit.entry_with(5, data, {name: edit.offsets_text(new)})
    assert layout.parse_offsets(5, after).sources[0].kafka == new
    assert edit.entry_with(5, after, {name: edit.offsets_text(old)}) == data
