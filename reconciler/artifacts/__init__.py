"""Jars this product runs but does not ship: fetched once, kept in a cache, checked before every use.

There are several sets: Kafka itself (broker, MirrorMaker; for ``reconciler demo`` and the tests), Spark's Kafka
connector (for PySpark jobs), and ZooKeeper, HBase and HDFS (for the tests). Maven fetches them where it is installed;
otherwise, and also when Maven fails, the Ivy resolver inside PySpark does. Where either looks for jars is its own
configuration; nothing here names a registry.

A set is fetched into a directory beside its place and renamed when it is whole. Its manifest names every
file with its size, so a torn directory is fetched again, never used. One process fetches at a time; a warm
start only reads the manifest and the files' sizes.
"""

from __future__ import annotations

from pathlib import Path

from reconciler.artifacts.cache import cache_directory, cached
from reconciler.artifacts.fetching import Progress, Way
from reconciler.artifacts.java import MINIMUM_JAVA, java_executable
from reconciler.artifacts.sets import (
    KAFKA_VERSION,
    connector_set,
    hbase_set,
    hdfs_set,
    kafka_set,
    pyspark_version,
    zookeeper_set,
)

__all__ = [
    "KAFKA_VERSION",
    "MINIMUM_JAVA",
    "Progress",
    "Way",
    "cache_directory",
    "hbase_jars",
    "hdfs_jars",
    "java_executable",
    "kafka_jars",
    "spark_kafka_connector",
    "zookeeper_jars",
]


def kafka_jars(progress: Progress, *, way: Way = "auto") -> Path:
    """The directory with everything a Kafka broker and MirrorMaker need on their class path."""
    return cached(kafka_set(), progress, way)


def zookeeper_jars(progress: Progress, *, way: Way = "auto") -> Path:
    """The directory with everything a ZooKeeper server needs on its class path."""
    return cached(zookeeper_set(), progress, way)


def hbase_jars(progress: Progress, *, way: Way = "auto") -> Path:
    """The directory with everything that HBase and its Thrift 1 server need on their class path."""
    return cached(hbase_set(), progress, way)


def hdfs_jars(progress: Progress, *, way: Way = "auto") -> Path:
    """The directory with everything that HDFS needs on its class path."""
    return cached(hdfs_set(), progress, way)


def spark_kafka_connector(progress: Progress, *, way: Way = "auto") -> list[Path]:
    """The four jars that PySpark's wheel lacks for Kafka, in the installed PySpark's version."""
    return sorted(cached(connector_set(pyspark_version()), progress, way).glob("*.jar"))
