"""Checkpoints on HDFS: read, copied and renamed there over WebHDFS, which reports errors in its own way."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.webhdfs import WebHDFS

from reconciler.core.errors import Changed, ConfigError
from reconciler.places.checkpoint import copying
from reconciler.places.checkpoint.reading import MANIFEST, read_checkpoint
from tests.failover.checkpoint.checkpoint_files import Files, cloned, cloned_again

pytestmark = pytest.mark.system


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path / "checkpoint")
    made.batch(0, {"o": {0: 10, 1: 11}})
    made.batch(1, {"o": {0: 30, 1: 31}})
    return made


@pytest.fixture
def home(hdfs: Any) -> str:
    return hdfs.url(f"/{uuid.uuid4().hex}")


def content(url: str) -> dict[str, bytes]:
    fs, root = fsspec.url_to_fs(url)
    fs.invalidate_cache()
    return {name[len(root) + 1 :]: fs.cat_file(name) for name in fs.find(root)}


def names(home: str) -> list[str]:
    fs, root = fsspec.url_to_fs(home)
    fs.invalidate_cache()
    return sorted(name.rstrip("/").rpartition("/")[2] for name in fs.ls(root, detail=False))


def test_a_copy_on_hdfs_is_the_same_to_the_byte_and_can_be_copied_again(files: Files, home: str) -> None:
    made = cloned(files, f"{home}/first")
    cloned(files, files.path.with_name("local"))
    there, here = content(f"{home}/first"), files.content(files.path.with_name("local"))
    assert {name for name in here if here[name] != there.get(name)} <= {MANIFEST}
    assert set(there) == set(here)
    assert made.batch == 2
    fs, root = fsspec.url_to_fs(home)
    fs.makedirs(f"{root}/empty")  # is taken for nothing, as on a local disk
    cloned_again(f"{home}/first", f"{home}/empty")
    assert names(home) == ["empty", "first"]
    assert read_checkpoint(str(f"{home}/empty")).positions[0].start == {("a.o", 0): 3, ("a.o", 1): 4}
    with pytest.raises(ConfigError, match="exists already"):
        cloned_again(f"{home}/first", f"{home}/empty")


def test_what_appears_there_or_changes_there_meanwhile_is_noticed(
    files: Files, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloned(files, f"{home}/first")
    fs, root = fsspec.url_to_fs(home)
    real = copying._write_files

    def someone_writes(*given: Any) -> None:
        real(*given)
        fs.pipe_file(f"{root}/first/state/0/0/2.delta", b"STATE")

    with monkeypatch.context() as patched:
        patched.setattr(copying, "_write_files", someone_writes)
        with pytest.raises(Changed, match=r"state/0/0/2\.delta was written"):
            cloned_again(f"{home}/first", f"{home}/new")
    assert names(home) == ["first"]

    move = WebHDFS.mv

    def someone_makes_the_folder(self: Any, path1: str, path2: str, **more: Any) -> None:
        self.makedirs(path2)
        move(self, path1, path2, **more)

    monkeypatch.setattr(WebHDFS, "mv", someone_makes_the_folder)
    with pytest.raises(ConfigError, match="appeared while the copy was made"):
        cloned_again(f"{home}/first", f"{home}/new")
    assert names(home) == ["first", "new"]
    assert names(f"{home}/new") == []
