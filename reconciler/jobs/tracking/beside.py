"""A stay's journal as ``reconciler track`` keeps it: in a driver's place, or beside a driver that does not.

Theory of operation. The rules of ``recorder`` hold, and these beside them:

- B1  It belongs to no run. Where a driver has recorded, an entry carries the run of the entry before it, so it ends no
      driver (R3): the driver finds its own run, and continues behind it (R4). It has the number after the newest entry
      that was read. So beside the first entry of another driver it is refused, and no run comes back that has ended.
- B2  While a driver records, nothing is appended. The numbers that the journal lacks are taken over once a driver has
      appended nothing for ``WAITS_S`` since they were seen, until it appends again. The wait only saves work: by B1, an
      entry beside a driver that is alive after all does no harm.
- B3  Each entry after one of another recorder is full, and each that carries a driver's run. So every ``FULL_EVERY``
      entries in a row have a full one (J1), in whatever order the recorders append.
- B4  What others have appended is newer than what was noted here from an earlier reading of the place: that is dropped.
- B5  Only what changes is appended: a job that does not run gets no entry, also at the first look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reconciler.config.streams import Stream
from reconciler.core.anchors import Anchor
from reconciler.jobs.tracking.recorder import Position, StayRecorder
from reconciler.jobs.tracking.source import Place, SourceLog
from reconciler.ports import TopicPartition
from reconciler.state import journal
from reconciler.state.jobs import JobState
from reconciler.state.journal import OUTSIDE, Entry, StreamPartition
from reconciler.state.store import FIRST
from reconciler.state.stored import Known

WAITS_S = 60.0
EACH_S = 1.0
"""The least time between two entries."""


class OutsideRecorder(StayRecorder):
    """Records a stay from outside of its job; ``begin`` comes first. Times are monotonic, in seconds.

    All methods raise what the store and the log raise.
    """

    most_partitions = None

    def __init__(
        self,
        job: JobState,
        stay: int,
        streams: Mapping[str, Stream],
        source: SourceLog,
        waits_s: float = WAITS_S,
    ) -> None:
        super().__init__(job, stay, streams, source, OUTSIDE)
        self._waits_s = waits_s
        self._own = journal.Recorder(OUTSIDE, _since_full=journal.FULL_EVERY)
        self._lowest: dict[StreamPartition, Known[Anchor]] = {}
        self._lacking_since: float | None = None
        self._takes_over = False
        self._appended_at = float("-inf")
        self.is_closed = False

    def begin(self, entries: Sequence[Entry]) -> None:
        """``entries``: what is kept of the stay's journal, oldest first."""
        self._journal = self._own
        self._follow(entries)

    @property
    def driver(self) -> str | None:
        """The run of the driver that has recorded last; None if none has."""
        return None if self._own.run == OUTSIDE else self._own.run

    @property
    def is_left_to_driver(self) -> bool:
        """True if a driver records this stay, or may still do so (B2)."""
        return self.driver is not None and not self._takes_over

    def entries(self) -> list[Entry]:
        """The lowest number of each partition, and the newest: what the journal's entries come to."""
        return [Entry(OUTSIDE, 0, self._lowest), Entry(OUTSIDE, 0, self._own.known, full=True, begun=self._own.begun)]

    def lacks(self, at: TopicPartition, position: Position) -> bool:
        """True if the position is not the partition's newest known one, or is known without its record."""
        if position.start is not None and self._is_unnamed(Place(at, position.start)):
            return True
        key = self._key(at)
        known, begun = self._own.known.get(key), self._own.begun.get(key)
        end = None if position.end in (None, position.start) else position.end
        return (
            known is None
            or known.number != position.start
            or (end is not None and (begun is None or begun.number != end))
        )

    def why(self, at: TopicPartition, number: int) -> str:
        """Why the record before the number is not known; empty if it is, or was not looked for."""
        return self._looked.get(Place(at, number), "")

    def may_note(self, now_s: float, *, lacks: bool) -> bool:
        """True if the content of the place is to be noted. ``lacks``: the journal lacks something of it (B2)."""
        if self.is_closed:
            return False
        if not lacks or self.driver is None or self._takes_over:
            self._lacking_since = self._lacking_since if lacks else None
            return True
        if self._refresh():
            self._lacking_since = now_s
            return False  # what was read of the place is older
        if self._lacking_since is None:
            self._lacking_since = now_s
        self._takes_over = now_s - self._lacking_since >= self._waits_s
        return self._takes_over

    def append_at(self, now_s: float, now_ms: int) -> int:
        """Append an entry if something changed, and the last one is a second old. Returns its number of partitions.

        0 if another recorder was quicker: the next look reads what that appended.
        """
        entry = self._own.next_entry(now_ms) if now_s - self._appended_at >= EACH_S and not self.is_closed else None
        if entry is None:
            return 0
        changed = self._own.changed
        if not self._job.append_journal(self._stay, self._next, entry):
            self._refresh()
            return 0
        self._own.appended(entry)
        for key, known in entry.numbers.items():
            self._lowest.setdefault(key, known)
        self._next, self._appended_at = self._next + 1, now_s
        return changed

    def _refresh(self) -> bool:
        """Read what others have appended; False if that is nothing."""
        entries = [each for each in self._job.newest(self._stay) if each.number >= self._next]
        if entries:
            self._follow(entries)
            self._takes_over = False
        return bool(entries)

    def _follow(self, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        self._learn(entries)
        self._own.follow(entries)
        for key, known in ((key, known) for each in entries for key, known in each.numbers.items()):
            if key not in self._lowest or known.number < self._lowest[key].number:
                self._lowest[key] = known
        newest = entries[-1]
        is_of_plan = self._stay > 1 and newest.number == FIRST
        self._own.run = OUTSIDE if is_of_plan else newest.run
        self._own.always_full = self.driver is not None
        self.is_closed = newest.closed_by is not None

    def _tell(self, nameless: Mapping[Place, str]) -> None:
        """The report of a round says it."""
