"""Jars that this product runs but does not ship: downloaded once, cached, and checked before every use.

In: the coordinates of a set. Out: a directory of jars, whole and of the sizes that were downloaded.

There are two sets: Kafka itself (broker, MirrorMaker; for ``reconciler demo``) and Spark's Kafka connector
(for PySpark jobs). Maven downloads them if it is installed; if it is missing or fails, the Ivy resolver inside PySpark
does. Each uses its own configuration of registries; nothing here names one.

A set is downloaded into a directory beside its final one and renamed when it is complete. Its manifest lists every file
with its size, so an incomplete directory is downloaded again, never used. One process downloads at a time; a warm start
only reads the manifest and the files' sizes.
"""

from __future__ import annotations

from pathlib import Path

from reconciler.artifacts.cache import cache_directory, cached
from reconciler.artifacts.fetching import Progress
from reconciler.artifacts.java import java_executable
from reconciler.artifacts.sets import STAND_INS, connector_set, kafka_set, pyspark_version, scala_of

__all__ = [
    "STAND_INS",
    "cache_directory",
    "java_executable",
    "kafka_jars",
    "scala_of",
    "spark_kafka_connector",
]


def kafka_jars(progress: Progress) -> Path:
    """The directory of a class path for a Kafka broker and MirrorMaker."""
    return cached(kafka_set(), progress)


def spark_kafka_connector(progress: Progress) -> list[Path]:
    """The four jars for Kafka that PySpark's wheel lacks, in the installed PySpark's version, else its stand-in's."""
    return sorted(cached(connector_set(pyspark_version()), progress).glob("*.jar"))
