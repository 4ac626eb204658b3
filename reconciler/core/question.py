"""The input of one partition's search, its limits, and the choices of ``[policy]`` and ``[topics] policy``.

Each choice's value is the word in the configuration file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from reconciler.core.anchors import RECORD_TIME_ONLY, Identity, StoredOffset
from reconciler.core.probes import Search, ask_cleaning

if TYPE_CHECKING:
    from reconciler.core.mirrored.pairs import MirrorEvidence


class Behind(StrEnum):
    """The choice for a job whose last processed record the mirror has not delivered yet."""

    START = "start"
    WAIT = "wait"
    STOP = "stop"


class NoAnchor(StrEnum):
    """The choice for a stored offset without an anchor.

    It stops the job, or the mirror's records place it. ``ROW_TIME``: if they prove nothing, the time of its row does.
    """

    MIRROR = "mirror"
    ROW_TIME = "row-time"
    STOP = "stop"


class StartPlace(StrEnum):
    """Where a partition without a stored offset starts. ``TIME`` comes with a timestamp."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"


class TopicPolicy(StrEnum):
    """How a mirror names topics: with the source's alias in front, unchanged, or as a table lists them."""

    DEFAULT = "default"
    IDENTITY = "identity"
    NAMES = "names"


TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""A name that Kafka allows for a topic."""
_PART = re.compile(r"[A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class TopicTemplate:
    """A rule for the names of mirrored topics: the source's name between ``before`` and ``after``."""

    before: str
    after: str

    @classmethod
    def of(cls, text: str, cluster: str) -> TopicTemplate:
        """``{topic}.replica``, ``{cluster}_{topic}``. Raises ValueError: the end of a sentence."""
        parts = text.replace("{cluster}", cluster).split("{topic}")
        if len(parts) != 2:
            raise ValueError("must have {topic} once")
        if not all(map(_PART.fullmatch, parts)):
            raise ValueError("may have only {topic}, {cluster}, and letters, digits, dots, hyphens and underscores")
        if parts == ["", ""]:
            raise ValueError('keeps every name: that is "identity"')
        return cls(*parts)

    def name_of(self, topic: str) -> str:
        return f"{self.before}{topic}{self.after}"

    def source_of(self, name: str) -> str | None:
        """The source's name of a mirrored topic; None if the rule gives no such name."""
        is_one = name.startswith(self.before) and name.endswith(self.after)
        end = len(name) - len(self.after)
        return name[len(self.before) : end] if is_one and end > len(self.before) else None


CLOCKS_MS = 600_000
"""How far two honest clocks may differ. A row's time can also be that at which its batch was planned."""
KAFKA_BEGAN_MS = 1_293_840_000_000
"""2011, the year of Kafka's first release. A smaller row time is not epoch ms, but a version or a count of seconds."""


def latest_possible_ms(stored: StoredOffset, now_ms: int, max_disorder_ms: int) -> int:
    """The latest time that a processed record can have: not later than its row was written, or than now.

    A producer that writes microseconds as milliseconds makes a later one. The source may take such a record and the
    destination refuse it (``message.timestamp.after.max.ms``, KIP-937); then every record there is older.
    """
    latest, written = now_ms, stored.written_at_ms
    if written is not None and written >= KAFKA_BEGAN_MS:
        latest = min(latest, max(written, stored.covers_until_ms or written))
    return latest + CLOCKS_MS + max_disorder_ms


def possible_time_ms(stored: StoredOffset, now_ms: int, max_disorder_ms: int) -> int | None:
    """The time of a stored offset's anchor; None if it has none, or one that cannot be true."""
    time = None if stored.anchor is None else stored.anchor.timestamp_ms
    return None if time is None or time > latest_possible_ms(stored, now_ms, max_disorder_ms) else time


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a search may go.

    ``max_disorder_ms``: if x is before y in a source partition, x's time is at most y's plus this. It is a
    statement about the producers; it matters only as long as the anchor's record is not found.
    ``scan_records``: records read in search of the anchor, per partition.
    ``tail_records``: records read after the resume point to count the replay, per partition; unread records count as
    replay, so a small number loosens the bound and never breaks it.
    """

    max_disorder_ms: int = 0
    scan_records: int = 100_000
    tail_records: int = 100_000

    def __post_init__(self) -> None:
        if self.max_disorder_ms < 0 or self.scan_records < 1 or self.tail_records < 0:
            raise ValueError("limits are not negative, and a search may read at least one record")


@dataclass(frozen=True, slots=True)
class StartAt:
    """Where a partition without stored offset starts; ``timestamp_ms`` (epoch ms) only with ``StartPlace.TIME``."""

    place: StartPlace = StartPlace.EARLIEST
    timestamp_ms: int | None = None

    def __post_init__(self) -> None:
        if (self.place is StartPlace.TIME) != (self.timestamp_ms is not None):
            raise ValueError(f"cannot start at {self.place!r}")


@dataclass(frozen=True, slots=True)
class Question:
    """One destination partition and the stored offset to be verified or corrected.

    ``latest_ms``: only for an anchor whose time cannot be true, the latest that could be (``latest_possible_ms``). Such
    a time still names its record, and bounds nothing. ``anchor_lag``: offsets between the anchor's record and the
    stored offset (a tracker that ran a while ago); all of them may be records that were processed. ``beyond``: records
    from the stored offset on that may be processed, too; the caller counts them, and their copies count here.
    ``hints``: offsets that may hold the anchor; tried, never trusted. ``compacted``: whether the destination topic is
    compacted, which can remove a first copy and leave a later one. None if unknown: then the search asks the log where
    it matters, and takes a gap in the numbering for compaction if the log cannot say. ``no_rows``: the store holds no
    row of any partition of this topic. The job may be new, or the configuration asks for the wrong rows; so every
    record that a start would read counts as replay. ``mirror``: the mirror's own pairs of offsets, for a stored offset
    without anchor; beside an anchor of this topic, a sign that the number may be the mirror's (``search.overwritten``).
    """

    stored: StoredOffset | None
    cluster_id: str
    topic_id: str | None
    identity: Identity = RECORD_TIME_ONLY
    limits: Limits = field(default_factory=Limits)
    new: StartAt = field(default_factory=StartAt)
    by_row_time: bool = False
    latest_ms: int | None = None
    anchor_lag: int = 0
    beyond: int = 0
    hints: tuple[int, ...] = ()
    compacted: bool | None = None
    no_rows: bool = False
    mirror: MirrorEvidence | None = None

    @property
    def is_open(self) -> bool:
        """True if records behind the anchor may be processed: then any of them that comes again may have been."""
        return self.anchor_lag > 0 or self.beyond > 0

    def may_be_compacted(self) -> Search[bool]:
        """False only if the caller or the log says that the topic is not compacted."""
        if self.compacted is not None:
            return self.compacted
        return (yield from ask_cleaning()) is not False
