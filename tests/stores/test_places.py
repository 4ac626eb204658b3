"""Two spellings of one store's address are one store."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.stores.places import one_store
from reconciler.stores.registry import open_store
from reconciler.stores.sqlite.store import SqliteStore


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sqlite:///offsets.db", "sqlite:///{}/offsets.db"),
        ("sqlite:///offsets.db", "sqlite:///./linked/offsets.db"),
        ("files:offsets", "files:{}/offsets/?keep=5"),
        ("files:offsets", "files:file://{}/offsets"),
        ("files:s3://bucket/offsets", "files:s3://bucket/offsets/?walk=5"),
        ("postgres://h/db", "postgresql://h:5432/db"),
        ("postgresql://h/db", "postgresql://user:secret@H/db?timeout=3&sslmode=require"),
        ("postgresql://h/db?schema=s", "postgresql:///?dbname=db&host=h&schema=s"),
        ("postgresql://[::1]/db", "postgresql://[::1]:5432/db"),
        ("postgresql://me@h", "postgresql://h/me"),
        ("hbase://h/t?layout=anchored", "hbase://H:9090/default:t?timeout=3&layout=anchored"),
        ("zookeeper://a,b:2181/k?layout=single", "zookeeper://b,a/k/?layout=single&saves=until"),
        ("kafka-topic:rows", "kafka-topic:rows?mirrored=a.rows"),
    ],
)
def test_two_spellings_of_one_store_are_one(
    one: str, other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "linked").symlink_to(tmp_path)
    assert one_store(one, other.format(tmp_path))
    assert one_store(other.format(tmp_path), one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sqlite:///offsets.db", "sqlite:///anchors.db"),
        ("sqlite:///offsets", "files:offsets"),
        ("postgresql://h/db", "postgresql://h/other"),
        ("postgresql://h/db", "postgresql://h:5433/db"),
        ("postgresql://h/db", "postgresql://h/db?schema=s"),
        ("hbase://h/ns:t?layout=anchored", "hbase://h/t?layout=anchored"),
        ("zookeeper://a/k?layout=single", "zookeeper://a/k?layout=consumers"),
        ("kafka-topic:rows", "kafka-topic:anchors"),
    ],
)
def test_stores_at_different_places_are_two(one: str, other: str) -> None:
    assert not one_store(one, other)


def test_a_store_is_not_paired_with_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(open_store("sqlite:///offsets.db", anchors=f"sqlite:///{tmp_path}/offsets.db"), SqliteStore)
