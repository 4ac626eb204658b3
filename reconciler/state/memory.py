"""State in this process, for tests and the demo."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from reconciler.state.store import Held

_stores: dict[str, MemoryState] = {}


def open_address(address: str) -> MemoryState:
    """``memory:NAME``; the same store each time within this process."""
    return _stores.setdefault(address, MemoryState(address))


class MemoryState:
    def __init__(self, shown: str) -> None:
        self.shown = shown
        self._logs: dict[str, dict[int, bytes]] = {}
        self._lock = threading.Lock()

    def create(self) -> None:
        """Nothing to make."""

    def put(self, log: str, number: int, entry: bytes) -> bool:
        with self._lock:
            return self._logs.setdefault(log, {}).setdefault(number, entry) is entry

    def read(self, log: str, newest: int) -> Sequence[Held]:
        with self._lock:
            return [Held(*each) for each in sorted(self._logs.get(log, {}).items(), reverse=True)[:newest]]

    def read_one(self, log: str, number: int) -> Held | None:
        with self._lock:
            entry = self._logs.get(log, {}).get(number)
        return None if entry is None else Held(number, entry)

    def remove(self, log: str, number: int) -> None:
        with self._lock:
            self._logs.get(log, {}).pop(number, None)

    def prune(self, log: str, upto: int) -> None:
        with self._lock:
            entries = self._logs.get(log, {})
            for number in sorted(number for number in entries if number <= upto):
                del entries[number]

    def close(self) -> None:
        """Nothing is open."""
