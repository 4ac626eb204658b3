"""Paths and URLs as Spark, Hadoop and Databricks write them: read rightly, or refused with what to write."""

from pathlib import Path

import pytest

from reconciler.config.addresses import not_set_up, scheme_of_path, without_secrets
from reconciler.config.places import one_store
from reconciler.core.errors import ConfigError
from reconciler.places.folder import LocalFolder, open_folder
from tests.failover.checkpoint.checkpoint_files import command


@pytest.mark.parametrize(
    ("path", "says", "advice"),
    [
        ("dbfs:/mnt/chk", "neither a local path nor a URL", "write /dbfs/PATH. Elsewhere write dbfs:///PATH"),
        ("DBFS:/mnt/chk", "neither a local path nor a URL", "write /dbfs/PATH"),
        ("hdfs:/user/etl", "neither a local path nor a URL", "webhdfs://HOST:9870/PATH"),
        ("abfss://data@acct/chk", "without the package adlfs", "pip install adlfs"),
        ("wasbs://data@acct/chk", "knows no file system 'wasbs'", "s3://BUCKET/PATH"),
        ("memory:/chk", "neither a local path nor a URL", "memory://HOST/PATH"),
        ("s3a:/me:secret@bucket/x", "s3a:/… is neither", "s3a://HOST/PATH"),
        ("file://data/chk", "names the host data", "file:///PATH"),
        ("C:\\data\\chk", "a path of Windows", "/mnt/c/PATH"),
        ("c:/data/chk", "a path of Windows", "/mnt/c/PATH"),
    ],
)
def test_a_path_that_cannot_be_opened_here_is_refused_with_what_to_write(path: str, says: str, advice: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_folder(path)
    assert says in caught.value.message
    assert caught.value.hint is not None
    assert advice in caught.value.hint


@pytest.mark.parametrize(
    ("path", "is_at"),
    [("file:/data/c", "/data/c"), ("file:///data/c", "/data/c"), ("local:/d", "/d"), ("/a:b", "/a:b")],
)
def test_a_local_path_may_have_hadoops_one_slash_or_a_colon(path: str, is_at: str) -> None:
    folder = open_folder(path)
    assert isinstance(folder, LocalFolder)
    assert folder.shown == is_at


def test_a_local_name_may_have_a_colon() -> None:
    assert scheme_of_path("run:1/chk") is None
    assert scheme_of_path("./dbfs:/x") is None


def test_an_error_of_the_set_up_is_no_outage() -> None:
    assert "libhdfs" in str(not_set_up("hdfs", OSError("Unable to load libjvm\ndlopen failed")))
    assert "FSSPEC_DBFS_TOKEN" in str(not_set_up("dbfs", TypeError("missing 2 required positional arguments")))
    assert not_set_up("hdfs", OSError("connection refused")) is None


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("checkpoint:abfss://data@acct.dfs.core.windows.net/c", "checkpoint:abfss://data@acct.dfs.core.windows.net/c"),
        ("files:abfs://$root@acct/c", "files:abfs://$root@acct/c"),
        ("delta:az://data@acct/t", "delta:az://data@acct/t"),
        ("abfss://data:secret@acct/c", "abfss://data:…@acct/c"),
        ("hdfs://etl@nn:8020/c", "hdfs://etl@nn:8020/c"),
        ("sftp://etl:secret@host/c", "sftp://host/c"),
        ("s3a://KEY@bucket/c", "s3a://bucket/c"),
        ("s3a://KEY:secret@bucket/c", "s3a://bucket/c"),
        ("https://token@host/c", "https://host/c"),
    ],
)
def test_a_container_is_shown_and_a_secret_is_not(address: str, shown: str) -> None:
    assert without_secrets(address) == shown


def test_two_containers_of_an_account_are_two_places() -> None:
    here, there = (f"checkpoint:abfss://{name}@acct.dfs.core.windows.net/c" for name in ("data", "dr"))
    assert not one_store(here, there)


def test_config_check_says_it_of_a_configured_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "reconciler.toml"
    file.write_text(
        '[clusters.a]\n[clusters.b]\nbootstrap_servers = "localhost:9092"\n'
        '[[jobs]]\nhome = "a"\nname = "j"\ntopics = ["x"]\noffsets = "checkpoint:dbfs:/mnt/chk"\n'
    )
    assert command("config", "check", "--offline", "-c", file) == 2
    assert "write /dbfs/PATH" in " ".join(capsys.readouterr().out.split())
