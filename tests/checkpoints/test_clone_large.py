"""A checkpoint with much state: what is copied, linked and left out, how far a copy is, and going on with one."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from reconciler import waits
from reconciler.checkpoints import copying, local
from reconciler.checkpoints.clone import clone
from reconciler.checkpoints.copying import Copied
from reconciler.checkpoints.files import Tree
from reconciler.core.errors import ConfigError, Refused, Unreachable
from reconciler.folder import open_folder
from reconciler.formats.checkpoint.manifest import MANIFEST
from reconciler.stores.checkpoint import read_checkpoint
from tests.checkpoints.checkpoint_files import PLAN, Files, cloned, log, moved_plan, new, outside
from tests.checkpoints.test_clone_whole import Shared


@pytest.fixture
def shared(files: Files, monkeypatch: pytest.MonkeyPatch) -> str:
    fsspec.register_implementation("shared", Shared, clobber=True)
    monkeypatch.setattr(Shared, "before_move", None)
    return f"shared://{new(files)}"


@pytest.fixture
def bucket(tmp_path: Path) -> str:
    return f"memory://large{tmp_path}"


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The file system goes away after five files. Returns the files that are copied."""
    copied: list[str] = []
    real = copying._copy_file

    def copy(work: Any, copier: Any, name: str, to: str) -> bool:
        if len(copied) == 5:
            raise Unreachable("It went away.")
        copied.append(name)
        return real(work, copier, name, to)

    monkeypatch.setattr(copying, "AT_ONCE", 1)
    monkeypatch.setattr(copying, "_copy_file", copy)
    return copied


def old_state(files: Files) -> set[str]:
    """State of many batches before the last: returns the files of it that no restart reads."""
    for number in range(3, 40):
        files.batch(number, {"o": {0: 30, 1: 31}}, "18")
    for number in (10, 20, 30):
        files.put(f"state/0/0/{number}.snapshot", "all of it")
    names = [f"{number}.delta" for number in range(1, 20)] + ["10.snapshot"]
    found = {f"state/0/0/{name}" for each in names for name in (each, f".{each}.crc")}
    return {name for name in found if (files.path / name).exists()}


# ---------------------------------------------------------------- what is in it


def test_state_that_no_restart_reads_is_not_copied(files: Files) -> None:
    older = old_state(files)
    made = cloned(files)
    before, after = set(files.content()), set(files.content(new(files)))
    assert before - after == older | {"offsets/.39.crc"}
    assert (made.older, made.copied and made.copied.files) == (len(older), len(after) - 2)


def test_on_one_disk_state_is_linked_and_everything_else_copied(files: Files) -> None:
    made = cloned(files)
    linked = {
        name
        for name in files.content()
        if (new(files) / name).exists() and os.path.samefile(files.path / name, new(files) / name)
    }
    state = {name for name in files.content() if "delta" in name}
    assert linked in (state, set()), "no links where the file system can clone blocks"
    assert made.copied is not None
    assert made.copied.shared >= len(state)


