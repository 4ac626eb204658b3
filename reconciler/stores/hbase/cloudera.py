"""Rows as Cloudera's example keeps them, one a batch (``layouts.cloudera``), in HBase.

Theory of operation. A write makes a *new* row of all the topic's partitions, those that do not change included, in one
step: the format's reader looks at one row only. Thrift 1 has no compare-and-set for that, so this product's writers
claim the topic and group first (``layouts.cloudera_beside``), by compare-and-set of one cell:

    1. Claim and latest row are read; the partitions are as expected.
    2. The claim is replaced by compare-and-set: it names the new row, later than the latest and than any claimed.
    3. Both are read again. Where there is another latest row by now, the write is given up.
    4. What the new row means is put beside it, then the row itself is put.
    5. Both are read again: they must be this write's.

Killed before the end of 4, nothing has changed for any reader; after it, all has. What is beside a row names that row
and the offset in it, so that no offset is taken with another's anchor, and a second ``apply`` does what is missing. Of
two writers from the same row the second one's compare-and-set fails; where one came between the other's steps, at most
one reports success, and its row is the later one. A job that writes at that moment claims nothing: it can only be
noticed.

To put back the row before, the latest one is deleted, so that the one before speaks again, with its own date. To delete
all offsets where older rows are kept, a row is written that says so.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, OutcomeUnknown, ReconcilerError
from reconciler.ports import Capabilities, Change, HistoryEntry, Row, TopicPartition, WriteResult
from reconciler.stores import common
from reconciler.stores.hbase.batches import Batch, Batches, Seen
from reconciler.stores.hbase.layouts import cloudera, cloudera_beside
from reconciler.stores.hbase.layouts.cloudera_beside import CLAIM, Claim
from reconciler.stores.hbase.table import HBaseTable
from reconciler.stores.hbase.writing import partly, put_if_unchanged

HISTORY_TOLD = 100
"""Rows of a topic and group that ``history`` tells of."""
MOST_PARTITIONS = 100_000
"""Of one topic: a row has a cell for each of them, up to the last."""
CLAIMS = 3
"""How often a claim is made that readers settle at the same time."""

Keys = set[TopicPartition]


class ClouderaStore:
    """Rows of one table. ``anchor_family``: a family of the table where anchors are kept; without one none are.

    Raises what ``HBaseTable`` does, and Refused for rows that are not as the layout says.
    """

    def __init__(self, table: HBaseTable, address: str, *, anchor_family: bytes | None = None) -> None:
        self._table = table
        self._address = address
        self._keeps_anchors = anchor_family is not None
        self._batches = Batches(table, anchor_family or cloudera.FAMILY)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(keeps_anchors=self._keeps_anchors, keeps_history=True)

    @property
    def address(self) -> str:
        return self._address

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The offsets of the latest row of each topic, ordered by topic and partition."""
        common.check_name("group's name", group)
        wanted = self._batches.topics() if topics is None else {topic for topic in topics if cloudera.is_topic(topic)}
        rows: list[Row] = []
        for topic in sorted(wanted):
            seen = self._batches.look(topic, group)
            self._settle(topic, group, seen)
            rows += self._rows(topic, seen)
        return rows

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """A new row for each topic, in one step each, by compare-and-set. ``reason`` is not kept.

        Raises OutcomeUnknown where an answer was lost, or a part was written before something failed.
        """
        common.check_changes(group, changes)
        by_topic: dict[str, list[Change]] = {}
        for change in changes:
            _check_topic(change.key.topic)
            by_topic.setdefault(change.key.topic, []).append(change)
        lost: Keys = set()
        for begun, (topic, mine) in enumerate(by_topic.items()):
            try:
                lost |= self._write_topic(topic, group, mine, now_ms)
            except ReconcilerError as error:
                raise partly(error, begun) from error
        keys = [change.key for change in changes]
        return WriteResult(tuple(key for key in keys if key not in lost), tuple(key for key in keys if key in lost))

    def history(self, group: str) -> list[HistoryEntry]:
        """What the last rows of each topic changed, oldest first. HBase forgets a row after the family's TTL."""
        common.check_name("group's name", group)
        entries: list[HistoryEntry] = []
        for topic in self._batches.topics():
            batches = list(islice(self._batches.back(topic, group), HISTORY_TOLD + 1))[::-1]
            told = batches if len(batches) > HISTORY_TOLD else [None, *batches]
            for before, after in pairwise(told):
                if after is not None:
                    entries += _changed(topic, before, after)
        return sorted(entries, key=lambda entry: (entry.at_ms, entry.key))

    def create(self) -> None:
        """Make the table, unless it is there."""
        self._table.create()

    def check_writable(self, group: str) -> None:
        """Raise Refused for a table that is missing, disabled or of another layout. Writes nothing."""
        common.check_name("group's name", group)
        self._table.check_usable()

    def close(self) -> None:
        self._table.close()

    def _rows(self, topic: str, seen: Seen) -> list[Row]:
        rows: list[Row] = []
        versions, texts = seen.versions(topic), seen.latest.texts if seen.latest else {}
        for number, meaning in sorted(seen.meanings.items()):
            key = TopicPartition(topic, number)
            stored, lag, text = meaning.stored, meaning.lag, texts[number].decode("latin-1")
            if not self._keeps_anchors:
                stored, lag = replace(stored, anchor=None), None
            note = "no anchor was kept with its row" if self._keeps_anchors and stored.anchor is None else ""
            rows.append(Row(key, stored, versions[key], lag, note, text))
        return rows

    def _settle(self, topic: str, group: str, seen: Seen) -> None:
        """Say of a claimed row that it was seen in place. Who may not write reads all the same."""
        claim, latest = seen.claim, seen.latest
        if not self._keeps_anchors or claim is None or claim.settled or latest is None or seen.raw_claim is None:
            return
        if latest.epoch_ms == claim.epoch_ms:
            own, settled = cloudera_beside.row_of(cloudera.prefix(topic, group)), replace(claim, settled=True)
            with suppress(ReconcilerError):
                column, value = self._batches.column(CLAIM), cloudera_beside.encode_claim(settled)
                self._table.check_and_put(own, column, seen.raw_claim.value, value)

    # ------------------------------------------------------------ writing

    def _write_topic(self, topic: str, group: str, changes: Sequence[Change], now_ms: int) -> Keys:
        """Write one topic's changes; the keys of those that others changed first."""
        seen = self._batches.look(topic, group)
        lost = set(common.conflicts(changes, seen.versions(topic)))
        good = [change for change in changes if change.key not in lost]
        there = {TopicPartition(topic, number) for number in seen.meanings}
        if all(change.new is None and change.key not in there for change in good):
            return lost
        step = _Step(self._batches, topic, group, seen, now_ms, keeps_anchors=self._keeps_anchors)
        return lost if step.carry_out(good) else lost | {change.key for change in good}


