"""Two spellings of one store's address are one store."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.config.places import one_store, server_of
from reconciler.core.errors import ConfigError
from reconciler.places.registry import open_store


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("sqlite:///offsets.db", "sqlite:///{}/offsets.db"),
        ("sqlite:///offsets.db", "sqlite:///./linked/offsets.db"),
        ("files:offsets", "files:{}/offsets/?keep=5"),
        ("files:offsets", "files:file://{}/offsets"),
        ("files:s3://bucket/offsets", "files:s3a://bucket/offsets/?walk=5"),
        ("files:abfs://data@acct/o", "files:abfss://data@acct.dfs.core.windows.net/o"),
        ("postgres://h/db", "postgresql://h:5432/db"),
        ("postgresql://h/db", "postgresql://user:secret@H/db?timeout=3&sslmode=require"),
        ("postgresql://h/db?schema=s", "postgresql:///?dbname=db&host=h&schema=s"),
        ("postgresql://[::1]/db", "postgresql://[::1]:5432/db"),
        ("postgresql://me@h", "postgresql://h/me"),
        ("hbase://h/t?layout=cloudera", "hbase://H:9090/default:t?timeout=3&layout=cloudera"),
        ("zookeeper://a,b:2181/k?layout=single", "zookeeper://b,a/k/?layout=single&number=first"),
        ("postgresql://%2Frun%2Fa/db", "postgresql:///db?host=/run/a"),
        ("postgresql://h1:1,h2:2/db", "postgresql://h1,h2/db?port=1,2"),
        ("postgresql://other/none?host=h&dbname=db", "postgresql://h/db"),
        ("postgresql://h/db?table=s.t", "postgresql://h/db?schema=s&table=t"),
        ("postgresql://alice@h/db?schema=s", "postgresql://bob@h/db?schema=s"),
        ("mysql://me@h/db?table=s.t&topic=a", "mariadb://H:3306/db?topic=a&schema=s&table=t&ssl_ca=/c&newest_by=n"),
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
        ("mysql://h/db?table=t", "mysql://h/db?table=u"),
        ("postgresql://h/db", "postgresql://h:5433/db"),
        ("postgresql://h/db", "postgresql://h/db?schema=s"),
        ("hbase://h/ns:t?layout=cloudera", "hbase://h/t?layout=cloudera"),
        ("zookeeper://a/k?layout=single", "zookeeper://a/k?layout=consumers"),
        ("zookeeper://a/default:k?layout=single", "zookeeper://a/k?layout=single"),
        ("files://offsets", "files:offsets"),
        ("postgresql://?service=a", "postgresql://?service=b"),
        ("postgresql://h/db?options=-csearch_path%3Da", "postgresql://h/db?options=-csearch_path%3Db"),
        ("postgresql://h/db?hostaddr=10.0.0.1", "postgresql://h/db?hostaddr=10.0.0.2"),
        ("postgresql://h/db?dbname=x", "postgresql://h/db?dbname=y"),
        ("postgresql://h/db?host=x", "postgresql://h/db?host=y"),
        ("postgresql:///db?host=/run/A", "postgresql:///db?host=/run/a"),
        ("postgresql://alice@h/db", "postgresql://bob@h/db"),  # their search paths begin with their own schemas
    ],
)
def test_stores_at_different_places_are_two(one: str, other: str) -> None:
    assert not one_store(one, other)


def test_a_path_that_no_file_can_have_is_compared_as_text_and_refused_by_the_store() -> None:
    assert not one_store("sqlite:///offsets.db", "sqlite:///anchors\0.db")
    assert not one_store("files:offsets", "files:anchors\0")
    with pytest.raises(ConfigError):
        open_store("sqlite:///anchors\0.db").read("g")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgresql://h/db?table=a", "postgres://me:secret@H:5432/other?table=b&options=-csearch_path%3Db"),
        ("postgresql:///?host=h&dbname=db", "postgresql://h/db"),
        ("zookeeper://a,b/k?layout=single", "zookeeper://b:2181,a/other?layout=single"),
        ("hbase://h/t?layout=cloudera", "hbase://h:9090/ns:other?layout=cloudera"),
        ("checkpoint:webhdfs://me@nn:9870/a", "files:webhdfs://NN:9870/b/c?keep=5"),
        ("delta:s3://bucket/a?layout=commit", "checkpoint:s3://bucket/b"),
        ("iceberg:prod/a.b?layout=summary", "iceberg:prod/c.d?layout=summary"),
    ],
)
def test_two_addresses_of_one_server_have_it_in_common(one: str, other: str) -> None:
    assert server_of(one) == server_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("postgresql://h/db", "postgresql://h:5433/db"),
        ("postgresql://?service=a", "postgresql://?service=b"),
        ("postgresql://h/db?hostaddr=10.0.0.1", "postgresql://h/db?hostaddr=10.0.0.2"),
        ("zookeeper://h/t", "hbase://h/t"),
        ("checkpoint:webhdfs://one/a", "checkpoint:webhdfs://other/a"),
        ("files:s3://bucket/a", "files:gs://bucket/a"),
        ("checkpoint:/srv/a", "checkpoint:/srv/b"),
        ("checkpoint:file:///srv/a", "checkpoint:file:///srv/b"),
        ("sqlite:////srv/a.db", "sqlite:////srv/b.db"),
        ("iceberg:prod/a.b", "iceberg:test/a.b"),
    ],
)
def test_addresses_that_share_no_server_have_nothing_in_common(one: str, other: str) -> None:
    assert server_of(one) != server_of(other)
