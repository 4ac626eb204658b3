"""Helpers that all stores share."""

from __future__ import annotations

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import Refused
from reconciler.places.common import ReadOnlyStore
from reconciler.places.memory import MemoryStore
from reconciler.ports import Change, TopicPartition

KEY = TopicPartition("events", 0)


def test_a_read_only_view_shows_the_rows_and_refuses_every_change():
    store = MemoryStore("viewed")
    store.write("clicks", [Change(KEY, None, StoredOffset(7))], reason="test", now_ms=0)
    view = ReadOnlyStore(store)
    assert view.read("clicks") == store.read("clicks")
    assert view.address == store.address
    assert not view.capabilities.writable
    assert view.capabilities.keeps_anchors
    for change in (
        lambda: view.write("clicks", [], reason="test", now_ms=0),
        view.create,
        lambda: view.check_writable("clicks"),
    ):
        with pytest.raises(Refused, match="read-only"):
            change()
