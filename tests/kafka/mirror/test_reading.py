"""Reading the mirror's own topics: backwards, as far as it takes, and never a failure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from reconciler.core.errors import Refused, Unreachable
from reconciler.core.mirrored.pairs import Sync
from reconciler.core.probes import Chunk
from reconciler.kafka.mirror import reading
from reconciler.kafka.mirror.reading import OwnTopics, Wanted, of_any_mirror, read_pairs
from reconciler.ports import ClusterInfo, ReadRequest, TopicPartition
from tests.kafka.mirror.written import (
    AT_ONCE,
    CHECKPOINTS,
    SYNCS,
    checkpoint_key,
    limit_reading,
    write_checkpoints,
    write_syncs,
)
from tests.memory_log import MemoryLog

TOPICS = OwnTopics((SYNCS,), (CHECKPOINTS,))
HERE, THERE = TopicPartition("events", 0), TopicPartition("a.events", 0)


class Counting(MemoryLog):
    """Counts the records that were read."""

    records_read = 0

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        chunks = super().read(requests)
        self.records_read += sum(len(chunk.records) for chunk in chunks)
        return chunks


@pytest.fixture
def log() -> Counting:
    return Counting("b")


def wanted(offset: int | None = 40) -> list[Wanted]:
    return [Wanted(HERE, THERE, offset)]


def test_pairs_come_in_the_order_of_their_topic(log: Counting) -> None:
    write_syncs(log, (1, 1), (30, 20), (9, 21))
    write_syncs(log, (5, 5), topic="other")
    write_checkpoints(log, (31, 21))
    known = read_pairs(log, TOPICS, wanted())
    pairs = known.of(HERE, THERE)
    assert pairs.syncs == (Sync(1, 1, AT_ONCE), Sync(30, 20, AT_ONCE), Sync(9, 21, AT_ONCE))
    assert [each.upstream for each in pairs.checkpoints] == [31]
    assert not known.note


def test_a_long_topic_is_read_from_its_end_until_there_is_a_pair_before_the_offset(
    log: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "LEAST", 50)
    monkeypatch.setattr(reading, "CHUNK", 10)
    write_syncs(log, *((number, number) for number in range(1000)))
    log.create(CHECKPOINTS, 1)
    assert len(read_pairs(log, TOPICS, wanted(999)).of(HERE, THERE).syncs) == 70
    assert len(read_pairs(log, TOPICS, wanted(800)).of(HERE, THERE).syncs) > 200
    log.records_read = 0
    assert read_pairs(log, TOPICS, wanted(0)).of(HERE, THERE).syncs[0].upstream == 0
    assert log.records_read == 1000


def test_no_more_is_read_than_the_limit(log: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_reading(monkeypatch, least=50)
    write_syncs(log, *((number, number) for number in range(1000)))
    assert len(read_pairs(log, TOPICS, wanted(0)).of(HERE, THERE).syncs) < 200


@pytest.mark.parametrize(("others", "is_found"), [(60, True), (1000, False)])
def test_a_groups_checkpoint_is_looked_for_behind_those_of_other_groups_up_to_the_limit(
    log: Counting, monkeypatch: pytest.MonkeyPatch, others: int, is_found: bool
) -> None:
    limit_reading(monkeypatch, least=20)
    write_checkpoints(log, (31, 21), group="readers")
    write_checkpoints(log, *((number, number) for number in range(others)))
    mine, theirs = (Wanted(HERE, THERE, None, frozenset({group})) for group in ("readers", "others"))
    known = read_pairs(log, OwnTopics((), (CHECKPOINTS,)), [mine, theirs])
    assert any(each.group == "readers" for each in known.of(HERE, THERE).checkpoints) is is_found
    assert not known.doubt(theirs)
    assert ("none of the newest 100 records" in known.doubt(mine)) is not is_found
    assert log.records_read < 200
    log.records_read = 0
    read_pairs(log, OwnTopics((), (CHECKPOINTS,)), [theirs])
    assert log.records_read == 30


def test_a_group_without_a_checkpoint_in_a_topic_that_was_read_through_leaves_no_doubt(log: Counting) -> None:
    write_checkpoints(log, (31, 21))
    asked = Wanted(HERE, THERE, None, frozenset({"readers"}))
    assert not read_pairs(log, TOPICS, [asked]).doubt(asked)


def test_a_checkpoint_counts_under_any_of_a_groups_names(log: Counting) -> None:
    write_checkpoints(log, (31, 21), group="readers")
    (number,) = of_any_mirror({THERE: 21}, frozenset({"readers", "a.readers"}), log, [(CHECKPOINTS,)])
    assert number == THERE
    assert not of_any_mirror({THERE: 21}, frozenset({"others"}), log, [(CHECKPOINTS,)])


@pytest.mark.parametrize(("group", "is_found"), [("readers", True), ("others", False)])
def test_any_number_is_the_mirrors_where_it_has_a_checkpoint_of_the_partition(
    log: Counting, group: str, is_found: bool
) -> None:
    write_checkpoints(log, (31, 21), group="readers")
    assert bool(of_any_mirror({THERE: None}, frozenset({group}), log, [(CHECKPOINTS,)])) is is_found


def test_records_of_an_unknown_format_are_counted(log: Counting) -> None:
    write_checkpoints(log, (31, 21))
    log.partition(CHECKPOINTS, 0).append(1, checkpoint_key("g"), b"\x00\x01 another version")
    known = read_pairs(log, TOPICS, wanted())
    assert len(known.of(HERE, THERE).checkpoints) == 1
    assert f'1 records of "{CHECKPOINTS}" are not of a known format' in known.note


def test_topics_that_do_not_exist_are_named(log: Counting) -> None:
    assert (
        read_pairs(log, TOPICS, wanted()).note
        == f'the mirror left no offsets here (no topic "{SYNCS}" or "{CHECKPOINTS}")'
    )
    write_checkpoints(log, (1, 1))
    assert read_pairs(log, TOPICS, wanted()).note == f'there is no topic "{SYNCS}"'


@pytest.mark.parametrize("named", ["p.events", "p-events", "events"])
def test_checkpoints_of_a_name_that_no_topic_has_are_reported(log: Counting, named: str) -> None:
    """The naming policy is set in one of the mirror's connectors only."""
    write_checkpoints(log, (31, 21), topic=named)
    known = read_pairs(log, TOPICS, wanted())
    what = f'the checkpoints name "{named}", which is not here, where [topics] gives "a.events": correct [topics]'
    assert known.misnamed.startswith(what)
    assert known.misnamed in known.note
    log.create(named, 1)
    assert f'name "{named}", where' in read_pairs(log, TOPICS, wanted()).note


