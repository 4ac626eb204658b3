"""What the hook says where it writes nothing: a partition for which nothing is stored is not called right."""

from __future__ import annotations

import pytest

from reconciler.jobs.hook.start import nothing_to_correct
from tests.in_memory import Memory


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ([0, 1, 2], "every offset is right"),
        ([0, 1], "every stored offset is right, and 1 partition without one starts as new"),
        ([], "no offset is stored, and 3 partitions start as new"),
    ],
)
def test_nothing_stored_is_not_called_right(wide: Memory, stored: list[int], said: str) -> None:
    for partition in stored:
        wide.deliver([partition], partition)
    wide.save({partition: wide.own(1, partition) for partition in stored}, topic="a.events")
    wide.moved = bool(stored)
    assert nothing_to_correct(wide.job()) == said
