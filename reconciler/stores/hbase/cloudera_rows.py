"""Reading a table of Cloudera's layout (``layouts.cloudera``) without reading its history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Refused
from reconciler.formats.json_fields import FieldError
from reconciler.ports import TopicPartition
from reconciler.stores.common import is_later
from reconciler.stores.hbase.layouts import cloudera, cloudera_companion
from reconciler.stores.hbase.layouts.cdap_companion import Meaning, continued
from reconciler.stores.hbase.layouts.cells import Cells, HBaseCell, companion_row, sorted_content
from reconciler.stores.hbase.layouts.cloudera import NotAnOffset
from reconciler.stores.hbase.layouts.cloudera_companion import CLAIM, Claim
from reconciler.stores.hbase.store import UnreadableRow, unreadable
from reconciler.stores.hbase.table import HBaseTable
from reconciler.stores.numbers import Number

MOST_SCANS = 10_000
"""Scans for one latest row, or for all topics, before the table counts as one of another layout."""
_FIRST_TOPIC = b"-"
"""No Kafka topic's name is smaller."""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One row of the table: its key, its time (epoch ms), its partitions' cells by column, and their meaning."""

    row: bytes
    epoch_ms: int
    cells: Cells
    number: Number = Number.NEXT

    @property
    def texts(self) -> dict[int, bytes]:
        """The unparsed offsets, by partition."""
        return cloudera.texts({name: cell.value for name, cell in self.cells.items()}, self.number)

    @property
    def offsets(self) -> dict[int, int]:
        """The readable offsets by partition; ``faults`` has the others."""
        return {number: offset for number, offset in self._parsed.items() if isinstance(offset, int)}

    @property
    def faults(self) -> dict[int, NotAnOffset]:
        """The partitions whose cell does not hold an offset."""
        return {number: error for number, error in self._parsed.items() if isinstance(error, NotAnOffset)}

    @property
    def _parsed(self) -> dict[int, int | NotAnOffset | None]:
        found: dict[int, int | NotAnOffset | None] = {}
        for number, text in self.texts.items():
            try:
                found[number] = cloudera.offset_of(cloudera.column(number), text, self.number)
            except NotAnOffset as error:
                found[number] = error
        return found


@dataclass(frozen=True)
class LatestBatch:
    """A topic's and group's latest row (``batch``), with this product's claim and companions of it.

    ``companion``: the meaning of that very row. ``companion_before``: the meaning of this product's last row that was
    seen in place, where ``batch`` came after it, and no rollback deleted it. ``claimed``: the meanings of the rows that
    this product has claimed since and maybe put, where ``batch`` is another. ``raw_claim`` is the claim's cell.
    """

    batch: BatchRow | None = None
    claim: Claim | None = None
    raw_claim: HBaseCell | None = None
    companion: Mapping[int, StoredOffset] = field(default_factory=dict)
    companion_before: Mapping[int, StoredOffset] = field(default_factory=dict)
    claimed: Sequence[Mapping[int, StoredOffset]] = ()
    faults: Mapping[int, UnreadableRow] = field(default_factory=dict)
    """The partitions of which a cell, or a companion, cannot be read."""

    @cached_property
    def version(self) -> str:
        """Changes with every row and every claim, and not when a reader settles a claim."""
        epoch_ms, cells = (self.batch.epoch_ms, self.batch.cells) if self.batch else (None, {})
        content = json.dumps([epoch_ms, sorted_content(cells), self.nonce])
        return hashlib.blake2b(content.encode(), digest_size=12).hexdigest()

    @property
    def nonce(self) -> str | None:
        """The last claim's."""
        return self.claim.nonce if self.claim else None

    @cached_property
    def meanings(self) -> dict[int, Meaning]:
        """The row's offset and anchor for each partition that has an offset in it, without ``faults``."""
        if self.batch is None:
            return {}
        date = self.batch.epoch_ms
        sound = {number: offset for number, offset in self.batch.offsets.items() if number not in self.faults}
        return {number: self._meaning(number, StoredOffset(n, None, date)) for number, n in sound.items()}

    def _meaning(self, partition: int, bare: StoredOffset) -> Meaning:
        exact = self.companion.get(partition)
        if exact is not None and exact.offset == bare.offset:
            return Meaning(exact)
        seen = self.companion_before.get(partition)
        if seen is not None and self._is_in_doubt(partition):
            return _of_any(seen, self._claimed(partition), bare)
        return continued(seen, bare)

    def _is_in_doubt(self, partition: int) -> bool:
        """True if the job may have continued from one or another of this product's last rows, of two numberings."""
        seen = self.companion_before.get(partition)
        return seen is not None and any(each.cluster_id != seen.cluster_id for each in self._claimed(partition))

    def _claimed(self, partition: int) -> list[StoredOffset]:
        return [row[partition] for row in self.claimed if partition in row]

    def next_claim(self, nonce: str, epoch_ms: int) -> Claim:
        """The claim of a row that replaces this one. A row of this product that is in place has been seen by that."""
        if self.claim is None or any(map(self._is_in_doubt, self.companion_before)):
            return Claim(nonce, epoch_ms, None, settled=False)
        now = self.claim if self.batch is None else self.claim.having_seen(self.batch.epoch_ms)
        # A row that is put behind the latest one is never in place.
        passed = -1 if self.batch is None else self.batch.epoch_ms
        unseen = tuple(each for each in now.not_seen if each > passed)
        return Claim(nonce, epoch_ms, now.last_seen, settled=False, unseen=unseen)

    def versions(self, topic: str) -> dict[TopicPartition, str]:
        """A version a partition: all of them change with every row."""
        return {TopicPartition(topic, number): f"{self.version}-{number}" for number in {*self.meanings, *self.faults}}