def test_checkpoints_in_a_topic_of_another_separator_are_reported(log: Counting) -> None:
    topics = OwnTopics((), (CHECKPOINTS,), other_checkpoints=("a-checkpoints-internal", "a_checkpoints_internal"))
    assert not read_pairs(log, topics, wanted()).misnamed
    log.create("a-checkpoints-internal", 1)
    known = read_pairs(log, topics, wanted())
    assert 'are in "a-checkpoints-internal", where [topics] separator gives' in known.misnamed
    assert known.misnamed in known.note
    write_checkpoints(log, (31, 21))
    assert not read_pairs(log, topics, wanted()).misnamed


def test_a_name_that_may_not_be_looked_up_is_still_reported(log: Counting) -> None:
    write_checkpoints(log, (31, 21), topic="p.events")

    class Refusing(Counting):
        def describe(self, topics: Iterable[str]) -> ClusterInfo:
            if "p.events" in (names := list(topics)):
                raise Refused("Not authorized.")
            return log.describe(names)

    refusing = Refusing("b")
    refusing.partitions = log.partitions
    assert read_pairs(refusing, TOPICS, wanted()).misnamed.startswith('the checkpoints name "p.events", where')


def test_checkpoints_of_other_topics_are_no_other_name(log: Counting) -> None:
    write_checkpoints(log, (31, 21), topic="a.all-of-the-events2")
    write_checkpoints(log, (31, 21), topic="a.revents")
    assert not read_pairs(log, TOPICS, wanted()).misnamed
    write_checkpoints(log, (31, 21))
    write_checkpoints(log, (31, 21), topic="p.events")
    assert not read_pairs(log, TOPICS, wanted()).misnamed


@pytest.mark.parametrize("error", [Refused("Not authorized."), Unreachable("No answer.")])
def test_a_topic_that_cannot_be_read_is_no_failure(log: Counting, error: Refused | Unreachable) -> None:
    write_checkpoints(log, (31, 21))

    class Refusing(Counting):
        def describe(self, topics: Iterable[str]) -> ClusterInfo:
            if SYNCS in (names := list(topics)):
                raise error
            return log.describe(names)

        def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
            return log.read(requests)

    refusing = Refusing("b")
    refusing.partitions = log.partitions
    known = read_pairs(refusing, TOPICS, wanted())
    assert known.note == f'"{SYNCS}" could not be read: {error.message.rstrip(".")}'
    assert len(known.of(HERE, THERE).checkpoints) == 1
