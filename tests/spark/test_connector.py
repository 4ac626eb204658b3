"""The right jars are added to the user's; a wrong connector is refused before it can fail in a query."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from reconciler.core.errors import ConfigError
from reconciler.spark import session

FITS = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
JARS = [Path("/cache/kafka-clients-3.9.2.jar"), Path("/cache/spark-sql-kafka-0-10_2.13-4.2.0.jar")]


class Builder:
    """As much of SparkSession.Builder as is used."""

    def __init__(self, **options: str) -> None:
        self._options = {name.replace("_", "."): value for name, value in options.items()}

    def config(self, key: str, value: str) -> Builder:
        self._options[key] = value
        return self


@pytest.fixture(autouse=True)
def calm(monkeypatch):
    """A machine with pyspark 4.2.0, a filled cache, and no Spark running."""
    monkeypatch.setattr("reconciler.artifacts.spark_kafka_connector", lambda progress: JARS)
    monkeypatch.setattr(session, "_pyspark_version", lambda: "4.2.0")
    monkeypatch.setattr(session, "_installed", lambda: [])
    monkeypatch.setattr(session, "_require_no_running_spark", lambda: None)
    for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)


def test_jars_of_the_user_stay():
    built = session.with_kafka(Builder(spark_jars="/my/a.jar,s3a://jars/b.jar"))
    assert built._options["spark.jars"].split(",") == ["/my/a.jar", "s3a://jars/b.jar", *map(str, JARS)]


def test_the_chosen_version_is_reported():
    said: list[str] = []
    session.with_kafka(Builder(), said.append)
    session.with_kafka(Builder(spark_jars="/my/spark-sql-kafka-0-10_2.13-4.2.1.jar"), said.append)
    assert said == [
        "Kafka connector 4.2.0 for pyspark 4.2.0: 2 jars of /cache",
        "Kafka connector 4.2.1 for pyspark 4.2.0: it was there already",
    ]


@pytest.mark.parametrize(
    "options", [{"spark_jars": "/my/spark-sql-kafka-0-10_2.13-4.2.1.jar"}, {"spark_jars_packages": f"a:b:1,{FITS}"}]
)
def test_a_fitting_connector_of_the_user_is_enough(options):
    before = dict(Builder(**options)._options)
    assert session.with_kafka(Builder(**options))._options == before


def test_one_from_the_command_line_is_enough(monkeypatch):
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--packages a:b:1,{FITS} pyspark-shell")
    assert session.with_kafka(Builder())._options == {}


@pytest.mark.parametrize(
    "options",
    [
        {"spark_jars": "/my/spark-sql-kafka-0-10_2.13-4.0.0.jar"},
        {"spark_jars_packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:3.5.7"},
        {"spark_jars_packages": "org.apache.spark:spark-sql-kafka-0-10_2.12:4.2.0"},
    ],
)
def test_one_of_another_version_is_refused(options):
    with pytest.raises(ConfigError, match=r"does not fit pyspark 4\.2\.0"):
        session.with_kafka(Builder(**options))


@pytest.mark.parametrize(("scala", "fits"), [("2.12", True), ("2.13", False)])
def test_pyspark_3_needs_a_connector_for_scala_2_12(monkeypatch, scala: str, fits: bool):
    monkeypatch.setattr(session, "_pyspark_version", lambda: "3.5.7")
    builder = Builder(spark_jars_packages=f"org.apache.spark:spark-sql-kafka-0-10_{scala}:3.5.7")
    with nullcontext() if fits else pytest.raises(ConfigError, match=r"needs one for Scala 2\.12 and Spark 3\.5"):
        assert session.with_kafka(builder)._options == builder._options


def test_one_that_was_tried_with_another_spark_takes_its_place_and_that_is_said(monkeypatch):
    monkeypatch.setattr(session, "_pyspark_version", lambda: "4.3.0")
    said: list[str] = []
    assert session.with_kafka(Builder(), said.append)._options["spark.jars"]
    assert said[1:] == ["one for Spark 4.3 could not be fetched: 4.2.0, which was tried, takes its place"]
    for options in ({"spark_jars_packages": FITS}, {"spark_jars_packages": FITS.replace("4.2.0", "4.3.0")}):
        assert session.with_kafka(Builder(**options))._options == Builder(**options)._options
    monkeypatch.setattr(session, "_pyspark_version", lambda: "4.2.0")
    with pytest.raises(ConfigError, match=r"does not fit pyspark 4\.2\.0"):
        session.with_kafka(Builder(spark_jars_packages=FITS.replace("4.2.0", "4.3.0")))


def test_a_connect_session_is_refused():
    with pytest.raises(ConfigError, match="Spark Connect"):
        session.with_kafka(Builder(spark_remote="sc://localhost"))


# ---------------------------------------------------------------- under spark-submit, whose JVM runs before the script


@pytest.fixture
def submitted(monkeypatch):
    """Returns a function that sets the jar from which spark-submit's JVM loads the connector."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "12345")
    return lambda jar: monkeypatch.setattr(session, "_submitted_jar", lambda: jar)


@pytest.mark.parametrize("options", [{}, {"spark_jars": "/my/a.jar"}, {"spark_jars_packages": FITS}])
def test_a_connector_that_comes_too_late_for_spark_submit_is_no_success(submitted, options):
    """What the builder names reaches the executors only: the query would not find the source "kafka"."""
    submitted(None)
    with pytest.raises(ConfigError, match="spark-submit has started Spark without the Kafka connector") as refused:
        session.with_kafka(Builder(**options))
    assert f"--jars {','.join(map(str, JARS))}" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("jar", "told"),
    [
        ("/tmp/spark-1/spark-sql-kafka-0-10_2.13-4.2.1.jar", "4.2.1"),
        ("/root/.ivy2/jars/org.apache.spark_spark-sql-kafka-0-10_2.13-4.2.0.jar", "4.2.0"),
        ("/srv/everything.jar", "in /srv/everything.jar"),
    ],
)
def test_one_that_spark_submit_was_given_is_enough(submitted, jar, told):
    """A ``spark.jars`` of the session would take the place of the submitted list."""
    submitted(jar)
    said: list[str] = []
    assert session.with_kafka(Builder(), said.append)._options == {}
    assert said == [f"Kafka connector {told} for pyspark 4.2.0: it was there already"]