def _of_any(seen: StoredOffset, claimed: Sequence[StoredOffset], bare: StoredOffset) -> Meaning:
    """The meaning of a row that continues ``seen`` or, perhaps in another numbering, one of ``claimed``."""
    first = seen
    for each in claimed:
        if each.anchor is not None and is_later(first, each):
            first = each
    found = continued(first, bare)
    if found.stored.anchor is None:
        return found
    # An empty anchor is unresolved. Without one, the number would be taken for the source's.
    unknown = any(each.anchor is None for each in claimed)
    anchor = Anchor() if unknown else replace(found.stored.anchor, cluster_id=None, topic_id=None)
    lag = bare.offset - min(seen.offset, *(max(each.offset, 0) for each in claimed))
    return Meaning(replace(found.stored, anchor=anchor), lag, found.anchored_ms)


class ClouderaRows:
    """The rows of one table; ``family`` is the family of this product's own rows.

    Raises as ``HBaseTable`` does on reading, and Refused for a row that does not fit the layout.
    """

    def __init__(self, table: HBaseTable, family: bytes, number: Number = Number.NEXT) -> None:
        self.table = table
        self.number = number
        self._family = family

    def topics(self) -> set[str]:
        """All topics in the table, found with one scan a topic."""
        found: set[str] = set()
        start = _FIRST_TOPIC
        for _ in range(MOST_SCANS):
            row = next(iter(self.table.scan(start, b"", limit=1)), None)
            if row is None:
                return found
            topic = cloudera.topic_of(row)
            found |= {topic} if topic is not None else set()
            name, colon, _ = row.partition(b":")
            start = name + b";" if colon else row + b"\0"  # after all rows of the topic
        raise self._wrong_layout()

    def backwards(self, topic: str, group: str) -> Iterator[BatchRow]:
        """The rows of a topic and group, the latest first. Rows of other groups in between are skipped unread."""
        prefix = cloudera.prefix(topic, group)
        start, passed = cloudera.from_latest(prefix), b""
        for _ in range(MOST_SCANS):
            page = self.table.scan(start, prefix, limit=2, reverse=True)
            row = next((name for name in page if name != passed), None)
            if row is None:
                return
            passed, epoch_ms = row, cloudera.epoch_of(row, prefix)
            if epoch_ms is None:
                start = cloudera.before_others(row, prefix)
                continue
            start = row
            cells = {name: cell for name, cell in page[row].items() if cloudera.partition_of(name) is not None}
            yield BatchRow(row, epoch_ms, cells, self.number)
        raise self._wrong_layout()

    def latest(self, topic: str, group: str) -> LatestBatch:
        """The latest row, with its claim and companions."""
        prefix = cloudera.prefix(topic, group)
        claim_row = companion_row(prefix)
        # The claim first: a row that is written between the two reads is then newer than the claim, not older.
        raw = self.table.rows([claim_row]).get(claim_row, {}).get(self.column(CLAIM))
        batch = next(self.backwards(topic, group), None)
        try:
            claim = None if raw is None else cloudera_companion.decode_claim(raw.value)
        except FieldError as error:
            raise unreadable(self.table, claim_row, error) from error
        if batch is None:
            return LatestBatch(None, claim, raw)
        faults = {number: unreadable(self.table, batch.row, error) for number, error in batch.faults.items()}
        rows, seen = [batch.row], claim.last_seen if claim else None
        if claim is not None and seen is not None and seen < batch.epoch_ms:
            before = cloudera.row_key(topic, group, seen)
            if claim.settled or batch.epoch_ms in claim.not_seen:
                rows.append(before)
            elif self.table.rows([before]):
                rows += [before, *(cloudera.row_key(topic, group, epoch_ms) for epoch_ms in claim.not_seen)]
        exact, *others = self._companions(rows, faults)
        return LatestBatch(
            batch=batch,
            claim=claim,
            raw_claim=raw,
            companion=exact,
            companion_before=others[0] if others else {},
            claimed=others[1:],
            faults=faults,
        )

    def before(self, topic: str, group: str) -> BatchRow | None:
        return next(islice(self.backwards(topic, group), 1, None), None)

    def column(self, qualifier: bytes) -> bytes:
        """A column of this product's own rows."""
        return self._family + b":" + qualifier

    def _companions(self, rows: list[bytes], faults: dict[int, UnreadableRow]) -> list[dict[int, StoredOffset]]:
        names = [companion_row(row) for row in rows]
        found = self.table.rows(names) if names else {}
        return [self._companion(name, found.get(name, {}), faults) for name in names]

    def _companion(self, name: bytes, cells: Cells, faults: dict[int, UnreadableRow]) -> dict[int, StoredOffset]:
        companion = {}
        for column, cell in cells.items():
            number = cloudera_companion.partition_of(column)
            if number is None:
                continue
            try:
                stored = cloudera_companion.decode(cell.value)
            except FieldError as error:
                faults[number] = unreadable(self.table, name, error)
                continue
            if stored is not None:
                companion[number] = stored
        return companion

    def _wrong_layout(self) -> Refused:
        return Refused(
            f"The HBase table {self.table.name!r} is full of rows that are not of this layout.",
            hint="Correct the layout in the store's address, or give it a table of its own.",
        )
