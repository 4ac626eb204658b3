"""Comparing records with the anchor, and telling processed records after it from new ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Protocol

from reconciler.core.anchors import Anchor, Identity, IdOrder, Names, Record, fingerprint, has_fingerprint, order_key
from reconciler.core.verdicts import MatchedBy

NO_TIME_MS = -1
"""Kafka's timestamp of a record that its producer gave none (``RecordBatch.NO_TIMESTAMP``)."""


def without_no_time(anchor: Anchor, identity: Identity) -> Anchor:
    """Take Kafka's "no time" out of an anchor: jobs may have recorded it as the record's time."""
    if anchor.timestamp_ms != NO_TIME_MS or not identity.record_time or anchor.names is Names.MAX_TIME:
        return anchor
    return replace(anchor, timestamp_ms=None)


class Matcher:
    """Compares records with one anchor by everything known of it.

    A strictly increasing id names one record and decides alone. A producer may have used any other id twice, so id,
    fingerprint and timestamp, as far as known, must all agree. A timestamp that the destination's broker stamped
    (LogAppendTime) says nothing about the source's and is not compared.
    """

    def __init__(self, anchor: Anchor, identity: Identity) -> None:
        self._anchor = anchor = without_no_time(anchor, identity)
        self._identity = identity
        self.by_id = anchor.id is not None and identity.id_of is not None
        self.by_order = self.by_id and identity.id_order is IdOrder.INCREASING
        self.by_unique_id = self.by_id and not self.by_order and identity.unique_ids
        self._order = order_key(anchor.id) if self.by_order and anchor.id is not None else None

    @property
    def tells_copies(self) -> bool:
        """True if ids tell a record that was sent again from another one that equals it."""
        return self.by_order or self.by_unique_id

    @property
    def pins(self) -> bool:
        """True if a match proves the record; a timestamp alone does not."""
        return self.by_id or self._anchor.fingerprint is not None

    @property
    def matched_by(self) -> MatchedBy:
        if self.by_id:
            return MatchedBy.ID
        return MatchedBy.FINGERPRINT if self._anchor.fingerprint is not None else MatchedBy.TIMESTAMP

    @property
    def fingerprint(self) -> str | None:
        """The anchor's: that of every record which is the anchor. None: not known, or not compared."""
        return None if self.by_order else self._anchor.fingerprint

    def is_anchor(self, record: Record) -> bool:
        """True if ``record`` is the anchor by everything known. The cheapest test comes first."""
        if self.by_order:
            return self.id_of(record) == self._anchor.id
        if not self._same_time(record):
            return False
        if self.by_id and self.id_of(record) != self._anchor.id:
            return False
        wanted = self._anchor.fingerprint
        return wanted is None or has_fingerprint(record, wanted)

    def is_anchor_or_before(self, record: Record) -> bool:
        """True also for a record that an increasing id puts before the anchor."""
        return self.is_anchor(record) or (self.by_order and self.compare(record) == -1)

    def has_id(self, record: Record) -> bool:
        return self.id_of(record) is not None

    @property
    def wants_time(self) -> bool:
        """True if only a record with a time that is not Kafka's own can be the anchor."""
        by_time = self._anchor.timestamp_ms is not None and not self.by_order
        return by_time and not self._identity.record_time

    @property
    def is_of_its_time(self) -> bool:
        """True if only a record with the anchor's own Kafka timestamp can be the anchor, and no other tells anything.

        Unless the broker stamped it on arrival.
        """
        return not self.by_id and self._identity.record_time and self._anchor.timestamp_ms is not None

    def has_time(self, record: Record) -> bool:
        return self._identity.timestamp_of(record) is not None

    def has_other_id(self, record: Record) -> bool:
        """True if only the id differs: content and time are the anchor's. Not asked of times that must be parsed."""
        if not self.by_id or not self._identity.record_time or self._anchor.fingerprint is None:
            return False
        if self._anchor.timestamp_ms is None or record.timestamp_ms != self._anchor.timestamp_ms:
            return False
        return has_fingerprint(record, self._anchor.fingerprint) and not self.shares_id(record)

    def shares_id(self, record: Record) -> bool:
        """True if the id is the anchor's, whatever the content."""
        return self.by_id and self.id_of(record) == self._anchor.id

    def compare(self, record: Record) -> int | None:
        """-1, 0, 1 as the record's increasing id is below, at or above the anchor's; None if it has none."""
        found = self.id_of(record)
        if self._order is None or found is None:
            return None
        key = order_key(found)
        return (key > self._order) - (key < self._order)

    def _same_time(self, record: Record) -> bool:
        if self._anchor.timestamp_ms is None or (self._identity.record_time and record.append_time):
            return True
        return self._identity.timestamp_of(record) == self._anchor.timestamp_ms

    def id_of(self, record: Record) -> bytes | None:
        return self._identity.id_of(record) if self._identity.id_of else None


