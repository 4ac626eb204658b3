"""Offset stores in this process's memory, for tests and drills. All stores opened by one name share their rows."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.ports import Capabilities, Change, HistoryEntry, OffsetStore, Row, TopicPartition, WriteResult
from reconciler.stores import common

_versions = itertools.count(1)
"""One counter for all stores: no version ever comes back."""


@dataclass(slots=True)
class _Shared:
    lock: threading.Lock = field(default_factory=threading.Lock)
    rows: dict[str, dict[TopicPartition, Row]] = field(default_factory=lambda: defaultdict(dict))
    history: dict[str, list[HistoryEntry]] = field(default_factory=lambda: defaultdict(list))


_stores: dict[str, _Shared] = {}
_stores_lock = threading.Lock()


class MemoryStore:
    """An offset store that lives as long as the process. Safe to use from many threads."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        with _stores_lock:
            self._shared = _stores.setdefault(name, _Shared())

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(keeps_history=True, atomic_batches=True)

    @property
    def address(self) -> str:
        return f"memory:{self._name}"

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        """The group's rows, ordered by topic and partition."""
        common.check_name("group's name", group)
        wanted = common.wanted_topics(topics)
        with self._shared.lock:
            rows = list(self._shared.rows.get(group, {}).values())
        rows.sort(key=lambda row: row.key)
        return [row for row in rows if wanted is None or row.key.topic in wanted]

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """All changes, or none of them if any row is no longer at its expected version."""
        common.check_changes(group, changes)
        with self._shared.lock:
            rows = self._shared.rows[group]
            found = common.conflicts(changes, {key: row.version for key, row in rows.items()})
            if found:
                return WriteResult(conflicts=found)
            for change in changes:
                before = rows.pop(change.key, None)
                after = common.stamped(change, now_ms)
                if after is not None:
                    rows[change.key] = Row(change.key, after, str(next(_versions)))
                if before is not None or after is not None:
                    self._remember(group, change.key, before, after, reason, now_ms)
        return WriteResult(written=tuple(change.key for change in changes))

    def _remember(
        self,
        group: str,
        key: TopicPartition,
        before: Row | None,
        after: StoredOffset | None,
        reason: str,
        now_ms: int,
    ) -> None:
        old = None if before is None else before.stored
        self._shared.history[group].append(HistoryEntry(key, old, after, reason, now_ms))

    def history(self, group: str) -> list[HistoryEntry]:
        """All changes to the group's rows, oldest first."""
        common.check_name("group's name", group)
        with self._shared.lock:
            return list(self._shared.history.get(group, ()))

    def create(self) -> None:
        """Memory is always there."""

    def check_writable(self, group: str) -> None:
        """Memory can always be written."""
        common.check_name("group's name", group)

    def close(self) -> None:
        """Nothing to give back: the rows stay for the next store of this name."""


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``memory:NAME`` or ``memory:``."""
    name = address.partition(":")[2]
    if name.startswith("/"):
        raise ConfigError(f"{address!r} is not the address of a memory store.", hint="Write memory: or memory:NAME.")
    return MemoryStore(name)
