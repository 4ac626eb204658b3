"""The behaviour that all offset stores share. Guards skip tests of capabilities that a store does not claim."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from reconciler.config.stores import STORES
from reconciler.core.anchors import Anchor, Names, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError
from reconciler.places.registry import traits
from reconciler.ports import Change, TopicPartition
from tests.places.store_cases import HERE, NOW, ON_SERVERS, Case, exists, put
from tests.sizes import sampled

FULL = Anchor(
    offset=41,
    timestamp_ms=1_699_999_999_999,
    id=b"order-17",
    fingerprint=fingerprint(b"k", b"v"),
    cluster_id="cluster-a",
    topic_id="topic-1",
)
SHAPES = {
    "full": FULL,
    "none": None,
    "bare": Anchor(),
    "numbering only": Anchor(cluster_id="c", topic_id="t"),
    "binary id": Anchor(offset=1, id=bytes(range(256)), fingerprint=fingerprint(None, None)),
    "empty id": Anchor(offset=1, id=b""),
    "unicode ids": Anchor(offset=1, cluster_id="kläster", topic_id="主題"),
    "fingerprint only": Anchor(fingerprint=fingerprint(b"", None)),
    "time only": Anchor(timestamp_ms=0),
    "early time": Anchor(timestamp_ms=-1),
    "largest": Anchor(offset=2**63 - 1, timestamp_ms=2**63 - 1),
    "the record at the offset": Anchor(offset=42, timestamp_ms=5, names=Names.NEXT),
    "largest event time": Anchor(timestamp_ms=5, names=Names.MAX_TIME),
}


LIKE_ANOTHER = ("postgresql_grouped", "mysql_mapped", "hbase_metrics", "hbase_flowlet")
"""Their code is that of another case, but for the form of a row."""
REAL = sampled(
    [pytest.param(name, marks=pytest.mark.system) for name in ON_SERVERS],
    0,
    always=lambda case: case.values[0] not in LIKE_ANOTHER,
)


@pytest.fixture(params=[*HERE, *REAL])
def case(request, tmp_path) -> Case:
    return {**HERE, **ON_SERVERS}[request.param](request, tmp_path)


@pytest.fixture
def store(case):
    opened = case.open()
    if not exists(opened, "st-any"):
        put(opened, "st-any", {case.key(): StoredOffset(1)})
    yield opened
    opened.close()


@pytest.fixture
def group(case):
    return case.group()


def only_row(store, group):
    (row,) = store.read(group)
    return row


@pytest.mark.parametrize("scheme", STORES)
def test_the_suite_runs_on_every_store_that_commands_write_to(scheme):
    if traits(f"{scheme}:").corrected_by_apply:
        assert any(re.match(rf"{scheme}(_|$)", name) for name in (*HERE, *ON_SERVERS)), "tests/places/store_cases.py"


def test_an_unknown_group_is_empty(store, group):
    assert store.read(group) == []
    store.check_writable(group)
    assert store.write(group, [], reason="nothing", now_ms=NOW).written == ()


def test_every_shape_of_anchor_reads_back(store, case):
    """One store for all: to make one costs more than to write to it. Where there are no groups, the row is replaced."""
    for shape, anchor in SHAPES.items():
        if anchor is None or (store.capabilities.keeps_anchors and case.whole_anchors):
            group, stored = case.group(), StoredOffset(42, anchor, written_at_ms=NOW - 5)
            result = put(store, group, {case.key(): stored})
            assert (result.written, result.conflicts) == ((case.key(),), ()), shape
            found = only_row(store, group).stored
            assert found == (stored if case.dates_rows else replace(stored, written_at_ms=found.written_at_ms)), shape


def test_any_topic_name_reads_back(store, case):
    if not case.any_topic_name:
        pytest.skip("Kafka or ZooKeeper decides which names there may be")
    others = [case.key().topic] if not case.groups else []
    for topic in ("thème", "主題", "a b", "a\nb", "x" * 400, "'; DROP TABLE--", "%s?#"):
        group, key = case.group(), TopicPartition(topic, 7)
        put(store, group, {key: StoredOffset(1, FULL)})
        assert [row.key for row in store.read(group) if row.key.topic not in others] == [key]
        others += [topic] if not case.groups else []


def test_any_group_name_reads_back(store, case):
    for name in ("gé 日本", "a b", "'; DROP TABLE--", "%s?#", "g:1"):
        group = case.group(f"st-{name}")
        put(store, group, {case.key(): StoredOffset(3, FULL)})
        assert only_row(store, group).stored.offset == 3, name


def test_names_no_store_can_hold_are_refused(store, case):
    for name in ("", "a\0b", "a\ud800"):
        with pytest.raises(ConfigError):
            store.read(name)
        with pytest.raises(ConfigError):
            store.check_writable(name)
        with pytest.raises(ConfigError):
            store.write(name, [Change(case.key(), None, StoredOffset(1))], reason="test", now_ms=NOW)
        change = Change(TopicPartition(name, 0), None, StoredOffset(1))
        with pytest.raises(ConfigError):
            store.write("st-group", [change], reason="test", now_ms=NOW)


def test_a_batch_with_a_partition_twice_is_a_bug_of_the_caller(store, case, group):
    twice = [Change(case.key(), None, StoredOffset(offset)) for offset in (1, 2)]
    with pytest.raises(ValueError, match="two changes"):
        store.write(group, twice, reason="test", now_ms=NOW)
    assert store.read(group) == []


@pytest.mark.parametrize("offset", [-1, -2])
def test_a_sentinel_reads_back(store, case, group, offset):
    if not case.sentinels:
        pytest.skip("this store holds no negative offsets")
    put(store, group, {case.key(): StoredOffset(offset)})
    assert only_row(store, group).stored.is_sentinel


def test_rows_come_ordered_and_by_topic(store, case, group):
    keys = [case.key(partition, topic) for topic in (1, 0) for partition in (3, 0, 2)]
    put(store, group, {key: StoredOffset(key.partition) for key in keys})
    assert [row.key for row in store.read(group)] == sorted(keys)
    first = case.topics[0]
    assert {row.key.topic for row in store.read(group, [first])} == {first}
    assert len(store.read(group, iter(case.topics))) == 6
    assert store.read(group, []) == []
    assert store.read(group, ["st-none-such"]) == []


def test_groups_do_not_mix(store, case):
    if not case.groups:
        pytest.skip("this store has no groups: one job a store")
    base = case.group()
    groups = [base, base + "0", base + "%", base.upper()]
    for number, group in enumerate(groups):
        put(store, group, {case.key(): StoredOffset(number)})
    assert [only_row(store, group).stored.offset for group in groups] == [0, 1, 2, 3]


def test_the_time_of_writing_is_now_unless_the_row_has_one(store, case, group):
    if not case.dates_rows:
        pytest.skip("this store has the time of the place itself, or none")
    put(store, group, {case.key(0): StoredOffset(1), case.key(1): StoredOffset(1, FULL, 77)}, now_ms=NOW)
    assert [row.stored.written_at_ms for row in store.read(group)] == [NOW, 77]


def test_a_row_that_is_to_have_no_time_of_writing_gets_none(store, case, group):
    if not case.dates_rows:
        pytest.skip("this store has the time of the place itself, or none")
    change = Change(case.key(), None, StoredOffset(1), undated=True)
    assert store.write(group, [change], reason="import", now_ms=NOW).written == (case.key(),)
    assert [(row.stored.offset, row.stored.written_at_ms) for row in store.read(group)] == [(1, None)]


def test_a_row_written_again_has_another_version(store, case, group):
    put(store, group, {case.key(): StoredOffset(1)}, now_ms=NOW)
    first = only_row(store, group)
    put(store, group, {case.key(): StoredOffset(2)}, now_ms=NOW)
    assert only_row(store, group).version != first.version
    put(store, group, {case.key(): StoredOffset(1)}, now_ms=NOW)
    if not case.versions_recur:
        assert only_row(store, group).version != first.version


def test_a_write_of_one_row_leaves_the_others_as_they_are(store, case, group):
    put(store, group, {case.key(n): StoredOffset(n) for n in range(2)})
    first, second = store.read(group)
    stale = store.write(group, [Change(first.key, second.version, StoredOffset(9))], reason="no", now_ms=NOW)
    assert stale.conflicts == (first.key,)
    store.write(group, [Change(first.key, first.version, StoredOffset(9))], reason="yes", now_ms=NOW)
    changed, left = store.read(group)
    assert (changed.stored.offset, left.key, left.stored.offset) == (9, second.key, 1)
    assert left.version == second.version or not case.rows_apart


def test_reading_alone_does_not_change_a_version(store, case, group):
    put(store, group, {case.key(): StoredOffset(1, FULL)})
    with closing(case.open()) as another:
        assert store.read(group) == store.read(group) == another.read(group)


def test_a_stale_version_changes_nothing(store, case, group):
    put(store, group, {case.key(): StoredOffset(1)})
    stale = only_row(store, group)
    put(store, group, {case.key(): StoredOffset(2)})
    result = store.write(group, [Change(case.key(), stale.version, StoredOffset(3))], reason="test", now_ms=NOW)
    assert (result.written, result.conflicts) == ((), (case.key(),))
    assert only_row(store, group).stored.offset == 2


def test_expecting_no_row_conflicts_with_an_existing_row(store, case, group):
    put(store, group, {case.key(): StoredOffset(1)})
    result = store.write(group, [Change(case.key(), None, StoredOffset(2))], reason="test", now_ms=NOW)
    assert result.conflicts == (case.key(),)
    assert only_row(store, group).stored.offset == 1


def test_expecting_a_row_conflicts_with_a_missing_row(store, case, group):
    result = store.write(group, [Change(case.key(), "1", StoredOffset(2))], reason="test", now_ms=NOW)
    assert result.conflicts == (case.key(),)
    assert store.read(group) == []


def test_a_batch_with_a_conflict_writes_nothing_or_only_the_other_rows(store, case, group):
    put(store, group, {case.key(0): StoredOffset(1)})
    changes = [Change(case.key(n), None, StoredOffset(10 + n)) for n in (2, 0, 1)]
    result = store.write(group, changes, reason="test", now_ms=NOW)
    assert result.conflicts == (case.key(0),)
    found = {row.key.partition: row.stored.offset for row in store.read(group)}
    if store.capabilities.atomic_batches:
        assert (result.written, found) == ((), {0: 1})
    else:
        assert (set(result.written), found) == ({case.key(1), case.key(2)}, {0: 1, 1: 11, 2: 12})


def test_creating_an_existing_store_changes_nothing(store, case, group):
    put(store, group, {case.key(): StoredOffset(9, FULL)})
    before = store.read(group)
    store.create()
    assert store.read(group) == before
    with closing(case.open()) as fresh:
        fresh.create()
        assert fresh.read(group) == before


def test_rows_survive_closing_and_opening(store, case, group):
    put(store, group, {case.key(): StoredOffset(9, FULL)})
    before = store.read(group)
    store.close()
    again = case.open()
    assert again.read(group) == before
    assert again.address == store.address
    again.close()


def test_a_row_of_this_products_own_has_its_stay(store, case, group):
    if not case.has_stays:
        pytest.skip("another program's rows have no room for it")
    put(store, group, {case.key(0): StoredOffset(1, FULL)})
    assert only_row(store, group).of_stay is None
    for stay in (2, 13):
        change = Change(case.key(0), only_row(store, group).version, StoredOffset(stay, FULL), stay=stay)
        assert store.write(group, [change], reason="move", now_ms=NOW).written
        with closing(case.open()) as another:
            row = only_row(another, group)
        assert (row.stored.offset, row.stored.anchor, row.of_stay) == (stay, FULL, stay)
    put(store, group, {case.key(1): StoredOffset(7)})
    assert {row.key.partition: row.of_stay for row in store.read(group)} == {0: 13, 1: None}
    put(store, group, {case.key(0): StoredOffset(14)})
    assert [row.of_stay for row in store.read(group)] == [None, None], "a driver that does not say its stay"


def test_of_several_concurrent_writers_at_most_one_wins_each_round(store, case, group, thorough):
    if not case.real_compare_and_set:
        pytest.skip("this store has no compare-and-set of its own")
    writers, rounds = (8, 10) if thorough else (4, 3)
    put(store, group, {case.key(): StoredOffset(0)})
    barrier = threading.Barrier(writers)

    def write(number: int) -> list[bool]:
        won = []
        for turn in range(1, rounds + 1):
            with closing(case.open()) as mine:
                barrier.wait()
                row = only_row(mine, group)
                barrier.wait()
                at = 100 * turn + number
                new = StoredOffset(at, Anchor(offset=number))
                result = mine.write(group, [Change(row.key, row.version, new)], reason="race", now_ms=NOW + at)
                won.append(bool(result.written))
        return won

    with ThreadPoolExecutor(writers) as pool:
        outcomes = list(pool.map(write, range(writers)))
    winners = [[number for number, won in enumerate(turn) if won] for turn in zip(*outcomes, strict=True)]
    assert {len(each) for each in winners} <= ({0, 1} if case.may_all_lose else {1})
    last = [100 * turn + each[0] for turn, each in enumerate(winners, 1) if each]
    assert only_row(store, group).stored.offset == max(last, default=0)
