"""The output's file system, the catalogue and Spark's frames, in memory; every call is a step."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reconciler.core.errors import OutcomeUnknown, Unreachable
from reconciler.folder import Folder
from tests.spark.ranges.hashed_files.world import WrittenFrame
from tests.spark.ranges.lives.actors import step


def away(name: str) -> Unreachable:
    return Unreachable(f"There was no answer to: {name}.", hint="Run this again.")


def in_doubt(name: str) -> OutcomeUnknown:
    return OutcomeUnknown(f"Whether this happened is not known: {name}.", hint="Run this again.")


class StepwiseFolder:
    """A folder each of whose calls is a step."""

    def __init__(self, inner: Folder) -> None:
        self._inner = inner
        self.shown, self.exclusive = inner.shown, inner.exclusive

    def exists(self) -> bool:
        return self._inner.exists()

    def make(self) -> None:
        self._inner.make()

    def names(self, below: str = "") -> list[str]:
        with step(f"list {below}", away):
            return self._inner.names(below)

    def read(self, name: str) -> bytes:
        with step(f"read {name}", away):
            return self._inner.read(name)

    def written_ms(self, name: str) -> int | None:
        return self._inner.written_ms(name)

    def publish(self, name: str, data: bytes) -> None:
        with step(f"publish {name}", in_doubt):
            self._inner.publish(name, data)

    def remove(self, name: str) -> None:
        with step(f"remove {name}", in_doubt):
            self._inner.remove(name)

    def may_be_written(self, below: str) -> bool:
        return self._inner.may_be_written(below)

    def tidy(self, below: str) -> None:
        self._inner.tidy(below)


class MemoryFolder:
    """A folder in memory, without its steps."""

    exclusive = True

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.files: dict[str, bytes] = {}
        self.is_there = False

    def exists(self) -> bool:
        return self.is_there

    def make(self) -> None:
        self.is_there = True

    def names(self, below: str = "") -> list[str]:
        head = f"{below}/" if below else ""
        found = {name.removeprefix(head).partition("/")[0] for name in self.files if name.startswith(head)}
        return sorted(found)

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def written_ms(self, name: str) -> int | None:
        return None

    def publish(self, name: str, data: bytes) -> None:
        if name in self.files:
            raise FileExistsError(name)
        self.is_there = True
        self.files[name] = data

    def remove(self, name: str) -> None:
        self.files.pop(name, None)

    def may_be_written(self, below: str) -> bool:
        return True

    def tidy(self, below: str) -> None:
        """Nothing is left over."""


@dataclass
class Disk:
    """Files with the ids of their records, by path below the output."""

    files: dict[str, list[int]] = field(default_factory=dict)

    def below(self, at: str) -> list[str]:
        return [name for name in self.files if name == at or name.startswith(f"{at}/")]


class Directory:
    """As ``hadoop.Directory``, on a disk in memory."""

    scheme = "file"

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk, self.path = disk, path

    def names(self, below: str = "", pattern: str = "*") -> list[str]:
        with step(f"dir {below}", away):
            head = f"{below}/" if below else ""
            found = {name.removeprefix(head).partition("/")[0] for name in self._disk.files if name.startswith(head)}
            return sorted(name for name in found if fnmatch.fnmatch(name, pattern))

    def move(self, name: str, to: str) -> None:
        self.remove(to)
        with step(f"move {name}", away):
            if name not in self._disk.files:
                raise away(f"rename {name}")
            self._disk.files[to] = self._disk.files.pop(name)

    def remove(self, name: str) -> None:
        with step(f"delete {name}", away):
            for each in self._disk.below(name):
                del self._disk.files[each]


class Frame(WrittenFrame):
    """Results that Spark writes as these files."""

    def __init__(self, disk: Disk, root: str, files: Sequence[list[int]]) -> None:
        self._disk, self._root, self._files = disk, root, files

    def parquet(self, path: str) -> None:
        below = path.removeprefix(f"{self._root}/")
        for number, ids in enumerate(self._files):
            with step(f"write {below}/{number}", away):
                self._disk.files[f"{below}/part-{number:05d}.parquet"] = ids

    def repartition(self, _: Any) -> Frame:
        return self
