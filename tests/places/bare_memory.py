"""A store in memory with no room for anchors, and the end of a process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from reconciler.core.anchors import StoredOffset
from reconciler.places.memory import MemoryStore
from reconciler.ports import Capabilities, Change, Row, WriteResult


class Killed(BaseException):
    """Stands for SIGKILL within the process of the test."""


class BareStore(MemoryStore):
    """Keeps offsets without anchors, like another program's table. ``dated``: rows have a time of writing."""

    def __init__(self, name: str, *, dated: bool = False, atomic: bool = True) -> None:
        super().__init__(name)
        self._dated = dated
        self._atomic = atomic

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(keeps_anchors=False, atomic_batches=self._atomic)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        return [replace(row, stored=self._bared(row.stored)) for row in super().read(group, topics)]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        if self._atomic:
            return super().write(group, changes, reason=reason, now_ms=now_ms)
        results = [super(BareStore, self).write(group, [each], reason=reason, now_ms=now_ms) for each in changes]
        return WriteResult(
            tuple(key for result in results for key in result.written),
            tuple(key for result in results for key in result.conflicts),
        )

    def _bared(self, stored: StoredOffset) -> StoredOffset:
        return StoredOffset(stored.offset, None, stored.written_at_ms if self._dated else None)
