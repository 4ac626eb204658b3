"""The journal of one stay: the record before each number, entry by entry. Pure.

Theory of operation. ``journal/JOB/STAY`` begins with the numbers of the plan that began the stay. While the job runs,
its recorder appends an entry with the partitions that changed, one a second at most: batches between are merged.

- J1  Every ``FULL_EVERY``-th entry is full: it has all partitions. So the newest ``FULL_EVERY`` entries have the
      newest number of each, however long the journal is. The closing entry has none, and is read in addition.
- J2  The newest ``KEPT`` entries stay. For numbers that are set back further, the first full entry of each day is also
      in ``days/JOB/STAY``, which keeps ``KEPT_DAYS`` of them.
- J3  One run of a driver appends to a journal. The first entry of another run, and the closing entry, end it: an
      append that is refused says so. An entry that ``reconciler track`` appends for a driver carries that driver's run.
- J4  An entry is true until its log is cut, or its topic is recreated: it has the topic's id, and is never looked up
      again.
- J5  The end of a batch that has begun is beside the numbers, not among them: it is not processed.
- J6  A journal is closed when its stay ends, which is after ``writing``. The location alone would not keep a delayed
      driver from appending, since the driver may have read it before. The journal alone would not stop a driver that
      appends nothing, for instance as its cluster does not answer: it reads the location every few seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from reconciler.config.streams import Stream
from reconciler.core import anchor_fields, json_fields
from reconciler.core.anchors import Anchor
from reconciler.core.json_fields import FieldError
from reconciler.state.stored import Known

FORMAT = "reconciler.journal/1"
FULL_EVERY = 10
KEPT = 100
KEPT_DAYS = 16
OUTSIDE = "reconciler track"
"""The run of entries that ``reconciler track`` makes for a job whose driver records nothing."""
_DAY_MS = 24 * 3600 * 1000


class StreamPartition(NamedTuple):
    """A partition of a stream: the topic's name on the cluster that produces it, and that cluster."""

    topic: str
    origin: str
    partition: int


Numbers = Mapping[StreamPartition, Known[Anchor]]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry. ``at_ms`` is the recorder's clock: it decides on pruning alone."""

    run: str
    """Which run of a recorder wrote it."""
    at_ms: int
    numbers: Numbers
    full: bool = False
    closed_by: int | None = None
    """The location's entry that ended the stay: nothing is appended after it."""
    number: int = 0
    begun: Numbers = field(default_factory=dict)
    """The end of the batch that has begun (J5)."""


def opening(numbers: Numbers, run: str, at_ms: int) -> Entry:
    """The first entry of a stay: the numbers of its plan, or of the place where the job was found."""
    return Entry(run, at_ms, numbers, full=True)


def closing(location: int, run: str, at_ms: int) -> Entry:
    """The entry that ends the stay. It has no numbers, so the stay is read as before."""
    return Entry(run, at_ms, {}, closed_by=location)


@dataclass(slots=True)
class Recorder:
    """The entries that one run of a recorder appends; it has no I/O and no clock."""

    run: str
    known: dict[StreamPartition, Known[Anchor]] = field(default_factory=dict)
    begun: dict[StreamPartition, Known[Anchor]] = field(default_factory=dict)
    always_full: bool = False
    _changed: set[StreamPartition] = field(default_factory=set)
    _since_full: int = 0

    @classmethod
    def continuing(cls, run: str, entries: Sequence[Entry]) -> Recorder:
        """The next run, after ``entries`` as ``latest`` needs them. Its first entry is full (J1)."""
        known = latest(entries)
        return cls(run, known, _changed=set(known), _since_full=FULL_EVERY)

    def note(self, numbers: Numbers, begun: Numbers | None = None) -> None:
        """Take the numbers of partitions that changed, and of all that the running batch reads (``begun``)."""
        begun = dict(begun or {})
        self._changed |= {key for key, end in begun.items() if self.begun.get(key) != end}
        self.begun = begun
        for key, found in numbers.items():
            if self.known.get(key) != found:
                self.known[key] = found
                self._changed.add(key)

    @property
    def changed(self) -> int:
        """The number of partitions with something to append."""
        return len(self._changed)

    def next_entry(self, at_ms: int) -> Entry | None:
        """The entry to append now; None if nothing changed."""
        if not self._changed:
            return None
        full = self.always_full or self._since_full + 1 >= FULL_EVERY
        keys = self.known.keys() | self.begun.keys() if full else self._changed
        numbers = {key: self.known[key] for key in keys if key in self.known}
        return Entry(self.run, at_ms, numbers, full, begun={key: self.begun[key] for key in keys if key in self.begun})

    def follow(self, entries: Iterable[Entry]) -> None:
        """Others have appended ``entries``: they are newer than what was noted here. The next entry is full (J1)."""
        for entry in entries:
            self.known.update(entry.numbers)
            self.begun.update(entry.begun)
            self._changed -= entry.numbers.keys() | entry.begun.keys()
        self._since_full = FULL_EVERY

    def appended(self, entry: Entry) -> None:
        """The entry is in the journal."""
        self._since_full = 0 if entry.full else self._since_full + 1
        for key in entry.numbers.keys() | entry.begun.keys():
            if (self.known.get(key), self.begun.get(key)) == (entry.numbers.get(key), entry.begun.get(key)):
                self._changed.discard(key)


