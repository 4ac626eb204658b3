"""Renaming and removing files where Spark writes them: through Hadoop's own file systems, in Spark's JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reconciler.core.errors import Unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Directory:
    """A directory on any file system that Spark knows. Names are relative to it."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self.path = path.rstrip("/")
        self._path = jvm.org.apache.hadoop.fs.Path
        self._fs = self._path(self.path).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def names(self, below: str = "") -> list[str]:
        """Plain names of what is there; empty where there is no such directory."""
        at = self._at(below)
        if not self._fs.exists(at):
            return []
        return sorted(str(status.getPath().getName()) for status in self._fs.listStatus(at))

    def size(self, name: str) -> int:
        return int(self._fs.getFileStatus(self._at(name)).getLen())

    def modified_ms(self, name: str) -> int:
        """Epoch ms; of what is gone already, far from now."""
        at = self._at(name)
        return int(self._fs.getFileStatus(at).getModificationTime()) if self._fs.exists(at) else 2**62

    def make(self) -> None:
        self._fs.mkdirs(self._path(self.path))

    def move(self, name: str, to: str) -> None:
        """Give a file another name, in the place of what has it."""
        self.remove(to)
        target = self._at(to)
        self._fs.mkdirs(target.getParent())
        if not self._fs.rename(self._at(name), target):
            raise Unreachable(f"{self.path}/{name} could not be renamed to {to}.", hint="Run this again.")

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with all in it; one that is gone already is no error."""
        self._fs.delete(self._at(name), True)

    def _at(self, name: str) -> Any:
        return self._path(f"{self.path}/{name}" if name else self.path)
