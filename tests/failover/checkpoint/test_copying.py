"""A copy in a folder that is renamed: it is there whole, or not at all, whatever happens while it is made."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import nullcontext
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from reconciler import waits
from reconciler.core.errors import Changed, ConfigError, OutcomeUnknown, Refused
from reconciler.failover.checkpoint.clone import _refuse_unfit
from reconciler.places.checkpoint import copying
from reconciler.places.checkpoint.files import Tree
from reconciler.places.checkpoint.reading import MANIFEST, read_checkpoint
from tests.failover.checkpoint.checkpoint_files import Files, after_call, cloned, new, refused

# ---------------------------------------------------------------- the two places


def test_a_new_path_that_is_taken_is_refused_and_an_empty_folder_is_filled(files: Files) -> None:
    new(files).mkdir()
    (new(files) / "x").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        cloned(files)
    assert os.listdir(new(files)) == ["x"]
    (new(files) / "x").unlink()
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
    monkeypatch.setattr(Tree, "is_empty", lambda tree: True)
    with pytest.raises(ConfigError, match="one folder, or one is in the other") if is_one else nullcontext():
        _refuse_unfit(Tree(path), Tree(new_path))


@pytest.mark.parametrize("to", ["", "state/new", ".."])
def test_neither_folder_may_be_in_the_other(files: Files, to: str) -> None:
    with pytest.raises(ConfigError, match="one folder, or one is in the other"):
        cloned(files, os.path.normpath(files.path / to))


# ---------------------------------------------------------------- the original


def test_a_link_that_leads_nowhere_is_named_and_hides_no_file(files: Files) -> None:
    """What it held is not there to be copied; the rest of its folder is listed all the same."""
    listed = set(Tree(str(files.path)).listing().files)
    link = files.path / "state" / "0" / "0" / "0.delta"
    link.symlink_to(files.path.parent / "gone")
    refused(files, Refused, f"{link} is a link to .*gone, which does not exist")
    link.unlink()
    assert set(Tree(str(files.path)).listing().files) == listed


@pytest.mark.parametrize("name", ["offsets/2", "state/0/0/3.delta", "offsets/1", "commits/1"])
def test_a_checkpoint_that_changes_while_it_is_copied_is_refused(
    files: Files, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_call(monkeypatch, "_copy_files", lambda: files.put(name, "something else"))
    with pytest.raises(Changed, match="changed while it was copied"):
        cloned(files)
    assert os.listdir(files.path.parent) == ["checkpoint"]


def test_a_rewritten_file_is_looked_at_itself_whatever_its_time_and_size_say(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = files.path / "offsets/1"
    times = entry.stat().st_atime_ns, entry.stat().st_mtime_ns

    def edit() -> None:
        entry.write_bytes(entry.read_bytes().replace(b"30", b"32"))
        os.utime(entry, ns=times)

    after_call(monkeypatch, "_copy_files", edit)
    with pytest.raises(Changed, match="offsets/1 was written"):
        cloned(files)


# ---------------------------------------------------------------- the copy


def test_state_that_no_restart_reads_is_not_copied(files: Files) -> None:
    for number in range(3, 40):
        files.batch(number, {"o": {0: 30, 1: 31}}, "18")
    for number in (10, 20, 30):
        files.put(f"state/0/0/{number}.snapshot", "all of it")
    names = [f"{number}.delta" for number in range(1, 20)] + ["10.snapshot"]
    found = {f"state/0/0/{name}" for each in names for name in (each, f".{each}.crc")}
    older = {name for name in found if (files.path / name).exists()}
    made = cloned(files)
    before, after = set(files.content()), set(files.content(new(files)))
    assert before - after == older | {"offsets/.39.crc"}
    assert (made.older, made.copied and made.copied.files) == (len(older), len(after) - 2)


def test_all_bytes_are_the_copys_own_with_the_times_of_the_original(files: Files) -> None:
    cloned(files)
    before, after = files.content(), files.content(new(files))
    assert {name for name in after if after[name] != before.get(name)} == {"offsets/1", MANIFEST}
    for name in before.keys() & after.keys():
        here, there = files.path / name, new(files) / name
        assert not os.path.samefile(here, there), "a write to one would change the other"
        assert here.stat().st_mtime_ns == there.stat().st_mtime_ns


def test_no_step_shows_anything_at_the_new_path_and_none_before_the_last_can_be_started_from(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    for name in ("_copy_file", "_write_files", "_see_whole"):
        real = getattr(copying, name)

        def look(work: Any, *given: Any, real: Any = real) -> Any:
            assert not new(files).exists()
            with pytest.raises(Refused, match="is an unfinished copy"):
                read_checkpoint(work.folder)
            seen.append(given)
            return real(work, *given)

        monkeypatch.setattr(copying, name, look)
    cloned(files)
    assert len(seen) > 5
    assert seen[-2] == ("metadata",)


def test_a_copy_that_is_cut_off_is_left_and_named_and_a_new_one_begins_afresh(
    files: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(copying, "_write_files", killed)
        with pytest.raises(KeyboardInterrupt):
            cloned(files)
    (left,) = files.path.parent.glob(".new.unfinished-*")
    told = f"{left} is an unfinished copy of {files.path}, and may be deleted"
    assert [record.getMessage() for record in caplog.records] == [told]
    with pytest.raises(Refused, match="is an unfinished copy of a checkpoint"):
        read_checkpoint(str(left))
    before = files.content(left)
    cloned(files)
    assert caplog.messages[-1] == f"{left} is an unfinished copy: delete it, if no other process is making it"
    assert files.content(left) == before
    assert read_checkpoint(str(new(files))).committed


def test_a_copy_that_fails_half_way_leaves_nothing(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copy2", full)
    refused(files, Refused, "No space left on device")


def test_a_copy_that_lacks_a_file_gets_no_name(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose() -> None:
        (path,) = files.path.parent.glob(".new.unfinished-*/state/0/1/2.delta")
        path.unlink()

    after_call(monkeypatch, "_write_files", lose)
    with pytest.raises(Refused, match=r"not whole: state/0/1/2.delta has no bytes"):
        cloned(files)
    assert os.listdir(files.path.parent) == ["checkpoint"]


def test_of_two_processes_one_makes_the_copy_and_the_other_leaves_it(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_call(monkeypatch, "_copy_files", lambda: cloned(files))
    with pytest.raises(ConfigError, match="appeared while the copy was made"):
        cloned(files)
    assert sorted(os.listdir(files.path.parent)) == ["checkpoint", "new"]
    assert read_checkpoint(str(new(files))).committed


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


def test_a_shared_file_system_renames_as_well_and_an_empty_folder_is_no_hindrance(
    files: Files, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    real = Shared._open

    def slow(self: Any, path: str, *given: Any, **more: Any) -> Any:
        seen.extend(waits.under_way())
        return real(self, path, *given, **more)

    monkeypatch.setattr(Shared, "_open", slow)
    new(files).mkdir()
    cloned(files, shared)
    assert sorted(os.listdir(files.path.parent)) == ["checkpoint", "new"]
    assert read_checkpoint(str(new(files))).committed
    assert {wait.place for wait in seen} == {shared}, "a wait for another machine is noted"


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


def test_a_folder_that_cannot_be_listed_is_an_error_and_no_empty_one(
    files: Files, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsspec's find() takes it for empty: the copy would lack that state."""
    real = Shared.ls

    def ls(self: Any, path: str, **more: Any) -> Any:
        if path.endswith("state/0/1"):
            raise PermissionError(13, "Permission denied")
        return real(self, path, **more)

    monkeypatch.setattr(Shared, "ls", ls)
    with pytest.raises(Refused, match="Permission denied"):
        Tree(f"shared://{files.path}").listing()
