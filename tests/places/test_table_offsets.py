"""Offsets in the texts of a table's commits, as other programs write them: read, refused, or a malformed row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import UNKNOWN_PARTITION, StoredOffset, TopicPartition
from reconciler.core.errors import ExitCode, Refused
from reconciler.core.json_fields import FieldError
from reconciler.places.parameters import Number
from reconciler.places.table_offsets import Commit, CommitOffsets, Lists, OlderGone, fill_pattern, offsets_in, rows_of
from reconciler.ports import Row
from tests.hostile.fuzz import attempt

SPARK = '{"events":{"2":40,"1":7,"0":123},"orders":{"0":0}}'
"""As Spark 4.2's ``KafkaSourceOffset`` writes it."""
E0, E1 = TopicPartition("events", 0), TopicPartition("events", 1)
INT64_MAX = 2**63 - 1


def kept(number: Number = Number.NEXT, lists: Lists = Lists.CHANGED, *within: str) -> CommitOffsets:
    return CommitOffsets(number, lists, within, "the commits of t")


def commit(number: int, offsets: object, *, is_data: bool = True) -> Commit:
    return Commit(f"version {number}", offsets, 1_000 + number, "WRITE" if is_data else "OPTIMIZE", is_data)


def stored(rows: list[Row]) -> dict[TopicPartition, StoredOffset]:
    return {row.key: row.stored for row in rows}


def test_sparks_own_offsets_are_the_next_to_read() -> None:
    rows = rows_of([commit(3, SPARK)], kept(), "g")
    assert stored(rows) == {
        E0: StoredOffset(123, None, 1_003),
        E1: StoredOffset(7, None, 1_003),
        TopicPartition("events", 2): StoredOffset(40, None, 1_003),
        TopicPartition("orders", 0): StoredOffset(0, None, 1_003),
    }
    assert [row.key for row in rows] == sorted(row.key for row in rows)


@pytest.mark.parametrize("value", [-3, 2**63, True, 1.0, "5", None, [], {}])
def test_a_number_that_is_no_offset_is_a_malformed_row_and_hides_no_other(value: object) -> None:
    bad, good = rows_of([commit(3, {"events": {"0": value, "1": 7}})], kept(), "g")
    assert bad.malformed is not None
    assert "'events-0' in the commits of t, version 3 cannot be read: its offset is" in bad.malformed.message
    assert good.stored == StoredOffset(7, None, 1_003)


def test_the_last_offset_there_can_be_has_no_next_one() -> None:
    (row,) = rows_of([commit(3, {"events": {"0": INT64_MAX}})], kept(Number.LAST), "g")
    assert row.malformed is not None


@pytest.mark.parametrize("name", ["07", "x", "-1", "", "2147483648", "9" * 5_000])
def test_a_key_that_is_no_partition_is_a_malformed_row(name: str) -> None:
    rows = rows_of([commit(3, {"events": {name: 5, "1": 7}})], kept(), "g")
    assert [(row.key.partition, row.malformed is None) for row in rows] == [(UNKNOWN_PARTITION, False), (1, True)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not JSON"),
        ("nightly backfill", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"events":{"0":1,"0":2}}', "repeats a key"),
        ('{"events":{"0":NaN}}', "holds NaN"),
        ('{"events":[5]}', "is not offsets by topic and partition"),
        ('{"0":5}', "is not offsets by topic and partition"),  # the sink for Kafka Connect: its control topic
        ('{"":{"0":1}}', "names a topic that cannot exist"),
        ('{"\\ud800":{"0":1}}', "names a topic that cannot exist"),
        (5, "is not a JSON object"),
        ("[" * 200_000, "is not JSON"),
    ],
)
def test_a_text_that_is_no_offsets_is_refused_and_no_older_one_counts(text: object, why: str) -> None:
    with pytest.raises(Refused, match=why) as caught:
        rows_of([commit(3, text), commit(2, SPARK)], kept(), "g")
    assert "The offsets in the commits of t, version 3, cannot be read" in caught.value.message


