"""An offset store as the place of a move: numbers are replaced by compare-and-set, and read back.

A key that holds its new number is done, whoever wrote it; one that holds what the plan replaced is written. So the same
call finishes what a killed one began, and of two hooks at once each finds the other's numbers as its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reconciler import written
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Changed, NotCreated, OutcomeUnknown, ReconcilerError
from reconciler.core.text import counted
from reconciler.failover.recorded import malformed, number_in
from reconciler.ports import UNKNOWN_PARTITION, Change, OffsetStore, Row, TopicPartition, Traits
from reconciler.state.moving import NewNumber
from reconciler.state.stored import Found

ATTEMPTS = 5
"""How often rows that change without their numbers are read and written again."""


@dataclass(frozen=True, slots=True)
class StorePlace:
    """A job's rows in ``store`` as a ``moving.Place``. ``now_ms``: epoch ms; ``reason`` goes into the store's history.

    A checkpoint is copied, not written: it is another place.
    """

    store: OffsetStore
    group: str
    traits: Traits
    job: str
    reason: str
    now_ms: Callable[[], int]

    def read(self, keys: Iterable[TopicPartition]) -> Mapping[TopicPartition, Found]:
        """What the keys hold. Raises what the store raises, and Refused for a row that cannot be read."""
        found = {}
        for key, row in self._rows(keys).items():
            if (number := number_in(row)) is not None:
                found[key] = Found(number, row.of_stay)
        return found

    def check(self, numbers: Mapping[TopicPartition, NewNumber]) -> None:
        """Raise Changed if ``replace`` would, for what the keys hold now, and Refused if the store refuses a write."""
        if not self.traits.corrected_by_job and self._changes(numbers):
            self.store.check_writable(self.group)

    def replace(self, numbers: Mapping[TopicPartition, NewNumber], still_writing: Callable[[], None]) -> None:
        """Write the numbers, as ``moving.Place`` says. Writes nothing where only the job writes."""
        if self.traits.corrected_by_job:
            return
        with written.writing(f'job "{self.job}" ({counted(len(numbers), "offset")})'):
            self._replace(numbers, still_writing)

    def _replace(self, numbers: Mapping[TopicPartition, NewNumber], still_writing: Callable[[], None]) -> None:
        begun = False
        for _ in range(ATTEMPTS):
            try:
                changes = self._changes(numbers, begun=begun)
                if not changes:
                    return
                still_writing()
                begun = self._write(changes, numbers) or begun
            except ReconcilerError as error:
                if not begun or isinstance(error, OutcomeUnknown):
                    raise
                raise OutcomeUnknown(
                    f'Offsets of job "{self.job}" were written, then: {error.message}', hint="Run this again."
                ) from error
        raise (OutcomeUnknown if begun else Changed)(
            f'The rows of job "{self.job}" in {self.store.address} changed each of {ATTEMPTS} times they were written.',
            hint="Stop what writes them, then run this again.",
        )

    def _write(self, changes: Sequence[Change], numbers: Mapping[TopicPartition, NewNumber]) -> bool:
        """Whether any was written. Where the store's answer is lost, reading back decides."""
        try:
            result = self.store.write(self.group, changes, reason=self.reason, now_ms=self.now_ms())
            return bool(result.written)
        except OutcomeUnknown as unknown:
            try:
                left = self._changes(numbers, begun=True)
            except ReconcilerError as error:
                raise unknown from error
            if left:
                raise
            return True

    def _changes(self, numbers: Mapping[TopicPartition, NewNumber], *, begun: bool = False) -> Sequence[Change]:
        """The changes that are left. Raises Changed for a key that holds what the plan does not know.

        ``begun``: this run has written; then a row that has the right number is done.
        """
        rows = self._rows(numbers)
        changes = []
        for key, new in numbers.items():
            row = rows.get(key)
            held = self._held(key, row, new)
            if held == new.number and (begun or self._is_of_stay(row, new)):
                continue
            # A mirror commits to a group whose job does not run; with members in it, the store refuses.
            if held not in (new.number, *new.replaced) and not self.traits.holds_commits:
                raise self._changed(key, f"holds {_words(held)}", new)
            record = new.record if self.store.capabilities.keeps_anchors else None
            left = StoredOffset(new.left.number, new.left.record)
            version = row.version if row is not None else None
            changes.append(Change(key, version, StoredOffset(new.number, record), found_from=left, stay=new.stay))
        return changes

    def _held(self, key: TopicPartition, row: Row | None, new: NewNumber) -> int | None:
        if (bad := malformed(row)) is not None:
            raise self._changed(key, f"cannot be read ({bad.message})", new)
        return number_in(row)

    def _is_of_stay(self, row: Row | None, new: NewNumber) -> bool:
        """True if the row names the new stay, or has no room for it: then the number alone counts.

        A row that was right before the move gets the new stay, and the anchor in its numbering: range batches read from
        no other. A group takes no commit of others once its consumers have started.
        """
        has_room = self.store.capabilities.keeps_anchors and not self.traits.holds_commits
        return not has_room or (row is not None and row.of_stay == new.stay)

    def _changed(self, key: TopicPartition, holds: str, new: NewNumber) -> Changed:
        known = " or ".join(
            _words(each) for each in sorted(new.replaced, key=lambda each: -1 if each is None else each)
        )
        return Changed(
            f'{key} of job "{self.job}" {holds} in {self.store.address}. The plan of stay {new.stay} replaces {known} '
            f"by offset {new.number:,}.",
            hint="Find out what has written it. To give the numbers back: reconciler move --cancel",
        )

    def _rows(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Row]:
        """The rows of the keys. A row without a partition's number may be any of its topic's."""
        wanted = list(keys)
        try:
            rows = {row.key: row for row in self.store.read(self.group, sorted({key.topic for key in wanted}))}
        except NotCreated:
            return {}
        of_any = {key.topic: row for key, row in rows.items() if key.partition == UNKNOWN_PARTITION}
        found = {key: rows.get(key, of_any.get(key.topic)) for key in wanted}
        return {key: row for key, row in found.items() if row is not None}


def _words(number: int | None) -> str:
    return "no offset" if number is None else f"offset {number:,}"
