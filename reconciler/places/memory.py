"""Offset stores in this process's memory, for tests and drills. All stores opened by one name share their rows."""

from __future__ import annotations

import itertools
import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from reconciler.core.errors import ConfigError
from reconciler.places import common
from reconciler.places.parameters import wrong_address
from reconciler.ports import Capabilities, Change, OffsetStore, Row, TopicPartition, WriteResult

_versions = itertools.count(1)
"""One counter for all stores: no version ever returns."""


@dataclass(slots=True)
class _Shared:
    lock: threading.Lock = field(default_factory=threading.Lock)
    rows: dict[str, dict[TopicPartition, Row]] = field(default_factory=lambda: defaultdict(dict))


_stores: dict[str, _Shared] = {}
_stores_lock = threading.Lock()


class MemoryStore:
    """An offset store that lives as long as the process. Safe to use from many threads."""

    capabilities = Capabilities(atomic_batches=True)

    def __init__(self, name: str = "") -> None:
        self.address = f"memory:{name}"
        with _stores_lock:
            self._shared = _stores.setdefault(name, _Shared())

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        common.check_name("group's name", group)
        with self._shared.lock:
            rows = list(self._shared.rows.get(group, {}).values())
        return common.rows_of_topics(rows, topics)

    def groups(self) -> list[str]:
        with self._shared.lock:
            return sorted(group for group, rows in self._shared.rows.items() if rows)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        """All changes, or none of them if any row is no longer at its expected version."""
        common.check_changes(group, changes)
        with self._shared.lock:
            rows = self._shared.rows[group]
            conflicts = common.conflicts(changes, {key: row.version for key, row in rows.items()})
            if conflicts:
                return WriteResult(conflicts=conflicts)
            for change in changes:
                new = common.with_time(change, now_ms)
                rows[change.key] = Row(change.key, new, str(next(_versions)), of_stay=change.stay)
        return common.result_of(changes)

    def create(self) -> None:
        """Memory is always there."""

    def check_writable(self, group: str) -> None:
        """Memory can always be written."""
        common.check_name("group's name", group)

    def close(self) -> None:
        """The rows stay for the next store of this name."""


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
    """``memory:NAME`` or ``memory:``."""
    name = address.partition(":")[2]
    if name.startswith("/"):
        raise ConfigError(f"{address!r} is not the address of a memory store.", hint="Write memory: or memory:NAME.")
    if mark := re.search(r"[?#]", name):
        why = f"it takes no parameters, and no {mark[0]} may be in its name"
        raise wrong_address("The address of a memory store", "memory:NAME", why)
    return MemoryStore(name)
