"""The base of the stores of all layouts, and their errors for a damaged row and for a partial write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Refused
from reconciler.places import common
from reconciler.places.hbase.table import HBaseTable
from reconciler.ports import TopicPartition

Part = TypeVar("Part")


class HBaseStore:
    """A store in one table. Raises as ``HBaseTable`` does, and Refused for rows that do not fit the layout."""

    def __init__(self, table: HBaseTable, address: str) -> None:
        self._table = table
        self.address = address

    def create(self) -> None:
        """Create the table, unless it exists."""
        self._table.create()

    def check_writable(self, group: str) -> None:
        """Raise Refused for a table that is missing, disabled or of another layout. Writes nothing."""
        self._check_group(group)
        self._table.check_usable()

    def close(self) -> None:
        self._table.close()

    def _check_group(self, group: str) -> None:
        common.check_name("group's name", group)


class UnreadableRow(Refused):
    """A row that does not fit the layout."""


def unreadable(table: HBaseTable, row: bytes, error: ValueError) -> UnreadableRow:
    """The error for a row that ``table`` should not hold; ``error`` ends the sentence."""
    return UnreadableRow(
        f"Row {row!r} of HBase table {table.name!r} does not fit this layout: {error}.",
        hint="Correct the layout in the store's address, or correct or delete the row.",
    )


def write_parts(parts: Iterable[Part], write: Callable[[Part], set[TopicPartition]]) -> set[TopicPartition]:
    """Write the parts in turn. Returns the keys of all rows that had changed.

    Raises OutcomeUnknown where a part fails after the first.
    """
    lost: set[TopicPartition] = set()
    for number, part in enumerate(parts):
        try:
            lost |= write(part)
        except ReconcilerError as error:
            raise partial_write(error, rows_may_be_written=number > 0) from error
    return lost


def partial_write(error: ReconcilerError, *, rows_may_be_written: bool) -> ReconcilerError:
    """``error`` itself where nothing was written before it, else OutcomeUnknown."""
    if not rows_may_be_written or isinstance(error, OutcomeUnknown):
        return error
    return OutcomeUnknown(f"Some rows may have been written, then: {error.message}", hint="Run this again.")
