"""Wait for a mirror that is behind, at little cost to its cluster.

The pause after a check is a multiple of the check's own time, so a job of many partitions does not hammer its brokers
while the mirror catches up.

A cluster or a store that goes away meanwhile is waited for too. If it is still away at the end, its last error is
raised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from reconciler.config.file import Config, Job
from reconciler.core.errors import Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.outside import ByHand, Outside
from reconciler.plan.document import PartitionPlan
from reconciler.ports import TopicPartition

POLL_S = 2.0
LONGEST_PAUSE_S = 30.0
REST = 4
"""The pause after a check, in times of the check's own duration: checks take at most a fifth of the wait."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The state of a wait, in seconds. ``trouble``: the error of the last turn, if it could not reach something.

    ``by_ms``: how much older than the last processed record the newest one at the destination is, in the partition
    ``farthest`` behind. None if that is not known: the partitions are empty, or have no times.
    """

    behind: int
    partitions: int
    waited_s: float
    left_s: float
    by_ms: int | None = None
    farthest: TopicPartition | None = None
    trouble: Unreachable | None = None


def behind(checked: Checked) -> list[PartitionPlan]:
    """The partitions whose anchor has not been delivered, and about which no person has decided."""
    return [row for row in checked.deciding if row.finding is Verdict.BEHIND and not row.set_by_hand]


def check_or_wait(
    config: Config,
    job: Job,
    outside: Outside,
    by_hand: ByHand,
    wait_s: float,
    *,
    pause: Callable[[float], None],
    tell: Callable[[Waiting], None],
) -> Checked:
    """Check a job, and again while its destination is behind, for ``wait_s`` seconds at most.

    ``tell`` is called before every turn, and at the end. Raises as ``check`` does; ``Unreachable`` only at the first
    check, or if it lasts until the wait times out.
    """
    began = outside.monotonic()
    checked = check(config, (job,), outside, by_hand)
    if not behind(checked) or wait_s <= 0:
        return checked
    return _Wait(config, job, outside, by_hand, began, began + wait_s).until_delivered(checked, pause, tell)


@dataclass(slots=True)
class _Wait:
    """A wait under way; times are ``outside``'s monotonic seconds."""

    config: Config
    job: Job
    outside: Outside
    by_hand: ByHand
    began: float
    until: float
    shortfall: tuple[int | None, TopicPartition | None] = (None, None)
    trouble: Unreachable | None = None

    def until_delivered(
        self, checked: Checked, pause: Callable[[float], None], tell: Callable[[Waiting], None]
    ) -> Checked:
        self.outside = replace(self.outside, on_progress=None)  # the wait has a line of its own
        rest_s = self._after(checked, self.began)
        while behind(checked) and self._left() > 0:
            tell(self._state(checked))
            pause(min(rest_s, self._left()))
            began = self.outside.monotonic()
            try:
                checked = self._check()
                self.trouble = None
            except Unreachable as error:
                if not error.retryable or self._left() <= 0:
                    raise
                self.trouble = error
            else:
                rest_s = self._after(checked, began)
        tell(self._state(checked))
        return checked

    def _check(self) -> Checked:
        """Check again, without patience for what is away: the wait itself tries again."""
        config = replace(self.config, search=replace(self.config.search, deadline_s=0.0))
        return check(config, (self.job,), self.outside, self.by_hand)

    def _after(self, checked: Checked, began: float) -> float:
        """Note how far the mirror is behind. Returns the pause after a check that ``began`` then."""
        rest_s = min(max(POLL_S, REST * (self.outside.monotonic() - began)), LONGEST_PAUSE_S)
        self.shortfall = self._shortfall(behind(checked))
        return rest_s

    def _left(self) -> float:
        return self.until - self.outside.monotonic()

    def _state(self, checked: Checked) -> Waiting:
        waited_s = self.outside.monotonic() - self.began
        counts = (len(behind(checked)), len(checked.plan.jobs[0].partitions))
        return Waiting(*counts, waited_s, max(0.0, self._left()), *self.shortfall, self.trouble)

    def _shortfall(self, rows: list[PartitionPlan]) -> tuple[int | None, TopicPartition | None]:
        """How far the mirror is behind, and where most."""
        from reconciler.kafka.mirror.record_times import lags_ms  # most jobs are not behind

        try:
            by = lags_ms(rows, self.job.identity, self.outside.reader)
        except Unreachable:
            return None, None
        farthest = max(by, key=by.__getitem__, default=None)
        return (None, None) if farthest is None else (by[farthest], farthest)
