"""Two runs of one group that write the same batch: its rows count once, whichever run is killed, and wherever.

Spark's frames are lists of rows by file here; the folder is a local one, with the steps of ``hadoop.Directory``.
"""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, OutcomeUnknown, Unreachable
from reconciler.ports import Change, ClusterInfo, TopicInfo, TopicPartition
from reconciler.spark.ranges import hashed_files, output
from reconciler.spark.ranges.hashed_files import HashNamedFiles
from reconciler.spark.ranges.output import DONE, STAGED, CatalogueEntry
from reconciler.spark.ranges.planning import LogEdges, OffsetRange, name_of
from reconciler.spark.ranges.sinks import RangeBatch
from reconciler.stores.memory import MemoryStore

AT = TopicPartition("events", 0)
CLUSTER = ClusterInfo("c", {"events": TopicInfo("events", "t", (0,))})
RANGES = (OffsetRange("events", 0, 0, 4),)
BATCH = RangeBatch(RANGES, name_of(RANGES, CLUSTER), "clicks", CLUSTER, {}, ())
CHANGES = [Change(AT, None, StoredOffset(4, Anchor(3, 1, None, None, "c", "t"), 5))]
EDGES = LogEdges(CLUSTER, {AT: 0}, {AT: 4})
ROWS = [0, 1, 2, 3]


class Killed(BaseException):
    """The run ends here, without any further step."""


class Local:
    """As ``hadoop.Directory``. ``between`` is called with each step of this directory."""

    def __init__(self, spark: object, path: str) -> None:
        self.path, self.scheme = path, "file"
        self.between: Callable[[str, str], None] = lambda step, name: None
        self.is_killed = False

    def names(self, below: str = "", pattern: str = "*") -> list[str]:
        at = Path(self.path, below)
        return sorted(name for name in (os.listdir(at) if at.exists() else []) if fnmatch.fnmatch(name, pattern))

    def move(self, name: str, to: str) -> None:
        self.remove(to)
        self.between("removed", to)
        if not Path(self.path, name).exists():
            raise Unreachable(f"{name} could not be renamed.", hint="Run this again.")
        Path(self.path, name).rename(Path(self.path, to))
        self.between("moved", to)

    def remove(self, name: str) -> None:
        if self.is_killed:
            return
        at = Path(self.path, name)
        shutil.rmtree(at) if at.is_dir() else at.unlink(missing_ok=True)


class Frame:
    """Results that Spark writes as these files; ``writing`` is called while it does."""

    def __init__(self, *files: Sequence[int], writing: Callable[[], None] = lambda: None) -> None:
        self.files, self.writing = files, writing

    @property
    def write(self) -> Frame:
        return self

    def options(self, **_: str) -> Frame:
        return self

    def mode(self, _: str) -> Frame:
        return self

    def parquet(self, path: str) -> None:
        Path(path).mkdir(parents=True)
        self.writing()
        for number, rows in enumerate(self.files):
            Path(path, f"part-{number:05d}.parquet").write_text(json.dumps(rows))


class World:
    """An output in a folder, and the store of its job's offsets."""

    def __init__(self, path: Path) -> None:
        self.path, self.store = path, MemoryStore(str(path))
        self.store.create()

    def sink(self) -> HashNamedFiles:
        """One that has begun the batch, as each run of the job does."""
        made = HashNamedFiles(str(self.path))
        made._catalogue.folder.make() if not made._catalogue.folder.exists() else None
        made.settle(None, "clicks", {})  # type: ignore[arg-type]
        assert made.unfinished("clicks", EDGES) in (None, RANGES)
        assert made.begin(BATCH, CHANGES)
        return made

    def save(self) -> None:
        if self.store.write("clicks", CHANGES, reason="batch", now_ms=1).conflicts:
            raise Changed("Another run was first.")

    def finish(self, sink: HashNamedFiles) -> None:
        sink.commit(BATCH, CHANGES, self.save)

    def settled(self) -> list[int]:
        """The rows that count after one more run has settled; its own batch, if it runs one, is the same."""
        last = HashNamedFiles(str(self.path))
        last.settle(None, "clicks", {row.key: row for row in self.store.read("clicks")})  # type: ignore[arg-type]
        if last.unfinished("clicks", EDGES):
            assert last.begin(BATCH, CHANGES)
            last.stage(frame(ROWS), BATCH)
            self.finish(last)
        assert [row.stored.offset for row in self.store.read("clicks")] == [4]
        counted = output.files(str(self.path))
        assert sorted(counted) == sorted(map(str, self.path.glob("*.parquet"))), "nothing is left beside them"
        assert self.left() == {f"{BATCH.name}{DONE}"}
        return sorted(row for name in counted for row in json.loads(Path(name).read_text()))

    def left(self) -> set[str]:
        return {each.name for each in (self.path / output.CATALOGUE).iterdir()}


def frame(*files: Sequence[int], writing: Callable[[], None] = lambda: None) -> Any:
    return Frame(*files, writing=writing)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(hashed_files, "Directory", Local)
    return World(tmp_path)


def once(act: Callable[[], None], when: str) -> Callable[[str, str], None]:
    done: list[str] = []

    def between(step: str, name: str) -> None:
        if step == when and not done:
            done.append(name)
            act()

    return between


