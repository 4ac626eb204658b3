"""Two writers of one row: every order of their writes, and a kill of either before each of them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Unreachable
from reconciler.ports import Change, WriteResult
from tests.stores.paired.bare import Faults, Killed
from tests.stores.paired.pairs import GROUP, KEY, NOW, Pair, made_for, named

OLD = made_for(50)
NEW, OTHER_NEW = (replace(made_for(offset, "b"), written_at_ms=None) for offset in (300, 320))
"""Corrections, which get their time of writing from their writers."""
STEPS = 5
"""Turns of one writer: it begins, and writes four times."""


class Turns:
    """Two writers in threads, of which one at a time runs on to its next write. One left alone runs to its end."""

    def __init__(self, order: tuple[int, ...]) -> None:
        self._order = list(order)
        self._next = threading.Condition()
        self._done: set[int] = set()
        self._waiting: set[int] = set()

    def wait(self, me: int) -> None:
        """Wait for the turn of the writer ``me``."""
        with self._next:
            self._waiting.add(me)
            self._next.notify_all()
            assert self._next.wait_for(lambda: self._is_turn(me), 10)
            self._waiting.discard(me)
            if self._order:
                self._order.pop(0)

    def end(self, me: int) -> None:
        with self._next:
            self._done.add(me)
            self._order = [each for each in self._order if each != me]
            self._next.notify_all()

    def _is_turn(self, me: int) -> bool:
        if len(self._waiting) + len(self._done) < 2:
            return False  # the other one is on its way to its next write
        return not self._order or self._order[0] == me or 1 - me in self._done


class Writer(Faults):
    """Takes turns at each write; dies, or finds the bare store away, at the given one."""

    def __init__(self, turns: Turns, me: int, dies_at: int | None, fails: bool) -> None:
        super().__init__()
        self._turns, self._me, self._dies_at, self._fails = turns, me, dies_at, fails

    def around(self, name: str, write: Callable[[], WriteResult]) -> WriteResult:
        self._turns.wait(self._me)
        self.calls.append(name)
        if len(self.calls) == self._dies_at:
            raise Killed
        if self._fails and name == "bare":
            raise Unreachable("It is away.")
        return write()


def run(
    both: Pair,
    wanted: tuple[StoredOffset, ...],
    order: tuple[int, ...],
    dies: tuple[int, int] | None,
    fails: int | None,
) -> None:
    """``dies``: which writer, before which of its writes. ``fails``: the writer for which the bare store is away."""
    turns = Turns(order)

    def write(me: int) -> None:
        store = both.another(Writer(turns, me, dies[1] if dies and dies[0] == me else None, fails == me))
        try:
            turns.wait(me)
            with suppress(Killed, Unreachable):
                (row,) = store.read(GROUP)
                if named(row.stored) == named(OLD):
                    change = Change(KEY, row.version, wanted[me])
                    store.write(GROUP, [change], reason=f"writer {me}", now_ms=NOW + me)
        finally:
            turns.end(me)

    threads = [threading.Thread(target=write, args=(me,)) for me in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def orders() -> Iterator[tuple[int, ...]]:
    """The writers' turns. They are alike, so the first one begins."""
    turns = range(1, 2 * STEPS)
    for first in itertools.combinations(turns, STEPS - 1):
        yield (0, *(0 if at in first else 1 for at in turns))


@pytest.mark.parametrize("fails", [None, 0, 1])
@pytest.mark.parametrize("second", [NEW, OTHER_NEW], ids=["one correction", "two corrections"])
def test_in_whatever_order_two_writers_come_and_whichever_is_killed_the_row_reads_as_before_or_as_intended(
    second: StoredOffset, fails: int | None, thorough: bool
) -> None:
    allowed = {named(stored) for stored in (OLD, NEW, second)}
    for order in itertools.islice(orders(), 0, None, 1 if thorough else 5):
        for dies in (None, *itertools.product((0, 1), range(1, STEPS))):
            both = Pair()
            both.write(OLD)
            run(both, (NEW, second), order, dies, fails)
            assert both.believed() in allowed, (order, dies)
            if dies is None:
                assert not both.left_aside, order
