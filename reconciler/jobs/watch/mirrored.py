"""MirrorMaker's own offsets at the watched cluster, for the figures of a round.

They are read beside the checks, and no check depends on them. If they cannot be read, the log says so once. The age of
heartbeats goes on growing from the last reading. Grades are unknown until the next reading: the last 0 would say that
nothing is skipped, though no checkpoint was read since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from reconciler.config.file import Config
from reconciler.core.errors import ReconcilerError
from reconciler.core.verdicts import Position, Verdict
from reconciler.failover.gather import GatheredJob
from reconciler.failover.mirrored import handed_out
from reconciler.failover.unanchored import own_topics
from reconciler.kafka.mirror.following import Checkpoints, Heartbeats
from reconciler.kafka.mirror.grade import Grade, grades, wanted
from reconciler.plan.document import JobPlan
from reconciler.ports import LogReader

log = logging.getLogger("reconciler.jobs.watch")

T = TypeVar("T")
STAY = "their last figures stay, if there are any"
UNKNOWN = "their figures are NaN until they can be"


class MirrorWatch:
    """Follows the mirror's topics; read again after half of ``every_s`` at the earliest.

    ``clock`` gives monotonic seconds, ``now_ms`` epoch ms.
    """

    def __init__(
        self,
        config: Config,
        clock: Callable[[], float],
        now_ms: Callable[[], int],
        every_s: float,
    ) -> None:
        own = own_topics(config)
        topics = {config.topics.destination_of(topic) for job in config.jobs for topic in job.topics}
        groups = {name for job in config.jobs for name in job.group_names}
        self._checkpoints = Checkpoints(own.checkpoints, groups, topics)
        self._heartbeats = Heartbeats(own.heartbeats)
        self._clock = clock
        self._now_ms = now_ms
        self._every_s = every_s
        self._due = clock()
        self._failing: set[str] = set()
        self._is_followed = False

    @property
    def heartbeat_ms(self) -> int | None:
        """When the newest heartbeat that arrived was sent, epoch ms; None if there is none."""
        return self._heartbeats.newest_ms

    @property
    def is_due(self) -> bool:
        """Whether it is time to read again."""
        return self._clock() >= self._due

    def refresh(self, reader: LogReader) -> None:
        """Read what the mirror has written since, if it is time. A topic that cannot be read hides no other."""
        if not self.is_due:
            return
        self._due = self._clock() + self._every_s / 2
        self._try("MirrorMaker's heartbeats", lambda: self._heartbeats.read(reader, self._now_ms()))
        self._is_followed = bool(self._try("MirrorMaker's checkpoints", lambda: self._follow(reader), UNKNOWN))

    def _follow(self, reader: LogReader) -> bool:
        self._checkpoints.read(reader)
        return True

    def grades(self, plan: JobPlan, gathered: GatheredJob, reader: LogReader) -> dict[str, Grade] | None:
        """By the destination's topic, MirrorMaker's offsets against those of the plan: topics in which the job's group
        has one. None while they cannot be read."""
        graded = partial(self._graded, plan, gathered, reader)
        return self._try("MirrorMaker's offsets", graded, UNKNOWN) if self._is_followed else None

    def _graded(self, plan: JobPlan, gathered: GatheredJob, reader: LogReader) -> dict[str, Grade]:
        """Sums by topic. Where a partition's right offset is not known, a sum of 0 skips would be taken for a proof, so
        the topic is left out; a larger sum is a finding, whatever the other partitions are. One that is ``behind`` has
        no unread records that could be skipped.
        """
        rows = {row.key: row for row in plan.partitions if row.position != Position.END}
        asked = {}
        unproven = set()
        for at in (at for at in gathered.places if at.destination in rows):
            row = rows[at.destination]
            own = handed_out(at, self._checkpoints.of(gathered.job.group_names, at.destination))
            if (graded := wanted(row, own)) is not None:
                asked[at.destination] = graded
            elif own is not None and row.finding is not Verdict.BEHIND:
                unproven.add(row.topic)
        found: dict[str, Grade] = {}
        for place, grade in grades(reader, gathered.job.identity, asked).items():
            found[place.topic] = found.get(place.topic, Grade(0, 0)) + grade
        return {topic: grade for topic, grade in found.items() if grade.skips or topic not in unproven}

    def _try(self, what: str, read: Callable[[], T], meanwhile: str = STAY) -> T | None:
        """What ``read`` gives, None where it fails. The first failure in a row is logged, with what it means."""
        try:
            found = read()
        except ReconcilerError as error:
            if what not in self._failing:
                log.warning("%s cannot be read; %s. %s", what, meanwhile, error)
            self._failing.add(what)
            return None
        self._failing.discard(what)
        return found
