"""One batch of one group: its output in a local folder, the store of its offsets, and frames that are rows by file."""

from __future__ import annotations

import fnmatch
import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, Unreachable
from reconciler.ports import Change, ClusterInfo, TopicInfo, TopicPartition
from reconciler.spark.ranges import output
from reconciler.spark.ranges.hashed_files import HashNamedFiles
from reconciler.spark.ranges.output import DONE
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


class WrittenFrame:
    """Results that are their own writer, as far as ``HashNamedFiles`` asks. ``parquet(path)`` writes the files."""

    @property
    def write(self) -> Self:
        return self

    def options(self, **_: str) -> Self:
        return self

    def mode(self, _: str) -> Self:
        return self


class Frame(WrittenFrame):
    """Results that Spark writes as these files; ``writing`` is called while it does."""

    def __init__(self, *files: Sequence[int], writing: Callable[[], None] = lambda: None) -> None:
        self.files, self.writing = files, writing

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
