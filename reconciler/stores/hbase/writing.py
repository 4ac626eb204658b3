"""What all layouts in HBase share when they write: one compare-and-set, lost answers, and what a half-done batch is."""

from __future__ import annotations

from reconciler.core.errors import OutcomeUnknown, ReconcilerError
from reconciler.stores.hbase.table import HBaseTable


def put_if_unchanged(table: HBaseTable, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
    """Compare-and-set one cell; ``value`` must differ from all that others write. True if it was this call's doing.

    Where the answer was lost, or says no, the cell is looked at: the server may have tried twice. Raises OutcomeUnknown
    where it can still not be told; a request on its way may be carried out later.
    """
    lost: OutcomeUnknown | None = None
    try:
        if table.check_and_put(key, column, expected, value):
            return True
    except OutcomeUnknown as error:
        lost = error
    try:
        cell = table.rows([key]).get(key, {}).get(column)
    except ReconcilerError as error:
        raise lost or OutcomeUnknown(error.message, hint="Run this again.") from error
    if cell is not None and cell.value == value:
        return True
    if lost is not None:
        raise lost
    return False


def partly(error: ReconcilerError, begun: int) -> ReconcilerError:
    """What to raise for an error after ``begun`` rows were written, or may have been."""
    if not begun or isinstance(error, OutcomeUnknown):
        return error
    return OutcomeUnknown(f"Some rows may have been written, then: {error.message}", hint="Run this again.")
