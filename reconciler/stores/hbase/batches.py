"""Looking at a table of Cloudera's layout (``layouts.cloudera``) without reading its history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Refused
from reconciler.formats.json_fields import FieldError
from reconciler.ports import TopicPartition
from reconciler.stores.hbase.layouts import cloudera, cloudera_beside
from reconciler.stores.hbase.layouts.cells import Cell
from reconciler.stores.hbase.layouts.cloudera import NotAnOffset
from reconciler.stores.hbase.layouts.cloudera_beside import CLAIM, Claim
from reconciler.stores.hbase.layouts.companion import Meaning, going_on
from reconciler.stores.hbase.table import Cells, HBaseTable

MOST_LEAPS = 10_000
"""Scans to find one latest row, or all topics, before a table is taken for one of another layout."""
_FIRST_TOPIC = b"-"
"""No Kafka topic's name is smaller."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One row of the table: its key, its time, and its partitions' cells by column."""

    row: bytes
    epoch_ms: int
    cells: Mapping[bytes, Cell]

    @property
    def texts(self) -> dict[int, bytes]:
        """The offsets as they stand there, by partition."""
        return cloudera.texts({name: cell.value for name, cell in self.cells.items()})

    @property
    def offsets(self) -> dict[int, int]:
        """By partition. Raises NotAnOffset."""
        found = {number: cloudera.offset_of(cloudera.column(number), text) for number, text in self.texts.items()}
        return {number: offset for number, offset in found.items() if offset is not None}


@dataclass(frozen=True)
class Seen:
    """A topic's and group's latest row with all that is known of it.

    ``beside``: what this product remembers of that very row; ``beside_before``: of the last of its own rows that was
    seen in place, where the latest one came after it. ``raw_claim`` is the claim as it stands there.
    """

    latest: Batch | None = None
    claim: Claim | None = None
    raw_claim: Cell | None = None
    beside: Mapping[int, StoredOffset] = field(default_factory=dict)
    beside_before: Mapping[int, StoredOffset] = field(default_factory=dict)

    @cached_property
    def version(self) -> str:
        """Changes with every row and every claim, and not when a reader settles a claim."""
        cells = self.latest.cells.items() if self.latest else ()
        content = [(name.hex(), cell.value.hex(), cell.at) for name, cell in sorted(cells)]
        what = [self.latest and self.latest.epoch_ms, content, self.nonce]
        return hashlib.blake2b(json.dumps(what).encode(), digest_size=12).hexdigest()

    @property
    def nonce(self) -> str | None:
        """The last claim's."""
        return self.claim.nonce if self.claim else None

    @cached_property
    def meanings(self) -> dict[int, Meaning]:
        """What the row says of each partition that has an offset in it. Raises NotAnOffset."""
        if self.latest is None:
            return {}
        date = self.latest.epoch_ms
        return {number: self._meaning(number, StoredOffset(n, None, date)) for number, n in self.latest.offsets.items()}

    def _meaning(self, partition: int, bare: StoredOffset) -> Meaning:
        exact = self.beside.get(partition)
        if exact is not None and exact.offset == bare.offset:
            return Meaning(exact)
        return going_on(self.beside_before.get(partition), bare)

    def versions(self, topic: str) -> dict[TopicPartition, str]:
        """A version a partition: all of them change with every row."""
        return {TopicPartition(topic, number): f"{self.version}-{number}" for number in self.meanings}


class Batches:
    """The rows of one table; ``family`` is where this product's own rows are.

    Raises what ``HBaseTable`` does on reading, and Refused for a row that is not as the layout says.
    """

    def __init__(self, table: HBaseTable, family: bytes) -> None:
        self.table = table
        self._family = family

    def topics(self) -> set[str]:
        """All topics in the table, found by leaping from one to the next."""
        found: set[str] = set()
        start = _FIRST_TOPIC
        for _ in range(MOST_LEAPS):
            row = next(iter(self.table.scan(start, b"", limit=1)), None)
            if row is None:
                return found
            topic = cloudera.topic_of(row)
            found |= {topic} if topic is not None else set()
            name, colon, _ = row.partition(b":")
            start = name + b";" if colon else row + b"\0"  # behind all rows of the topic
        raise self._strange()

    def back(self, topic: str, group: str) -> Iterator[Batch]:
        """The rows of a topic and group, the latest first. Rows of others in between are leapt over."""
        prefix = cloudera.prefix(topic, group)
        start, passed = cloudera.from_latest(prefix), b""
        for _ in range(MOST_LEAPS):
            page = self.table.scan(start, prefix, limit=2, reverse=True)
            row = next((name for name in page if name != passed), None)
            if row is None:
                return
            passed, epoch_ms = row, cloudera.epoch_of(row, prefix)
            if epoch_ms is None:
                start = cloudera.before_others(row, prefix)
                continue
            start = row
            mine = {name: cell for name, cell in page[row].items() if cloudera.partition_of(name) is not None}
            yield Batch(row, epoch_ms, mine)
        raise self._strange()

    def look(self, topic: str, group: str) -> Seen:
        """The latest row, and what this product knows of it."""
        prefix = cloudera.prefix(topic, group)
        own = cloudera_beside.row_of(prefix)
        # The claim first: a row that is written between the two readings is then newer than the claim, not older.
        raw = self.table.rows([own]).get(own, {}).get(self.column(CLAIM))
        latest = next(self.back(topic, group), None)
        with self._as_the_layout_says(own):
            claim = None if raw is None else cloudera_beside.decode_claim(raw.value)
        rows = [] if latest is None else [latest.row]
        last_seen = claim.last_seen if claim else None
        if latest is not None and last_seen is not None and last_seen < latest.epoch_ms:
            rows.append(cloudera.row_key(topic, group, last_seen))
        beside = [*self._beside(rows), {}, {}]
        seen = Seen(latest, claim, raw, beside[0], beside[1])
        with self._as_the_layout_says(latest.row if latest else b""):
            seen.meanings  # noqa: B018 - looks at every cell
        return seen

    def before(self, topic: str, group: str) -> Batch | None:
        """The row before the latest."""
        return next(islice(self.back(topic, group), 1, None), None)

    def column(self, qualifier: bytes) -> bytes:
        """A column of this product's own rows."""
        return self._family + b":" + qualifier

    def _beside(self, rows: list[bytes]) -> list[dict[int, StoredOffset]]:
        names = [cloudera_beside.row_of(row) for row in rows]
        found = self.table.rows(names) if names else {}
        return [self._remembered(name, found.get(name, {})) for name in names]

    def _remembered(self, name: bytes, cells: Cells) -> dict[int, StoredOffset]:
        remembered = {}
        with self._as_the_layout_says(name):
            for column, cell in cells.items():
                number = cloudera_beside.partition_of(column)
                stored = None if number is None else cloudera_beside.decode(cell.value)
                if number is not None and stored is not None:
                    remembered[number] = stored
        return remembered

    @contextmanager
    def _as_the_layout_says(self, row: bytes) -> Iterator[None]:
        try:
            yield
        except (FieldError, NotAnOffset) as error:
            raise Refused(
                f"The row {row!r} of HBase table {self.table.name!r} is not as this layout says: {error}.",
                hint="Correct the layout in the store's address, or correct or delete the row.",
            ) from error

    def _strange(self) -> Refused:
        return Refused(
            f"The HBase table {self.table.name!r} is full of rows that are not of this layout.",
            hint="Correct the layout in the store's address, or give it a table of its own.",
        )
