"""A store in memory with no room for anchors, and stores that fail or die at a chosen call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from reconciler.core.anchors import StoredOffset
from reconciler.places.memory import MemoryStore
from reconciler.ports import Capabilities, Change, OffsetStore, Row, WriteResult


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


@dataclass
class Faults:
    """A fault at the n-th write to any of the stores that share it, ``before`` or ``after`` the write."""

    at: int | None = None
    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None
    calls: list[str] = field(default_factory=list)

    def around(self, name: str, write: Callable[[], WriteResult]) -> WriteResult:
        self.calls.append(name)
        now = len(self.calls) == self.at
        if now and self.before:
            self.before()
        result = write()
        if now and self.after:
            self.after()
        return result


class Faulty:
    """A store whose writes go through ``faults``."""

    def __init__(self, store: OffsetStore, name: str, faults: Faults) -> None:
        self._store = store
        self._name = name
        self._faults = faults

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        return self._faults.around(self._name, lambda: self._store.write(group, changes, reason=reason, now_ms=now_ms))

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)
