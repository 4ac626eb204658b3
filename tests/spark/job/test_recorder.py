"""The journal of a stay: what each look at the checkpoint appends, and when a recorder must stop its query."""

from __future__ import annotations

from contextlib import suppress

import pytest

from reconciler.core.anchors import fingerprint
from reconciler.core.errors import ConfigError, OutcomeUnknown
from reconciler.jobs.tracking.recorder import MOST_PARTITIONS, Moved
from reconciler.ports import TopicPartition
from reconciler.state import journal, locations
from reconciler.state.journal import StreamPartition, latest
from reconciler.state.stored import Known
from tests.memory_log import MemoryPartition
from tests.spark.job.world import ANA, EVENTS, NOW, World, committed, running


@pytest.fixture
def world() -> World:
    return World()


def test_a_running_batch_has_its_start_and_its_end_in_one_entry(world: World) -> None:
    recorder = world.recorder()
    assert recorder.look(running({0: 4, 1: 9}, {0: 7, 1: 9}))
    assert recorder.append(NOW)
    (entry,) = world.entries()
    assert entry.full
    start, end = entry.numbers[EVENTS], entry.begun[EVENTS]
    assert (start.number, end.number) == (4, 7)
    assert not end.processed
    assert start.record is not None
    assert end.record is not None
    assert (start.record.offset, end.record.offset, end.record.cluster_id) == (3, 6, "a")
    assert end.record.fingerprint == fingerprint(b"k6", b"v6")
    silent = StreamPartition("events", "a", 1)
    assert entry.numbers[silent].number == 9
    assert silent not in entry.begun


def test_a_committed_end_becomes_processed_without_another_read(world: World) -> None:
    recorder = world.recorder()
    recorder.look(running({0: 4}, {0: 7}))
    recorder.append(NOW)
    begun, reads = world.entries()[-1].begun[EVENTS], world.log.reads
    assert not recorder.look(committed({0: 7}))
    assert recorder.append(NOW)
    assert world.log.reads == reads
    entry = world.entries()[-1]
    assert (entry.numbers[EVENTS].record, entry.numbers[EVENTS].processed) == (begun.record, True)
    assert not recorder.look(committed({0: 7}))
    assert not recorder.append(NOW), "nothing changed"


def test_batches_between_two_looks_are_merged(world: World) -> None:
    recorder = world.recorder()
    for end in (2, 5, 9):
        recorder.look(committed({0: end}))
    recorder.append(NOW)
    assert [each.numbers[EVENTS].number for each in world.entries()] == [9]


def test_the_record_is_the_last_one_in_front_of_markers(world: World) -> None:
    world.log.partition("events", 0).append_marker(NOW)
    recorder = world.recorder()
    recorder.look(committed({0: 11}))
    recorder.append(NOW)
    known = world.entries()[-1].numbers[EVENTS]
    assert known.record is not None
    assert (known.number, known.record.offset, known.older) == (11, 9, 0)


def test_a_number_without_a_record_has_the_last_known_one(world: World) -> None:
    recorder = world.recorder()
    recorder.look(committed({0: 4}))
    world.log.partition("events", 0).delete_before(10)
    recorder.look(running({0: 4}, {0: 8}))
    recorder.append(NOW)
    end = world.entries()[-1].begun[EVENTS]
    assert end.record is not None
    assert (end.record.offset, end.older) == (3, 4)


def test_a_number_of_a_topic_that_was_made_anew_gets_none_of_its_records(world: World) -> None:
    recorder = world.recorder()
    recorder.look(committed({0: 4}))
    world.log.delete("events")
    world.log.create("events", 2, "another-id")
    world.produce(10)
    recorder.look(running({0: 4}, {0: 8}))
    recorder.look(running({0: 4}, {0: 8}))  # nor at the next look
    recorder.append(NOW)
    end = world.entries()[-1].begun[EVENTS]
    assert end.record is not None
    assert (end.record.offset, end.record.topic_id, end.older) == (3, "a/events", 4)


def test_a_partition_that_is_not_there_stops_no_other(world: World) -> None:
    recorder = world.recorder()
    recorder.look(committed({0: 4, 7: 4}))
    recorder.append(NOW)
    assert set(world.entries()[-1].numbers) == {EVENTS}


def test_a_partition_that_was_added_has_its_records_at_the_first_look(world: World) -> None:
    recorder = world.recorder()
    recorder.look(committed({0: 4}))
    world.log.partitions[TopicPartition("events", 2)] = MemoryPartition()
    world.produce(6, partition=2)
    recorder.look(committed({0: 4, 2: 6}))
    recorder.append(NOW)
    record = latest(world.entries())[StreamPartition("events", "a", 2)].record
    assert record is not None
    assert record.offset == 5


def test_a_log_that_is_compacted_since_the_last_look_may_have_lost_the_records_before_a_number(world: World) -> None:
    recorder = world.recorder()
    recorder.look(committed({0: 4}))
    world.log.partition("events", 0).compact([7])
    recorder.look(committed({0: 8}))
    recorder.append(NOW)
    known = world.entries()[-1].numbers[EVENTS]
    assert known.record is not None
    assert (known.record.offset, known.older) == (3, 4)


def test_a_number_that_cannot_be_named_is_left_out_and_not_looked_up_again(world: World) -> None:
    world.log.partition("events", 0).delete_before(10)
    recorder = world.recorder()
    assert recorder.look(committed({0: 5}))
    reads = world.log.reads
    assert not recorder.look(committed({0: 5}))
    assert world.log.reads == reads
    recorder.append(NOW)
    assert EVENTS not in journal.latest(world.entries())