@dataclass(frozen=True, slots=True)
class _Step:
    """One topic's new row on its way."""

    batches: Batches
    topic: str
    group: str
    before: Seen
    now_ms: int
    keeps_anchors: bool

    def carry_out(self, changes: Sequence[Change]) -> bool:
        """Steps 2 to 5. False if another came first, and nothing was written."""
        latest, claim = self.before.latest, self.before.claim
        epoch_ms = max(self.now_ms, latest.epoch_ms + 1 if latest else 0, claim.epoch_ms + 1 if claim else 0)
        if epoch_ms > cloudera.MAX_EPOCH_MS:
            raise ConfigError(
                f"{epoch_ms} is no time that this layout can hold.", hint="Set this machine's clock right."
            )
        texts = self._texts(changes)
        if max(texts, default=0) >= MOST_PARTITIONS:
            raise ConfigError(
                f"Partition {max(texts)} of {self.topic!r} is too far behind the others: Cloudera's rows have no gaps.",
                hint="Correct the partition's number.",
            )
        mine = Claim(secrets.token_hex(8), epoch_ms, claim.last_seen if claim else None, settled=False)
        if not self._claim(mine):
            return False
        try:
            now = self.batches.look(self.topic, self.group)
            if now.nonce != mine.nonce or now.latest != latest:
                self._forget(now, mine)
                return False
            older = self.batches.before(self.topic, self.group) if _is_going_back(changes) else None
            if latest is not None and _is_going_back(changes) and texts == (older.texts if older else {}):
                expected = self._take_back(latest, older)
            else:
                expected = self._put(epoch_ms, texts, changes)
            after = self.batches.look(self.topic, self.group)
        except OutcomeUnknown:
            raise
        except ReconcilerError as error:
            raise partly(error, 1) from error
        if after.nonce != mine.nonce or _content(after.latest) != expected:
            raise OutcomeUnknown(
                f"Offsets of {self.topic!r} were written by another program at the same time.",
                hint="Stop what else writes this store, then run this again.",
            )
        self._forget(after, mine)
        return True

    def _texts(self, changes: Sequence[Change]) -> dict[int, bytes]:
        """The new row's offsets: what the latest row says, with the changes put in."""
        texts = self.before.latest.texts if self.before.latest else {}
        for change in changes:
            texts.pop(change.key.partition, None)
            if change.new is not None:
                back = change.text
                texts[change.key.partition] = (
                    cloudera.text(change.new.offset) if back is None else back.encode("latin-1")
                )
        return texts

    def _claim(self, mine: Claim) -> bool:
        """Step 2. A reader that settles the claim meanwhile has not changed the row."""
        own, column = cloudera_beside.row_of(cloudera.prefix(self.topic, self.group)), self.batches.column(CLAIM)
        raw = self.before.raw_claim
        for _ in range(CLAIMS):
            expected = None if raw is None else raw.value
            if put_if_unchanged(self.batches.table, own, column, expected, cloudera_beside.encode_claim(mine)):
                return True
            now = self.batches.look(self.topic, self.group)
            if now.nonce is None or now.nonce != self.before.nonce:
                return False
            raw = now.raw_claim
        return False

    def _put(
        self, epoch_ms: int, texts: Mapping[int, bytes], changes: Sequence[Change]
    ) -> tuple[int, dict[int, bytes]]:
        """Step 4: the row, and first what it means."""
        row = cloudera.row_key(self.topic, self.group, epoch_ms)
        if not texts and self.before.latest is not None:
            self.batches.table.put(row, cloudera.nothing_for(self.before.latest.texts))
            return epoch_ms, {}
        meanings = {number: meaning.stored for number, meaning in self.before.meanings.items() if number in texts}
        for change in changes:
            if (stored := common.stamped(change, self.now_ms)) is not None:
                meanings[change.key.partition] = stored
        beside = {
            self.batches.column(b"%d" % number): cloudera_beside.encode(stored)
            for number, stored in meanings.items()
            if self.keeps_anchors or stored.written_at_ms != epoch_ms
        }
        if beside:
            self.batches.table.put(cloudera_beside.row_of(row), beside)
        self.batches.table.put(row, cloudera.dense(texts))
        return epoch_ms, dict(texts)

    def _take_back(self, latest: Batch, older: Batch | None) -> tuple[int, dict[int, bytes]] | None:
        """Step 4 where the row before is what is wanted: the latest one goes, and what is beside it."""
        self.batches.table.delete_row(latest.row)
        with suppress(ReconcilerError):
            self.batches.table.delete_row(cloudera_beside.row_of(latest.row))
        return _content(older)

    def _forget(self, seen: Seen, mine: Claim) -> None:
        """Remove this write's claim, unless anchors are kept by it; left behind, it would do no harm."""
        if (self.keeps_anchors and seen.latest is not None) or seen.nonce != mine.nonce or seen.raw_claim is None:
            return
        own = cloudera_beside.row_of(cloudera.prefix(self.topic, self.group))
        with suppress(ReconcilerError):
            self.batches.table.delete(own, [self.batches.column(CLAIM)], at=seen.raw_claim.at)


