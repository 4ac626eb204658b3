"""Manifests of offset ranges: complete ones are read back, torn ones are recognised, all others are refused."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import Anchor, Malformed, Names, StoredOffset, TopicPartition, fingerprint
from reconciler.core.json_fields import FieldError
from reconciler.places import range_manifests
from reconciler.places.range_manifests import ManifestRange, TornManifest

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
INT64 = st.integers(-(2**63), 2**63 - 1)
ANCHORS = st.builds(
    Anchor,
    offset=st.none() | st.integers(0, 2**63 - 1),
    timestamp_ms=INT64,
    id=st.none() | st.binary(max_size=60),
    fingerprint=st.none() | st.binary(max_size=8).map(lambda value: fingerprint(None, value)),
    cluster_id=st.none() | NAMES,
    names=st.sampled_from(Names),
)
STORED = st.builds(StoredOffset, INT64, st.none() | ANCHORS, st.none() | INT64)
VERSIONS = st.none() | st.builds("{}.{:08x}".format, st.integers(1, 10**20 - 1), st.integers(0, 2**32 - 1))


@st.composite
def a_range(draw: st.DrawFn) -> ManifestRange:
    topic, partition, stored = draw(NAMES), draw(st.integers(0, 2**31 - 1)), draw(st.none() | STORED)
    return ManifestRange(topic, partition, stored, range_manifests.line_of(topic, partition, stored), draw(VERSIONS))


MANIFESTS = st.tuples(
    NAMES,
    st.lists(a_range(), max_size=5, unique_by=lambda each: (each.topic, each.partition)),
    st.none() | INT64,
    st.booleans(),
)


def by_place(found: tuple[ManifestRange, ...] | list[ManifestRange]) -> dict[tuple[str, int], ManifestRange]:
    return {(each.topic, each.partition): each for each in found}


@given(MANIFESTS)
def test_a_manifest_reads_back(made):
    group, written, time, snapshot = made
    data = range_manifests.dump(group, written, written_at_ms=time, snapshot=snapshot, reason="batch 17")
    found = range_manifests.load(data)
    assert (found.group, found.snapshot, found.written_at_ms) == (group, snapshot, time)
    assert found.digest == range_manifests.digest_of(data)
    assert by_place(found.ranges) == by_place(written)
    assert data.isascii()


@given(MANIFESTS, st.data())
def test_a_manifest_cut_anywhere_is_torn(made, drawn):
    data = range_manifests.dump(made[0], made[1], written_at_ms=made[2])
    length = drawn.draw(st.integers(0, len(data) - 2))  # without the last line break it is whole
    with pytest.raises(TornManifest):
        range_manifests.load(data[:length])


@given(MANIFESTS, st.data())
def test_a_manifest_with_another_byte_is_torn(made, drawn):
    data = bytearray(range_manifests.dump(made[0], made[1], written_at_ms=made[2]))
    at = drawn.draw(st.integers(0, data.rindex(b'"sha256"') - 20))
    data[at] ^= drawn.draw(st.integers(1, 127))
    with pytest.raises(TornManifest):
        range_manifests.load(bytes(data))


def whole(*lines: str) -> bytes:
    """These lines, with the last line that makes them complete."""
    body = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
    return body + json.dumps({"end": len(lines), "sha256": hashlib.sha256(body).hexdigest()}).encode()


HEADER = '{"format":"reconciler.ranges/1","group":"clicks","written_at_ms":5}'


def test_a_manifest_is_written_in_this_format_to_the_byte():
    anchor = Anchor(880, 1_767_225_600_000, b"id", "0" * 32, "cluster", "topic")
    rows = [
        ManifestRange(
            "events",
            0,
            StoredOffset(4514, None, 9),
            range_manifests.line_of("events", 0, StoredOffset(4514), from_offset=4400),
        ),
        ManifestRange(
            "events", 3, StoredOffset(881, anchor, 9), range_manifests.line_of("events", 3, StoredOffset(881, anchor))
        ),
        ManifestRange("events", 5, None, range_manifests.line_of("events", 5, None)),
        ManifestRange(
            "events", 4, StoredOffset(7, None, 8), range_manifests.line_of("events", 4, StoredOffset(7)), "41.0badcafe"
        ),
    ]
    lines = range_manifests.dump("clicks", rows, written_at_ms=9, reason="batch 17").decode().split("\n")
    assert lines[:-2] == [
        '{"format":"reconciler.ranges/1","group":"clicks","written_at_ms":9,"reason":"batch 17"}',
        '{"topic":"events","partition":0,"from":4400,"until":4514}',
        '{"topic":"events","partition":3,"until":881,"anchor":{"offset":880,"timestamp_ms":1767225600000,'
        '"id_base64":"aWQ=","fingerprint":"00000000000000000000000000000000","cluster_id":"cluster","topic_id":"topic"}}',
        '{"topic":"events","partition":5,"deleted":true}',
        '{"manifest":"41.0badcafe","written_at_ms":8}',
        '{"topic":"events","partition":4,"until":7}',
    ]
    body = "".join(f"{line}\n" for line in lines[:-2]).encode()
    assert json.loads(lines[-2]) == {"end": 6, "sha256": hashlib.sha256(body).hexdigest()}
    assert lines[-1] == ""


def test_a_manifest_that_a_jobs_own_code_wrote_is_read():
    found = range_manifests.load(
        whole(
            '{"format": "reconciler.ranges/1", "group": "clicks"}',
            '{"topic": "events", "partition": 0, "from": 10, "until": 20, "count": 10}',
            '{"topic": "events", "partition": 1, "from": 5, "until": 5, "written_at_ms": 7}',
        )
    )
    assert found.snapshot is False
    assert [(each.partition, each.stored) for each in found.ranges] == [
        (0, StoredOffset(20)),
        (1, StoredOffset(5, None, 7)),
    ]
    assert found.ranges[0].text == '{"topic": "events", "partition": 0, "from": 10, "until": 20, "count": 10}'


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (['{"format":"reconciler.ranges/2","group":"g"}'], "format is not 'reconciler.ranges/1'"),
        (['{"format":"reconciler.ranges/1"}'], "group is missing or empty"),
        (['{"format":"reconciler.ranges/1","group":"g","snapshot":1}'], "snapshot is neither true nor false"),
        ([HEADER, "nonsense"], "line 2: it is not JSON"),
        ([HEADER, '{"partition":0,"until":1}'], "line 2: topic is missing"),
        ([HEADER, '{"topic":"t","until":1}'], "line 2: partition is missing"),
        ([HEADER, '{"manifest":"x","written_at_ms":1}'], "line 2: manifest is not a manifest's version"),
        ([HEADER, *['{"topic":"t","partition":0,"until":1}'] * 2], "repeats t-0"),
        ([HEADER, '{"topic":"\ud800","partition":0,"until":1}'], "is not text"),
    ],
)
def test_what_is_whole_and_wrong_is_named(lines, problem):
    with pytest.raises(FieldError) as caught:
        range_manifests.load(whole(*lines))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"topic":"t","partition":0,"untill":1}', "line 2: until is missing"),
        ('{"topic":"t","partition":0,"until":1.0}', "line 2: until is not a whole number"),
        ('{"topic":"t","partition":0,"from":2,"until":1}', "line 2: from is after until"),
        ('{"topic":"t","partition":0,"until":1,"anchor":{"ofset":1}}', "line 2: anchor.ofset is not a field"),
        (
            '{"topic":"t","partition":0,"until":1,"anchor":{"offset":1.5}}',
            "line 2: anchor.offset is not a whole number",
        ),
    ],
)
def test_a_wrong_range_hides_no_other(line, problem):
    wrong, sound = range_manifests.load(whole(HEADER, line, '{"topic":"t","partition":1,"until":7}')).ranges
    assert wrong.key == TopicPartition("t", 0)
    assert isinstance(wrong.stored, Malformed)
    assert problem in wrong.stored.message
    assert sound.stored == StoredOffset(7, None, 5)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no last line"),
        (HEADER.encode(), "no last line"),
        (whole(HEADER)[:-3], "no last line"),
        (whole(HEADER) + b"\n{}", "no last line"),
        (whole(HEADER).replace(b'"clicks"', b'"clacks"'), "its sum is not the one in its last line"),
        (whole(HEADER).replace(b'"end": 1', b'"end": 2'), "it has 1 lines before the last one, which says 2"),
    ],
)
def test_a_torn_manifest_gives_the_reason(data, reason):
    with pytest.raises(TornManifest) as caught:
        range_manifests.load(data)
    assert reason in str(caught.value)


def test_names_sort_as_numbers_do_and_other_names_are_none():
    numbers = [0, 9, 10, 1_767_229_200_000, 10**20 - 1]
    names = [range_manifests.name_of(number) for number in numbers]
    assert sorted(names) == names
    assert [range_manifests.number_of(name) for name in names] == numbers
    assert range_manifests.name_of(41) == "00000000000000000041.jsonl"
    for other in ("41.jsonl", "00000000000000000041.json", ".00000000000000000041.jsonl.crc", "_SUCCESS", ""):
        assert range_manifests.number_of(other) is None
    for number in (-1, 10**20):
        with pytest.raises(ValueError, match="does not fit"):
            range_manifests.name_of(number)


def test_one_line_is_one_range():
    assert range_manifests.parse_range('{"topic":"t","partition":0,"until":1}', 5).stored == StoredOffset(1, None, 5)
    with pytest.raises(FieldError):
        range_manifests.parse_range('{"topic":"t","partition":0,\n"until":1}', 5)
