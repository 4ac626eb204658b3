"""A checkpoint's files: those that Spark wrote, byte by byte, and everything else, which is refused in words."""

import json
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.formats.checkpoint import layout
from reconciler.formats.checkpoint.layout import SourceOffset
from reconciler.formats.checkpoint.readings import refuse_unusable
from reconciler.formats.checkpoint.text import UnusableError
from reconciler.formats.json_fields import FieldError

METADATA = (
    '{"batchWatermarkMs":0,"batchTimestampMs":1795301759566,"conf":{"spark.sql.streaming.stateStore.providerClass":'
    '"org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider","spark.sql.shuffle.partitions":"1"}}'
)
"""As PySpark 4.2.0 wrote it; most of the settings are left out."""


def kafka(topic="orders", **offsets):
    return {(topic, int(partition.removeprefix("p"))): offset for partition, offset in offsets.items()}


def entry(batch, *lines, version="v1", metadata=METADATA):
    return layout.parse_offsets(batch, "\n".join((version, metadata, *lines)).encode())


# ---------------------------------------------------------------- files


def test_an_offset_entry_has_the_offsets_of_each_source():
    found = layout.parse_offsets(
        1, f'v1\n{METADATA}\n{{"orders":{{"0":6,"1":7}}}}\n{{"pays":{{"0":3}},"more":{{"12":4}}}}'.encode()
    )
    assert (found.batch, found.version, found.metadata, found.planned_at_ms) == (1, 1, METADATA, 1795301759566)
    assert [(source.name, source.kafka) for source in found.sources] == [
        ("0", kafka(p0=6, p1=7)),
        ("1", {("pays", 0): 3, ("more", 12): 4}),
    ]
    assert found.sources[0].text == '{"orders":{"0":6,"1":7}}'


def test_an_offset_entry_of_version_2_names_its_sources():
    found = entry(
        1, 'pay:{"p":{"0":10,"1":10}}', 'ord:{"o:x":{"0":6}}', version="v2", metadata='{"sourceMetadataInfo":{}}'
    )
    assert [(source.name, source.kafka) for source in found.sources] == [
        ("pay", kafka("p", p0=10, p1=10)),
        ("ord", {("o:x", 0): 6}),
    ]
    assert found.planned_at_ms is None
    unnamed = entry(1, '0:{"o":{"0":6}}', version="v2")
    assert unnamed.source("0").kafka == kafka("o", p0=6)
    assert unnamed.source("1") is None


@pytest.mark.parametrize("ending", ["", "\n"])
def test_an_entry_may_end_with_a_line_break_and_lack_metadata(ending):
    found = layout.parse_offsets(0, f'v1\n\n{{"o":{{"0":1}}}}{ending}'.encode())
    assert (found.metadata, found.planned_at_ms, len(found.sources)) == ("", None, 1)


@pytest.mark.parametrize(
    "text",
    ["0", "1795301777249", '{"logOffset":0}', '{"sourceVersion":1,"reservoirId":"x"}', '{"shardId-0":{"at":5}}', "abc"],
)
def test_other_sources_are_kept_and_not_looked_into(text):
    found = entry(0, text, '{"o":{"0":1}}')
    assert found.sources[0] == SourceOffset("0", text, None)
    assert found.sources[1].kafka == kafka("o", p0=1)
    assert not found.sources[0].is_void


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("tail", ["", "  ", "\0\0\0", "END"])
def test_lines_end_as_java_ends_them_and_may_be_padded(end, tail):
    text = f'v01\n{METADATA}\n-\n{{"o":{{"0":1}}}}'.replace("\n", end) + tail.replace("END", end)
    found = layout.parse_offsets(3, text.encode())
    assert (found.metadata, found.version) == (METADATA, 1)
    assert [each.kafka for each in found.sources] == [None, kafka("o", p0=1)]


def test_a_source_without_offset_is_void():
    for found in (entry(0, "-"), entry(0, "0:-", version="v2")):
        assert found.sources[0].is_void
        assert found.sources[0].kafka is None


def test_where_a_kafka_source_began_has_a_nul_in_front():
    assert layout.parse_initial("0", b'\0v1\n{"orders":{"0":0,"1":5}}').kafka == kafka(p0=0, p1=5)
    assert layout.parse_initial("0", b'2{"orders":{"0":0,"1":5}}').kafka == kafka(p0=0, p1=5), "Spark 2.1"
    assert layout.parse_initial("0", b'\0v1\r\n{"orders":{"0":5}}').kafka == kafka(p0=5)
    assert layout.parse_initial("1", b"v1\n1795301777249").kafka is None
    assert layout.parse_initial("1", b'v1\n{"path":"\xff"}').kafka is None, "other sources' files may be anything"


