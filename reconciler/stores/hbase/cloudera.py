"""Offsets in rows as Cloudera's example keeps them, one row a batch (``layouts.cloudera``).

Theory of operation. A write makes a *new* row of all the topic's partitions, unchanged ones included, in one step,
since the format's reader reads one row only. Thrift 1 has no compare-and-set for that, so this product's writers claim
the topic and group first (``layouts.cloudera_companion``), by compare-and-set of one cell:

    1. Read claim and latest row; the partitions are as expected.
    2. Replace the claim by compare-and-set: it names the new row, later than the latest and than any claimed.
    3. Read both again. Give up the write where there is another latest row by now.
    4. Put the new row's companion, then the row itself.
    5. Read both again: they must be this write's.

A kill before the end of 4 has changed nothing for any reader; after it, the write is complete. A companion names its
row and the offsets in it, so an offset never takes another's anchor, and a second ``apply`` completes the write. Of two
writers that start from the same row, the second one's compare-and-set fails. Where one writer comes between the other's
steps, at most one reports success, and its row is the later one. The other one's row may still come, even after the
successor has given up or was killed: so a claim also names those claimed rows before it that no reader has seen. A job
that writes at that moment makes no claim, so step 5 can only detect it.

A rollback deletes the latest row, so that the one before is the latest again, with its own date. To delete all offsets
while older rows exist, a row with ``NOTHING`` in every partition is written.

The job's later rows have no companion. They take the anchors of this product's last row that was seen in place
(``LatestBatch``), unless a rollback deleted that row: its companion may outlive it. If later rows of this product were
put, and not seen, the job may have gone on from any of them. With two numberings, the anchor that was written first is
used then, without its numbering (as in ``stores.paired``: its record was processed in any case).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from reconciler.core.anchors import UNKNOWN_PARTITION, StoredOffset
from reconciler.core.errors import ConfigError, OutcomeUnknown, ReconcilerError
from reconciler.ports import Capabilities, Change, HistoryEntry, Row, TopicPartition, WriteResult
from reconciler.stores import common
from reconciler.stores.hbase.cloudera_rows import BatchRow, ClouderaRows, LatestBatch
from reconciler.stores.hbase.layouts import cloudera, cloudera_companion
from reconciler.stores.hbase.layouts.cells import companion_row
from reconciler.stores.hbase.layouts.cloudera_companion import CLAIM, Claim
from reconciler.stores.hbase.store import HBaseStore, UnreadableRow, partial_write, write_parts
from reconciler.stores.hbase.table import HBaseTable
from reconciler.stores.numbers import Number

HISTORY_ROWS = 100
"""Rows of a topic and group that ``history`` reads."""
MOST_PARTITIONS = 100_000
"""The most partitions of one topic: a row has a cell for each of them, up to the last."""
CLAIM_ATTEMPTS = 3
"""Tries to claim while readers settle the claim before."""

Keys = set[TopicPartition]


class ClouderaStore(HBaseStore):
    """Rows of one table. ``anchor_family``: the table's family for anchors; without one, the store keeps none."""

    def __init__(
        self,
        table: HBaseTable,
        address: str,
        *,
        anchor_family: bytes | None = None,
        number: Number = Number.NEXT,
    ) -> None:
        super().__init__(table, address)
        self._keeps_anchors = anchor_family is not None
        last = number is Number.LAST
        self.capabilities = Capabilities(keeps_anchors=self._keeps_anchors, keeps_history=True, numbers_last=last)
        self._rows = ClouderaRows(table, anchor_family or cloudera.FAMILY, number)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The offsets of the latest row of each topic, ordered by topic and partition."""
        self._check_group(group)
        wanted = self._rows.topics() if topics is None else {topic for topic in topics if cloudera.is_topic(topic)}
        rows: list[Row] = []
        for topic in sorted(wanted):
            try:
                latest = self._rows.latest(topic, group)
            except UnreadableRow as error:  # of the claim: it concerns all partitions
                rows.append(common.unread(TopicPartition(topic, UNKNOWN_PARTITION), error))
                continue
            self._settle(topic, group, latest)
            rows += self._rows_of(topic, latest)
        return rows

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """A new row for each topic, in one step each, by compare-and-set. ``reason`` is not kept.

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

    def history(self, group: str) -> list[HistoryEntry]:
        """The changes by the last rows of each topic, oldest first. HBase drops a row after the family's TTL."""
        self._check_group(group)
        entries: list[HistoryEntry] = []
        for topic in self._rows.topics():
            batches = list(islice(self._rows.backwards(topic, group), HISTORY_ROWS + 1))[::-1]
            known = batches if len(batches) > HISTORY_ROWS else [None, *batches]
            for before, after in pairwise(known):
                if after is not None:
                    entries += _changed(topic, before, after)
        return sorted(entries, key=lambda entry: (entry.at_ms, entry.key))

    def _rows_of(self, topic: str, latest: LatestBatch) -> list[Row]:
        rows: list[Row] = []
        versions, texts = latest.versions(topic), latest.batch.texts if latest.batch else {}
        for number, meaning in sorted(latest.meanings.items()):
            key = TopicPartition(topic, number)
            stored, lag, text = meaning.stored, meaning.lag, texts[number].decode("latin-1")
            if not self._keeps_anchors:
                stored, lag = replace(stored, anchor=None), None
            note = "no anchor was kept with its row" if self._keeps_anchors and stored.anchor is None else ""
            rows.append(Row(key, stored, versions[key], lag, note, text, anchored_ms=meaning.anchored_ms))
        for number, error in latest.faults.items():
            key = TopicPartition(topic, number)
            rows.append(common.unread(key, error, versions[key]))
        return sorted(rows, key=lambda row: row.key)

    def _settle(self, topic: str, group: str, latest: LatestBatch) -> None:
        """Record that a claimed row was seen in place. A reader without write permission reads all the same."""
        claim, batch, raw = latest.claim, latest.batch, latest.raw_claim
        if not self._keeps_anchors or claim is None or batch is None or raw is None:
            return
        settled = claim.having_seen(batch.epoch_ms)
        if settled != claim:
            name, value = companion_row(cloudera.prefix(topic, group)), cloudera_companion.encode_claim(settled)
            with suppress(ReconcilerError):
                self._table.check_and_put(name, self._rows.column(CLAIM), raw.value, value)

    # ------------------------------------------------------------ writing

    def _write_topic(self, topic: str, group: str, changes: Sequence[Change], now_ms: int) -> Keys:
        """Write one topic's changes; the keys of those that another writer changed first."""
        latest = self._rows.latest(topic, group)
        lost = set(common.conflicts(changes, latest.versions(topic)))
        good = [change for change in changes if change.key not in lost]
        existing = {TopicPartition(topic, number) for number in latest.meanings}
        if all(change.new is None and change.key not in existing for change in good):
            return lost
        write = _TopicWrite(self._rows, topic, group, latest, now_ms, keeps_anchors=self._keeps_anchors)
        return lost if write.carry_out(good) else lost | {change.key for change in good}


