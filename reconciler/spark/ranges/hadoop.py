"""Files on the file systems that Spark writes to, renamed and removed through Hadoop in Spark's JVM."""

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
        self._filter = jvm.org.apache.hadoop.fs.GlobFilter
        self._fs = self._path(self.path).getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    @property
    def scheme(self) -> str:
        """The file system's, also where the path has none: that of Hadoop's default (fs.defaultFS)."""
        return str(self._fs.getUri().getScheme())

    def names(self, below: str = "", pattern: str = "*") -> list[str]:
        """The plain names in a directory that fit a glob; empty if it does not exist.

        The JVM does the filtering: each name that comes here costs three calls.
        """
        at = self._at(below)
        if not self._fs.exists(at):
            return []
        found = self._fs.listStatus(at, self._filter(pattern))
        return sorted(str(status.getPath().getName()) for status in found)

    def size(self, name: str) -> int:
        return int(self._fs.getFileStatus(self._at(name)).getLen())

    def move(self, name: str, to: str) -> None:
        """Rename a file, replacing the one that has the new name."""
        self.remove(to)
        target = self._at(to)
        self._fs.mkdirs(target.getParent())
        if not self._fs.rename(self._at(name), target):
            raise Unreachable(f"{self.path}/{name} could not be renamed to {to}.", hint="Run this again.")

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with its content; no error if it does not exist."""
        self._fs.delete(self._at(name), True)

    def _at(self, name: str) -> Any:
        return self._path(f"{self.path}/{name}" if name else self.path)
