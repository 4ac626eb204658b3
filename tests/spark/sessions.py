"""A small local SparkSession, for tests and benchmarks. Without pytest, which the Pythons of other PySparks lack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

SMALL = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
"""No server of its own, nothing on the terminal, nothing that another machine reaches."""


def local_session(name: str, *, kafka: bool = True, **settings: str) -> Any:
    """A session of two threads, with Kafka's connector. ``settings``: Spark's, with ``_`` for the dots of the names."""
    from pyspark.sql import SparkSession

    from reconciler.spark.session import with_kafka

    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in {**SMALL, **{key.replace("_", "."): value for key, value in settings.items()}}.items():
        builder = builder.config(key, value)
    session = (with_kafka(builder, print) if kafka else builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def set_for_now(spark: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session that other tests share. Each is put back: unset, it would be Spark's default from then on,
    such as 200 partitions of every shuffle.
    """
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
