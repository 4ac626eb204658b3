"""A checkpoint's files: those that Spark wrote, byte by byte, and everything else, which is refused in words."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.core.json_fields import FieldError
from reconciler.places.checkpoint import log, restart
from reconciler.places.checkpoint.log import SourceOffset, UnusableError
from reconciler.places.checkpoint.restart import LateLog, LogEntry, Tracking, behind, refuse_unusable

METADATA = (
    '{"batchWatermarkMs":0,"unknown":{"x":[1,2]},"batchTimestampMs":1795301759566,"conf":{"spark.sql.streaming.stateStore.providerClass":'
    '"org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider","spark.sql.shuffle.partitions":"1"}}'
)
"""As PySpark 4.2.0 wrote it; most of the settings are left out."""


def kafka(topic="orders", **offsets):
    return {(topic, int(partition.removeprefix("p"))): offset for partition, offset in offsets.items()}


def entry(batch, *lines, version="v1", metadata=METADATA):
    return log.parse_offsets(batch, "\n".join((version, metadata, *lines)).encode())


# ---------------------------------------------------------------- files


def test_an_offset_entry_has_the_offsets_of_each_source():
    found = log.parse_offsets(
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
    found = log.parse_offsets(3, text.encode())
    assert (found.metadata, found.version) == (METADATA, 1)
    assert [each.kafka for each in found.sources] == [None, kafka("o", p0=1)]


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
        (b'\xef\xbb\xbfv1\n\n{"o":{"0":1}}', "does not begin with a version"),
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
        log.parse_offsets(0, data)
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
        log.parse_initial("0", data)


SINK = b'"snk":{"sinkName":"snk","commitOffset":"-","providerName":"F","apiVersion":"DSv1","isActive":true}'


@pytest.mark.parametrize(
    "data",
    [
        b'v1\n{"nextBatchWatermarkMs":0}',
        b'v2\n{"nextBatchWatermarkMs":0}',
        b'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":[["a8e3e6a1"],["9fa99326"]]}}',
        b'v3\n{"nextBatchWatermarkMs":0,"sinkMetadataMap":{' + SINK + b"}}",
        b"v1\n{}",
        b"v1\n",
    ],
)
def test_commits_as_spark_writes_them(data):
    log.check_commit(data)


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
        log.check_commit(data)


# ---------------------------------------------------------------- what a restart reads


FIRST = {"0": log.parse_initial("0", b'\0v1\n{"o":{"0":5}}')}
THREE, SEVEN = entry(3, '{"o":{"0":30}}'), entry(7, '{"o":{"0":70}}')


def positions(last, before=None, *, committed, initial=FIRST):
    found = restart.checkpoint("id", last, before, committed=committed, initial=initial)
    return [
        (each.name, None if each.start is None else dict(each.start), None if each.end is None else dict(each.end))
        for each in found.positions
    ]


BEGAN_AT = kafka("o", p0=5)


@pytest.mark.parametrize(
    ("last", "before", "committed", "initial", "found"),
    [
        (SEVEN, THREE, True, FIRST, [("0", kafka("o", p0=70), None)]),
        (SEVEN, THREE, False, FIRST, [("0", kafka("o", p0=30), kafka("o", p0=70))]),
        (entry(0, '{"o":{"0":70}}'), None, False, FIRST, [("0", BEGAN_AT, kafka("o", p0=70))]),
        (None, None, False, FIRST, [("0", BEGAN_AT, None)]),
        (None, None, False, {}, []),
        (entry(4, "-"), None, True, FIRST, [("0", BEGAN_AT, None)]),
        (entry(4, "-"), None, True, {}, [("0", None, None)]),
        (entry(4, '{"o":{"0":8}}'), entry(3, "-"), False, FIRST, [("0", BEGAN_AT, kafka("o", p0=8))]),
        (
            entry(1, "17", '{"o":{"0":8}}'),
            entry(0, "9", '{"o":{"0":6}}'),
            False,
            FIRST,
            [("0", None, None), ("1", kafka("o", p0=6), kafka("o", p0=8))],
        ),
    ],
    ids=[
        "committed: on from its end",
        "not committed: from the end of the one before, whatever its number",
        "the first batch: from where the source began",
        "no batch: where the source begins",
        "no batch, and nothing read",
        "a void source: where it began",
        "a void source, and nothing known",
        "a source that was void before: from where it began",
        "another kind of source: nothing",
    ],
)
def test_a_restart_reads_from(last, before, committed, initial, found):
    assert positions(last, before, committed=committed, initial=initial) == found


@pytest.mark.parametrize(
    ("last", "before", "problem"),
    [
        (entry(7, '{"o":{"0":70}}', '{"p":{"0":1}}'), THREE, "has 2 sources, and offsets/3 has 1"),
        (SEVEN, None, "is not committed, and the offsets of the batch before it are missing"),
    ],
)
def test_entries_that_do_not_fit_are_refused(last, before, problem):
    with pytest.raises(FieldError, match=problem):
        positions(last, before, committed=False)


@pytest.mark.parametrize(
    ("now", "committed", "repartitions"), [("4", False, True), ("2", False, False), ("4", True, False)]
)
def test_a_batch_with_other_partitions_that_was_not_finished_is_a_repartitioning(now, committed, repartitions):
    def entry_of(batch, partitions):
        settings = f'{{"batchTimestampMs":5,"conf":{{"spark.sql.shuffle.partitions":"{partitions}"}}}}'
        return log.parse_offsets(batch, f'v1\n{settings}\n{{"o":{{"0":7}}}}'.encode())

    found = restart.checkpoint("id", entry_of(5, now), entry_of(4, "2"), committed=committed, initial=FIRST)
    assert found.repartitions == repartitions


def test_a_source_that_came_later_begins_where_it_began():
    before = entry(1, 'a:{"o":{"0":9}}', version="v2")
    last = entry(2, 'b:{"p":{"0":4}}', 'a:{"o":{"0":11}}', version="v2")
    initial = {"b": log.parse_initial("b", b'\0v1\n{"p":{"0":2}}')}
    assert positions(last, before, committed=False, initial=initial) == [
        ("b", kafka("p", p0=2), kafka("p", p0=4)),
        ("a", kafka("o", p0=9), kafka("o", p0=11)),
    ]
    with pytest.raises(FieldError, match="is missing, so where source b began is not known"):
        positions(last, before, committed=False, initial={})


def test_a_log_that_does_not_name_its_sources_finds_where_they_began_by_their_topics():
    named = {
        name: log.parse_initial(name, f'\0v1\n{{"{topic}":{{"0":{offset}}}}}'.encode())
        for name, topic, offset in (("orders", "o", 1), ("pays", "p", 2))
    }
    last = entry(0, '{"p":{"0":20}}', '{"o":{"0":10}}')
    assert positions(last, committed=False, initial=named) == [
        ("0", kafka("p", p0=2), kafka("p", p0=20)),
        ("1", kafka("o", p0=1), kafka("o", p0=10)),
    ]
    twice = {**named, "again": log.parse_initial("again", b'\0v1\n{"o":{"0":3}}')}
    with pytest.raises(FieldError, match="is missing, so where source 1 began is not known"):
        positions(last, committed=False, initial=twice)


@pytest.mark.parametrize(
    ("offset", "meaning"), [(-2, "the earliest record"), (-1, "the latest record"), (-7, "cannot read from there")]
)
@pytest.mark.parametrize(("committed", "file"), [(True, "offsets/7"), (False, "offsets/3")])
def test_a_number_that_is_no_offset_is_named_where_a_restart_reads_it(committed, file, offset, meaning):
    edited = f'{{"o":{{"0":{offset}}}}}'
    last, before = (entry(7, edited), THREE) if committed else (SEVEN, entry(3, edited))
    found = restart.checkpoint("id", last, before, committed=committed, initial=FIRST)
    with pytest.raises(UnusableError, match=f"has {offset} for o-0, which is no offset: Spark .*{meaning}") as caught:
        refuse_unusable(found)
    assert caught.value.file == file
    refuse_unusable(restart.checkpoint("id", SEVEN, entry(3, edited), committed=True, initial=FIRST))


def test_the_gaps_of_a_log_are_named_with_both_readings():
    whole = restart.checkpoint("id", SEVEN, THREE, committed=False, initial=FIRST)
    found = replace(whole, missing=restart.gaps([0, 3, 7]))
    assert found.missing == ((1, 2), (4, 6))
    assert found.lacks_entry_before
    assert found.missing_words() == (
        "offsets/4 to offsets/6 (and 1 earlier gaps): left out by asynchronous progress tracking, or lost. If it was "
        "lost, Spark needs offsets/6 to start: a copy has it"
    )
    earlier = replace(restart.checkpoint("id", entry(4, "-"), THREE, committed=True, initial={}), missing=((2, 2),))
    assert not earlier.lacks_entry_before
    assert earlier.missing_words() == "offsets/2: left out by asynchronous progress tracking, or lost"


NO_BATCH = ["1٣", str(2**63), "07", "+7", "7 ", ".7.tmp", "7.compact", "", ".7.crc", "7.tmp", "-1", "metadata", "²"]


@pytest.mark.parametrize("name", NO_BATCH)
def test_a_name_that_is_no_batchs_to_spark_is_none_here(name):
    """Arabic digits are digits to Python, which would then look for the file of another name."""
    assert log.batch_of(name) is None
    assert [log.batch_of(each) for each in ("0", "17", str(2**63 - 1))] == [0, 17, 2**63 - 1]
    assert log.kafka_offsets('{"o":{"1٣":8}}') is None


# ---------------------------------------------------------------- other offsets


def test_offsets_are_written_as_spark_writes_them():
    offsets = {("b", 10): 1, ("b", 9): 2, ("a", 0): 3, ("c", 0): 4}
    assert log.offsets_text(offsets, ["c", "gone"]) == '{"c":{"0":4},"a":{"0":3},"b":{"9":2,"10":1}}'


NAMES = st.text("abc._-", min_size=1, max_size=5)
OFFSETS = st.dictionaries(
    st.tuples(NAMES, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), min_size=1, max_size=6
)


@settings(deadline=None)
@given(OFFSETS, OFFSETS, st.booleans(), st.sampled_from(["", "\n"]))
def test_what_was_written_is_read_again_and_nothing_else_has_changed(old, new, named, end):
    lines = [log.offsets_text(old), "-", '{"logOffset":3}']
    if named:
        lines = [f"s{number}:{line}" for number, line in enumerate(lines)]
    data = "\n".join((f"v{2 if named else 1}", METADATA, *lines)).encode() + end.encode()
    before = log.parse_offsets(5, data)
    name = before.sources[0].name
    after = log.entry_with(5, data, {name: log.offsets_text(new)})
    assert log.parse_offsets(5, after).sources[0].kafka == new
    assert log.entry_with(5, after, {name: log.offsets_text(old)}) == data


# ---------------------------------------------------------------- a log behind its query's output

BEGAN = 1_795_393_978_932
"""When PySpark 4.3.0 began a batch of five seconds in real-time mode."""


def log_entry(planned_s: float, file_s: float) -> LogEntry:
    return LogEntry(BEGAN + round(1000 * planned_s), BEGAN + round(1000 * file_s))


def test_missing_numbers_show_asynchronous_progress_tracking() -> None:
    found = behind(7, LogEntry(BEGAN + 3100, None), LogEntry(BEGAN, None), has_gaps=True)
    assert found == LateLog(Tracking.ASYNCHRONOUS, 7, 3100)
    assert found.words(240) == (
        "asynchronous progress tracking, or lost entries: what the query wrote after batch 7 is in no file and is "
        "read again, up to one interval of its log (the last one in its log: 3.1 s, 240 offsets)"
    )


def test_entries_as_old_as_their_batches_end_show_real_time_mode() -> None:
    found = behind(2, log_entry(5.57, 10.7), log_entry(0, 5.5), has_gaps=False)
    assert found == LateLog(Tracking.REAL_TIME, 2, 5570, BEGAN + 10_700)
    assert "real-time mode: what the query wrote after batch 2" in found.words()
    assert "up to one trigger's duration (the last one in its log: 5.6 s)" in found.words()


@pytest.mark.parametrize(
    ("last", "before", "why"),
    [
        (log_entry(5.5, 5.6), log_entry(0, 0.1), "written as each batch began"),
        (log_entry(5.5, 7.6), log_entry(0, 2.1), "the file system's clock is two seconds ahead"),
        (log_entry(60, 100_000), log_entry(0, 99_999.9), "a restored copy, all of whose files are new"),
        (log_entry(0.001, 100_000.001), log_entry(0, 100_000), "a restored copy of short batches"),
        (log_entry(60, 10_060), log_entry(0, 10_000), "a clock that is hours ahead"),
        (LogEntry(BEGAN, None), log_entry(-5, 0), "a file system that tells no times"),
        (LogEntry(None, BEGAN), log_entry(-5, 0), "an entry without a time"),
    ],
)
def test_no_other_log_is_behind(last: LogEntry, before: LogEntry, why: str) -> None:
    assert behind(2, last, before, has_gaps=False) is None, why
