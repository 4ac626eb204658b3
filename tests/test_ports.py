"""What the ports' own values promise."""

from __future__ import annotations

import pytest

from reconciler.ports import TopicInfo


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
