"""Local files: anything but a regular file is refused, and waiting for a held lock times out."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import ExitCode
from reconciler.fileio import locked, open_regular, read_regular, write_whole
from tests.golden.corpus import Estate
from tests.golden.world import World

CONFIG = ("-c", "reconciler.toml")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, monkeypatch)
    Estate(world)
    assert world.run("plan", *CONFIG, "--job", "clicks", "-o", "p.json").code == 0
    return world


@contextmanager
def pipe(path: Path) -> Iterator[None]:
    """A pipe, whose other end comes after 20 s and leaves at once: code that waits for it takes long, but ends."""
    os.mkfifo(path)
    timer = threading.Timer(20.0, lambda: os.close(os.open(path, os.O_RDWR)))
    timer.start()
    began = time.monotonic()
    yield
    timer.cancel()
    assert time.monotonic() - began < 15.0


@pytest.mark.parametrize(
    "command",
    [
        *("plan CONFIG -o NAME", "show p.json --html NAME", "anchors export CONFIG NAME"),
        "hook CONFIG --job clicks --plans plans --env-file NAME",
    ],
)
@pytest.mark.parametrize("name", ["fifo", "null", "stdout"])
def test_a_device_a_pipe_or_a_stream_is_not_replaced_by_a_file(world: World, command: str, name: str) -> None:
    """As root that would take /dev/null or /dev/stdout from the whole machine."""
    os.mkfifo(world.folder / "fifo")
    (world.folder / "null").symlink_to("/dev/null")
    (world.folder / "stdout").symlink_to("/proc/self/cmdline")
    before = os.lstat(world.folder / name)
    words = shlex.split(command.replace("NAME", name).replace("CONFIG", "-c reconciler.toml"))
    ended = world.run(*words)
    assert (ended.code, f"{name} cannot be written: It is a pipe or a device" in ended.err) == (2, True), ended.err
    assert os.path.samestat(os.lstat(world.folder / name), before)


@pytest.mark.parametrize(
    "command",
    [
        *("show FIFO", "sign FIFO --key k", "apply FIFO CONFIG --yes"),
    ],
)
def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(world: World, command: str) -> None:
    with pipe(world.folder / "fifo"):
        ended = world.run(*shlex.split(command.replace("FIFO", "fifo").replace("CONFIG", "-c reconciler.toml")))
    assert (ended.code, "is a pipe or a device" in ended.err) == (2, True), ended.err


def test_a_pipe_beside_the_plan_stops_apply_before_it_writes(world: World) -> None:
    rows = world.tables("offsets.db")
    with pipe(world.folder / "p.json.sig"):
        ended = world.run("apply", "p.json", *CONFIG, "--yes")
    assert (ended.code, "is a pipe or a device" in ended.err) == (2, True), ended.err
    assert world.tables("offsets.db") == rows


def test_a_lock_that_is_given_back_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    path.touch()
    other = path.open("rb")
    fcntl.flock(other, fcntl.LOCK_EX)
    timer = threading.Timer(0.05, other.close)
    timer.start()
    with locked(path), path.open("rb") as third, pytest.raises(BlockingIOError):
        fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
    timer.join()


def test_the_lock_is_that_of_the_file_that_replaced_the_one_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "plan"
    path.touch()
    other = path.open("rb")
    fcntl.flock(other, fcntl.LOCK_EX)

    def replaced() -> None:
        write_whole(path, "another")
        other.close()

    timer = threading.Timer(0.05, replaced)
    timer.start()
    with locked(path), path.open("rb") as third:
        assert third.read() == b"another"
        with pytest.raises(BlockingIOError):
            fcntl.flock(third, fcntl.LOCK_EX | fcntl.LOCK_NB)
    timer.join()


def test_a_folder_that_is_missing_is_told_as_such(world: World) -> None:
    result = world.run("plan", *CONFIG, "--job", "clicks", "-o", "none/p.json")
    assert result.code == ExitCode.USAGE
    assert "Create the folder none, or choose another place." in result.err


def test_devices_and_folders_are_no_files(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="pipe or a device"):
        read_regular(Path("/dev/zero"))
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_regular(tmp_path / "link") == b"content"


# ---------------------------------------------------------------- files of any size


def test_a_file_is_written_into_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode 0300, which root does not feel."""
    opened = os.open

    def unless_it_is_the_folder(path: str | Path, *more: Any, **words: Any) -> int:
        if Path(path) == tmp_path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *more, **words)

    monkeypatch.setattr(os, "open", unless_it_is_the_folder)
    write_whole(tmp_path / "p.json", "new")
    assert (tmp_path / "p.json").read_text() == "new"


def sparse(path: Path, size: int) -> None:
    """A file of so many zeros, which take no room."""
    with path.open("wb") as file:
        file.truncate(size)


@pytest.mark.parametrize("command", ["show p.json", "apply p.json CONFIG --yes"])
def test_a_plan_of_any_size_is_refused_before_it_takes_memory(world: World, command: str) -> None:
    sparse(world.folder / "p.json", 20 * 1024**3)
    ended = world.run(*shlex.split(command.replace("CONFIG", "-c reconciler.toml")))
    assert (ended.code, "more than 64 MiB" in ended.err) == (2, True), ended.err


def test_an_anchor_line_of_any_length_is_refused_before_it_takes_memory(world: World) -> None:
    sparse(world.folder / "lines", 20 * 1024**3)
    ended = world.run("anchors", "import", *CONFIG, "lines")
    assert (ended.code, "Line 1 of the anchor lines: it has more than" in ended.err) == (2, True), ended.err
