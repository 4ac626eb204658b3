"""The thread beside a query: what it does about failures, a move, and the query's end."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.errors import ReconcilerError, Refused, Unreachable
from reconciler.jobs.tracking.recorder import Positions, StayRecorder
from reconciler.spark.tracking import BURST, Pace, State, Tracking
from reconciler.state.journal import latest
from tests.spark.job.world import EVENTS, World, committed
from tests.waiting import wait_until


class Query:
    """A query that waits for its next trigger."""

    def __init__(self) -> None:
        self.is_active = True
        self.begun = 7

    def stop(self) -> None:
        self.is_active = False


class Watched:
    """A tracked query of a world, at an offset of its first partition."""

    def __init__(self, world: World) -> None:
        self.world, self.query, self.offset = world, Query(), 4
        self.trouble: ReconcilerError | None = None
        self.tracking = Tracking("clicks", self.query)

    def begin(self, recorder: StayRecorder | None = None) -> None:
        self.tracking.begin(recorder or self.world.recorder(), self.read)

    def read(self) -> Positions | None:
        if self.trouble is not None:
            raise self.trouble
        return committed({0: self.offset}) if self.offset else None

    def comes(self, state: State) -> None:
        def came() -> bool:
            self.query.begun += 1  # the thread looks
            return self.tracking.state is state

        wait_until(came, lambda: f"{state}, but {self.tracking.state}")

    def newest(self) -> int | None:
        known = latest(self.world.entries()).get(EVENTS)
        return None if known is None else known.number


@pytest.fixture
def watched() -> Watched:
    return Watched(World())


def test_a_query_that_ends_has_its_last_number_in_the_journal(watched: Watched) -> None:
    watched.begin()
    watched.comes(State.RECORDING)
    watched.offset = 9
    watched.query.stop()
    watched.comes(State.ENDED)
    assert watched.newest() == 9
    assert watched.world.log.closed


def test_a_driver_that_ends_waits_for_its_last_entry(watched: Watched) -> None:
    watched.begin()
    watched.comes(State.RECORDING)
    watched.offset = 8
    watched.tracking.close()
    assert (watched.newest(), watched.query.is_active) == (8, True)


def test_a_query_without_a_checkpoint_yet_is_waited_for(watched: Watched) -> None:
    watched.offset = 0
    watched.begin()
    watched.query.begun += 1
    watched.offset = 4
    watched.comes(State.RECORDING)
    watched.tracking.close()


@pytest.mark.parametrize(("trouble", "state"), [(Unreachable("away"), State.FAILING), (Refused("no"), State.UNABLE)])
def test_a_failure_is_logged_once_and_the_query_goes_on(
    watched: Watched, caplog: pytest.LogCaptureFixture, trouble: ReconcilerError, state: State
) -> None:
    watched.trouble = trouble
    watched.begin()
    watched.comes(state)
    for _ in range(3):
        watched.tracking.turn(0.0)
    watched.tracking.close()
    assert watched.query.is_active
    assert watched.tracking.trouble is trouble
    assert [each.getMessage() for each in caplog.records] == [
        f'job "clicks" is not recorded now, and its query continues: {trouble}'
    ]


def test_a_cluster_that_comes_back_is_recorded_again(watched: Watched) -> None:
    watched.trouble = Unreachable("away")
    watched.begin()
    watched.comes(State.FAILING)
    watched.trouble = None
    watched.comes(State.RECORDING)
    assert watched.tracking.trouble is None
    watched.tracking.close()


def test_the_query_of_a_moved_job_is_stopped(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    recorder = watched.world.recorder()
    watched.world.move_to_b()
    watched.begin(recorder)
    watched.comes(State.STOPPED)
    wait_until(lambda: not watched.tracking.is_running, "the thread ended")
    assert not watched.query.is_active
    assert watched.newest() is None
    assert "it lives on b, stay 2, by ana at" in caplog.text


def test_a_bug_is_a_trouble_with_its_traceback(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Positions:
        raise ZeroDivisionError

    read: Callable[[], Positions] = broken
    watched.tracking.begin(watched.world.recorder(), read)
    watched.comes(State.UNABLE)
    watched.tracking.close()
    assert watched.query.is_active
    assert "ZeroDivisionError" in caplog.text


@given(st.lists(st.tuples(st.floats(0, 0.5), st.booleans()), max_size=200))
def test_one_entry_a_second_is_appended_at_most(looks: list[tuple[float, bool]]) -> None:
    pace, now, appends = Pace(), 0.0, list[float]()
    for step, urgent in looks:
        now += step
        if pace.wait_s(now, urgent=urgent) <= 0:
            pace.spent(now)
            appends.append(now)
    for first, begin in enumerate(appends):
        for more, end in enumerate(appends[first:]):
            assert more <= end - begin + BURST + 1e-6


def test_that_a_known_number_is_processed_now_leaves_room_for_the_next_batch() -> None:
    pace = Pace()
    pace.spent(10.0)
    assert pace.wait_s(10.5, urgent=True) <= 0
    assert pace.wait_s(10.5, urgent=False) == 1.5
