"""The two situations: a job on the source, and one that runs on the watched cluster. What the figures say of each."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from reconciler.config.file import Config, load_config
from reconciler.core.anchors import StoredOffset
from reconciler.core.verdicts import Position, Verdict
from reconciler.failover.check import check
from reconciler.failover.checking.gather import GatheredJob
from reconciler.failover.outside import Outside
from reconciler.jobs.watch.figures import CheckFigures, TopicFigures, figures_of
from reconciler.jobs.watch.readings import Readings
from reconciler.kafka.mirror.delivered import lags_ms
from reconciler.plan.document import JobPlan, StartPolicy
from reconciler.plan.start import why_stopped
from reconciler.ports import TopicPartition
from reconciler.state.journal import OUTSIDE, StreamPartition, opening
from reconciler.state.stored import Known
from tests.cli.page.shown_plans import row
from tests.in_memory import BASE, BEGIN, NOW, Memory, anchor, content, stored
from tests.starting import state_in_memory

ALONE = '[topics]\npolicy = "identity"\n'


class Guarded:
    """A job that lives on the one cluster there is: identity policy, no source, anchors with that cluster's id."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        memory.log.delete("a.events")
        self.make()

    def make(self, topic_id: str | None = None) -> None:
        self.memory.log.create("events", 1, topic_id)

    def write(self, numbers: range) -> None:
        self.memory.deliver(numbers, topic="events")

    def processed(self, offset: int) -> None:
        """The job has read up to this offset."""
        record = self.memory.log.partition("events", 0).records[offset - 1]
        named = replace(anchor(0, 0, "b"), topic_id="b/events", offset=record.offset, timestamp_ms=record.timestamp_ms)
        self.memory.save({0: StoredOffset(offset, replace(named, fingerprint=_fingerprint(record)), NOW)})

    def config(self, extra: str = "") -> Config:
        job = '[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "readers"\ntopics = ["events"]\noffsets = "memory:"\n'
        path = self.memory.folder / "alone.toml"
        path.write_text(f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "b"\n{ALONE}{extra}{job}')
        config = load_config(path, {})
        return replace(config, jobs=tuple(replace(job, moved=True) for job in config.jobs))

    def found(self) -> TopicFigures:
        return figures(self.memory, self.config()).topics["events"]


def _fingerprint(record: object) -> str:
    from reconciler.core.anchors import fingerprint

    return fingerprint(record.key, record.value)  # type: ignore[attr-defined]


def figures(memory: Memory, config: Config, outside: Outside | None = None) -> CheckFigures:
    checked = check(config, config.jobs, outside or memory.outside)
    return figures_of(checked.plan.jobs[0], checked.jobs[0], config.policy.start)


@pytest.fixture
def guarded(memory: Memory) -> Guarded:
    return Guarded(memory)


# ---------------------------------------------------------------- the job runs on the source


def on_the_source(memory: Memory) -> TopicFigures:
    return figures(memory, memory.config()).topics["a.events"]


def test_a_job_on_the_source_never_mismatches_wherever_its_record_lies(memory: Memory) -> None:
    memory.deliver(range(3, 10))
    memory.save({0: stored(6)})
    found = on_the_source(memory)
    assert found.verdicts == {Verdict.EXACT: 1}
    assert (found.own, found.mismatched, found.blocked, found.shortfall, found.replay) == (0, 0, 0, 0, 0)


def test_a_mirror_that_is_behind_is_a_shortfall(memory: Memory) -> None:
    memory.deliver(range(3))
    memory.save({0: stored(6)})
    found = on_the_source(memory)
    assert (found.verdicts, found.shortfall, found.mismatched) == ({Verdict.BEHIND: 1}, 1, 0)


def test_how_far_a_mirror_is_behind_is_told_in_the_records_own_time(memory: Memory) -> None:
    memory.deliver(range(3))
    memory.save({0: stored(6)})
    config = memory.config()
    checked = check(config, config.jobs, memory.outside)
    by = lags_ms(checked.plan.jobs[0].partitions, config.jobs[0].identity, memory.log)
    assert by == {TopicPartition("a.events", 0): 4_000}  # record 6 was processed, 2 is the newest there; a second apart
    found = figures_of(checked.plan.jobs[0], checked.jobs[0], config.policy.start, Readings(by))
    assert found.topics["a.events"].lag_s == 4
    assert on_the_source(memory).lag_s == math.inf  # not looked up


def test_a_replay_over_budget_blocks(memory: Memory) -> None:
    memory.deliver(range(20))
    memory.save({0: StoredOffset(705, written_at_ms=BEGIN + 4_500)})
    config = memory.config('[policy]\nmax_replay = 0\nno_anchor = "row-time"\n[search]\nmax_disorder = "3s"\n')
    found = figures(memory, config).topics["a.events"]
    assert found.verdicts == {Verdict.EARLY: 1}
    assert found.replay > 0
    assert found.blocked == 1
    assert figures(memory, config).outcome == "person"


def test_a_loss_blocks(memory: Memory) -> None:
    memory.deliver(range(20))
    memory.log.partition("a.events", 0).delete_before(15)
    memory.save({0: stored(4)})
    found = on_the_source(memory)
    assert found.verdicts == {Verdict.LOST: 1}
    assert (found.blocked, found.mismatched) == (1, 0)


# ---------------------------------------------------------------- the job was handed over


def test_a_job_that_was_handed_over_is_held_against_the_cluster_that_it_runs_on(memory: Memory) -> None:
    memory.deliver(range(20))
    memory.save({0: stored(4)})
    memory.save({0: memory.own(8)}, topic="a.events")
    memory.moved = True
    found = on_the_source(memory)
    assert (found.verdicts, found.own, found.mismatched) == ({Verdict.EXACT: 1}, 1, 0)
    log = memory.log.partition("a.events", 0)
    log.records, log.segments[0].batches, log.end = [], [], 0  # an unclean election: all is gone
    memory.deliver(range(30, 45))
    found = on_the_source(memory)
    assert Verdict.EXACT not in found.verdicts
    assert (found.own, found.mismatched) == (1, 1)


# ---------------------------------------------------------------- one cluster, and no other


def test_a_guarded_job_matches_as_long_as_its_log_is_the_one_it_read(guarded: Guarded) -> None:
    guarded.write(range(10))
    guarded.processed(6)
    found = guarded.found()
    assert (found.verdicts, found.own, found.mismatched, found.blocked) == ({Verdict.EXACT: 1}, 1, 0, 0)
    guarded.write(range(10, 20))
    assert guarded.found().mismatched == 0
    guarded.memory.log.partition("events", 0).delete_before(6)
    assert guarded.found().mismatched == 0


def test_a_new_partition_is_no_mismatch(guarded: Guarded) -> None:
    guarded.write(range(10))
    guarded.processed(6)
    guarded.memory.log.partitions |= {key: log for key, log in _more(guarded.memory, 2).items() if key.partition == 1}
    found = guarded.found()
    assert (found.verdicts, found.own, found.mismatched) == ({Verdict.EXACT: 1, Verdict.NEW: 1}, 1, 0)


def _more(memory: Memory, partitions: int) -> dict:  # type: ignore[type-arg]
    other = type(memory.log)("b", {"events": partitions})
    return other.partitions


@pytest.mark.parametrize(
    ("topic_id", "numbers"),
    [
        *((None, [range(left)]) for left in (0, 3, 5)),  # unclean leader election: the log lost its end
        # It was written again: the stored offset may lie within the log, and another record is at the anchor's place.
        *((None, [range(5), range(50, 50 + written)]) for written in (2, 5, 30)),
        *(("b/events again", [numbers]) for numbers in (range(0), range(3, 10), range(40, 60))),  # recreated
        *(("b/events again", [range(restored)]) for restored in (6, 10)),  # from a backup, in whole or in part
    ],
)
def test_another_log_in_the_topics_place_is_a_mismatch(
    guarded: Guarded, topic_id: str | None, numbers: list[range]
) -> None:
    guarded.write(range(10))
    guarded.processed(8)
    guarded.memory.log.delete("events")
    guarded.make(topic_id)
    for part in numbers:
        guarded.write(part)
    found = guarded.found()
    assert Verdict.EXACT not in found.verdicts
    assert (found.own, found.mismatched) == (1, 1)


def test_retention_past_a_guarded_job_is_a_mismatch_and_a_loss(guarded: Guarded) -> None:
    guarded.write(range(10))
    guarded.processed(4)
    guarded.memory.log.partition("events", 0).delete_before(7)
    found = guarded.found()
    assert (found.verdicts, found.mismatched, found.blocked) == ({Verdict.LOST: 1}, 1, 1)


def test_a_cluster_that_was_rebuilt_under_another_id_is_a_mismatch(guarded: Guarded) -> None:
    guarded.write(range(10))
    guarded.processed(8)
    guarded.memory.log.cluster_id = "rebuilt"
    guarded.memory.log.delete("events")
    guarded.make()
    guarded.write(range(4, 10))
    found = guarded.found()
    assert (found.verdicts, found.own, found.mismatched) == ({Verdict.EXACT: 1}, 1, 1)


def test_the_age_of_the_anchors_is_that_of_the_newest_stored_one(memory: Memory) -> None:
    memory.log.create("a.events", 2)
    memory.deliver(range(10))
    memory.deliver(range(10), 1)
    memory.save({0: stored(4, written_at_ms=NOW - 5_000), 1: stored(5, 1, written_at_ms=NOW - 90_000)})
    assert figures(memory, memory.config()).anchored_ms == NOW - 5_000


@pytest.mark.parametrize(("at", "anchored_ms"), [(BASE + 6, content(4)[0]), (BASE + 5, NOW)])
def test_an_anchor_that_lags_is_not_as_new_as_the_offset_that_is_read_with_it(
    memory: Memory, at: int, anchored_ms: int
) -> None:
    """A job goes on storing bare offsets after ``track`` has died: the anchors are no newer for that."""
    memory.deliver(range(10))
    memory.save({0: StoredOffset(at, None, NOW)})
    config = memory.config()
    state = state_in_memory(config.jobs[0])
    known = {StreamPartition("events", "a", 0): Known(BASE + 5, stored(4).anchor)}
    assert state.append_journal(1, 1, opening(known, OUTSIDE, NOW))
    assert figures(memory, config, replace(memory.outside, state_of=lambda _: state)).anchored_ms == anchored_ms


# ---------------------------------------------------------------- a checkpoint that repeats a batch

MOST = StartPolicy().max_replay


@pytest.mark.parametrize(
    ("start", "end", "verdict", "counts"),
    [
        ((Verdict.EARLY, MOST + 1), (Verdict.BEHIND, 0), Verdict.BEHIND, (1, 1, MOST + 1)),
        ((Verdict.EARLY, 10), (Verdict.EARLY, MOST + 1), Verdict.EARLY, (1, 0, MOST + 1)),
        ((Verdict.EARLY, MOST + 1), (Verdict.EARLY, 10), Verdict.EARLY, (1, 0, MOST + 1)),
        ((Verdict.BEHIND, 0), (Verdict.EARLY, MOST + 1), Verdict.BEHIND, (1, 1, MOST + 1)),
        ((Verdict.BEHIND, 0), (Verdict.BEHIND, 0), Verdict.BEHIND, (0, 1, 0)),
        ((Verdict.EARLY, 10), (Verdict.EARLY, 30), Verdict.EARLY, (0, 0, 30)),
        ((Verdict.LOST, 0), (Verdict.LOST, 0), Verdict.LOST, (1, 0, 0)),
    ],
)
def test_what_one_position_of_a_repeated_batch_says_is_not_hidden_by_the_other(
    start: tuple[Verdict, int], end: tuple[Verdict, int], verdict: Verdict, counts: tuple[int, ...], memory: Memory
) -> None:
    positions = {Position.START: start, Position.END: end}
    rows = [row(0, found, at_most=replay, position=position) for position, (found, replay) in positions.items()]
    plan = JobPlan("clicks", "readers", "checkpoint:/c", (*rows, row(1)))
    seen = figures_of(plan, GatheredJob(memory.config().jobs[0], plan.store, ()), StartPolicy())
    found = seen.topics["a.events"]
    assert found.verdicts == {verdict: 1, Verdict.EXACT: 1}
    assert (found.blocked, found.shortfall, found.replay) == counts
    assert seen.outcome == ("person" if any(why_stopped(each, StartPolicy()) for each in rows) else "ok")