def test_offsets_may_stand_within_other_fields_whose_numbers_do_not_matter() -> None:
    text = json.dumps({"took_s": 1.5, "kafka": {"until": {"events": {"0": 5}}}})
    assert offsets_in(text, ("kafka", "until")) == {E0: 5}
    with pytest.raises(FieldError, match="has no kafka"):
        offsets_in(text, ("kafka", "ends"))


@given(
    st.text(max_size=60)
    | st.recursive(st.none() | st.integers() | st.text(), lambda of: st.lists(of) | st.dictionaries(st.text(), of))
)
def test_any_text_is_read_or_refused_with_a_sentence(text: object) -> None:
    for offsets in (text, {"events": text}, {"events": {"0": text}}, json.dumps({"events": {"0": text}})):
        rows = attempt(partial(rows_of, [commit(1, offsets)], kept(), "g"), ExitCode.UNREACHABLE, longest=100_000)
        assert all(row.malformed is not None or isinstance(row.stored.offset, int) for row in rows or ())


# ---------------------------------------------------------------- which commits count


def gone(*commits: Commit) -> Iterator[Commit]:
    yield from commits
    raise OlderGone("those are gone")


def test_of_commits_that_name_what_changed_each_partitions_newest_number_counts() -> None:
    found = rows_of(
        [commit(4, None), commit(3, {"events": {"0": 9}}), commit(2, {"events": {"0": 5, "1": 6}})], kept(), "g"
    )
    assert stored(found) == {E0: StoredOffset(9, None, 1_003), E1: StoredOffset(6, None, 1_002)}
    assert len({row.version for row in found}) == 2


def test_commits_that_are_gone_may_names_of_unless_each_names_all() -> None:
    newest = commit(3, {"events": {"0": 9, "1": 7}})
    with pytest.raises(Refused, match="Older commits may name partitions that the newer ones do not"):
        rows_of(gone(newest), kept(), "g")
    assert len(rows_of(gone(newest), kept(Number.NEXT, Lists.ALL), "g")) == 2
    for lists in Lists:
        with pytest.raises(
            Refused, match="No commit that is left names offsets in the commits of t, and those are gone"
        ):
            rows_of(gone(commit(3, None)), kept(Number.NEXT, lists), "g")


def test_a_job_that_is_said_to_name_all_partitions_and_does_not_is_refused() -> None:
    commits = [commit(3, {"events": {"0": 9}}), commit(2, {"events": {"0": 5, "1": 6}})]
    with pytest.raises(Refused, match=r"Not every commit names all partitions .* version 2 has events-1") as caught:
        rows_of(commits, kept(Number.NEXT, Lists.ALL), "g")
    assert caught.value.hint == "Write lists=changed in the store's address."
    elsewhere = [commit(3, {"a.events": {"0": 9}}), commit(2, {"events": {"0": 5, "1": 6}})]
    assert [row.key.topic for row in rows_of(elsewhere, kept(Number.NEXT, Lists.ALL), "g")] == ["a.events"]


def test_with_all_partitions_named_only_one_more_commit_is_read() -> None:
    def commits() -> Iterator[Commit]:
        yield from (commit(3, {"events": {"0": 9}}), commit(2, None), commit(1, {"events": {"0": 5}}))
        pytest.fail("a third one was read")

    assert stored(rows_of(commits(), kept(Number.NEXT, Lists.ALL), "g")) == {E0: StoredOffset(9, None, 1_003)}


def test_a_maintenance_commit_in_the_same_session_does_not_count() -> None:
    marked = commit(4, {"events": {"0": 99}}, is_data=False)
    assert stored(rows_of([marked, commit(3, {"events": {"0": 9}})], kept(), "g")) == {E0: StoredOffset(9, None, 1_003)}
    with pytest.raises(Refused, match=r"Only version 4 \(OPTIMIZE\) names offsets"):
        rows_of([marked, commit(3, None)], kept(), "g")


def test_a_table_without_offsets_has_no_rows() -> None:
    assert rows_of([], kept(), "g") == rows_of([commit(1, None)], kept(), "g") == []


def test_a_name_is_filled_once() -> None:
    assert (
        fill_pattern("{group}-{topic}-{partition}", group="{topic}", topic="a.{group}", partition=3)
        == "{topic}-a.{group}-3"
    )
    assert fill_pattern("plain {x}", group="g") == "plain {x}"
