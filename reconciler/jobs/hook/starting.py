"""A start of a job, from its configuration to the variables that its process finds.

Prints nothing, and raises every failure. The hook becomes the job's command with these variables; ``job(config, name)``
reads them in the job's own process.

A start waits for a mirror that is behind at little cost to its cluster: the pause after a check is a multiple of the
check's own time. It also waits for a cluster or a store that becomes unreachable, and raises the last error if it
still is at the end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from reconciler import written
from reconciler.config.file import Cluster, Config, Job
from reconciler.core.errors import ConfigError, NeedsPerson, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover import inputs
from reconciler.failover.check import Checked, check
from reconciler.failover.inputs import refuse_wrong
from reconciler.failover.outside import LIMIT_S, ByHand, Outside, StoreOpener
from reconciler.jobs.hook.figures import HookRun
from reconciler.jobs.hook.start import Start
from reconciler.jobs.hook.where import (
    Place,
    Side,
    held_by,
    place_of,
    refuse_known,
    refuse_running,
    refuse_running_behind,
)
from reconciler.places.registry import traits
from reconciler.plan.document import PartitionPlan, Plan
from reconciler.ports import OffsetStore, TopicPartition
from reconciler.state.jobs import JobState
from reconciler.state.locations import Phase, first

LONGEST_WAIT_S = 7 * 86_400

log = logging.getLogger("reconciler.jobs.hook")


@dataclass(frozen=True, slots=True)
class Request:
    """The options of a start. ``why`` is the reason in its location.

    ``wait_s``: wait at most this long for a mirror that is behind. ``cluster``: the only one on which the job may
    start. ``plans``: the folder for plans.
    """

    why: str
    by_hand: ByHand = field(default_factory=ByHand)
    wait_s: float = 0.0
    cluster: str | None = None
    plans: Path | None = None


def refuse_wait(name: str, seconds: float) -> None:
    """Raise ConfigError for an unusable wait; ``name`` is the option's."""
    if not 0 <= seconds <= LONGEST_WAIT_S:
        raise ConfigError(f"{name} {seconds:g} is not a number of seconds from 0 to a week.")


def begin(
    config: Config,
    job: Job,
    request: Request,
    figures: HookRun,
    *,
    outside: Callable[[Config], AbstractContextManager[Outside]],
    show: Callable[[Plan], None],
    tell: Callable[[Waiting], None],
) -> dict[str, str]:
    """Find where the job starts, correct its offsets if they need it, and return the variables of the start.

    ``show`` as for ``Start.correct``, ``tell`` as for ``check_or_wait``. Raises NeedsPerson for a job that
    must not start, and as stores and clusters do.
    """
    state = inputs.job_state(config, job)
    start = _start_of(config, job, state, request)
    if start.is_begun:
        _finish(start, outside)
        start = _start_of(config, job, state, request)
    figures.goes(start.place)
    with outside(start.config) as here:
        if start.place.side is Side.SOURCE:
            return _as_stored(start, here, request)
        refuse_wrong(start.config, [start.job], sinks=True)
        _refuse_running(start)
        checked = check_or_wait(
            start.config, start.job, here, request.by_hand, request.wait_s, pause=time.sleep, tell=tell
        )
        figures.saw(checked, config.policy.start)
        written.check()
        return start.correct(checked, here, show)


def _start_of(config: Config, job: Job, state: JobState, request: Request) -> Start:
    location = state.location()
    stays = location is None or (location.phase is Phase.LIVES and location.plan is None)
    reads = (job.home if location is None else location.cluster) if stays else None
    config = inputs.with_topics(config, [job], {job.name: location}, reads)
    job = config.chosen(job.name)[0]
    place = place_of(config, job, location, inputs.plans_of(config, [job], {job.name: location}).get(job.name))
    _refuse_elsewhere(place, state, request)
    mark = inputs.stamp_now(request.why)
    return Start.of(place, job, state, plans=request.plans, stamp=mark)


def _finish(start: Start, outside: Callable[[Config], AbstractContextManager[Outside]]) -> None:
    """Finish the writes of an earlier run of a hook, or of ``apply``, that was killed."""
    refuse_wrong(start.config, [start.job], sinks=True)
    _refuse_running(start)
    with outside(start.config) as here:
        start.finish(here)


def _refuse_elsewhere(place: Place, state: JobState, request: Request) -> None:
    """Raise NeedsPerson if the job does not start on the cluster that its command reads."""
    if (cluster := request.cluster) is not None:
        place.config.toward(cluster)  # raises for an unknown cluster
        if place.cluster != cluster:
            raise NeedsPerson(
                f'Job "{place.job.name}" starts on {place.cluster}, and its command reads {cluster}: {place.why}.',
                hint=f"Let the command read {place.cluster}; or move the job: {state.command('move', '--to', cluster)}",
            )


def _as_stored(start: Start, outside: Outside, request: Request) -> dict[str, str]:
    """The variables of a start at the job's own offsets: the only decision is whether the job is new."""
    place, by_hand = start.place, request.by_hand
    if by_hand != ByHand(accepted=by_hand.accepted & {Verdict.NEW}):
        raise ConfigError(
            f'Job "{start.job.name}" starts on {place.cluster} ({place.why}), and decisions are about moves.',
            hint="Leave out --set, --set-time and --accept; or move the job first: "
            + start.state.command("move", "--to", "CLUSTER"),
        )
    _refuse_running(start)  # before its group's offsets are read: a member that leaves may commit until then
    outside = replace(outside, open_store=_opener(start, outside))
    held = held_by(start.config, start.job, outside.open_store)
    if place.location is None:
        refuse_known(start.state, start.job, held)
    variables = start.as_stored(held, outside, may_be_new=Verdict.NEW in by_hand.accepted)
    if place.location is None:
        start.state.move_on(None, first(start.job.home, start.stamp))
    log.info('job "%s" starts on %s, at its own offsets: %s', start.job.name, place.cluster, place.why)
    return variables


def _opener(start: Start, outside: Outside) -> StoreOpener:
    """Opens the job's place where it lives: a group is on that cluster."""
    source = start.config.source
    if traits(start.job.store).holds_commits and source is not None:
        return partial(_store_on, start.config, source)
    return outside.open_store


def _refuse_running(start: Start) -> None:
    """Raise Changed for a job whose group has live members where it is to start, or on the cluster that it leaves.

    The latter may be lost: it is asked once, for ``LIMIT_S``.
    """
    store_on = partial(_store_on, start.config)
    refuse_running(start.config, start.job, start.place.side, store_on, monotonic=time.monotonic, pause=time.sleep)
    hurried = replace(start.config, search=replace(start.config.search, deadline_s=LIMIT_S))
    refuse_running_behind(start.place, partial(_store_on, hurried), monotonic=time.monotonic, pause=time.sleep)


def _store_on(config: Config, cluster: Cluster, address: str) -> OffsetStore:
    return inputs.stores(config, cluster.client)(address)


POLL_S = 2.0
LONGEST_PAUSE_S = 30.0
REST = 4
"""The pause after a check, as a multiple of the check's time: checks take at most a fifth of the wait."""


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
    """The partitions whose anchor has not been delivered, and that no decision covers."""
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
        """Check again, without waiting for an unreachable cluster or store: the wait itself tries again."""
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
        from reconciler.kafka.mirror.delivered import lags_ms  # most jobs are not behind

        try:
            by = lags_ms(rows, self.job.identity, self.outside.reader)
        except Unreachable:
            return None, None
        farthest = max(by, key=by.__getitem__, default=None)
        return (None, None) if farthest is None else (by[farthest], farthest)
