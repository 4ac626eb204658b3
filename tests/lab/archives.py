"""Archives of the servers' classes: each server started once, used as tests do, and ended (``class_archive``).

With one, a broker, HBase and HDFS start at about half the cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from reconciler.core.errors import Unreachable
from reconciler.lab.class_archive import make_archive
from reconciler.lab.processes import Child

_WRITING_SECONDS = 120
_TERMINATED = 143  # 128 + SIGTERM: how a JVM ends that has done all that it does at its end


_Started = AbstractContextManager[Child]
"""A server that was started and used; the process that is to be ended."""


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

    from reconciler.lab.kafka import KafkaCluster
    from tests.lab.real_clusters import await_coordinator

    with KafkaCluster("classes", folder, jars, jvm=jvm) as cluster:
        await_coordinator(cluster)
        cluster.create_topic("used")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        producer.produce("used", b"value", b"key")
        producer.flush(30)
        cluster.commit_group("user", "used", {0: 1})
        yield cluster.broker(1).process


@contextmanager
def _hbase(jars: Path, folder: Path, jvm: Sequence[str]) -> Iterator[Child]:
    from tests.lab.servers.hbase import HBase

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

    from tests.lab.servers.hdfs import Hdfs

    with Hdfs(folder, jars, jvm=jvm) as server:
        fs, path = fsspec.url_to_fs(server.url("/used"))
        fs.pipe_file(path, b"content")
        fs.cat_file(path)
        yield server.process
