"""Offsets in rows as Cloudera's example keeps them, one row a batch (``layouts.cloudera``).

Theory of operation. The format's reader takes the latest row alone, so a write is a *new* row of all the topic's
partitions, unchanged ones included, put in one step. Thrift 1 has no compare-and-set for that:

    1. Read the latest row; the partitions are as expected.
    2. Put a row with a later time.
    3. Read the two latest rows: they must be this write's, and the one of step 1. Else another program has written
       meanwhile: delete this write's row, which is a conflict.

A kill before the end of 2 has changed nothing for any reader; after it, the write is complete. Of two writers that
start from the same row, at least one finds the other's. Two within one millisecond put the same row: they are of one
plan, since the job's location names one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from reconciler.core.errors import ConfigError, ReconcilerError
from reconciler.places import common
from reconciler.places.hbase.cloudera_rows import BatchRow, ClouderaRows
from reconciler.places.hbase.layouts import cloudera
from reconciler.places.hbase.store import HBaseStore, partial_write, write_parts
from reconciler.places.hbase.table import HBaseTable
from reconciler.places.numbers import Number
from reconciler.ports import Capabilities, Change, Row, TopicPartition, WriteResult

MOST_PARTITIONS = 100_000
"""The most partitions of one topic: a row has a cell for each of them, up to the last."""

Keys = set[TopicPartition]


class ClouderaStore(HBaseStore):
    """Rows of one table."""

    def __init__(self, table: HBaseTable, address: str, *, number: Number = Number.NEXT) -> None:
        super().__init__(table, address)
        self.capabilities = Capabilities(keeps_anchors=False)
        self._rows = ClouderaRows(table, number)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The offsets of the latest row of each topic, ordered by topic and partition."""
        self._check_group(group)
        wanted = self._rows.topics() if topics is None else {topic for topic in topics if cloudera.is_topic(topic)}
        return [row for topic in sorted(wanted) for row in self._rows.rows_of(topic, self._rows.latest(topic, group))]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """A new row for each topic, in one step each, by compare-and-set.

        Raises OutcomeUnknown where an answer was lost, or a part was written before an error.
        """
        common.check_changes(group, changes)
        by_topic: dict[str, list[Change]] = {}
        for change in changes:
            if not cloudera.is_topic(change.key.topic):
                raise ConfigError(
                    f"{change.key.topic[:80]!r} cannot be a topic in Cloudera's layout: Kafka allows no such name.",
                    hint="Correct the job's topics.",
                )
            by_topic.setdefault(change.key.topic, []).append(change)
        lost = write_parts(by_topic.items(), lambda part: self._write_topic(part[0], group, part[1], now_ms))
        return common.written(changes, lost)

    def _write_topic(self, topic: str, group: str, changes: Sequence[Change], now_ms: int) -> Keys:
        """Write one topic's changes; the keys of those that another writer changed first."""
        before = self._rows.latest(topic, group)
        versions = {row.key: row.version for row in self._rows.rows_of(topic, before)}
        lost = set(common.conflicts(changes, versions))
        good = [change for change in changes if change.key not in lost]
        old = before.texts if before is not None else {}
        texts = _texts(old, good, self._rows.number)
        if texts == old or self._put(topic, group, before, texts, now_ms):
            return lost
        return lost | {change.key for change in good}

    def _put(self, topic: str, group: str, before: BatchRow | None, texts: Mapping[int, bytes], now_ms: int) -> bool:
        """Steps 2 and 3. False if another writer was first, and nothing was written."""
        if max(texts, default=0) >= MOST_PARTITIONS:
            raise ConfigError(
                f"Partition {max(texts)} of {topic!r} is too far behind the others: Cloudera's rows have no gaps.",
                hint="Correct the partition's number.",
            )
        epoch_ms = now_ms if before is None else max(now_ms, before.epoch_ms + 1)
        if epoch_ms > cloudera.MAX_EPOCH_MS:
            raise ConfigError(f"This layout cannot hold the time {epoch_ms}.", hint="Set this machine's clock right.")
        row, old = cloudera.row_key(topic, group, epoch_ms), [] if before is None else [(before.row, before.texts)]
        self._table.put(row, cloudera.dense(texts, self._rows.number))
        try:
            found = [(each.row, each.texts) for each in self._rows.latest_two(topic, group)]
            if found == [(row, texts), *old]:
                return True
            self._table.delete_row(row)
        except ReconcilerError as error:
            raise partial_write(error, rows_may_be_written=True) from error
        return False


def _texts(old: Mapping[int, bytes], changes: Sequence[Change], number: Number) -> dict[int, bytes]:
    """The new row's offsets: the latest row's, with the changes put in."""
    return {**old, **{change.key.partition: cloudera.text(change.new.offset, number) for change in changes}}
