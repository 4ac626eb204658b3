"""One write to a job's store and the [anchors] store, step by step; see ``store`` for the order."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import OutcomeUnknown, ReconcilerError, Unreachable
from reconciler.ports import Change, OffsetStore, TopicPartition, WriteResult
from reconciler.stores.paired.kept import of_anchors, read_kept
from reconciler.stores.paired.steps import NOTHING, PairedStep, put_back, version_of, without_aside

Keys = set[TopicPartition]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Writing:
    """One batch that is being written to both stores."""

    bare: OffsetStore
    anchors: OffsetStore
    group: str
    reason: str
    now_ms: int

    def prepare(self, steps: Sequence[PairedStep]) -> Keys:
        """The steps before the offsets change. Returns the keys that another writer is changing; these are undone.

        If the bare store writes row by row, the other rows go on, also where the anchor store writes all or none.
        """
        apart = not self.bare.capabilities.atomic_batches
        try:
            laid = [step.lay_aside() for step in steps]
            lost = {without_aside(key) for key in self.put([c for c in laid if c is not None], apart=apart)}
            back = left = [step for step in steps if step.key not in lost]
            if apart or not lost:
                first = [step.first for step in left]
                late = self.put([change for change in first if change is not None], apart=apart)
                back = left if late and not apart else [step for step in left if step.key in late]
                lost |= late
        except OutcomeUnknown as error:
            raise Unreachable(
                f"{error.message} No offset was written.", hint="Run this again: it starts from the rows it finds."
            ) from error
        self.undo(back)
        return lost

    def put_offsets(self, steps: Sequence[PairedStep]) -> WriteResult:
        """Write the offsets."""
        if not steps:
            return WriteResult()
        changes = [replace(step.change, expected=version_of(step.own)) for step in steps]
        try:
            result = self.bare.write(self.group, changes, reason=self.reason, now_ms=self.now_ms)
        except OutcomeUnknown:
            raise  # the rows laid aside stay: with them, both outcomes read correctly
        except ReconcilerError:
            self.undo(steps)
            raise
        self.undo([step for step in steps if step.key not in result.written])
        return result

    def undo(self, steps: Sequence[PairedStep]) -> None:
        """Undo ``prepare``. A row laid aside is as it was before, unless another writer has replaced it."""
        if not steps:
            return
        try:
            kept = read_kept(self.anchors, self.group, {step.key.topic for step in steps})
            undone = [step.back(kept.get(step.key, NOTHING).main) for step in steps]
            self.put([change for change in undone if change is not None], apart=True)
            self.put(put_back(steps, kept), apart=True)
        except ReconcilerError as error:
            _log.debug("rows laid aside could not be removed: %s", error)

    def put(self, changes: Sequence[Change], *, apart: bool = False) -> Keys:
        """Write to the anchor store. Returns the keys whose row had changed.

        Of a store that writes all or none, nothing is written then; with ``apart``, the other changes are.
        """
        lost: Keys = set()
        while changes:
            with of_anchors():
                result = self.anchors.write(self.group, changes, reason=self.reason, now_ms=self.now_ms)
            lost |= set(result.conflicts)
            if not (apart and result.conflicts) or result.written:
                break
            changes = [change for change in changes if change.key not in lost]
        return lost


def asides_of(steps: Iterable[PairedStep]) -> dict[TopicPartition, StoredOffset]:
    """The rows laid aside for these steps, by the rows' keys."""
    return {step.key: step.aside for step in steps if step.aside is not None}