SPLITS = [[[2, 3], [0, 1]], [ROWS], [[0, 1], [2, 3]], [[3], [1], [0], [2]]]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("step", ["writes", "removed", "moved"])
def test_a_rival_that_is_still_writing_changes_no_file_that_counts(
    world: World, step: str, is_killed: bool, split: list[list[int]]
) -> None:
    first, rival = world.sink(), world.sink()

    def meanwhile() -> None:
        first.stage(frame([0, 1], [2, 3]), BATCH)
        world.finish(first)
        if is_killed:
            rival._opened().is_killed = True  # type: ignore[attr-defined]
            raise Killed

    if step != "writes":
        rival._opened().between = once(meanwhile, step)  # type: ignore[attr-defined]
    with pytest.raises((Killed, Changed, Unreachable, FileNotFoundError)):  # the last as Spark's own error
        rival.stage(frame(*split, writing=meanwhile if step == "writes" else lambda: None), BATCH)
    counted = output.files(str(world.path))
    assert sorted(row for name in counted for row in json.loads(Path(name).read_text())) == ROWS
    if not is_killed:
        assert world.settled() == ROWS


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("first_saves", [False, True])
def test_of_two_runs_that_have_written_all_their_files_the_first_ones_count(
    world: World, split: list[list[int]], first_saves: bool
) -> None:
    first, rival = world.sink(), world.sink()
    rival._opened().between = once(lambda: first.stage(frame([0, 1], [2, 3]), BATCH), "removed")  # type: ignore[attr-defined]
    rival.stage(frame(*split), BATCH)
    world.finish(first if first_saves else rival)
    with pytest.raises(Changed):
        world.finish(rival if first_saves else first)
    assert world.settled() == ROWS


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("step", ["moved", "staged", "saved"])
def test_a_batch_whose_run_was_killed_counts_once_after_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str, split: list[list[int]]
) -> None:
    killed = world.sink()

    def end() -> None:
        killed._opened().is_killed = True  # type: ignore[attr-defined]
        raise Killed

    if step == "moved":
        killed._opened().between = once(end, "moved")  # type: ignore[attr-defined]
    if step == "staged":
        monkeypatch.setattr(killed, "commit", lambda *_: end())
    if step == "saved":
        monkeypatch.setattr(killed, "_finish", lambda entry: end())

    def runs() -> None:
        killed.stage(frame(*split), BATCH)
        world.finish(killed)

    with pytest.raises(Killed):
        runs()
    assert (f"{BATCH.name}{STAGED}" in world.left()) == (step != "moved")
    assert world.settled() == ROWS


def test_files_that_are_staged_are_not_written_again(world: World) -> None:
    world.sink().stage(frame([0, 1], [2, 3]), BATCH)
    again = world.sink()
    again.stage(frame(ROWS, writing=lambda: pytest.fail("Spark writes them again")), BATCH)
    world.finish(again)
    assert world.settled() == ROWS


def test_a_run_that_has_staged_a_batch_which_another_has_undone_leaves_nothing(world: World) -> None:
    late, other = world.sink(), world.sink()
    entry = other._catalogue.load(f"{BATCH.name}.begun.json")
    assert entry is not None
    late._opened().between = once(lambda: other._undo(entry), "moved")  # type: ignore[attr-defined]
    with pytest.raises((Changed, Unreachable)):
        late.stage(frame([0, 1], [2, 3]), BATCH)
    assert (list(world.path.glob("*.parquet")), world.left()) == ([], set())


def test_files_that_may_be_staged_are_kept_though_the_catalogue_did_not_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = world.sink()
    put = sink._catalogue.put

    def unanswered(name: str, entry: CatalogueEntry) -> bool:
        put(name, entry)
        raise OutcomeUnknown("It did not answer.")

    with monkeypatch.context() as broken:
        broken.setattr(sink._catalogue, "put", unanswered)
        with pytest.raises(OutcomeUnknown):
            sink.stage(frame([0, 1], [2, 3]), BATCH)
    assert world.settled() == ROWS


def test_a_batch_of_an_earlier_version_whose_offsets_were_saved_is_finished_by_its_listing(world: World) -> None:
    world.sink()
    for number, rows in enumerate(([0, 1], [2, 3])):
        Path(world.path, f"{BATCH.name}-{number:05d}.parquet").write_text(json.dumps(rows))
    world.save()
    assert world.settled() == ROWS


def test_installations_that_do_not_know_it_do_not_count_what_is_staged(world: World) -> None:
    world.sink().stage(frame(ROWS), BATCH)
    assert f"{BATCH.name}{STAGED}" in world.left()
    assert not STAGED.endswith(DONE)
    assert output.files(str(world.path)) == []


def test_a_batch_that_was_set_back_keeps_its_files_while_the_catalogue_has_it(world: World) -> None:
    first = world.sink()
    first.stage(frame([0, 1], [2, 3]), BATCH)
    world.finish(first)
    again = world.sink()
    again.stage(frame(ROWS), BATCH)
    again.commit(BATCH, CHANGES, lambda: None)
    assert world.settled() == ROWS
