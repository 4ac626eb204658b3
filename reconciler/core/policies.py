"""The choices of ``[policy]`` and ``[topics] policy``. Each value is the word in the configuration file."""

from __future__ import annotations

from enum import StrEnum


class Behind(StrEnum):
    """What a job does while the mirror has not delivered its last processed record."""

    START = "start"
    WAIT = "wait"
    STOP = "stop"


class NoAnchor(StrEnum):
    """What becomes of a stored offset without an anchor.

    It stops the job, or is found by what the mirror recorded; ``ROW_TIME``: where that proves nothing, by the time of
    its row.
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
