"""A job whose checkpoint, state store and backup are in buckets: there and back, as with folders of this machine."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import fsspec
import pytest

from reconciler.places.checkpoint.files import Tree
from reconciler.places.checkpoint.reading import MANIFEST
from tests.buckets import WHERE, as_spark_writes, new_bucket
from tests.golden.corpus import HEAD, job, tracked
from tests.golden.world import World


class Life:
    """A query that was stopped within a batch, with everything of it below ``url``."""

    def __init__(self, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self.world, self.url = World(folder, monkeypatch), url
        tracked(self.world, committed=False)
        fs, root = fsspec.url_to_fs(url)
        fs.makedirs(root, exist_ok=True)
        fs.put(f"{folder}/checkpoint/", f"{root}/checkpoint/", recursive=True)
        for state in ("state", "restored"):
            jobs = job("counts", ["events"], f"checkpoint:{url}/checkpoint", id="none")
            self.world.file(f"{state}.toml", f'{HEAD}[state]\nstore = "files:{url}/{state}"\n{jobs}')
            self.run("init", state=state)

    def run(self, *words: str, state: str = "state") -> str:
        ended = self.world.run(*words, "-c", f"{state}.toml")
        assert ended.code == 0, ended.out + ended.err
        return ended.out

    def move(self, to: str) -> str:
        """The checkpoint that a start on that cluster gets, below ``url``."""
        self.run("move", "--to", to, "--yes")
        self.world.now_ms += 60_000
        names = dict(line.split("=", 1) for line in self.run("hook", "--plans", "plans").splitlines())
        assert names["RECONCILER_CHECKPOINT"].startswith(f"{self.url}/")
        return names["RECONCILER_CHECKPOINT"].removeprefix(f"{self.url}/")

    def files(self, name: str) -> dict[str, bytes]:
        fs, root = fsspec.url_to_fs(f"{self.url}/{name}")
        fs.invalidate_cache()
        return {path[len(root) :]: fs.cat_file(path) for path in fs.find(root) if not path.endswith(MANIFEST)}


@pytest.mark.parametrize("scheme", ["memory", *(pytest.param(each, marks=pytest.mark.system) for each in WHERE)])
def test_a_job_in_a_bucket_goes_there_and_back_as_on_a_disk(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"memory://{uuid.uuid4().hex}" if scheme == "memory" else as_spark_writes(new_bucket(scheme))
    there, here = Life(tmp_path / "there", url, monkeypatch), Life(tmp_path / "here", f"{tmp_path}/disk", monkeypatch)
    for life in (here, there):
        monkeypatch.chdir(life.world.folder)
        life.run("move", "--to", "a", "--yes")
        life.run("track", "--once")
        assert (life.move("b"), life.move("a")) == ("checkpoint-2", "checkpoint-3")
    for name in ("checkpoint", "checkpoint-2", "checkpoint-3"):
        assert there.files(name) == here.files(name), name
    there.run("anchors", "export", "--job", "counts", "backup.jsonl")
    there.run("anchors", "import", "--job", "counts", "backup.jsonl", state="restored")
    newest = [
        json.loads(there.run("status", "--format", "json", state=each))["counts"][-1] for each in ("state", "restored")
    ]
    assert newest[0] == newest[1]
    assert newest[0]["checkpoint"] == f"{url}/checkpoint-3"
    copy = Tree(f"{url}/checkpoint-3")
    with pytest.raises(FileExistsError):  # so of two copies to one path, one is refused
        copy.create(f"{copy.root}/metadata", b"another's")
