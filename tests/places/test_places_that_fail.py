"""A store that cannot be looked at is not called missing: rows would be read without the anchors in it."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import NotCreated, Refused, Unreachable
from reconciler.places.registry import open_store
from reconciler.ports import OffsetStore, TopicPartition
from reconciler.waits import none_resolves

KEY = TopicPartition("events", 0)
FAULTS = [(errno.EACCES, Refused), (errno.EIO, Unreachable), (errno.ESTALE, Unreachable)]


def fail_at(place: Path, fault: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the system answers every look at this path with the fault."""
    look = os.stat

    def stat(path: Any, *more: Any, **named: Any) -> os.stat_result:
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(str(place)):
            raise OSError(fault, os.strerror(fault), os.fspath(path))
        return look(path, *more, **named)

    monkeypatch.setattr(os, "stat", stat)


def made(scheme: str, place: Path) -> OffsetStore:
    store = open_store(f"sqlite:///{place}" if scheme == "sqlite" else f"{scheme}:{place}")
    store.create()
    return store


@pytest.mark.parametrize("scheme", ["sqlite", "files"])
@pytest.mark.parametrize(("fault", "kind"), FAULTS)
def test_a_place_that_cannot_be_looked_at_is_not_called_missing(
    scheme: str, fault: int, kind: type[Refused | Unreachable], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made(scheme, tmp_path / "place")
    with monkeypatch.context() as during:
        fail_at(tmp_path / "place", fault, during)
        with pytest.raises(kind, match=f"place could not be looked at: {os.strerror(fault)}") as caught:
            store.read("g")
    assert not isinstance(caught.value, NotCreated)
    assert isinstance(caught.value, Refused) == (kind is Refused)


@pytest.mark.parametrize("host", [".example.com", "a..example.com", "a" * 64 + ".example.com"])
def test_a_name_that_cannot_be_a_hosts_is_one_without_an_address(host: str) -> None:
    """Such a one comes from a variable that is empty: postgresql://${DB}.example.com/db."""
    assert none_resolves([(host, 9092)])
    with pytest.raises(Unreachable, match="could not be reached") as caught:
        open_store(f"postgresql://me@{host}/db").read("g")
    assert "Correct the host" in str(caught.value.hint)