def test_commits_of_both_versions_are_read():
    layout.check_commit(b'v1\n{"nextBatchWatermarkMs":0}')
    layout.check_commit(b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["8bc8bb00-062f"]]}}')
    layout.check_commit(b"v1\n{}")
    layout.check_commit(b"v1\n")


def test_the_querys_id_is_read():
    assert layout.parse_query_id(b'{"id":"86b8d69f-40e2-47bc-acd1-662df118fed0"}') == (
        "86b8d69f-40e2-47bc-acd1-662df118fed0"
    )
    assert layout.parse_query_id(b"{}") is None


def test_file_names():
    names = ["0", "17", ".17.crc", "17.tmp", ".17.0b5c.tmp", "017", "-1", "metadata", "9.compact", "", "²", "1" * 30]
    assert [layout.batch_of(name) for name in names] == [0, 17, *[None] * 10]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "is empty"),
        (b"\xff", "is not text"),
        (b"{}", "does not begin with a version"),
        (b"v1", "ends after its first line"),
        (b"v3\n{}\n-", "has version v3, and only v1 and v2 are known"),
        (b"v0\n{}\n-", "does not begin with a version"),
        (b"v1\nnonsense\n-", "is not JSON"),
        (b'v1\n{"batchTimestampMs":"x"}\n-', "batchTimestampMs is not a whole number"),
        (b'v1\n\n{"o":{"0":', "source 0: its offset is not JSON"),
        (b'v1\n\n{"o":{"0":1,"0":2}}', "source 0: its offset repeats a key"),
        (b'v1\n\n{"o":{"0":9223372036854775808}}', "source 0: o-0 is not between"),
        (b"\0" * 90, "has only null bytes, which a file system leaves after a power failure"),
        (b"\n", "is empty"),
        (b'\xef\xbb\xbfv1\n\n{"o":{"0":1}}', "with a byte order mark: save it without one"),
        (b'V1\n\n{"o":{"0":1}}', "does not begin with a version"),
        (b'v1\n\n{"o":{"0":1}}\n\n', "has a blank line, which Spark takes for one more source"),
        (b'v1\n\n{"o":{"0":1}}\n\0\0', "has a blank line"),
        (b'v1\n{"batchWat', "is not JSON"),
        (b'v1\n\n{"o":{"0":"1"}}', "source 0: o-0 is not a whole number"),
        (b'v1\n\n{"o":{"0":null}}', "source 0: o-0 has no offset"),
        (b'v1\n\n{"o":{"9999999999":1}}', "source 0: o-9999999999 has no offset"),
        (b'v1\n\n{"":{"0":1}}', "source 0: its offset names a topic that cannot exist"),
        (b'v2\n\n{"o":{"0":1}}', 'source {"o": its offset'),
        (b"v2\n\nabc", "has a line without a source's name"),
        (b'v2\n\na:-\na:{"o":{"0":1}}', "names a source twice"),
    ],
)
def test_an_offset_entry_that_is_not_understood_is_refused(data, problem):
    with pytest.raises(FieldError) as caught:
        layout.parse_offsets(0, data)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\0", "is empty"),
        (b'\0v2\n{"o":{"0":1}}', "has version v2"),
        (b'\0v1\n{"o":{"0":1}}\n{}', "has 2 lines after its version"),
        (b"\0v1\n", "has 0 lines after its version"),
        (b"\0v1\n17", "holds no Kafka offsets"),
        (b"\0v1\n-", "holds no Kafka offsets"),
    ],
)
def test_initial_offsets_that_are_not_understood_are_refused(data, problem):
    with pytest.raises(FieldError, match=problem):
        layout.parse_initial("0", data)


SINK = b'"snk":{"sinkName":"snk","commitOffset":"-","providerName":"F","apiVersion":"DSv1","isActive":true}'


@pytest.mark.parametrize(
    "data",
    [
        b'v1\n{"nextBatchWatermarkMs":0}',
        b'v2\n{"nextBatchWatermarkMs":0}',
        b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["a8e3e6a1"],["9fa99326"]]}}',
        b'v3\n{"nextBatchWatermarkMs":0,"sinkMetadataMap":{' + SINK + b"}}",
        b"v1\n",
    ],
)
def test_commits_as_spark_writes_them(data):
    layout.check_commit(data)


