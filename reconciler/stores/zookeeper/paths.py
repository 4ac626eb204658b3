"""Where offsets and their anchors lie in ZooKeeper. Pure text.

Layout ``consumers``, that of Kafka's own consumers before 0.9, which monitoring tools read::

    CHROOT/consumers/GROUP/offsets/TOPIC/PARTITION      the offset, in decimal
    CHROOT/consumers/GROUP/anchors/TOPIC/PARTITION      its anchor (this product's)
    CHROOT/consumers/GROUP/ids/MEMBER                   a live consumer of Kafka's old client

Layout ``single``, one znode a topic, without groups::

    CHROOT/TOPIC                                        PARTITION:OFFSET,PARTITION:OFFSET,…
    CHROOT/~anchors/TOPIC/PARTITION                     an anchor (no Kafka topic can be named ~anchors)
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ANCHORS = "~anchors"

# What ZooKeeper refuses: control characters, and by 16-bit units surrogates, private use and specials.
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


def problem_of(name: str) -> str | None:
    """Why ``name`` cannot be one znode's name, as the end of a sentence; None if it can."""
    if "/" in name:
        return "has a slash in it, which ZooKeeper takes for the next level"
    if name in ("", ".", ".."):
        return "is none that ZooKeeper allows"
    if _REFUSED.search(name):
        return "has a character in it that ZooKeeper does not allow"
    return None


@dataclass(frozen=True, slots=True)
class Consumers:
    """The paths of one group in layout ``consumers``; ``chroot`` is empty or begins with a slash."""

    chroot: str
    group: str

    @property
    def base(self) -> str:
        """What a whole ensemble has one of; the store is there if this is."""
        return f"{self.chroot}/consumers"

    @property
    def offsets(self) -> str:
        return f"{self.base}/{self.group}/offsets"

    @property
    def anchors(self) -> str:
        return f"{self.base}/{self.group}/anchors"

    @property
    def members(self) -> str:
        return f"{self.base}/{self.group}/ids"

    def offset(self, topic: str, partition: int) -> str:
        return f"{self.offsets}/{topic}/{partition}"

    def anchor(self, topic: str, partition: int) -> str:
        return f"{self.anchors}/{topic}/{partition}"


@dataclass(frozen=True, slots=True)
class Single:
    """The paths in layout ``single``."""

    chroot: str

    @property
    def base(self) -> str:
        return self.chroot or "/"

    @property
    def anchors(self) -> str:
        return f"{self.chroot}/{ANCHORS}"

    def offset(self, topic: str, partition: int) -> str:
        """The same znode for all partitions of a topic."""
        return f"{self.chroot}/{topic}"

    def anchor(self, topic: str, partition: int) -> str:
        return f"{self.anchors}/{topic}/{partition}"


def ancestors(path: str) -> list[str]:
    """All znodes above ``path``, the highest first, without the root."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]
