"""Moves under which every offset stays right: one topic name on both sides, and records under equal offsets."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reconciler.cli.commands.plan import steps_after
from reconciler.cli.page.advice import Files
from reconciler.config.file import load_config
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import NeedsPerson, Refused
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import prepare
from reconciler.ports import TopicPartition
from reconciler.spark.batches.planning import LogEdges, OffsetRange
from reconciler.spark.batches.planning import plan as plan_ranges
from reconciler.state.jobs import JobState
from reconciler.state.locations import Phase
from tests.in_memory import GROUP, NOW, Memory, anchor, found, stored
from tests.starting import moved, start_of, state_in_memory

ONE_NAME = '[topics]\npolicy = "identity"\n'


def at_source(number: int, partition: int) -> StoredOffset:
    """The source's row after record ``number``, where numbers begin with record 0 on both clusters."""
    return StoredOffset(number + 1, replace(anchor(number, partition), offset=number), NOW - 9_000)


@pytest.fixture
def level(memory: Memory) -> Memory:
    """Under one name, two partitions whose records have equal offsets on both clusters."""
    memory.log.create("events", 2)
    for partition in range(2):
        memory.deliver(range(10), partition, topic="events")
    memory.save({0: at_source(4, 0), 1: at_source(7, 1)})
    return memory


def clusters(memory: Memory) -> set[str | None]:
    return {row.stored.cluster_id for row in memory.rows()}


def offsets(memory: Memory) -> dict[int, int]:
    return {row.key.partition: row.stored.offset for row in memory.rows()}


def next_ranges(memory: Memory) -> tuple[OffsetRange, ...]:
    """The ranges that a job of range batches reads next at the destination."""
    cluster = memory.log.describe(["events"])
    places = cluster.topics["events"].places
    edges = LogEdges(cluster, dict.fromkeys(places, 0), dict.fromkeys(places, 10))
    return plan_ranges({row.key: row for row in memory.rows()}, edges, ["events"], group=GROUP).ranges


def test_check_has_nothing_to_correct_and_tells_what_a_move_would_anchor(level: Memory) -> None:
    checked = level.check(ONE_NAME)
    assert [found(row) for row in checked.plan.jobs[0].partitions] == [(Verdict.EXACT, 5), (Verdict.EXACT, 8)]
    assert not checked.to_write
    assert checked.to_reanchor == {("clicks", TopicPartition("events", partition)) for partition in range(2)}


def test_plan_names_apply_for_such_rows_also_beside_a_job_that_a_command_of_its_own_corrects(level: Memory) -> None:
    files, checked = Files("failover.plan.json", "reconciler.toml"), level.check(ONE_NAME)
    alone = steps_after(checked, files)
    needed = "batches need 2 rows with the destination's anchor too, which apply writes:"
    apply = "reconciler apply failover.plan.json -c reconciler.toml"
    assert alone == [f"Nothing to correct. Range {needed}", apply]
    (job,) = checked.plan.jobs
    query = replace(job, name="query", store="checkpoint:/data/query")
    both = replace(checked, plan=replace(checked.plan, jobs=(job, query)))
    both = replace(both, to_write=frozenset({("query", TopicPartition("events", 0))}))
    assert steps_after(both, files) == [f"Next: {apply}"]


def test_apply_gives_rows_that_are_right_the_destinations_anchors(level: Memory) -> None:
    level.apply(ONE_NAME)
    assert (clusters(level), offsets(level)) == ({"b"}, {0: 5, 1: 8})
    checked, config = level.check(ONE_NAME), level.config(ONE_NAME)
    assert not checked.to_write | checked.to_reanchor
    (again,) = prepare(checked.plan, config, level.outside)
    assert not again.intended


def test_range_batches_go_on_at_the_destination_after_the_move_and_not_before(level: Memory) -> None:
    with pytest.raises(NeedsPerson, match="are of another cluster"):
        next_ranges(level)
    level.apply(ONE_NAME)
    assert [(each.from_offset, each.until_offset) for each in next_ranges(level)] == [(5, 10), (8, 10)]


def test_a_row_of_the_topic_before_it_was_recreated_is_anchored_though_its_offset_is_right(level: Memory) -> None:
    level.save({1: at_source(4, 1)})
    level.apply(ONE_NAME)
    old = {row.key.partition: row.stored for row in level.rows()}
    earlier = {part: replace(row, anchor=replace(row.anchor, topic_id="b/earlier")) for part, row in old.items()}
    level.save(earlier, topic="events")
    with pytest.raises(NeedsPerson, match="deleted and recreated"):
        next_ranges(level)
    assert not level.check(ONE_NAME).to_write
    level.apply(ONE_NAME)
    assert next_ranges(level)


# ---------------------------------------------------------------- by the hook


@dataclass
class HookRun:
    """Starts by the hook of a job that is moving to the destination, or lives there already (``lives_there``)."""

    memory: Memory
    extra: str = ONE_NAME
    lives_there: bool = False
    state: JobState | None = None

    def start(self, outside: Outside | None = None) -> dict[str, str]:
        memory = self.memory
        config, outside = memory.config(self.extra), outside or memory.outside
        if self.state is None:
            self.state = state_in_memory(config.jobs[0])
            if self.lives_there:
                moved(self.state, "a", "b")
        state = self.state
        outside = replace(outside, state_of=lambda _: state)
        start = start_of(config, memory.folder, state=state)
        return start.correct(check(start.config, (start.job,), outside), outside, lambda _: None)


def test_the_hook_gives_rows_that_are_right_the_destinations_anchors(
    level: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    run = HookRun(level)
    assert run.start()
    assert (clusters(level), offsets(level)) == ({"b"}, {0: 5, 1: 8})
    assert "2 offsets left as stored, with the destination's anchors now. To undo: reconciler rollback " in caplog.text
    caplog.clear()
    assert run.start()
    assert "rollback" not in caplog.text


def test_a_job_whose_anchors_are_replaced_where_it_lives_starts_in_the_stay_that_this_begins(memory: Memory) -> None:
    """Its topic was made anew, and has the same records under the same offsets."""
    memory.deliver(range(10))
    memory.save({0: stored(4)})
    run = HookRun(memory, extra="")
    run.start()
    own = memory.own(6)
    memory.save({0: replace(own, anchor=replace(own.anchor, topic_id="b/earlier"))}, topic="a.events")
    started = json.loads(Path(run.start()["RECONCILER_START"]).read_text())
    assert run.state is not None
    lives = [each.stay for each in run.state.history() if each.phase is Phase.LIVES]
    assert lives == [1, 2, started["stay"]]


def test_a_move_that_may_not_write_has_not_begun(level: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may still be cancelled."""

    def refuse(_: str) -> None:
        raise Refused("The account may not write.", hint="Ask.")

    monkeypatch.setattr(level.store, "check_writable", refuse)
    run = HookRun(level)
    with pytest.raises(Refused):
        run.start()
    assert run.state is not None
    here = run.state.location()
    assert here is not None
    assert (here.phase, here.to) == (Phase.MOVING, "b")


# ---------------------------------------------------------------- what stays out


def test_rows_of_a_consumer_group_are_left_alone(level: Memory) -> None:
    """Its consumers may run here already, and then the group takes no commit of others."""
    path: Path = level.folder / "group.toml"
    path.write_text(
        f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "b"\n{ONE_NAME}'
        f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "kafka-group:"\n'
    )
    config = load_config(path, {})
    (change,) = prepare(level.check(ONE_NAME).plan, config, level.outside)
    assert not change.intended
