"""Archives of the servers' classes: each server is started once, used as tests do, and ended.

With one beside its jars, a broker, HBase and HDFS start at about half the cost: the JVM maps the archive instead of
reading and checking some thousands of classes (JEP 350). A JVM notices that an archive is not its own, or of other
jars, and reads the jars.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from reconciler.artifacts import java_executable
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.demo.lab.kafka import CLASSES
from reconciler.demo.lab.processes import Child
from reconciler.fileio import sync

_WRITING_SECONDS = 120
_TERMINATED = 143  # 128 + SIGTERM: how a JVM ends that has done all that it does at its end

Run = Callable[[Path, Sequence[str]], None]
"""Runs, in a folder and with more options of the JVM, what is to start faster, and ends it.

It raises ``Unreachable`` if the JVM was killed, whose archive may be cut short."""
_Started = AbstractContextManager[Child]
"""A server that was started and used; the process that is to be ended."""


def make_archive(jars: Path, run: Run) -> None:
    """Make the archive unless there is one that is newer than the JVM and the jars, or another process is making it."""
    with suppress(OSError, ConfigError, Unreachable), ExitStack() as until_done:
        lock = until_done.enter_context((jars.parent / f".{jars.name}.classes.lock").open("w"))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        archive, files = jars / CLASSES, [java_executable(), *jars.glob("*.jar")]
        if archive.exists() and archive.stat().st_mtime > max(file.stat().st_ctime for file in files):
            return
        archive.unlink(missing_ok=True)
        scratch = until_done.enter_context(TemporaryDirectory(dir=jars.parent, prefix=f".{jars.name}.", suffix=".part"))
        made = Path(scratch, "classes")
        run(Path(scratch), [f"-XX:ArchiveClassesAtExit={made}"])
        sync(made)  # one that was cut short kills the JVM
        made.rename(archive)


def archive_kafka(jars: Path) -> None:
    make_archive(jars, lambda folder, jvm: _end(_broker(jars, folder, jvm)))


def archive_hbase(jars: Path) -> None:
    """Of HBase itself. Its Thrift server, on the same jars, finds half of its own classes there."""
    make_archive(jars, lambda folder, jvm: _end(_hbase(jars, folder, jvm)))


def archive_hdfs(jars: Path) -> None:
    make_archive(jars, lambda folder, jvm: _end(_hdfs(jars, folder, jvm)))


def _end(started: _Started) -> None:
    """End it, and wait until its archive is written."""
    with started as process:
        process.stop(patience=_WRITING_SECONDS)
        if process.wait(0) != _TERMINATED:
            raise Unreachable(
                f"{process.name} did not end by itself.", hint=f"Its log, {process.log}, ends: {process.log_tail()}"
            )


@contextmanager
def _broker(jars: Path, folder: Path, jvm: Sequence[str]) -> Iterator[Child]:
    from confluent_kafka import Producer

    from tests.demo.lab.kafka import KafkaCluster, commit_group
    from tests.demo.lab.real_clusters import await_coordinator

    with KafkaCluster("classes", folder, jars, jvm=jvm) as cluster:
        await_coordinator(cluster)
        cluster.create_topic("used")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        producer.produce("used", b"value", b"key")
        producer.flush(30)
        commit_group(cluster, "user", "used", {0: 1})
        yield cluster.broker(1).process


@contextmanager
def _hbase(jars: Path, folder: Path, jvm: Sequence[str]) -> Iterator[Child]:
    from tests.demo.lab.servers.hbase import HBase

    with HBase(folder, jars, jvm=jvm) as server:
        connection = server.connection()
        connection.create_table("used", {"f": {}})
        connection.table("used").put(b"row", {b"f:q": b"value"})
        connection.table("used").row(b"row")
        connection.close()
        server.thrift.kill()
        yield server.region


@contextmanager
def _hdfs(jars: Path, folder: Path, jvm: Sequence[str]) -> Iterator[Child]:
    import fsspec

    from tests.demo.lab.servers.hdfs import Hdfs

    with Hdfs(folder, jars, jvm=jvm) as server:
        fs, path = fsspec.url_to_fs(server.url("/used"))
        fs.pipe_file(path, b"content")
        fs.cat_file(path)
        yield server.process
