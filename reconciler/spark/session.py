"""A SparkSession that can read Kafka, in the way of delta-spark's ``configure_spark_with_delta_pip``.

    from pyspark.sql import SparkSession
    from reconciler.spark.session import with_kafka

    spark = with_kafka(SparkSession.builder.appName("clicks")).getOrCreate()

PySpark's wheel lacks the Kafka connector. A connector for another Spark minor version loads, and then fails inside the
query with NoSuchMethodError. ``with_kafka`` adds the one that fits and refuses others, unless one was tried with this
version (``STAND_INS``). It keeps the builder's own jars. ``reconciler.artifacts`` fetches the jars.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reconciler.core.errors import ConfigError, Unreachable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SUBMITTED = ("PYSPARK_GATEWAY_PORT", "SPARK_CONF_DIR", "SPARK_HOME")
"""Set where spark-submit or a cluster configures Spark."""
_OWN_ERROR = re.compile(r"^reconciler\.core\.errors\.\w+: (.+)$", re.MULTILINE)
DATA_LOSS = "Some data may have been lost"
"""In Spark's message where ``failOnDataLoss`` ends a query (3.5 to 4.3)."""


@contextmanager
def own_session(name: str, settings: Mapping[str, str], *, tell: Callable[[str], None]) -> Iterator[SparkSession]:
    """A session with the Kafka connector for one command, stopped after it. A session that runs in this process is
    used, and is not stopped.

    ``tell`` gets the connector's version. Raises Unreachable if Spark does not start.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.appName(name)
    for key, value in {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", **settings}.items():
        builder = builder.config(key, value)
    _use_this_python(settings)
    builder = with_kafka(builder, tell)
    try:
        with _keep_sigint_handler():
            session = builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        raise Unreachable(
            f"Spark could not be started: {spark_message(error)}.",
            hint="Check --conf spark.master, and that Java 17 is installed.",
        ) from error
    try:
        session.sparkContext.setLogLevel("ERROR")
        yield session
    finally:
        session.stop()


def spark_message(error: BaseException) -> str:
    """The first line of an exception from Spark, without a full stop; or what this product said in a task."""
    text = str(getattr(error, "java_exception", None) or error).strip()
    if (own := _OWN_ERROR.search(text)) is not None:
        return own[1].rstrip(".")
    return (text.splitlines() or [type(error).__name__])[0].rstrip(".")


@contextmanager
def _keep_sigint_handler() -> Iterator[None]:
    """Restore the SIGINT handler, which PySpark replaces with its own when a context starts."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _use_this_python(settings: Mapping[str, str]) -> None:
    """Run tasks on this machine with this Python, not with the first ``python3`` in the path."""
    if settings.get("spark.master", "local").startswith("local") and not any(name in os.environ for name in _SUBMITTED):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


log = logging.getLogger(__name__)

Progress = Callable[[str], None]

_CONNECTOR = re.compile(r"spark-sql-kafka-0-10_(?P<scala>[\d.]+)[:-](?P<version>\d+\.\d+[\w.+-]*?)(?:\.jar)?$")
"""The connector in a jar's file name or in Maven coordinates."""

_SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
"""The connector's class that Spark looks for."""


def connector_jars(progress: Progress = log.info) -> list[Path]:
    """The connector's jars for the installed pyspark; fetched at the first call, with reports to ``progress``.

    Raises ConfigError if pyspark is absent or no connector fits it, Unreachable if the jars cannot be fetched.
    """
    from reconciler.artifacts import spark_kafka_connector

    jars = spark_kafka_connector(progress)
    require_fitting((jar.name for jar in jars), _pyspark_version())
    return jars


