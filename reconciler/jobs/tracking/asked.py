"""What tracking asks of clusters and stores, and how long it waits for an answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from reconciler.config.file import Job
from reconciler.core.errors import OutcomeUnknown, Unreachable
from reconciler.failover.outside import StoreOpener
from reconciler.jobs.tracking.beside import WAITS_S
from reconciler.jobs.tracking.journals import Located
from reconciler.ports import LogReader, OffsetStore
from reconciler.retry import insist

T = TypeVar("T")
END_OF_WAITING_S = 1e9


@dataclass(frozen=True, slots=True)
class SourceSide:
    """The world outside of tracking: the log of the cluster where the jobs live, their stores there, the clocks.

    ``located``: where each job lives, and its journal, by its name. ``monotonic`` gives seconds, ``now_ms`` epoch ms.
    Once ``stopping`` returns True nothing is waited for any more. ``waits_s``: as ``beside.WAITS_S``.
    """

    reader: LogReader
    open_store: StoreOpener
    monotonic: Callable[[], float]
    now_ms: Callable[[], int]
    located: Mapping[str, Located]
    stopping: Callable[[], bool] = lambda: False
    waits_s: float = WAITS_S


class Asked:
    """The open stores of one tracker. ``gives_up_at``: the monotonic time (seconds) until which calls are repeated."""

    def __init__(self, side: SourceSide) -> None:
        self._side = side
        self._open: dict[str, OffsetStore] = {}
        self.gives_up_at = math.inf

    def store(self, place: str, job: Job) -> OffsetStore:
        """The job's store, which ``place`` names."""
        if place not in self._open:
            self._open[place] = self._side.open_store(job.store)
        return self._open[place]

    def drop(self, place: str) -> None:
        """Close a store: the next call opens a new connection."""
        store = self._open.pop(place, None)
        if store is not None:
            store.close()

    def close(self) -> None:
        for name in list(self._open):
            self.drop(name)

    def ask(self, place: str, call: Callable[[], T]) -> T:
        """Repeat a call that only reads, over a new connection each time, until the deadline."""

        def once() -> T:
            try:
                return call()
            except (Unreachable, OutcomeUnknown):
                self.drop(place)
                raise

        return insist(once, left_s=lambda: self.gives_up_at - self.clock())

    def repeat(self, call: Callable[[], T]) -> T:
        """As ``ask``, of the cluster, which has its connections itself."""
        return insist(call, left_s=lambda: self.gives_up_at - self.clock())

    def clock(self) -> float:
        """The time for deadlines: beyond all of them once the caller wants to stop."""
        return self._side.monotonic() + (END_OF_WAITING_S if self._side.stopping() else 0)
