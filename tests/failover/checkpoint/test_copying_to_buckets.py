"""A copy on an object store, which renames nothing: no torn copy is started, and no copy in use is touched.

Two processes copy to one path, as the hooks of a pod that was started twice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, Refused, Unreachable
from reconciler.failover.checkpoint import clone as cloning
from reconciler.places.checkpoint import copying
from reconciler.places.checkpoint.files import Tree
from reconciler.places.checkpoint.reading import MANIFEST, read_checkpoint
from reconciler.places.folder import open_folder
from tests.failover.checkpoint.checkpoint_files import Files, cloned, cloned_again, new

TAKEN = "Another process is copying to .*, or has"


class Bucket:
    """A store without renames. ``new``: the path of the copy."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.new = f"{url}/new"
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
    return Bucket(f"memory://bucket{tmp_path}")


def first(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, meanwhile: Callable[[], object]) -> None:
    """Before the first call of a function, something happens; not before those within it."""
    real, calls = getattr(where, name), []

    def slow(*given: Any, **more: Any) -> Any:
        calls.append(name)
        if len(calls) == 1:
            meanwhile()
        return real(*given, **more)

    monkeypatch.setattr(where, name, slow)


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_: Any) -> None:
        raise error

    return fail


# ---------------------------------------------------------------- whole


def test_a_store_gets_the_same_files(files: Files, bucket: Bucket) -> None:
    cloned(files, bucket.new)
    cloned(files)
    found, local = bucket.content(), files.content(new(files))
    assert found.keys() == local.keys()
    assert {name for name in found if found[name] != local[name]} <= {MANIFEST}


def test_an_object_that_stands_for_a_folder_is_no_file(files: Files, bucket: Bucket) -> None:
    """Hadoop's S3A makes an empty object with a slash at its name's end, and so do consoles."""
    cloned(files, bucket.new)
    fs, root = fsspec.url_to_fs(bucket.url)
    names = fs.find(f"{root}/new")
    for folder in ("new", "new/offsets", "new/sources", "new/state/0", "newer"):
        fs.store[f"{root}/{folder}/"] = MemoryFile(fs, f"{root}/{folder}/")
    assert {f"{root}/new/{name}" for name in Tree(bucket.new).listing().files} == set(names)
    assert "offsets" not in open_folder(f"{bucket.new}/offsets").names()
    assert cloned_again(bucket.new, f"{bucket.url}/newer").batch == 2


def test_at_every_step_before_the_last_a_copy_is_no_checkpoint(
    files: Files, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copying process may die at any of them."""
    steps = []

    def watch(name: str) -> None:
        real = getattr(MemoryFileSystem, name)

        def step(fs: Any, path: Any, *given: Any, **more: Any) -> Any:
            if f"{bucket.new}/".removeprefix("memory:/") in f"{path}/" and fs.find(bucket.new):
                with pytest.raises(Refused, match="is an unfinished copy of a checkpoint"):
                    read_checkpoint(bucket.new)
                steps.append(path)
            return real(fs, path, *given, **more)

        monkeypatch.setattr(MemoryFileSystem, name, step)

    for name in ("pipe_file", "open", "rm_file"):
        watch(name)
    cloned(files, bucket.new)
    monkeypatch.undo()
    assert len(steps) > 15
    names = [str(step).rpartition("/new/")[2] for step in steps]
    assert names[-2:] == ["metadata", "offsets/2"]
    assert names.count("metadata") == 1
    assert read_checkpoint(bucket.new).committed


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Unreachable("It went away.")])
def test_a_copy_that_was_cut_off_is_left_and_no_other_goes_on_with_it(
    files: Files,
    bucket: Bucket,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(copying, "_write_files", raising(error))
        with pytest.raises(type(error)):
            cloned(files, bucket.new)
    before = bucket.content()
    assert caplog.messages == [f"{bucket.new} is an unfinished copy of {files.path}, and may be deleted"]
    with pytest.raises(ConfigError, match="exists already"):
        cloned(files, bucket.new)
    assert bucket.content() == before


def test_the_last_answer_that_is_lost_is_told(files: Files, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFileSystem, "rm_file", raising(ConnectionResetError("reset")))
    with pytest.raises(OutcomeUnknown, match="Whether the barrier offsets/2 was removed"):
        cloned(files, bucket.new)


def test_a_copy_that_is_refused_is_removed_and_its_barrier_goes_last(
    files: Files, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []
    real = MemoryFileSystem.rm_file

    def watched(fs: Any, path: str) -> None:
        real(fs, path)
        left.append(set(bucket.content()))

    monkeypatch.setattr(MemoryFileSystem, "rm_file", watched)
    first(monkeypatch, copying, "_see_whole", lambda: bucket.fs.pipe_file(f"{bucket.new}/stray", b""))
    with pytest.raises(Refused, match="is not whole: stray has 0 bytes"):
        cloned(files, bucket.new)
    assert len(left) > 5
    assert all("offsets/2" in names for names in left[:-1])
    assert left[-1] == set()


# ---------------------------------------------------------------- two at once


@pytest.mark.parametrize("runs", [True, False])
@pytest.mark.parametrize("where", [(cloning, "copy_tree"), (Tree, "create")])
def test_a_copy_that_came_since_the_path_was_found_free_is_not_written_over(
    files: Files, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, where: tuple[Any, str], runs: bool
) -> None:
    """Where the query has run a batch, its entry is in the barrier's place; else there is none."""
    seen = []

    def other() -> None:
        cloned(files, bucket.new)
        seen.append(bucket.run() if runs else bucket.content())

    first(monkeypatch, *where, other)
    with pytest.raises(ConfigError, match=TAKEN):
        cloned(files, bucket.new)
    assert bucket.content() == seen[0]
    assert read_checkpoint(bucket.new).committed


@pytest.mark.parametrize("error", [Changed("a query runs on it"), None])
def test_a_barrier_that_is_anothers_by_now_is_left_to_it(
    files: Files, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """As where two processes write it and the later one's text stays, on stores without conditions."""
    seen = []

    def other() -> None:
        bucket.fs.rm(bucket.new, recursive=True)
        cloned(files, bucket.new)
        seen.append(bucket.run())
        if error is not None:
            raise error

    first(monkeypatch, copying, "_copy_files", other)
    with pytest.raises((ConfigError, Changed), match=TAKEN if error is None else "a query runs"):
        cloned(files, bucket.new)
    assert bucket.content() == seen[0]
    assert read_checkpoint(bucket.new).committed
