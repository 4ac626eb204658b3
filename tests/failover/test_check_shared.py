"""Jobs that read one topic: what several of them ask is asked once, and each gets what it gets alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.failover.check import check
from reconciler.kafka import engine
from reconciler.plan.document import JobPlan
from tests.in_memory import BASE, Memory, anchor, stored

IDENTITY = '[jobs.identity]\nid = "key"\n'


def job(number: int, identity: str) -> str:
    name = f"job{number}"
    return f'[[jobs]]\nhome = "a"\nname = "{name}"\ntopics = ["events"]\noffsets = "memory:"\n{identity}'


def judged(memory: Memory, jobs: str) -> tuple[dict[str, JobPlan], list[Mapping[str, int]]]:
    probes: list[Mapping[str, int]] = []
    config = memory.config(jobs=jobs)

    def run(reader: Any, inquiries: Mapping[Any, Any], /, **more: Any) -> Any:
        outcome = engine.run(reader, inquiries, **more)
        probes.append(outcome.probes)
        return outcome

    plan = check(config, config.jobs, replace(memory.outside, run=run)).plan
    return {each.name: each for each in plan.jobs}, probes


@pytest.mark.parametrize("identity", ["", IDENTITY])
def test_jobs_that_stopped_at_one_record_are_searched_once(wide: Memory, identity: str) -> None:
    """Whenever each of them stored it."""
    numbers = range(6)
    for partition in range(3):
        wide.deliver(range(3, 12), partition)
        for number in numbers:
            wide.save({partition: stored(7, partition, written_at_ms=1_000 + number)}, group=f"job{number}")
    one, once = judged(wide, job(0, identity))
    all_jobs, probes = judged(wide, "".join(job(number, identity) for number in numbers))
    assert probes == once
    assert {each.partitions for each in all_jobs.values()} == {one["job0"].partitions}
    assert len(all_jobs) == len(numbers)


def test_jobs_that_differ_in_anything_are_searched_apart(memory: Memory) -> None:
    """In the record, in the stored offset, or in how records are identified."""
    memory.deliver(range(3, 12))
    seventh = StoredOffset(BASE + 8, replace(anchor(7), id=b"k7"))
    own = [seventh, stored(8), replace(seventh, offset=BASE + 10), seventh]
    for number, row in enumerate(own):
        memory.save({0: row}, group=f"job{number}")
    tables = [job(number, IDENTITY if number == 3 else "") for number in range(4)]
    together, _ = judged(memory, "".join(tables))
    alone = [judged(memory, table)[0] for table in tables]
    assert together == {name: found for each in alone for name, found in each.items()}
    assert len({each.partitions for each in together.values()}) == 4
