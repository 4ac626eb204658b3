"""The choices of ``[policy]`` and ``[topics] policy``. Each value is the word in the configuration file."""

from __future__ import annotations

import re
from dataclasses import dataclass
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
