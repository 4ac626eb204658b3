"""A copy of a checkpoint is there whole, or not at all, whatever happens while it is made."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFile

from reconciler.checkpoints import copying, local
from reconciler.checkpoints.clone import _refuse_unfit, clone
from reconciler.checkpoints.files import Tree
from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, Refused
from reconciler.folder import open_folder
from reconciler.formats.checkpoint.manifest import MANIFEST
from reconciler.stores.checkpoint import read_checkpoint
from tests.checkpoints.checkpoint_files import PLAN, Files, cloned, log, moved_plan, new, outside, refused


def test_a_new_path_that_is_taken_is_refused(files: Files) -> None:
    new(files).mkdir()
    (new(files) / "x").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        cloned(files)
    assert os.listdir(new(files)) == ["x"]


def test_an_empty_folder_is_filled(files: Files) -> None:
    new(files).mkdir()
    cloned(files)
    assert (new(files) / "metadata").exists()


@pytest.mark.parametrize(
    ("path", "new_path", "is_one"),
    [
        ("webhdfs://west:9870/c", "webhdfs://east:9870/c", False),
        ("webhdfs://west:9870/c", "webhdfs://west:9870/c/new", True),
        ("webhdfs://ada@west:9870/c", "webhdfs://west:9870/c", True),
        ("webhdfs://west:9870/c", "webhdfs://west:9871/c", False),
    ],
)
def test_one_path_on_two_clusters_is_two_folders(
    path: str, new_path: str, is_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tree, "refuse_unwritable", lambda tree: None)
    monkeypatch.setattr(Tree, "is_free", lambda tree: True)
    with pytest.raises(ConfigError, match="one folder, or one is in the other") if is_one else nullcontext():
        _refuse_unfit(Tree(path), Tree(new_path))


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_read(
    files: Files, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: Any) -> None:
        raise AssertionError("the checkpoint was read first")

    monkeypatch.setattr("reconciler.checkpoints.clone.read_checkpoint", read)
    file = tmp_path_factory.mktemp("other") / "file"
    file.write_text("")
    refused(files, ConfigError, "new cannot be written: Not a directory", to=file / "new")


@pytest.mark.parametrize("to", ["", "state/new", ".."])
def test_neither_folder_may_be_in_the_other(files: Files, to: str) -> None:
    with pytest.raises(ConfigError, match="one folder, or one is in the other"):
        cloned(files, os.path.normpath(files.path / to))


def test_a_link_that_leads_nowhere_is_named_and_hides_no_file(files: Files) -> None:
    """What it held is not there to be copied; the rest of its folder is listed all the same."""
    listed = set(Tree(str(files.path)).listing().files)
    link = files.path / "state" / "0" / "0" / "0.delta"
    link.symlink_to(files.path.parent / "gone")
    refused(files, Refused, f"{link} is a link to .*gone, which does not exist")
    link.unlink()
    assert set(Tree(str(files.path)).listing().files) == listed


def test_a_file_that_vanishes_while_its_folder_is_listed_hides_no_other(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running query removes old state."""
    listed = set(Tree(str(files.path)).listing().files)
    real = os.scandir

    @contextmanager
    def scandir(folder: str) -> Iterator[list[os.DirEntry[str]]]:
        with real(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            if entry.name.endswith("1.delta"):
                os.unlink(entry.path)
        yield found

    monkeypatch.setattr(os, "scandir", scandir)
    left = set(Tree(str(files.path)).listing().files)
    gone = listed - left
    assert gone
    assert all(name.endswith("1.delta") for name in gone)


@pytest.mark.parametrize("name", ["offsets/2", "state/0/0/3.delta", "offsets/1", "commits/1"])
def test_a_checkpoint_that_changes_while_it_is_copied_is_refused(
    files: Files, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = copying._copy_files

    def meanwhile(*given: Any) -> None:
        real(*given)
        files.put(name, "something else")

    monkeypatch.setattr(copying, "_copy_files", meanwhile)
    with pytest.raises(Changed, match="changed while it was copied"):
        cloned(files)
    assert os.listdir(files.path.parent) == ["checkpoint"]


def test_a_rewritten_file_is_looked_at_itself_whatever_its_time_and_size_say(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, entry = copying._copy_files, files.path / "offsets/1"
    times = entry.stat().st_atime_ns, entry.stat().st_mtime_ns

    def meanwhile(*given: Any) -> None:
        real(*given)
        entry.write_bytes(entry.read_bytes().replace(b"30", b"32"))
        os.utime(entry, ns=times)

    monkeypatch.setattr(copying, "_copy_files", meanwhile)
    with pytest.raises(Changed, match="offsets/1 was written"):
        cloned(files)


def test_a_file_that_vanishes_while_it_is_copied_is_a_change(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    real = copying._copy_file

    def meanwhile(*given: Any) -> bool:
        (files.path / "state/0/1/2.delta").unlink(missing_ok=True)
        return real(*given)

    monkeypatch.setattr(copying, "_copy_file", meanwhile)
    with pytest.raises(Changed, match=r"2\.delta vanished"):
        cloned(files)
    assert os.listdir(files.path.parent) == ["checkpoint"]


def test_a_copy_that_fails_half_way_leaves_nothing(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(local.os, "link", full)
    refused(files, Refused, "No space left on device")


def test_what_appears_at_the_new_path_meanwhile_is_not_replaced(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    real = copying._write_files

    def meanwhile(*given: Any) -> None:
        real(*given)
        new(files).mkdir()
        (new(files) / "theirs").write_text("")

    monkeypatch.setattr(copying, "_write_files", meanwhile)
    with pytest.raises(ConfigError, match="appeared while the copy was made"):
        cloned(files)
    assert os.listdir(new(files)) == ["theirs"]


def test_no_step_of_a_local_copy_shows_anything_at_the_new_path(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = copying._copy_file

    def look(*given: Any) -> bool:
        seen.append(new(files).exists())
        return real(*given)

    monkeypatch.setattr(copying, "_copy_file", look)
    cloned(files)
    assert len(seen) > 5
    assert not any(seen)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EBADF, errno.EOPNOTSUPP])
def test_a_mount_that_cannot_flush_a_folder_gets_the_copy(
    files: Files, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    fsync = os.fsync

    def flush(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", flush)
    cloned(files)
    assert (new(files) / "metadata").exists()


def test_a_disk_that_fails_before_the_rename_gets_no_copy_and_one_that_fails_after_it_has_it(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, rename, failing = os.fsync, os.rename, [True]

    def flush(descriptor: int) -> None:
        if failing and stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    def renamed(path: str, to: str) -> None:
        rename(path, to)
        failing.append(True)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "rename", renamed)
    refused(files, Refused, "Input/output error")
    failing.clear()
    cloned(files)
    assert failing
    assert (new(files) / "metadata").exists()


# ---------------------------------------------------------------- on another machine


class Shared(LocalFileSystem):
    """A file system of another machine, for all that is known of it."""

    protocol = "shared"
    cachable = False
    before_move: Any = None

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """Older versions of fsspec know the names of the local file system's protocols only."""
        return super()._strip_protocol(str(path).removeprefix("shared://"))

    def mv(self, path1: str, path2: str, **more: Any) -> None:
        if Shared.before_move is not None:
            Shared.before_move(path2)
        super().mv(path1, path2, **more)


@pytest.fixture
def shared(files: Files, monkeypatch: pytest.MonkeyPatch) -> str:
    fsspec.register_implementation("shared", Shared, clobber=True)
    monkeypatch.setattr(Shared, "before_move", None)
    return f"shared://{new(files)}"


def test_a_shared_file_system_renames_as_well_and_an_empty_folder_is_no_hindrance(files: Files, shared: str) -> None:
    new(files).mkdir()
    cloned(files, shared)
    assert sorted(os.listdir(files.path.parent)) == ["checkpoint", "new"]
    assert read_checkpoint(str(new(files))).committed


def test_a_rename_whose_answer_is_lost_is_told(files: Files, shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_: str) -> None:
        raise ConnectionResetError("reset")

    monkeypatch.setattr(Shared, "before_move", lost)
    with pytest.raises(OutcomeUnknown, match=r"Whether .* exists is not known"):
        cloned(files, shared)


def test_a_folder_that_appears_there_at_the_last_moment_stays_as_it_is(
    files: Files, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shared, "before_move", lambda path: os.makedirs(path))
    with pytest.raises(ConfigError, match="appeared while the copy was made"):
        cloned(files, shared)
    assert os.listdir(new(files)) == []
    assert sorted(os.listdir(files.path.parent)) == ["checkpoint", "new"]


def test_a_file_there_that_vanishes_between_its_opening_and_its_first_byte_is_a_change(
    files: Files, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Shared.open

    def opened(self: Any, path: str, mode: str = "rb", **more: Any) -> Any:
        file = real(self, path, mode, **more)
        if path.endswith("state/0/1/2.delta") and mode == "rb":
            monkeypatch.setattr(file, "read", vanished, raising=False)
        return file

    def vanished(*_: Any) -> bytes:
        raise FileNotFoundError("state/0/1/2.delta")

    monkeypatch.setattr(Shared, "open", opened)
    with pytest.raises(Changed, match=r"2\.delta vanished"):
        clone(f"shared://{files.path}", shared, PLAN, outside=outside(log(o=10)))


# ---------------------------------------------------------------- where nothing can be renamed


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    return f"memory://bucket{tmp_path}"


def test_a_store_without_rename_gets_the_same_files(files: Files, bucket: str) -> None:
    cloned(files, f"{bucket}/new")
    cloned(files)
    fs, root = fsspec.url_to_fs(f"{bucket}/new")
    found = {name[len(root) + 1 :]: fs.cat_file(name) for name in fs.find(root)}
    local = files.content(new(files))
    assert {name: data for name, data in found.items() if name != MANIFEST} == {
        name: data for name, data in local.items() if name != MANIFEST
    }
    back = clone(f"{bucket}/new", f"{bucket}/newer", moved_plan(), outside=outside(log(o=10)))
    assert back.batch == 2


def test_an_object_that_stands_for_a_folder_is_no_file(files: Files, bucket: str) -> None:
    """Hadoop's S3A makes an empty object with a slash at its name's end, and so do consoles."""
    cloned(files, f"{bucket}/new")
    fs, root = fsspec.url_to_fs(bucket)
    names = fs.find(f"{root}/new")
    for folder in ("new", "new/offsets", "new/sources", "new/state/0", "newer"):
        fs.store[f"{root}/{folder}/"] = MemoryFile(fs, f"{root}/{folder}/")
    assert {f"{root}/new/{name}" for name in Tree(f"{bucket}/new").listing().files} == set(names)
    assert "offsets" not in open_folder(f"{bucket}/new/offsets").names()
    assert clone(f"{bucket}/new", f"{bucket}/newer", moved_plan(), outside=outside(log(o=10))).batch == 2


def test_at_every_step_before_the_last_such_a_copy_is_no_checkpoint(
    files: Files, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copying process may die at any of them."""
    from fsspec.implementations.memory import MemoryFileSystem

    steps = []

    def watch(name: str) -> None:
        real = getattr(MemoryFileSystem, name)

        def step(fs: Any, path: Any, *given: Any, **more: Any) -> Any:
            if f"{bucket}/new/".removeprefix("memory:/") in f"{path}/" and fs.find(f"{bucket}/new"):
                with pytest.raises(Refused):
                    read_checkpoint(f"{bucket}/new")
                steps.append(path)
            return real(fs, path, *given, **more)

        monkeypatch.setattr(MemoryFileSystem, name, step)

    for name in ("pipe_file", "open", "rm_file"):
        watch(name)
    cloned(files, f"{bucket}/new")
    monkeypatch.undo()
    assert len(steps) > 15
    names = [str(step).rpartition("/new/")[2] for step in steps]
    assert names[-2:] == ["metadata", "offsets/2"]
    assert names.count("metadata") == 1
    assert read_checkpoint(f"{bucket}/new").committed


def test_a_copy_that_fails_there_is_taken_away(files: Files, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def changes(*_: Any) -> None:
        raise Changed("a query runs on it")

    monkeypatch.setattr(copying, "_copy_files", changes)
    with pytest.raises(Changed):
        cloned(files, f"{bucket}/new")
    assert not fsspec.filesystem("memory").exists(f"{bucket}/new")
