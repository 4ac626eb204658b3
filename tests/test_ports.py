"""What the ports' own values promise."""

from __future__ import annotations

import pytest

from reconciler.ports import ClusterInfo, TopicInfo, TopicPartition


class Number(int):
    """A partition's number that counts comparisons."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        type(self).compared += 1
        return int(self) < int(other)

    def __eq__(self, other: object) -> bool:
        type(self).compared += 1
        return int(self) == other

    __hash__ = int.__hash__


@pytest.mark.parametrize("numbers", [(), (0,), (1, 2, 5), tuple(range(9))])
def test_a_topic_has_its_partitions_and_no_others(numbers: tuple[int, ...]) -> None:
    info = TopicInfo("events", "id", numbers)
    assert [each for each in range(-1, 11) if info.has(each)] == list(numbers)


def test_a_look_up_of_a_partition_does_not_go_through_all_of_them() -> None:
    info = TopicInfo("events", "id", tuple(map(Number, range(1024))))
    Number.compared = 0
    assert all(map(info.has, range(1024)))
    assert Number.compared <= 1024 * 12


@pytest.mark.parametrize("numbers", [(1, 0), (0, 0)])
def test_partitions_that_are_not_ascending_are_a_bug(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="not ascending"):
        TopicInfo("events", "id", numbers)


def cluster(cluster_id: str, *topics: tuple[str, str | None]) -> ClusterInfo:
    return ClusterInfo(cluster_id, {name: TopicInfo(name, topic_id, (0, 1)) for name, topic_id in topics})


@pytest.mark.parametrize(
    ("now", "is_same"),
    [
        (cluster("c", ("events", "id"), ("views", "other")), True),
        (cluster("c", ("events", "recreated")), False),
        (cluster("c"), False),
        (cluster("another", ("events", "id")), False),
    ],
)
def test_offsets_mean_the_same_records_in_the_same_topic_of_the_same_cluster(now: ClusterInfo, is_same: bool) -> None:
    assert now.numbers_as(cluster("c", ("events", "id"), ("views", "id")), "events") is is_same


def test_a_deleted_topic_is_another_one_where_the_cluster_gives_no_ids() -> None:
    before = cluster("c", ("events", None))
    assert before.numbers_as(before, "events")
    assert not cluster("c").numbers_as(before, "events")


def test_a_topic_lists_its_partitions_by_full_name() -> None:
    assert TopicInfo("events", "id", (0, 2)).places == [TopicPartition("events", 0), TopicPartition("events", 2)]