@pytest.mark.parametrize("refusal", [18, 1, 95])  # another disk, links not allowed, not supported
def test_where_nothing_can_be_shared_the_bytes_are_copied(
    files: Files, refusal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(refusal, "no")

    monkeypatch.setattr("fcntl.ioctl", refuse)
    monkeypatch.setattr(local.os, "link", refuse)
    monkeypatch.setattr(local.os, "copy_file_range", refuse)
    made = cloned(files)
    assert made.copied is not None
    assert made.copied.shared == 0
    before, after = files.content(), files.content(new(files))
    assert {name for name in after if after[name] != before.get(name)} == {"offsets/1", MANIFEST}
    times = [(path / "state/0/0/2.delta").stat().st_mtime_ns for path in (files.path, new(files))]
    assert times[0] == times[1]


def test_a_folder_that_cannot_be_listed_is_an_error_and_no_empty_one(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsspec's find() takes it for empty: the copy would lack that state."""
    fsspec.register_implementation("shared", Shared, clobber=True)
    real = Shared.ls

    def ls(self: Any, path: str, **more: Any) -> Any:
        if path.endswith("state/0/1"):
            raise PermissionError(13, "Permission denied")
        return real(self, path, **more)

    monkeypatch.setattr(Shared, "ls", ls)
    with pytest.raises(Refused, match="Permission denied"):
        Tree(f"shared://{files.path}").listing()


def test_a_store_that_can_copies_itself(files: Files, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cloned(files, f"{bucket}/first")
    fs = fsspec.filesystem("memory")
    names = []
    real = MemoryFileSystem.cp_file

    def copy(self: Any, path1: str, path2: str, **more: Any) -> None:
        names.append(path2)
        real(self, path1, path2, **more)

    monkeypatch.setattr(MemoryFileSystem, "cp_file", copy)
    clone(f"{bucket}/first", f"{bucket}/second", moved_plan(), outside=outside(log(o=10)))
    assert len(names) == len(fs.find(f"{bucket}/second")) - 2, "all but the rewritten entry and the manifest"


# ---------------------------------------------------------------- how far it is


def test_a_copy_tells_how_far_it_is(files: Files) -> None:
    told: list[Copied] = []
    made = cloned(files, on_copied=told.append)
    assert told[-1] == made.copied
    assert (told[-1].files, told[-1].size) == (told[-1].of_files, told[-1].of_size)


def test_the_hooks_copy_tells_it_too(files: Files) -> None:
    """It gives the copy its own view of the outside."""
    told: list[Copied] = []
    made = clone(files.path, new(files), PLAN, outside=replace(outside(log(o=10)), on_copied=told.append))
    assert told[-1] == made.copied


def test_a_wait_for_another_machine_is_noted(files: Files, shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = Shared._open

    def slow(self: Any, path: str, *given: Any, **more: Any) -> Any:
        seen.extend(waits.under_way())
        return real(self, path, *given, **more)

    monkeypatch.setattr(Shared, "_open", slow)
    cloned(files, shared)
    assert {wait.place for wait in seen} == {shared}


# ---------------------------------------------------------------- going on


@pytest.mark.parametrize("where", ["shared", "bucket"])
def test_a_copy_that_was_cut_off_is_gone_on_with(
    where: str, files: Files, cut_off: list[str], request: pytest.FixtureRequest
) -> None:
    to = request.getfixturevalue(where) + ("/new" if where == "bucket" else "")
    with pytest.raises(Unreachable):
        cloned(files, to)
    with pytest.raises((ConfigError, Refused, Unreachable)):
        read_checkpoint(to)
    first = list(cut_off)
    while True:
        cut_off.clear()
        try:
            cloned(files, to)
            break
        except Unreachable:
            first += cut_off
    first += cut_off
    assert len(first) == len(set(first)), "nothing was copied twice"
    assert read_checkpoint(to).committed


def test_a_file_that_was_half_written_is_copied_again(files: Files, shared: str, cut_off: list[str]) -> None:
    with pytest.raises(Unreachable):
        cloned(files, shared)
    (unfinished,) = [path for path in files.path.parent.iterdir() if "unfinished" in path.name]
    torn = unfinished / cut_off[-1]
    torn.write_bytes(torn.read_bytes()[:-1])
    name = cut_off[-1]
    cut_off.clear()
    with pytest.raises(Unreachable):
        cloned(files, shared)
    assert name in cut_off


def test_what_was_cut_off_is_no_part_of_another_copy(
    files: Files, bucket: str, shared: str, cut_off: list[str]
) -> None:
    for to in (f"{bucket}/new", shared):
        with pytest.raises(Unreachable):
            cloned(files, to)
        cut_off.clear()
    files.put("state/0/0/2.delta", "other state")
    with pytest.raises(ConfigError, match="unfinished copy of something else"):
        cloned(files, f"{bucket}/new")
    with pytest.raises(Unreachable):
        cloned(files, shared)
    assert len([path for path in files.path.parent.iterdir() if "unfinished" in path.name]) == 2


def test_two_processes_do_not_make_one_copy(files: Files) -> None:
    entered, leave = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def hold(_: Copied) -> None:
        entered.set()
        assert leave.wait(30)

    def first() -> None:
        cloned(files, on_copied=hold)

    thread = threading.Thread(target=first)
    thread.start()
    assert entered.wait(30)
    try:
        cloned(files)
    except ConfigError as error:
        failures.append(error)
    leave.set()
    thread.join(30)
    assert "Another process is copying" in str(failures[0])
    assert read_checkpoint(str(new(files))).committed


def test_a_copy_that_lacks_a_file_gets_no_name(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    real = copying._write_files

    def lose(*given: Any) -> None:
        real(*given)
        for path in files.path.parent.glob(".new.unfinished-*/state/0/1/2.delta"):
            path.unlink()

    monkeypatch.setattr(copying, "_write_files", lose)
    with pytest.raises(Refused, match=r"not whole: state/0/1/2.delta has no bytes"):
        cloned(files)
    assert os.listdir(files.path.parent) == ["checkpoint"]


def test_a_home_is_one_place_to_read_and_to_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Tree("~/checkpoint").root == open_folder("~/checkpoint").shown == str(tmp_path / "checkpoint")