@pytest.mark.parametrize(
    "data",
    [
        *(
            b"",
            b"v4\n{}",
            b"v1\nx",
            b"{}",
            b"v3\n{}",
            b'v3\n{"sinkMetadataMap":{}}',
            b'v3\n{"sinkMetadataMap":{"a":1}}',
        ),
        b'v3\n{"sinkMetadataMap":{' + SINK.replace(b'"-"', b'"{\\"o\\":{\\"0\\":7}}"') + b"}}",
    ],
)
def test_a_commit_that_is_not_understood_is_refused(data):
    with pytest.raises(FieldError):
        layout.check_commit(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["0", "1", "o", "-1", "²"]), inner),
    max_leaves=8,
)
LINES = JSON.map(json.dumps) | st.text(max_size=20)


@given(
    st.sampled_from(["v1", "v2", "v9", ""]),
    st.lists(LINES, max_size=4),
    st.binary(max_size=40),
)
def test_arbitrary_files_are_read_or_refused_with_a_reason(version, lines, data):
    text = "\n".join((version, *lines)).encode("utf-8", "surrogatepass")
    for tried in (text, b"\0" + text, data):
        for parse in (
            lambda each: layout.parse_offsets(0, each),
            lambda each: layout.parse_initial("0", each),
            layout.check_commit,
            layout.parse_query_id,
        ):
            with suppress(FieldError):
                parse(tried)


TOPICS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
KAFKA = st.dictionaries(
    TOPICS, st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), min_size=1, max_size=3), max_size=3
)


@given(st.lists(KAFKA, max_size=3))
def test_kafkas_offsets_read_back(sources):
    texts = [json.dumps({t: {str(p): o for p, o in each.items()} for t, each in source.items()}) for source in sources]
    found = entry(0, *texts)
    assert [source.kafka for source in found.sources] == [
        {(topic, partition): offset for topic, each in source.items() for partition, offset in each.items()}
        for source in sources
    ]


# ---------------------------------------------------------------- what a restart reads


FIRST = {"0": layout.parse_initial("0", b'\0v1\n{"o":{"0":5}}')}
THREE, SEVEN = entry(3, '{"o":{"0":30}}'), entry(7, '{"o":{"0":70}}')


def positions(last, before=None, *, committed, initial=FIRST):
    found = layout.checkpoint("id", last, before, committed=committed, initial=initial)
    return [
        (each.name, None if each.start is None else dict(each.start), None if each.end is None else dict(each.end))
        for each in found.positions
    ]


def test_after_a_committed_batch_a_restart_goes_on_from_its_end():
    assert positions(SEVEN, THREE, committed=True) == [("0", kafka("o", p0=70), None)]


def test_a_batch_that_is_not_committed_is_repeated_from_the_end_of_the_one_before_whatever_its_number():
    assert positions(SEVEN, THREE, committed=False) == [("0", kafka("o", p0=30), kafka("o", p0=70))]
    found = layout.checkpoint("id", SEVEN, THREE, committed=False, initial=FIRST)
    assert (found.repeats_a_batch, found.starts_at) == (True, THREE)
    found = layout.checkpoint("id", SEVEN, THREE, committed=True, initial=FIRST)
    assert (found.repeats_a_batch, found.starts_at) == (False, SEVEN)


@pytest.mark.parametrize(
    ("now", "committed", "repartitions"), [("4", False, True), ("2", False, False), ("4", True, False)]
)
def test_a_batch_with_other_partitions_that_was_not_finished_is_a_repartitioning(now, committed, repartitions):
    def entry_of(batch, partitions):
        settings = f'{{"batchTimestampMs":5,"conf":{{"spark.sql.shuffle.partitions":"{partitions}"}}}}'
        return layout.parse_offsets(batch, f'v1\n{settings}\n{{"o":{{"0":7}}}}'.encode())

    found = layout.checkpoint("id", entry_of(5, now), entry_of(4, "2"), committed=committed, initial=FIRST)
    assert found.repartitions == repartitions


def test_the_first_batch_is_repeated_from_where_the_source_began():
    assert positions(entry(0, '{"o":{"0":70}}'), committed=False) == [("0", kafka("o", p0=5), kafka("o", p0=70))]


def test_a_query_that_planned_no_batch_begins_where_its_sources_do():
    assert positions(None, committed=False) == [("0", kafka("o", p0=5), None)]
    assert positions(None, committed=False, initial={}) == []


def test_a_source_that_came_later_begins_where_it_began():
    before = entry(1, 'a:{"o":{"0":9}}', version="v2")
    last = entry(2, 'b:{"p":{"0":4}}', 'a:{"o":{"0":11}}', version="v2")
    initial = {"b": layout.parse_initial("b", b'\0v1\n{"p":{"0":2}}')}
    assert positions(last, before, committed=False, initial=initial) == [
        ("b", kafka("p", p0=2), kafka("p", p0=4)),
        ("a", kafka("o", p0=9), kafka("o", p0=11)),
    ]
    with pytest.raises(FieldError, match="is missing, so where source b began is not known"):
        positions(last, before, committed=False, initial={})


