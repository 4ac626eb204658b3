"""What a hook asks of the cluster on which a job starts, where the job's offsets are in that cluster itself.

Such a job's group has members while it runs: another start would be a second consumer. A member that has crashed is
counted until its session times out, so the hook waits for that before it says that the job runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

from reconciler.config.file import Cluster, Config, Job
from reconciler.core.errors import Changed, Unreachable
from reconciler.core.text import some
from reconciler.jobs.hook.where import Side
from reconciler.places.registry import traits
from reconciler.ports import HasMembers, OffsetStore
from reconciler.retry import insist

LONGEST_SESSION_S = 50.0
"""Kafka's default session timeout is 45 seconds (``session.timeout.ms``, ``group.consumer.session.timeout.ms``)."""
POLL_S = 2.0

StoreOn = Callable[[Cluster, str], OffsetStore]
"""Opens the store of an address, as it is on a cluster; the caller closes it."""

log = logging.getLogger("reconciler.jobs.hook")


def refuse_running(
    config: Config,
    job: Job,
    side: Side,
    store_on: StoreOn,
    *,
    monotonic: Callable[[], float],
    pause: Callable[[float], None],
) -> None:
    """Wait until the job's group has no members on the side where the job starts. Raise Changed if some stay.

    Raises Unreachable if the destination does not answer within ``search.deadline``. The job itself needs the source,
    so that one is not insisted on.
    """
    cluster = config.source if side is Side.SOURCE else config.destination
    if cluster is None or not traits(job.store).holds_commits:
        return
    until = monotonic() + (config.search.deadline_s if side is Side.DESTINATION else 0.0)
    try:
        with closing(store_on(cluster, job.store)) as store:
            if isinstance(store, HasMembers):
                ask = partial(insist, partial(store.members, job.group), left_s=lambda: until - monotonic())
                _wait_until_left(job, side, ask, monotonic, pause)
    except Unreachable as error:
        if side is Side.DESTINATION:
            raise
        log.warning('whether group "%s" has live members at the source is unknown: %s', job.group, error.message)


def _wait_until_left(
    job: Job,
    side: Side,
    ask: Callable[[], Sequence[str]],
    monotonic: Callable[[], float],
    pause: Callable[[float], None],
) -> None:
    until = monotonic() + LONGEST_SESSION_S
    said: Sequence[str] = ()
    while members := ask():
        shown = some(sorted(members), 3)
        if monotonic() >= until:
            raise Changed(
                f'Group "{job.group}" has live members at the {side.value} ({shown}): job "{job.name}" runs, and this '
                "start would be a second consumer.",
                hint="Stop it first; if it has crashed, start it again once its session has timed out. If the group is "
                "to have several consumers, start the others without the hook.",
            )
        if members != said:
            log.info(
                'group "%s" has live members at the %s (%s): waiting at most %.0f s, since one that has crashed is '
                "counted until its session times out",
                job.group,
                side.value,
                shown,
                until - monotonic(),
            )
        said = members
        pause(POLL_S)
