"""The hook before a query whose checkpoint has a copy, and whose original was started again without the hook."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reconciler.checkpoints import reading
from reconciler.checkpoints.reading import MANIFEST
from reconciler.config.file import Job
from reconciler.core.errors import ConfigError, NeedsPerson, Refused
from reconciler.hook import checkpoint
from tests.checkpoints.checkpoint_files import QUERY, Files
from tests.core.stories import BY_CONTENT

HERE, THERE = {"o": {0: 5}}, {"a.o": {0: 2}}


@dataclass(frozen=True)
class Pair:
    """A checkpoint in the middle of its batch 4, or behind it, and the copy that was made of it then."""

    original: Files
    copy: Files
    job: Job

    def start(self) -> checkpoint.Original | None:
        return checkpoint.of(self.job, str(self.copy.path))


def made(folder: Path, *, repeats: bool) -> Pair:
    original, copy = Files(folder / "original"), Files(folder / "copy")
    for files, offsets in ((original, HERE), (copy, THERE)):
        files.began(offsets)
        files.batch(3, offsets)
        files.planned(4, offsets)
        if not repeats:
            files.done(4)
    manifest = {"from": str(original.path), "query_id": QUERY, "batch": 4 if repeats else 5, "repeats": repeats}
    (copy.path / MANIFEST).write_text(json.dumps(manifest))
    job = Job(name="counts", group="counts", topics=("o",), store=f"checkpoint:{original.path}", identity=BY_CONTENT)
    return Pair(original, copy, job)


@pytest.mark.parametrize("repeats", [True, False])
def test_a_copy_whose_original_stood_still_is_started_on_whatever_the_copy_has_done(
    tmp_path: Path, repeats: bool
) -> None:
    pair = made(tmp_path, repeats=repeats)
    for _ in range(2):
        found = pair.start()
        assert found is not None
        assert found.path_now == str(pair.copy.path)
        pair.copy.batch(9, THERE)


@pytest.mark.parametrize(
    ("repeats", "done"),
    [
        (True, "it has finished batch 4, which the copy repeats"),
        (True, "it has begun batch 5"),
        (False, "it has begun batch 5"),
        (False, "it has begun batches 5 to 7"),
    ],
)
def test_a_copy_whose_original_has_run_on_is_not_started_on(tmp_path: Path, repeats: bool, done: str) -> None:
    """The copy would read all of that again, and its own offsets are right: no check of them shows it."""
    pair = made(tmp_path, repeats=repeats)
    pair.original.done(4)
    if "begun" in done:
        pair.original.planned(int(done[-1]), HERE)
    with pytest.raises(NeedsPerson, match=done) as stopped:
        pair.start()
    assert f'store = "checkpoint:{pair.copy.path}"' in str(stopped.value.hint)
    assert "another --clone-to" in str(stopped.value.hint)


def test_a_copy_that_was_cut_off_is_not_started_on(tmp_path: Path) -> None:
    """As on an object store, where it is at the path of the copy itself."""
    pair = made(tmp_path, repeats=False)
    pair.copy.put("offsets/5", reading.BARRIER.decode())
    with pytest.raises(Refused, match="copy is an unfinished copy of a checkpoint") as stopped:
        pair.start()
    assert "delete it, and make a new one" in str(stopped.value.hint)


def test_another_query_in_the_place_of_the_original_is_told(tmp_path: Path) -> None:
    pair = made(tmp_path, repeats=False)
    pair.original.put("metadata", '{"id":"another"}')
    with pytest.raises(NeedsPerson, match="it holds another query now, which has begun batch 4"):
        pair.start()


@pytest.mark.parametrize("lost", ["original", "offsets", "batch"])
def test_a_copy_is_started_on_without_its_original(tmp_path: Path, lost: str) -> None:
    """The original may be lost with its site, and a manifest may be of another release."""
    pair = made(tmp_path, repeats=False)
    pair.original.planned(7, HERE)
    if lost == "original":
        pair.original.path.rename(tmp_path / "elsewhere")
    elif lost == "offsets":
        pair.original.put("offsets/7", "torn")
    else:
        (pair.copy.path / MANIFEST).write_text(json.dumps({"from": str(pair.original.path)}))
    found = pair.start()
    assert found is not None
    assert found.copied


def test_an_original_on_another_file_system_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_asked(path: str) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(reading, "read_checkpoint", not_asked)
    pair = made(tmp_path, repeats=False)
    assert checkpoint._run_since("s3://bucket/original", str(pair.copy.path)) is None
    assert checkpoint._run_since("hdfs://lost:8020/original", "hdfs://here:8020/copy") is None


ONE_FOLDER = [
    ("memory://bucket/original/", "memory://bucket/original"),
    ("memory://bucket/original", "memory://bucket/original/"),
    ("/srv/original", "file:///srv/original/"),
]


@pytest.mark.parametrize(("came_from", "written"), ONE_FOLDER)
def test_a_copy_is_known_however_its_originals_folder_is_written(tmp_path: Path, came_from: str, written: str) -> None:
    found = at(tmp_path, came_from, written).start()
    assert found is not None
    assert found.copied


def test_a_copy_of_another_folder_is_not_started_on(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no copy of memory://bucket/original but of memory://bucket/original2"):
        at(tmp_path, "memory://bucket/original2", "memory://bucket/original").start()


@pytest.mark.parametrize("place", ["the folder above", "a file", "memory://place/folder", "memory://place/folder/file"])
def test_what_is_no_checkpoint_is_no_place_for_the_copy(tmp_path: Path, place: str) -> None:
    """A wrong option: nothing is out of reach, and nothing is wrong with the checkpoint."""
    from fsspec.implementations.memory import MemoryFileSystem

    MemoryFileSystem().pipe_file("/place/folder/file", b"x")
    (tmp_path / "file").write_text("x")
    where = {"the folder above": str(tmp_path), "a file": str(tmp_path / "file")}.get(place, place)
    pair = made(tmp_path, repeats=False)
    with pytest.raises(ConfigError, match=f"{where} is there, and is no copy of {pair.original.path}") as stopped:
        checkpoint.of(pair.job, where)
    assert stopped.value.hint == "Choose another --clone-to."


def test_a_copy_that_cannot_be_read_is_not_called_a_wrong_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = made(tmp_path, repeats=False)

    def refuses(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("reconciler.folder.os.listdir", refuses)
    with pytest.raises(Refused, match="Permission denied"):
        pair.start()


def at(folder: Path, came_from: str, written: str) -> Pair:
    """The pair, with the original's address as the copy's manifest has it, and as the job's store has it."""
    pair = made(folder, repeats=False)
    manifest = json.loads((pair.copy.path / MANIFEST).read_text())
    (pair.copy.path / MANIFEST).write_text(json.dumps({**manifest, "from": came_from}))
    return replace(pair, job=replace(pair.job, store=f"checkpoint:{written}"))