def test_a_void_source_begins_where_it_began_if_that_is_known():
    assert positions(entry(4, "-"), committed=True) == [("0", kafka("o", p0=5), None)]
    assert positions(entry(4, "-"), committed=True, initial={}) == [("0", None, None)]
    assert positions(entry(4, '{"o":{"0":8}}'), entry(3, "-"), committed=False) == [
        ("0", kafka("o", p0=5), kafka("o", p0=8))
    ]


def test_a_log_that_does_not_name_its_sources_finds_where_they_began_by_their_topics():
    named = {
        name: layout.parse_initial(name, f'\0v1\n{{"{topic}":{{"0":{offset}}}}}'.encode())
        for name, topic, offset in (("orders", "o", 1), ("pays", "p", 2))
    }
    last = entry(0, '{"p":{"0":20}}', '{"o":{"0":10}}')
    assert positions(last, committed=False, initial=named) == [
        ("0", kafka("p", p0=2), kafka("p", p0=20)),
        ("1", kafka("o", p0=1), kafka("o", p0=10)),
    ]
    twice = {**named, "again": layout.parse_initial("again", b'\0v1\n{"o":{"0":3}}')}
    with pytest.raises(FieldError, match="is missing, so where source 1 began is not known"):
        positions(last, committed=False, initial=twice)


def test_other_sources_have_no_position():
    assert positions(entry(1, "17", '{"o":{"0":8}}'), entry(0, "9", '{"o":{"0":6}}'), committed=False) == [
        ("0", None, None),
        ("1", kafka("o", p0=6), kafka("o", p0=8)),
    ]


def test_entries_of_different_sources_do_not_fit():
    with pytest.raises(FieldError, match="has 2 sources, and offsets/3 has 1"):
        positions(entry(7, '{"o":{"0":70}}', '{"p":{"0":1}}'), THREE, committed=False)


@pytest.mark.parametrize(
    ("offset", "meaning"), [(-2, "the earliest record"), (-1, "the latest record"), (-7, "cannot read from there")]
)
@pytest.mark.parametrize(("committed", "file"), [(True, "offsets/7"), (False, "offsets/3")])
def test_a_number_that_is_no_offset_is_named_where_a_restart_reads_it(committed, file, offset, meaning):
    edited = f'{{"o":{{"0":{offset}}}}}'
    last, before = (entry(7, edited), THREE) if committed else (SEVEN, entry(3, edited))
    found = layout.checkpoint("id", last, before, committed=committed, initial=FIRST)
    with pytest.raises(UnusableError, match=f"has {offset} for o-0, which is no offset: Spark .*{meaning}") as caught:
        refuse_unusable(found)
    assert caught.value.file == file
    refuse_unusable(layout.checkpoint("id", SEVEN, entry(3, edited), committed=True, initial=FIRST))


def test_the_gaps_of_a_log_are_named_with_both_readings():
    whole = layout.checkpoint("id", SEVEN, THREE, committed=False, initial=FIRST)
    found = replace(whole, missing=layout.gaps([0, 3, 7]))
    assert found.missing == ((1, 2), (4, 6))
    assert found.lacks_entry_before
    assert found.missing_words() == (
        "offsets/4 to offsets/6 (and 1 earlier gaps): left out by asynchronous progress tracking, or lost. If it was "
        "lost, Spark needs offsets/6 to start: a clone has it"
    )
    earlier = replace(layout.checkpoint("id", entry(4, "-"), THREE, committed=True, initial={}), missing=((2, 2),))
    assert not earlier.lacks_entry_before
    assert earlier.missing_words() == "offsets/2: left out by asynchronous progress tracking, or lost"


def test_a_later_batch_without_the_one_before_it_cannot_be_repeated():
    with pytest.raises(FieldError, match="is not committed, and the offsets of the batch before it are missing"):
        positions(SEVEN, committed=False)


@pytest.mark.parametrize("name", ["1٣", str(2**63), "07", "+7", "7 ", ".7.tmp", "7.compact", ""])
def test_a_name_that_is_no_batchs_to_spark_is_none_here(name):
    """Arabic digits are digits to Python, which would then look for the file of another name."""
    assert layout.batch_of(name) is None
    assert layout.batch_of(str(2**63 - 1)) == 2**63 - 1


def test_an_offset_of_other_digits_is_not_taken_for_another_partitions():
    assert layout.kafka_offsets('{"o":{"1٣":8}}') is None
