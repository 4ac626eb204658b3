"""The two layouts of offsets in ZooKeeper: the znodes of each, and the effect of an edit on a znode.

A number in a znode is the next offset to read, or as the address says the last processed one (``stores.numbers``).

``consumers``, that of Kafka's own consumers before 0.9, which monitoring tools read::

    CHROOT/consumers/GROUP/offsets/TOPIC/PARTITION      the offset, in decimal
    CHROOT/consumers/GROUP/ids/MEMBER                   a live consumer of Kafka's old client

``single``, one znode a topic, without groups::

    CHROOT/TOPIC                                        PARTITION:OFFSET,PARTITION:OFFSET,…
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, Protocol, TypeAlias

from reconciler.core.errors import ConfigError, Refused
from reconciler.core.text import NotDecimal, offset_of, partition_of
from reconciler.places import common
from reconciler.places.numbers import Number
from reconciler.places.zookeeper import single_text
from reconciler.places.zookeeper.client import Ensemble
from reconciler.places.zookeeper.single_text import NotAListing, PartitionText

Places: TypeAlias = dict[str, tuple[str, int | None]]
"""Topic, and partition where a znode has one, by path."""

# Characters that ZooKeeper refuses: control characters, and by 16-bit units surrogates, private use and specials.
_REFUSED = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")


class Layout(Protocol):
    """One group's znodes. ``chroot`` is empty or begins with a slash."""

    number: Number
    """The meaning of the numbers in the znodes."""

    shared: ClassVar[bool]
    """One znode holds all offsets of a topic."""

    base: str
    """The znode without which there is no store."""
    folder: str
    """The znode below which topics' znodes are created."""

    def offset(self, topic: str, partition: int) -> str: ...

    def znodes(self, ensemble: Ensemble, topics: Iterable[str] | None) -> Places | None:
        """The znodes that may hold offsets; None where ``base`` is missing."""

    def entries(self, data: bytes, partition: int | None) -> dict[int, PartitionText]:
        """The next offsets to read in a znode, by partition. Raises NotDecimal or NotAListing."""

    def salvaged(self, data: bytes, partition: int | None) -> tuple[dict[int, PartitionText], list[int]]:
        """The sound offsets of a znode that ``entries`` refuses, and the partitions of the others."""

    def edited(self, data: bytes | None, partition: int | None, edits: Mapping[int, int]) -> bytes:
        """A znode's bytes with these next offsets to read. An offset that stays the same number keeps its bytes."""


class Consumers(Layout):
    """A znode a partition."""

    shared: ClassVar[bool] = False

    def __init__(self, chroot: str, group: str, number: Number = Number.NEXT) -> None:
        self.number = number
        self.base = f"{chroot}/consumers"
        self.folder, self.members = f"{self.base}/{group}/offsets", f"{self.base}/{group}/ids"

    def offset(self, topic: str, partition: int) -> str:
        return f"{self.folder}/{topic}/{partition}"

    def znodes(self, ensemble: Ensemble, topics: Iterable[str] | None) -> Places | None:
        if topics is None:
            topics = ensemble.children([self.folder])[self.folder] or []
        folders = {f"{self.folder}/{topic}": topic for topic in topics}
        found = ensemble.children(folders) if folders else {}
        if not any(found.values()) and not ensemble.existing([self.base]):
            return None
        return {
            f"{folder}/{name}": (topic, partition)
            for folder, topic in folders.items()
            for name in found[folder] or ()
            if (partition := partition_of(name)) is not None
        }

    def entries(self, data: bytes, partition: int | None) -> dict[int, PartitionText]:
        assert partition is not None
        offset = self.number.offset(offset_of(data))
        return {partition: PartitionText(partition, offset, data.decode("ascii"))}

    def salvaged(self, data: bytes, partition: int | None) -> tuple[dict[int, PartitionText], list[int]]:
        assert partition is not None
        return {}, [partition]

    def edited(self, data: bytes | None, partition: int | None, edits: Mapping[int, int]) -> bytes:
        ((_, edit),) = edits.items()
        if data is not None and self.number.offset(offset_of(data)) == edit:
            return data
        return b"%d" % self.number.kept(edit)


class Single(Layout):
    """A znode a topic, and no groups."""

    shared: ClassVar[bool] = True

    def __init__(self, chroot: str, number: Number = Number.NEXT) -> None:
        self.number = number
        self.base = self.folder = chroot or "/"
        self._chroot = chroot

    def offset(self, topic: str, partition: int) -> str:
        """The same znode for all partitions of a topic."""
        return f"{self._chroot}/{topic}"

    def znodes(self, ensemble: Ensemble, topics: Iterable[str] | None) -> Places | None:
        names = ensemble.children([self.base])[self.base]
        if names is None:
            return None
        if topics is not None:
            wanted = set(topics)
            return {self.offset(topic, 0): (topic, None) for topic in names if topic in wanted}
        # Other znodes below the chroot may be another program's.
        paths = {self.offset(name, 0): name for name in names}
        found = ensemble.get(paths)
        return {
            path: (name, None)
            for path, name in paths.items()
            if (node := found[path]) is not None and _is_listing(node.data)
        }

    def entries(self, data: bytes, partition: int | None) -> dict[int, PartitionText]:
        return {entry.partition: self._meant(entry) for entry in single_text.parse(data).entries}

    def salvaged(self, data: bytes, partition: int | None) -> tuple[dict[int, PartitionText], list[int]]:
        sound, bad = single_text.salvage(data)
        found: dict[int, PartitionText] = {}
        for number, entry in sound.items():
            try:
                found[number] = self._meant(entry)
            except NotDecimal:
                bad.append(number)
        return found, bad

    def _meant(self, entry: PartitionText) -> PartitionText:
        return replace(entry, offset=self.number.offset(entry.offset))

    def edited(self, data: bytes | None, partition: int | None, edits: Mapping[int, int]) -> bytes:
        listing = single_text.parse(data or b"")
        present = {entry.partition: entry.offset for entry in listing.entries}
        kept = {number: self.number.kept(edit) for number, edit in sorted(edits.items())}
        changed = {number: edit for number, edit in kept.items() if present.get(number) != edit}
        return listing.edited(changed).text.encode("ascii")


def _is_listing(data: bytes) -> bool:
    """True for a listing with at least one entry."""
    try:
        return bool(single_text.parse(data).entries)
    except NotAListing:
        return False


def problem_of(name: str) -> str | None:
    """Why ``name`` cannot be one znode's name, as the end of a sentence; None if it can."""
    if "/" in name:
        return "has a slash in it, which ZooKeeper takes for the next level"
    if name in ("", ".", ".."):
        return "is not a name that ZooKeeper allows"
    if _REFUSED.search(name):
        return "has a character in it that ZooKeeper does not allow"
    return None


def check_name(what: str, name: str) -> None:
    """Raise ConfigError for a name that no znode can have. No encoding is tried: other programs would not find it."""
    common.check_name(what, name)
    if problem := problem_of(name):
        raise ConfigError(
            f"The {what} {name!a} {problem}.", hint="Such a name cannot be kept in ZooKeeper: use another store."
        )


def damaged(ensemble: Ensemble, path: str, err: NotDecimal | NotAListing) -> Refused:
    """The error for a znode that should hold offsets and does not."""
    form = "PARTITION:OFFSET,…" if isinstance(err, NotAListing) else "an offset in decimal"
    return Refused(
        f"The znode {path} of {ensemble.name} should hold {form}, and {err}.",
        hint=f"Find out which program wrote it, then correct it (zkCli.sh: set '{path}' TEXT) or delete it.",
    )
