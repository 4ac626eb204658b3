"""A query that begins with a new checkpoint, and may write to a sink that remembers batch numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.failover.check import check
from reconciler.failover.corrections import begin_anew
from tests.in_memory import GROUP, Memory, stored


def job(more: str = "", store: str = "memory:") -> str:
    return (
        f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "{store}"\n{more}\n'
    )


def anew(memory: Memory, more: str = "") -> list[str]:
    config = memory.config(jobs=job(more))
    checked = check(config, config.jobs, memory.outside)
    return [each.name for each in begin_anew(config, checked.plan.jobs, (name for name, _ in checked.to_write))]


@pytest.fixture
def moved(memory: Memory) -> Memory:
    memory.deliver(range(10))
    memory.save({0: stored(6)})
    return memory


def test_a_job_that_is_moved_and_names_no_sink_is_warned_of_once(moved: Memory) -> None:
    assert anew(moved) == ["clicks"]
    moved.apply()
    assert anew(moved) == []  # it goes on in the checkpoint that it has begun


def test_a_sink_that_is_known_is_compared_instead(moved: Memory, tmp_path: Path) -> None:
    assert anew(moved, f'sink = "files:{tmp_path}"') == []


def test_a_consumer_group_has_no_checkpoint(moved: Memory) -> None:
    checked = check(config := moved.config(jobs=job()), config.jobs, moved.outside)
    assert begin_anew(moved.config(jobs=job(store="kafka-group:")), checked.plan.jobs, ["clicks"]) == []
    assert begin_anew(config, checked.plan.jobs, ["clicks"]) != []


def test_a_job_that_has_processed_nothing_begins_its_first_checkpoint(memory: Memory) -> None:
    memory.deliver(range(10))
    assert anew(memory, 'new = "latest"') == []