def _content(batch: Batch | None) -> tuple[int, dict[int, bytes]] | None:
    return None if batch is None else (batch.epoch_ms, batch.texts)


def _is_going_back(changes: Sequence[Change]) -> bool:
    """True for a rollback: it puts back what was there, or takes away what was not."""
    return any(change.new is None or change.restores for change in changes)


def _changed(topic: str, before: Batch | None, after: Batch) -> list[HistoryEntry]:
    was, now = _bare(before), _bare(after)
    return [
        HistoryEntry(TopicPartition(topic, number), was.get(number), now.get(number), _name(after), after.epoch_ms)
        for number in sorted(was.keys() | now.keys())
        if (was[number].offset if number in was else None) != (now[number].offset if number in now else None)
    ]


def _bare(batch: Batch | None) -> dict[int, StoredOffset]:
    return {number: StoredOffset(n, None, batch.epoch_ms) for number, n in batch.offsets.items()} if batch else {}


def _name(batch: Batch) -> str:
    return batch.row.decode("utf-8", "replace")


def _check_topic(topic: str) -> None:
    if not cloudera.is_topic(topic):
        raise ConfigError(
            f"{topic[:80]!r} cannot be a topic in Cloudera's layout: Kafka allows no such name.",
            hint="Correct the job's topics.",
        )