def with_kafka(builder: SparkSession.Builder, progress: Progress = log.info) -> SparkSession.Builder:
    """``builder`` with the connector's jars added to its ``spark.jars``; jars and packages set already are kept.

    ``progress`` gets the connector's version. A connector from the builder, ``PYSPARK_SUBMIT_ARGS`` or pyspark's own
    jars directory is kept. Raises ConfigError if that connector does not fit pyspark, for a Spark Connect session,
    and if Spark already runs here without one; else as ``connector_jars``.
    """
    settings: dict[str, Any] = dict(getattr(builder, "_options", {}))
    remote = str(settings.get("spark.remote") or os.environ.get("SPARK_REMOTE") or "")
    if remote and not remote.startswith("local"):  # remote("local") starts its server here, with the builder's settings
        raise ConfigError(
            "A Spark Connect session has its server's jars; the client cannot add any.",
            hint="Install the connector in the server, and leave with_kafka() out.",
        )
    version = _pyspark_version()
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # of spark-submit: its JVM runs, and only executors would get more jars
        _require_submitted(version, progress)
        return builder
    named = [name for key in ("spark.jars", "spark.jars.packages") for name in str(settings.get(key, "")).split(",")]
    submitted = os.environ.get("PYSPARK_SUBMIT_ARGS", "").replace(",", " ").split()
    present = [*named, *submitted, *_installed()]
    if require_fitting(present, version):
        progress(f"Kafka connector {chosen_connector(present)} for pyspark {version}: it was there already")
        return builder
    _require_no_running_spark()
    own = [jar for jar in str(settings.get("spark.jars", "")).split(",") if jar.strip()]
    jars = connector_jars(progress)
    chosen = chosen_connector(jar.name for jar in jars)
    progress(f"Kafka connector {chosen} for pyspark {version}: {len(jars)} jars of {jars[0].parent}")
    if chosen is not None and _minor(chosen) != _minor(version):
        progress(f"one for Spark {_minor(version)} could not be fetched: {chosen}, which was tried, takes its place")
    return builder.config("spark.jars", ",".join([*own, *map(str, jars)]))


def chosen_connector(names: Iterable[str]) -> str | None:
    """The version of the Kafka connector that is among file names, paths or coordinates; None if there is none."""
    found = (_CONNECTOR.search(name.strip()) for name in names)
    return next((match["version"] for match in found if match), None)


def require_fitting(names: Iterable[str], pyspark_version: str) -> bool:
    """True if a Kafka connector is among the file names, paths or coordinates; ConfigError if it does not fit."""
    from reconciler.artifacts import STAND_INS, scala_of

    own, scala = _minor(pyspark_version), scala_of(pyspark_version)
    fitting = {own, _minor(STAND_INS.get(own, own))}
    found = [match for name in names if (match := _CONNECTOR.search(name.strip()))]
    for match in found:
        if match["scala"] != scala or _minor(match["version"]) not in fitting:
            raise ConfigError(
                f"The Kafka connector {match[0]} does not fit pyspark {pyspark_version}, which needs one for Scala "
                f"{scala} and Spark {own}: it would load, then fail in the middle of a query.",
                hint="Remove it from spark.jars, spark.jars.packages or --packages; with_kafka() then adds the "
                "right one.",
            )
    return bool(found)


def _require_submitted(version: str, progress: Progress) -> None:
    jar = _submitted_jar()
    if jar is None:
        jars = ",".join(map(str, connector_jars(progress)))
        raise ConfigError(
            "spark-submit has started Spark without the Kafka connector, and with_kafka() can no longer add it.",
            hint=f"Give its jars to spark-submit, beside your own: --jars {jars}",
        )
    require_fitting([jar], version)
    progress(f"Kafka connector {chosen_connector([jar]) or f'in {jar}'} for pyspark {version}: it was there already")


def _submitted_jar() -> str | None:
    """The jar from which the JVM of spark-submit loads the connector, by whatever option it was given."""
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext

    SparkContext._ensure_initialized()  # it attaches to that JVM
    loader = SparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        source = loader.loadClass(_SOURCE)
    except Py4JJavaError:  # ClassNotFoundException
        return None
    return str(source.getProtectionDomain().getCodeSource().getLocation().getPath())


def _installed() -> list[str]:
    """Jars put into pyspark's own directory, as container images do."""
    import pyspark

    return [jar.name for jar in Path(pyspark.__file__).parent.joinpath("jars").glob("spark-sql-kafka-*.jar")]


def _require_no_running_spark() -> None:
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        raise ConfigError(
            "Spark already runs in this process, and its jars can no longer be changed.",
            hint="Call with_kafka() before the first getOrCreate(), or stop that session first.",
        )


def _pyspark_version() -> str:
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError("pyspark is not installed.", hint="Install it: pip install 'pyspark>=3.5,<4.4'.") from error


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])