@dataclass(frozen=True, slots=True)
class _TopicWrite:
    """The write of one topic's new row."""

    rows: ClouderaRows
    topic: str
    group: str
    before: LatestBatch
    now_ms: int
    keeps_anchors: bool

    @property
    def claim_row(self) -> bytes:
        return companion_row(cloudera.prefix(self.topic, self.group))

    def carry_out(self, changes: Sequence[Change]) -> bool:
        """Steps 2 to 5. False if another writer was first, and nothing was written."""
        batch, claim = self.before.batch, self.before.claim
        epoch_ms = max(self.now_ms, batch.epoch_ms + 1 if batch else 0, claim.epoch_ms + 1 if claim else 0)
        if epoch_ms > cloudera.MAX_EPOCH_MS:
            raise ConfigError(f"This layout cannot hold the time {epoch_ms}.", hint="Set this machine's clock right.")
        texts = self._texts(changes)
        if max(texts, default=0) >= MOST_PARTITIONS:
            raise ConfigError(
                f"Partition {max(texts)} of {self.topic!r} is too far behind the others: Cloudera's rows have no gaps.",
                hint="Correct the partition's number.",
            )
        mine = self.before.next_claim(secrets.token_hex(8), epoch_ms)
        if not self._claim(mine):
            return False
        try:
            now = self.rows.latest(self.topic, self.group)
            if now.nonce != mine.nonce or now.batch != batch:
                self._remove_claim(now, mine)
                return False
            older = self.rows.before(self.topic, self.group) if _is_rollback(changes) else None
            if batch is not None and _is_rollback(changes) and texts == (older.texts if older else {}):
                expected = self._take_back(batch, older)
            else:
                expected = self._put(epoch_ms, texts, changes)
            after = self.rows.latest(self.topic, self.group)
        except ReconcilerError as error:
            raise partial_write(error, rows_may_be_written=True) from error
        if after.nonce != mine.nonce or _content(after.batch) != expected:
            raise OutcomeUnknown(
                f"Offsets of {self.topic!r} were written by another program at the same time.",
                hint="Stop the other program, then run this again.",
            )
        self._remove_claim(after, mine)
        return True

    def _texts(self, changes: Sequence[Change]) -> dict[int, bytes]:
        """The new row's offsets: the latest row's, with the changes put in."""
        texts = self.before.batch.texts if self.before.batch else {}
        for change in changes:
            texts.pop(change.key.partition, None)
            if change.new is not None:
                texts[change.key.partition] = cloudera.restored(change.text, change.new.offset, self.rows.number)
        return texts

    def _claim(self, mine: Claim) -> bool:
        """Step 2. A reader that settles the claim before meanwhile has changed no row."""
        column, value = self.rows.column(CLAIM), cloudera_companion.encode_claim(mine)
        raw = self.before.raw_claim
        for _ in range(CLAIM_ATTEMPTS):
            if self.rows.table.put_if_unchanged(self.claim_row, column, None if raw is None else raw.value, value):
                return True
            now = self.rows.latest(self.topic, self.group)
            if now.nonce is None or now.nonce != self.before.nonce or now.batch != self.before.batch:
                return False
            raw = now.raw_claim
        return False

    def _put(
        self, epoch_ms: int, texts: Mapping[int, bytes], changes: Sequence[Change]
    ) -> tuple[int, dict[int, bytes]]:
        """Step 4: the row, and before it its companion."""
        row = cloudera.row_key(self.topic, self.group, epoch_ms)
        if not texts and self.before.batch is not None:
            self.rows.table.put(row, cloudera.nothing_for(self.before.batch.texts, self.rows.number))
            return epoch_ms, {}
        meanings = {number: meaning.stored for number, meaning in self.before.meanings.items() if number in texts}
        for change in changes:
            if (stored := common.stamped(change, self.now_ms)) is not None:
                meanings[change.key.partition] = stored
        companion = {
            self.rows.column(b"%d" % number): cloudera_companion.encode(stored)
            for number, stored in meanings.items()
            if self.keeps_anchors or stored.written_at_ms != epoch_ms
        }
        if companion:
            self.rows.table.put(companion_row(row), companion)
        self.rows.table.put(row, cloudera.dense(texts, self.rows.number))
        return epoch_ms, dict(texts)

    def _take_back(self, latest: BatchRow, older: BatchRow | None) -> tuple[int, dict[int, bytes]] | None:
        """Step 4 where the row before is the wanted one: delete the latest row and its companion."""
        self.rows.table.delete_row(latest.row)
        with suppress(ReconcilerError):
            self.rows.table.delete_row(companion_row(latest.row))
        return _content(older)

    def _remove_claim(self, latest: LatestBatch, mine: Claim) -> None:
        """Remove this write's claim, unless anchors depend on it; a claim that stays would do no harm."""
        raw = latest.raw_claim
        if (self.keeps_anchors and latest.batch is not None) or latest.nonce != mine.nonce or raw is None:
            return
        with suppress(ReconcilerError):
            self.rows.table.delete(self.claim_row, [self.rows.column(CLAIM)], at=raw.at)


def _content(batch: BatchRow | None) -> tuple[int, dict[int, bytes]] | None:
    """Time and offsets of a row, to compare it with another."""
    return None if batch is None else (batch.epoch_ms, batch.texts)


def _is_rollback(changes: Sequence[Change]) -> bool:
    """True for changes that restore rows, or delete rows that a correction created."""
    return any(change.new is None or change.restores for change in changes)


def _changed(topic: str, before: BatchRow | None, after: BatchRow) -> list[HistoryEntry]:
    old, new = _stored(before), _stored(after)
    reason = after.row.decode("utf-8", "replace")
    return [
        HistoryEntry(TopicPartition(topic, number), old.get(number), new.get(number), reason, after.epoch_ms)
        for number in sorted(old.keys() | new.keys())
        if (old[number].offset if number in old else None) != (new[number].offset if number in new else None)
    ]


def _stored(batch: BatchRow | None) -> dict[int, StoredOffset]:
    return {number: StoredOffset(n, None, batch.epoch_ms) for number, n in batch.offsets.items()} if batch else {}
