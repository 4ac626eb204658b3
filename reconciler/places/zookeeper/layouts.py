"""The two layouts of offsets in ZooKeeper: the znodes of each, and the effect of an edit on a znode.

A number in a znode is the next offset to read, or as the address says the last processed one (``places.parameters``).

``consumers``, that of Kafka's own consumers before 0.9, which monitoring tools read::

    CHROOT/consumers/GROUP/offsets/TOPIC/PARTITION      the offset, in decimal
    CHROOT/consumers/GROUP/ids/MEMBER                   a live consumer of Kafka's old client

``single``, one znode a topic, without groups::

    CHROOT/TOPIC                                        PARTITION:OFFSET,PARTITION:OFFSET,…
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar, Protocol, TypeAlias

from reconciler.core.anchors import UNKNOWN_PARTITION
from reconciler.core.errors import ConfigError, Refused
from reconciler.core.json_fields import INT32_MAX, INT64_MAX, INT64_MIN
from reconciler.core.text import NotDecimal, offset_of, partition_of
from reconciler.places import common
from reconciler.places.parameters import Number
from reconciler.places.zookeeper.client import Ensemble

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
        return {entry.partition: self._meant(entry) for entry in parse_listing(data).entries}

    def salvaged(self, data: bytes, partition: int | None) -> tuple[dict[int, PartitionText], list[int]]:
        sound, bad = salvage_listing(data)
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
        listing = parse_listing(data or b"")
        present = {entry.partition: entry.offset for entry in listing.entries}
        kept = {number: self.number.kept(edit) for number, edit in sorted(edits.items())}
        changed = {number: edit for number, edit in kept.items() if present.get(number) != edit}
        return listing.edited(changed).text.encode("ascii")


def _is_listing(data: bytes) -> bool:
    """True for a listing with at least one entry."""
    try:
        return bool(parse_listing(data).entries)
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


_ENTRY = re.compile(r"([0-9]{1,40})(\s*:\s*)([+-]?[0-9]{1,40})", re.ASCII)
_END = re.compile(r"[\s,]*", re.ASCII)
_BETWEEN = re.compile(r"\s*,[\s,]*", re.ASCII)


class NotAListing(ValueError):
    """The text does not have this format; the message is the end of a sentence about it."""


@dataclass(frozen=True, slots=True)
class PartitionText:
    """One partition's offset, with its text byte for byte."""

    partition: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Listing:
    """A parsed text: ``gaps[n]`` precedes ``entries[n]``, and the last gap is the end."""

    entries: tuple[PartitionText, ...] = ()
    gaps: tuple[str, ...] = ("",)

    @property
    def text(self) -> str:
        return "".join(gap + entry.text for gap, entry in zip(self.gaps, self.entries, strict=False)) + self.gaps[-1]

    def edited(self, edits: Mapping[int, int]) -> Listing:
        """The listing with these offsets, in their order.

        An offset is spaced like its partition's entry, or like the first one, and goes to the end.
        Each takes constant time: a write may edit all of ten thousand partitions.
        """
        listing = _Editing(self)
        for partition, edit in edits.items():
            listing.put(partition, edit)
        return listing.result()


class _Editing:
    """A listing while it is edited: each entry and the gap before it by partition, and the end."""

    def __init__(self, listing: Listing) -> None:
        self._entries = {entry.partition: entry for entry in listing.entries}
        self._gaps = dict(zip(self._entries, listing.gaps, strict=False))
        self._end = listing.gaps[-1]

    def put(self, partition: int, edit: int) -> None:
        old = self._entries.get(partition)
        if old is None:
            self._gaps[partition] = self._gap_of_new()
        like = old or next(iter(self._entries.values()), None)
        self._entries[partition] = _spaced_like(like, partition, edit)

    def _gap_of_new(self) -> str:
        """What stands before an entry that goes to the end: like the second's, else a comma."""
        if not self._entries:
            gap, self._end = self._end, ""
            return gap
        second = next(islice(self._entries, 1, 2), None)
        return "," if second is None else self._gaps[second]

    def result(self) -> Listing:
        return Listing(tuple(self._entries.values()), (*(self._gaps[number] for number in self._entries), self._end))


def _spaced_like(like: PartitionText | None, partition: int, offset: int) -> PartitionText:
    spaces = ":" if like is None else _parts(like.text)[2]
    # An existing entry keeps its partition's digits, which may begin with a zero.
    number = _parts(like.text)[1] if like is not None and like.partition == partition else str(partition)
    return PartitionText(partition, offset, f"{number}{spaces}{offset}")


def parse_listing(text: str | bytes) -> Listing:
    """Read any text. Raises ``NotAListing``, and nothing else, if it is not a listing."""
    if isinstance(text, bytes):
        try:
            text = text.decode("ascii")
        except UnicodeDecodeError:
            raise NotAListing("is not text") from None
    entries: list[PartitionText] = []
    gaps: list[str] = []
    seen: set[int] = set()
    at = 0
    while True:
        gap = _END.match(text, at)
        assert gap is not None  # it matches the empty text
        if gap.end() == len(text):
            return Listing(tuple(entries), (*gaps, text[at:]))
        if entries and not _BETWEEN.fullmatch(gap.group()):
            raise NotAListing(f"goes on without a comma after partition {entries[-1].partition}")
        entry = _entry(text, gap.end())
        if entry.partition in seen:
            raise NotAListing(f"names partition {entry.partition} twice")
        seen.add(entry.partition)
        entries.append(entry)
        gaps.append(gap.group())
        at = gap.end() + len(entry.text)


def salvage_listing(data: bytes) -> tuple[dict[int, PartitionText], list[int]]:
    """The sound entries of a text that is not a listing, and the partitions of the others.

    ``UNKNOWN_PARTITION`` is among those where it is not certain which partition an entry is about.
    """
    entries: dict[int, PartitionText] = {}
    bad: set[int] = set()
    for part in data.decode("ascii", "replace").split(","):
        text = part.strip(" \t\r\n\f\v")
        try:
            entry = _whole_entry(text) if text else None
        except NotAListing:
            number = partition_of(text.partition(":")[0].strip())
            bad.add(UNKNOWN_PARTITION if number is None else number)
            if text.count(":") != 1:  # a cut number, or two entries
                bad.add(UNKNOWN_PARTITION)
            continue
        if entry is not None:
            bad |= {entry.partition} & entries.keys()
            entries[entry.partition] = entry
    return {number: entry for number, entry in entries.items() if number not in bad}, sorted(bad)


def _whole_entry(text: str) -> PartitionText:
    """One entry, all of ``text``. Raises ``NotAListing``."""
    entry = _entry(text, 0)
    if entry.text != text:
        raise NotAListing("is not one PARTITION:OFFSET")
    return entry


def _entry(text: str, at: int) -> PartitionText:
    found = _ENTRY.match(text, at)
    if found is None:
        raise NotAListing("is not a list of PARTITION:OFFSET")
    partition, offset = int(found[1]), int(found[3])
    if partition > INT32_MAX:
        raise NotAListing(f"names a partition {partition}, which Kafka cannot have")
    if not INT64_MIN <= offset <= INT64_MAX:
        raise NotAListing(f"has an offset for partition {partition} that does not fit into 64 bits")
    return PartitionText(partition, offset, found.group())


def _parts(text: str) -> re.Match[str]:
    found = _ENTRY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not an entry")
    return found
