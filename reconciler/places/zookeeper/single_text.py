"""A topic's offsets in one text, ``PARTITION:OFFSET,PARTITION:OFFSET,…``, edited in place.

Another program's text may have white space around numbers, colons and commas, a comma or a line break at the end, and
its partitions in any order. An edit keeps all other bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from reconciler.core.anchors import UNKNOWN_PARTITION
from reconciler.core.json_fields import INT32_MAX, INT64_MAX, INT64_MIN
from reconciler.core.text import partition_of

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


def parse(text: str | bytes) -> Listing:
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


def salvage(data: bytes) -> tuple[dict[int, PartitionText], list[int]]:
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
