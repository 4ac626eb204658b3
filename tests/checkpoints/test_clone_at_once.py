"""Two processes copy to one path of an object store, as a pod that was started twice: no copy in use is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from reconciler.checkpoints import claim, copying
from reconciler.checkpoints import clone as cloning
from reconciler.checkpoints.files import BARRIER
from reconciler.core.errors import Changed, ConfigError, Refused
from reconciler.stores.checkpoint import read_checkpoint
from tests.checkpoints.checkpoint_files import Files, cloned

TAKEN = "Another process is copying to .*, or has"


class Bucket:
    """A store without renames. ``new``: the path of the copy."""

    def __init__(self, name: str) -> None:
        self.new = f"memory://{name}/new"
        self.fs: Any = fsspec.filesystem("memory")

    def content(self) -> dict[str, bytes]:
        root = self.fs._strip_protocol(self.new)
        return {path.removeprefix(f"{root}/"): self.fs.cat_file(path) for path in self.fs.find(root)}

    def run(self) -> dict[str, bytes]:
        """The query runs batch 2 on the finished copy: the content then."""
        for below in ("offsets", "commits"):
            entry = self.fs.cat_file(f"{self.new}/{below}/1").replace(b'"0":3', b'"0":9')
            self.fs.pipe_file(f"{self.new}/{below}/2", entry)
        return self.content()


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(f"at-once{tmp_path}")


def first(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, meanwhile: Callable[[], None]) -> None:
    """Before the first call of a function, something happens; not before those within it."""
    real, calls = getattr(where, name), []

    def slow(*given: Any, **more: Any) -> Any:
        calls.append(name)
        if len(calls) == 1:
            meanwhile()
        return real(*given, **more)

    monkeypatch.setattr(where, name, slow)


@pytest.mark.parametrize("where", [(cloning, "copy_tree"), (claim.Tree, "create")])
def test_a_copy_that_came_since_the_path_was_found_free_is_not_written_over(
    files: Files, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, where: tuple[Any, str]
) -> None:
    seen = []

    def other() -> None:
        cloned(files, bucket.new)
        seen.append(bucket.run())

    first(monkeypatch, *where, other)
    with pytest.raises(ConfigError, match=TAKEN):
        cloned(files, bucket.new)
    assert bucket.content() == seen[0]
    assert read_checkpoint(bucket.new).committed


def test_a_copy_that_was_finished_right_before_the_barrier_stays(
    files: Files, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query has begun no batch yet, whose entry would be in the barrier's place."""
    first(monkeypatch, claim.Tree, "create", lambda: cloned(files, bucket.new) and None)
    with pytest.raises(ConfigError, match=TAKEN):
        cloned(files, bucket.new)
    assert read_checkpoint(bucket.new).committed


@pytest.mark.parametrize("changes", [True, False])
def test_a_copy_that_the_other_has_finished_is_neither_written_nor_removed(
    files: Files, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, changes: bool
) -> None:
    seen = []

    def other() -> None:
        cloned(files, bucket.new)
        seen.append(bucket.run())
        if changes:
            files.batch(2, {"o": {0: 40, 1: 41}}, "19")

    first(monkeypatch, copying, "_copy_files", other)
    with pytest.raises(ConfigError, match=TAKEN):
        cloned(files, bucket.new)
    assert bucket.content() == seen[0]


def test_a_copy_that_another_process_began_is_left_to_it_by_one_that_fails(
    files: Files, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on with what it took for a copy that was cut off."""

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(copying, "_copy_files", killed)
        with pytest.raises(KeyboardInterrupt):
            cloned(files, bucket.new)
    before = bucket.content()
    first(monkeypatch, copying, "_copy_files", lambda: files.batch(2, {"o": {0: 40, 1: 41}}, "19"))
    with pytest.raises(Changed):
        cloned(files, bucket.new)
    assert bucket.content()["offsets/2"] == before["offsets/2"]
    assert bucket.content()["offsets/2"].startswith(BARRIER)


def test_a_copy_that_is_refused_is_removed_as_the_page_says(
    files: Files, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stray() -> None:
        bucket.fs.pipe_file(f"{bucket.new}/stray", b"")

    first(monkeypatch, copying, "_see_whole", stray)
    with pytest.raises(Refused, match="is not whole: stray has 0 bytes"):
        cloned(files, bucket.new)
    assert bucket.content() == {}


def test_of_a_copy_that_is_removed_the_barrier_goes_last(
    files: Files, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []
    real = type(bucket.fs).rm_file

    def watched(fs: Any, path: str) -> None:
        real(fs, path)
        left.append(set(bucket.content()))

    monkeypatch.setattr(type(bucket.fs), "rm_file", watched)
    monkeypatch.setattr(copying, "_see_whole", refuse)
    with pytest.raises(Refused):
        cloned(files, bucket.new)
    assert len(left) > 5
    assert all("offsets/2" in names for names in left[:-1])
    assert left[-1] == set()


def refuse(*_: Any) -> None:
    raise Refused("refused")