def test_what_a_plan_has_shown_to_come_again_goes_along_until_it_is_passed(world: World) -> None:
    assert world.job.append_journal(1, 1, journal.opening({EVENTS: Known(3, None, again=4)}, "plan 1", NOW))
    recorder = world.recorder()
    recorder.look(running({0: 5}, {0: 9}))
    recorder.append(NOW)
    entry = world.entries()[-1]
    assert (entry.numbers[EVENTS].again, entry.begun[EVENTS].again) == (2, 0)


# ---------------------------------------------------------------- two recorders, and a move


def test_the_next_driver_goes_on_and_the_one_before_must_stop(world: World) -> None:
    first, second = world.recorder("first driver"), world.recorder("second driver")
    first.look(running({0: 4}, {0: 7}))
    first.append(NOW)
    reads = world.log.reads
    assert not second.look(running({0: 4}, {0: 7})), "the journal has both numbers"
    second.append(NOW)
    assert world.log.reads == reads
    assert world.entries()[-1].full
    first.look(committed({0: 7}))
    with pytest.raises(Moved, match=r"another driver records its stay 1 since .*second driver.*lives on a, stay 1"):
        first.append(NOW)
    second.look(committed({0: 9}))
    assert second.append(NOW)


def test_the_first_entry_of_a_driver_is_tried_again_beside_one_that_still_appends(world: World) -> None:
    zombie, driver = world.recorder("zombie"), world.recorder("driver")
    zombie.look(committed({0: 4}))
    driver.look(committed({0: 5}))
    zombie.append(NOW)
    assert driver.append(NOW)
    assert [each.run for each in world.entries()] == ["zombie", "driver"]


def test_an_append_whose_reply_was_lost_stops_nothing(world: World) -> None:
    recorder = world.recorder()
    recorder.look(committed({0: 4}))
    recorder.append(NOW)
    put, read_one = world.job.store._backend.put, world.job.store._backend.read_one

    def lost(log: str, number: int, entry: bytes) -> bool:
        put(log, number, entry)
        raise OutcomeUnknown("no reply")

    def no_answer(log: str, number: int) -> None:
        raise OutcomeUnknown("no reply")

    world.job.store._backend.put, world.job.store._backend.read_one = lost, no_answer  # type: ignore[method-assign]
    recorder.look(committed({0: 6}))
    with pytest.raises(OutcomeUnknown):
        recorder.append(NOW)
    world.job.store._backend.put, world.job.store._backend.read_one = put, read_one  # type: ignore[method-assign]
    recorder.look(committed({0: 8}))
    assert recorder.append(NOW)
    assert [each.numbers[EVENTS].number for each in world.entries()] == [4, 6, 8]


@pytest.mark.parametrize("write", range(8))
def test_a_driver_that_runs_on_appends_nothing_once_its_job_is_moved(world: World, write: int) -> None:
    """It stores an offset right before each write: ``moving``, the plan, ``writing``, the journal's end, the next one's
    start (twice), ``lives``; or after the last.
    """
    driver, put, left = world.recorder(), world.job.store._backend.put, write
    driver.look(committed({0: 4}))
    driver.append(NOW)
    driver.look(committed({0: 6}))

    def beside(log: str, number: int, entry: bytes) -> bool:
        nonlocal left
        left -= 1
        if left == -1:
            with suppress(Moved):
                driver.append(NOW)
        return put(log, number, entry)

    world.job.store._backend.put = beside  # type: ignore[method-assign]
    here = world.move_to_b()
    entries = world.entries()
    assert [each.numbers[EVENTS].number for each in entries[:-1]] == ([4, 6] if write <= 3 else [4])
    assert (entries[-1].closed_by, entries[-1].numbers) == (here.number - 1, {})
    assert latest(entries) == latest(entries[:-1]), "the stay is read as before"
    driver.look(committed({0: 8}))
    sentence = r'job "clicks" must not continue: it lives on b, stay 2, by ana at 2026-09-21T.* \(a burns\)'
    for append in (lambda: driver.append(NOW), lambda: world.recorder("no hook").look(committed({0: 6}))):
        with pytest.raises(Moved, match=sentence):
            append()
    assert world.entries() == entries


def test_a_job_that_is_moving_is_recorded_until_its_numbers_are_written(world: World) -> None:
    recorder = world.recorder()
    moving = world.job.move_on(world.home, locations.moving(world.home, "b", ANA))
    recorder.require_here()
    world.job.move_on(moving, locations.writing(moving, 1, ANA))
    with pytest.raises(Moved, match="is being moved to b, by ana"):
        recorder.require_here()


def test_a_driver_that_cannot_read_its_cluster_ends_no_other(world: World) -> None:
    first, blind = world.recorder("first driver"), world.recorder("blind")
    first.look(committed({0: 4}))
    first.append(NOW)

    def away(*_: object) -> None:
        raise ConfigError("the login is in the JVM")

    blind._source.before = away  # type: ignore[assignment,method-assign]
    with pytest.raises(ConfigError):
        blind.look(committed({0: 6}))
    first.look(committed({0: 6}))
    assert first.append(NOW)


def test_above_ten_thousand_partitions_the_outside_tracker_is_named(world: World) -> None:
    with pytest.raises(ConfigError, match="reconciler track"):
        world.recorder().look(committed(dict.fromkeys(range(MOST_PARTITIONS + 1), 1)))
