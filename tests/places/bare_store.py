"""A store with no room for anchors, for commands: ``bare:///PATH``; with ``?dated``, its rows have a time.

Run as a program, this is ``reconciler`` with that store.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from reconciler.config.stores import STORES, Behind, StoreSpec
from reconciler.core.anchors import StoredOffset
from reconciler.places.sqlite.store import SqliteStore
from reconciler.ports import Capabilities, Row

SPEC = StoreSpec(module="tests.places.bare_store", example="bare:///PATH", behind=Behind.FILE)


class BareStore(SqliteStore):
    """A table as another program has it: a number for each group, topic and partition, and perhaps a time."""

    dated = False

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, keeps_anchors=False)

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        return [replace(row, stored=self._bared(row.stored)) for row in super().read(group, topics)]

    def _bared(self, stored: StoredOffset) -> StoredOffset:
        return StoredOffset(stored.offset, None, stored.written_at_ms if self.dated else None)


def open_address(address: str, *, kafka_client: Mapping[str, str] | None = None) -> BareStore:
    path, _, query = address.removeprefix("bare:///").partition("?")
    store = BareStore(path, address=address)
    store.dated = query == "dated"
    return store


@pytest.fixture
def bare_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands in this process open such stores."""
    monkeypatch.setitem(STORES, "bare", SPEC)


if __name__ == "__main__":
    from reconciler.cli.main import main

    STORES["bare"] = SPEC
    sys.exit(main())