class ByTime(Protocol):
    """The method ``not_created_after`` of records that are screened in one call, for readers that decode slowly."""

    def __call__(self, latest_ms: int, stamps: Collection[int]) -> Sequence[Record]:
        """The records not known to be created after ``latest_ms``, or created at one of ``stamps``; in order."""


Mark = tuple[int | None, str]
"""A record's Kafka timestamp, unless the broker stamped it on arrival, and its fingerprint: the same in every copy."""


def mark_of(record: Record) -> Mark:
    return (None if record.append_time else record.timestamp_ms, fingerprint(record.key, record.value))


class ProcessedState(IntEnum):
    """Whether a record after the anchor's copy was processed already."""

    UNPROCESSED = 0
    PROCESSED = 1
    POSSIBLY = 2
    POSSIBLY_IF_HIDDEN = 3
    """Processed only if its first copy is no longer in the log."""
    TWIN = 4
    """Another record that equals the anchor by everything known: if it is the anchor, all before it is processed."""


class Processed:
    """Tells re-sent records from new ones after the first copy of the anchor's record.

    Why it is enough to remember the window between the time bound L(t) and the first copy f: a processed record
    with a timestamp >= t that is still in the log before f cannot be before L(t), because L(t) is the first
    offset with such a timestamp. So a record after f with timestamp >= t whose content is not in the window is new,
    unless its first copy is gone from the log; and then its time is at most the anchor's plus the disorder margin.
    """

    def __init__(self, matcher: Matcher, identity: Identity, max_disorder_ms: int, *, anchor_is_done: bool) -> None:
        self._matcher = matcher
        self._identity = identity
        self._disorder = max_disorder_ms
        self._anchor_is_done = anchor_is_done
        # A producer that wrote a record again gave it another Kafka timestamp, and the same time in its payload.
        self._twins_are_stamped_anew = not identity.record_time and not matcher.tells_copies
        self._window: dict[int, set[str]] = {}
        self._known: dict[bytes, Mark] = {}
        self._stamp: int | None = None
        self._latest: int | None = None

    @property
    def may_be_stepped_over(self) -> bool:
        """True if ``judge`` proves what was processed: ids increase, and the anchor itself is done."""
        return self._matcher.by_order and self._anchor_is_done

    @property
    def tells_copies(self) -> bool:
        return self._matcher.tells_copies

    @property
    def needs_whole_front(self) -> bool:
        """True if ``is_surely`` rests on the first copies in front of the anchor's, not on the order of ids."""
        return not self._matcher.by_order

    def id_of(self, record: Record) -> bytes | None:
        return self._matcher.id_of(record)

    def is_surely(self, record: Record) -> bool:
        """True if ids prove that the record was processed."""
        if self._matcher.by_order:
            order = self._matcher.compare(record)
            return order is not None and (order < 0 or (order == 0 and self._anchor_is_done))
        name = self.id_of(record) if self._matcher.by_unique_id else None
        return name is not None and self._known.get(name) == mark_of(record)

    def contradicts(self, name: bytes, mark: Mark) -> bool:
        """True if a processed record has this id and other content."""
        return name in self._known and self._known[name] != mark

    def know(self, record: Record) -> None:
        """Note a record that is in front of the anchor's first copy, where ids are unique."""
        name = self.id_of(record) if self._matcher.by_unique_id else None
        if name is not None:
            self._known.setdefault(name, mark_of(record))

    def is_dated_before(self, record: Record) -> bool:
        """True if its first copy may be in front of all records that were read before the anchor's copy."""
        stamp = record.timestamp_ms
        return self._stamp is not None and stamp is not None and not record.append_time and stamp < self._stamp

    def remember(self, record: Record, not_before_ms: int | None, known: str | None = None) -> None:
        """Note a record of the window, read before the anchor was found; ``known`` is its fingerprint."""
        self.know(record)
        stamp = record.timestamp_ms
        if self._matcher.by_order or stamp is None or record.append_time:
            return
        if not_before_ms is None or stamp >= not_before_ms:
            self._window.setdefault(stamp, set()).add(known or fingerprint(record.key, record.value))

    def found(self, record: Record) -> None:
        """Note the anchor's first copy; its own Kafka timestamp is the t of the argument above."""
        self._stamp = None if record.append_time else record.timestamp_ms
        time = self._identity.timestamp_of(record)
        self._latest = None if time is None else time + self._disorder
        if self._anchor_is_done:
            self.remember(record, None, self._matcher.fingerprint)

    def undecided(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records that ``judge`` must examine; the others are new by their timestamp alone. Optimised for speed."""
        if self._matcher.by_order or self._stamp is None or self._latest is None or not self._identity.record_time:
            return records
        latest, window = self._latest, self._window
        # Not isinstance: for a protocol that takes longer than all else here.
        screen: ByTime | None = getattr(records, "not_created_after", None)
        if screen is not None:
            return screen(latest, window)
        return [
            record
            for record in records
            if (stamp := record.timestamp_ms) is None or stamp <= latest or stamp in window or record.append_time
        ]

    def new_after(self, time_ms: int | None) -> int | None:
        """The time after which records behind the anchor, whose own Kafka timestamp is given, are nearly always new."""
        return None if time_ms is None or self._matcher.by_order else time_ms + self._disorder

    def examines_since(self, oldest_ms: int) -> bool:
        """True if ``undecided`` may pick one of records that were all created at this time or later."""
        if self._matcher.by_order or self._stamp is None or self._latest is None or not self._identity.record_time:
            return True
        return oldest_ms <= self._latest or any(stamp >= oldest_ms for stamp in self._window)

    def judge(self, record: Record) -> ProcessedState:
        """The state of a record after the first copy."""
        if self._known and self.is_surely(record):
            return ProcessedState.PROCESSED
        if self._matcher.by_order:
            order = self._matcher.compare(record)
            if order is None:
                return ProcessedState.POSSIBLY
            done = order < 0 or (order == 0 and self._anchor_is_done)
            return ProcessedState.PROCESSED if done else ProcessedState.UNPROCESSED
        stamp, later = record.timestamp_ms, self.is_later(record)
        if self._twins_are_stamped_anew and not later and self._matcher.is_anchor(record):
            return ProcessedState.TWIN
        if stamp is None or self._stamp is None or record.append_time or stamp < self._stamp:
            return ProcessedState.POSSIBLY
        if stamp == self._stamp and self._matcher.is_anchor(record):
            return ProcessedState.UNPROCESSED if self.tells_copies else ProcessedState.TWIN
        if stamp in self._window and fingerprint(record.key, record.value) in self._window[stamp]:
            return ProcessedState.POSSIBLY
        return ProcessedState.UNPROCESSED if later else ProcessedState.POSSIBLY_IF_HIDDEN

    def is_later(self, record: Record) -> bool:
        """True if its time puts it after the anchor in the source."""
        time = self._identity.timestamp_of(record)
        return time is not None and self._latest is not None and time > self._latest
