"""Topics that were deleted and recreated: before a check, while it runs, while its plan is applied."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reconciler.core.errors import Changed
from reconciler.core.probes import Chunk
from reconciler.core.verdicts import Verdict
from reconciler.failover.writing.apply import prepare
from reconciler.kafka.memory import MemoryLog
from reconciler.ports import ReadRequest
from tests.in_memory import Memory, found, stored


def test_a_topic_recreated_is_searched_and_not_trusted(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: memory.own(8)}, topic="a.events")
    memory.log.create("a.events", 1, topic_id="another")
    memory.deliver(range(5, 10))
    assert found(memory.row()) == (Verdict.BOUNDED, 1), "record 6 has the anchor's time and may be new"


class MadeAnewMeanwhile(MemoryLog):
    """Its topics are replaced once its records were read."""

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        found = super().read(requests)
        self.topic_ids = dict.fromkeys(self.topic_ids, "another")
        return found


def test_a_topic_recreated_while_it_is_checked_is_noticed(memory: Memory) -> None:
    memory.log = MadeAnewMeanwhile("b", {"a.events": 1})
    memory.deliver(range(3, 10))
    memory.save({0: stored(6)})
    with pytest.raises(Changed, match="was deleted or recreated while it was checked"):
        memory.check()


def test_a_topic_recreated_while_its_plan_is_applied_is_noticed(memory: Memory) -> None:
    memory.deliver(range(3, 10))
    memory.save({0: stored(6)})
    plan, config = memory.check().plan, memory.config()
    memory.log = replaced = MadeAnewMeanwhile("b", {"a.events": 1})
    memory.deliver(range(3, 10))
    with pytest.raises(Changed, match="was deleted or recreated since the plan"):
        prepare(plan, config, memory.outside)
    assert replaced.topic_ids == {"a.events": "another"}
