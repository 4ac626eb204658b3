"""Cloudera's layout with anchors, in memory: two writers at once, each of which may end at any of its calls.

Afterwards the job goes on from the latest row, after a read or before any. No row may be read in the numbering of a
cluster that it is not of.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from reconciler.core.errors import OutcomeUnknown, ReconcilerError
from reconciler.ports import Change, WriteResult
from reconciler.stores.hbase.cloudera import ClouderaStore
from tests.stores.hbase.fake_table import FakeTable
from tests.stores.hbase.test_cloudera_kills import KEY, Job, Killed, of

WAIT_S = 60.0
ALL = 99
"""More steps than a command has."""
STEPS = range(8)
"""A command has seven."""

Command = Callable[[ClouderaStore], WriteResult]


class Process:
    """A command in a thread of its own, which waits before each step.

    A step is a write to the table, or all that is read between two writes.
    """

    def __init__(self, table: FakeTable, command: Command) -> None:
        self.result: WriteResult | ReconcilerError | None = None
        self._store = ClouderaStore(cast(Any, _Gated(table, self._wait)), "hbase:", anchor_family=b"anchors")
        self._command = command
        self._may_go, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._ended = self._dies = self._reads = False
        threading.Thread(target=self._run, daemon=True).start()
        assert self._stands.acquire(timeout=WAIT_S)

    def go(self, steps: int) -> None:
        for _ in range(steps):
            if self._ended:
                return
            self._may_go.release()
            assert self._stands.acquire(timeout=WAIT_S)

    def die(self) -> None:
        """End before the next step."""
        self._dies = True
        self.go(1)
        assert self._ended

    def _run(self) -> None:
        try:
            self.result = self._command(self._store)
        except ReconcilerError as error:
            self.result = error
        except Killed:
            pass
        finally:
            self._ended = True
            self._stands.release()

    def _wait(self, name: str) -> None:
        read_before, self._reads = self._reads, name in ("rows", "scan")
        if read_before and self._reads:
            return
        self._stands.release()
        assert self._may_go.acquire(timeout=WAIT_S)
        if self._dies:
            raise Killed


class _Gated:
    """The table, for one process."""

    def __init__(self, table: FakeTable, wait: Callable[[str], None]) -> None:
        self._table, self._wait, self.name = table, wait, table.name

    def __getattr__(self, name: str) -> Callable[..., object]:
        def call(*arguments: Any, **more: Any) -> object:
            self._wait(name)
            found: object = getattr(self._table, name)(*arguments, **more)
            return found

        return call


def writes(side: str, offset: int) -> Callable[[Job], Command]:
    """As ``apply`` and ``import`` do: read, write, read back."""
    return lambda job: _writing(job, Change(KEY, None, of(side, offset)))


def rolls_back(job: Job) -> Command:
    """To what was there before the last correction."""
    assert job.snapshot is not None
    return _writing(job, Change.restoring(KEY, None, job.snapshot.stored, job.snapshot.text))


def _writing(job: Job, change: Change) -> Command:
    def command(store: ClouderaStore) -> WriteResult:
        (row,) = store.read("g", [KEY.topic])
        expected = Change(KEY, row.version, change.new, restores=change.restores, text=change.text)
        result = store.write("g", [expected], reason="test", now_ms=job.now + 1)
        store.read("g", [KEY.topic])
        return result

    return command


@dataclass(frozen=True)
class Race:
    """Two commands at once. ``corrected``: the job is at the destination; else this product's row is the source's."""

    first: Callable[[Job], Command]
    second: Callable[[Job], Command]
    corrected: bool = False


RACES = {
    "two corrections to smaller numbers": Race(writes("b", 411), writes("b", 411)),
    "two corrections to larger numbers": Race(writes("b", 1611), writes("b", 1611)),
    "corrections to two offsets": Race(writes("b", 1611), writes("b", 411)),
    "a correction and an import": Race(writes("b", 411), writes("a", 1008)),
    "an import and a correction": Race(writes("a", 1008), writes("b", 1611)),
    "a rollback and a correction": Race(rolls_back, writes("b", 611), corrected=True),
    "a failback and a rollback": Race(writes("a", 1020), rolls_back, corrected=True),
    "two rollbacks": Race(rolls_back, rolls_back, corrected=True),
}


class Outcome:
    """A job after a race. ``turns``: how many steps the two go, by turns; then what has not ended dies."""

    def __init__(self, race: Race, turns: Sequence[int]) -> None:
        self.job = Job()
        self.job.sides |= {1008: "a", 1010: "a", 1020: "a", 411: "b", 611: "b", 1611: "b"}
        self.job.stores(1000)
        self.job.write(of("a", 1010))
        if race.corrected:
            self.job.apply(-599)
        self.processes = [Process(self.job.table, each(self.job)) for each in (race.first, race.second)]
        for process, steps in zip(itertools.cycle(self.processes), turns, strict=False):
            process.go(steps)
        for process in self.processes:
            process.die()

    def misread(self) -> Iterator[str]:
        """The rows read in a wrong numbering: the one in place, and the job's next ones, after a read or none."""
        table = self.job.table.data
        for seen in (False, True):
            self.job.table.data = {key: dict(cells) for key, cells in table.items()}
            if seen and self.job.is_misread():
                yield f"in place: {self.job.row()}"
            for far in (50, 700):
                self.job.goes_on(far)
                if self.job.is_misread():
                    yield f"{far} later, {seen=}: {self.job.row()}"


@pytest.mark.parametrize("race", RACES.values(), ids=RACES)
def test_two_writers_at_once_leave_no_row_in_another_clusters_numbering(race: Race, thorough: bool) -> None:
    """One comes between the other's steps, and both or one of them end; with ``--thorough`` they do so twice."""
    ends = [*itertools.product(STEPS, (0, ALL))] if thorough else [(ALL, ALL), (ALL, 0), (0, ALL)]
    schedules = [(*turns, *end) for turns in itertools.product(STEPS, STEPS) for end in ends]
    wrong = [(turns, text) for turns in schedules for text in Outcome(race, turns).misread()]
    assert not wrong, f"{len(wrong)} of them: {wrong[:3]}"


def test_a_second_apply_that_gives_up_leaves_the_first_ones_numbering() -> None:
    """The first one's row comes behind the second one's claim, and is read when ``apply`` is run again."""
    race = RACES["two corrections to larger numbers"]
    outcomes = [Outcome(race, (first, second, ALL, ALL)) for first, second in itertools.product(STEPS, STEPS)]
    given_up = [
        each
        for each in outcomes
        if isinstance(each.processes[0].result, OutcomeUnknown)
        and isinstance(each.processes[1].result, WriteResult)
        and each.processes[1].result.conflicts
    ]
    assert given_up
    for outcome in given_up:
        row = outcome.job.row()
        assert (row.stored.offset, row.anchor_lag) == (1611, None)
        outcome.job.goes_on(50)
        row = outcome.job.row()
        assert (row.stored.anchor, row.anchor_lag) == (of("b", 1611).anchor, 50)