def known_of(entries: Iterable[Entry], key: StreamPartition) -> list[Known[Anchor]]:
    """The known numbers of one partition in the entries, which come oldest first; each number once, oldest first."""
    found: dict[tuple[int, bool], Known[Anchor]] = {}
    for entry in entries:
        for each in (entry.numbers.get(key), entry.begun.get(key)):
            if each is not None:
                found.pop((each.number, each.processed), None)
                found[each.number, each.processed] = each
    return list(found.values())


def latest(entries: Sequence[Entry]) -> dict[StreamPartition, Known[Anchor]]:
    """Each partition's newest number, of entries oldest first that reach back to a full one (J1)."""
    numbers: dict[StreamPartition, Known[Anchor]] = {}
    for entry in entries:
        numbers.update(entry.numbers)
    return numbers


def is_of_new_day(entry: Entry, newest: Entry | None) -> bool:
    """True if a full entry goes to the days as well; ``newest`` is the last one there."""
    return entry.full and (newest is None or entry.at_ms // _DAY_MS > newest.at_ms // _DAY_MS)


# ---------------------------------------------------------------- its form


def dump(entry: Entry) -> dict[str, Any]:
    """The entry's fields; streams by name, partitions by number."""
    streams: dict[str, dict[str, Any]] = {}
    for key in sorted(entry.numbers.keys() | entry.begun.keys()):
        known, end = entry.numbers.get(key), entry.begun.get(key)
        partition = dump_known(known) if known is not None else {}
        partition |= {_END: dump_known(end)} if end is not None else {}
        streams.setdefault(str(Stream(key.topic, key.origin)), {})[str(key.partition)] = partition
    fields: dict[str, Any] = {"format": FORMAT, "run": entry.run, "at_ms": entry.at_ms, "streams": streams}
    if entry.full:
        fields["full"] = True
    if entry.closed_by is not None:
        fields["closed_by"] = entry.closed_by
    return fields


def load(number: int, fields: Mapping[str, Any]) -> Entry:
    """Read an entry. Raises FieldError for what ``dump`` does not write."""
    json_fields.require_format(fields, FORMAT, _FIELDS)
    streams = fields.get("streams")
    if not isinstance(streams, dict):
        raise FieldError("streams", "is not an object")
    numbers: dict[StreamPartition, Known[Anchor]] = {}
    begun: dict[StreamPartition, Known[Anchor]] = {}
    for stream, partitions in streams.items():
        for key, known in _partitions(stream, partitions):
            if _END in known:
                begun[key] = replace(load_known(known[_END]), processed=False)
            if known.keys() - {_END}:
                numbers[key] = load_known({name: value for name, value in known.items() if name != _END})
    return Entry(
        json_fields.required_text(fields, "run"),
        json_fields.required(json_fields.integer(fields, "at_ms"), "at_ms"),
        numbers,
        json_fields.flag(fields, "full"),
        json_fields.integer(fields, "closed_by", low=1),
        number,
        begun,
    )


def _partitions(stream: str, partitions: object) -> Iterator[tuple[StreamPartition, dict[str, Any]]]:
    try:
        topic, origin = Stream.parse(stream)
    except ValueError as err:
        raise FieldError("streams", f"has a name that {err}") from err
    if not isinstance(partitions, dict):
        raise FieldError("streams", "has a stream without partitions")
    for partition, known in partitions.items():
        if not (partition.isascii() and partition.isdigit()):
            raise FieldError("streams", f"has a partition {partition!r}")
        if not isinstance(known, dict):
            raise FieldError("streams", "has a partition that is not an object")
        yield StreamPartition(topic, origin, int(partition)), known


def dump_known(known: Known[Anchor]) -> dict[str, Any]:
    """A number with its record, in short names: a journal has many."""
    fields: dict[str, Any] = {"number": known.number}
    if known.record is not None:
        fields |= anchor_fields.without_none(anchor_fields.dump(known.record, anchor_fields.SHORT))
    for name in ("again", "older"):
        if getattr(known, name):
            fields[name] = getattr(known, name)
    return fields


def load_known(fields: object) -> Known[Anchor]:
    """Raises FieldError."""
    if not isinstance(fields, dict):
        raise FieldError("streams", "has a partition that is not an object")
    json_fields.no_unknown(fields, _KNOWN)
    has_record = not _RECORD.isdisjoint(fields)
    return Known(
        json_fields.required(json_fields.integer(fields, "number", low=0), "number"),
        anchor_fields.load(fields, anchor_fields.SHORT) if has_record else None,
        json_fields.integer(fields, "again", low=0) or 0,
        json_fields.integer(fields, "older", low=0) or 0,
    )


_FIELDS = frozenset(("format", "run", "at_ms", "streams", "full", "closed_by", "nonce"))
_RECORD = anchor_fields.SHORT.all
_KNOWN = frozenset(("number", "again", "older")) | _RECORD
_END = "end"
