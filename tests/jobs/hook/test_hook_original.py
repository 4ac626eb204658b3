"""The hook before a query whose checkpoint has a copy, and whose original was started again without the hook."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reconciler.config.file import Job
from reconciler.core.errors import NeedsPerson, Refused
from reconciler.jobs.hook import checkpoint
from reconciler.places.checkpoint import reading
from reconciler.places.checkpoint.reading import MANIFEST
from tests.core.stories import BY_CONTENT
from tests.failover.checkpoint.checkpoint_files import QUERY, Files

HERE, THERE = {"o": {0: 5}}, {"a.o": {0: 2}}


@dataclass(frozen=True)
class Pair:
    """A checkpoint in the middle of its batch 4, or behind it, and the copy that was made of it then."""

    original: Files
    copy: Files
    job: Job

    def start(self) -> checkpoint.Original | None:
        return checkpoint.original_of(self.job, replace(self.job, store=f"checkpoint:{self.copy.path}"))


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
        assert found.path == str(pair.copy.path)
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
    assert "If the copy's work counts, stop the query on the original" in str(stopped.value.hint)


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
    assert pair.start() is not None


def test_an_original_on_another_file_system_is_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_asked(path: str) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(reading, "read_checkpoint", not_asked)
    pair = made(tmp_path, repeats=False)
    assert checkpoint._run_since("s3://bucket/original", str(pair.copy.path)) is None
    assert checkpoint._run_since("hdfs://lost:8020/original", "hdfs://here:8020/copy") is None


def test_a_copy_that_cannot_be_read_is_not_called_a_wrong_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = made(tmp_path, repeats=False)

    def refuses(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("reconciler.places.folder.os.listdir", refuses)
    with pytest.raises(Refused, match="Permission denied"):
        pair.start()
