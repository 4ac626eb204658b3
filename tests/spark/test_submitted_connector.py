"""``with_kafka`` in a script of the real spark-submit, whose JVM runs before the script does."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from reconciler import artifacts
from tests import ROOT
from tests.sizes import sampled

pytestmark = pytest.mark.system

JOB = """
from pyspark.sql import SparkSession
from reconciler.spark.session import with_kafka

spark = with_kafka(SparkSession.builder.appName("clicks"), print).getOrCreate()
options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "events"}
print("columns:", *spark.readStream.format("kafka").options(**options).load().columns)
spark.stop()
"""


@pytest.fixture
def jars() -> str:
    return ",".join(map(str, artifacts.spark_kafka_connector(print)))


def submit(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    script = folder / "clicks.py"
    script.write_text(JOB)
    own = ("--master", "local[1]", "--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1")
    return subprocess.run(
        [Path(sysconfig.get_path("scripts"), "spark-submit"), *own, *options, script],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("option", sampled(["--jars {}", "--conf spark.jars={}", "--driver-class-path {}"], keep=1))
def test_the_query_finds_the_connector_that_spark_submit_was_given(tmp_path: Path, jars: str, option: str) -> None:
    given = jars.replace(",", ":") if "class-path" in option else jars
    ended = submit(tmp_path, *option.format(given).split())
    assert ended.returncode == 0, ended.stderr
    assert "it was there already" in ended.stdout
    assert "columns: key value topic" in ended.stdout


def test_without_one_the_script_ends_with_the_option_to_give(tmp_path: Path, jars: str) -> None:
    ended = submit(tmp_path)
    assert ended.returncode != 0
    assert f"--jars {jars}" in ended.stdout  # spark-submit puts the script's errors there
    assert "columns:" not in ended.stdout
