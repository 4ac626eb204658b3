"""``deploy/spark-submit.sh``, with the example's configuration: what is started, and what is not."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig

import pytest

from tests.deploy.deployed import DEPLOY, ENDS_WITH, LAST, Deployed
from tests.waiting import LIMIT_S
from tests.world import BASE, World, free_port

pytestmark = pytest.mark.system

JOB = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from reconciler.spark import job

spark = SparkSession.builder.getOrCreate()
rows = []
collect = lambda batch, number: rows.extend(batch.collect())
query = job().read(spark).writeStream.foreachBatch(collect).trigger(availableNow=True)
query.option("checkpointLocation", job().checkpoint_at(sys.argv[1] + ".checkpoint")).start().awaitTermination()
Path(sys.argv[1]).write_text("\\n".join(sorted(bytes(row.value).decode() for row in rows if row.value is not None)))
spark.stop()
"""


@pytest.fixture
def deployed(world: World) -> Deployed:
    deployed = Deployed(world)
    deployed.configure((DEPLOY / "reconciler.toml").read_text(), deployed.path("/etc/clicks/reconciler.toml"))
    deployed.path("/var/lib/node_exporter/textfile_collector").mkdir(parents=True)
    return deployed


def start(deployed: Deployed, *arguments: str, wait: str = "0", **more: str) -> subprocess.CompletedProcess[str]:
    names = {"RECONCILER_CONFIG": str(deployed.path("/etc/clicks/reconciler.toml")), "RECONCILER_WAIT": wait, **more}
    words = [str(DEPLOY / "spark-submit.sh"), *arguments]
    return subprocess.run(
        words, env={**deployed.environment, **names}, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def exit_code_for_prometheus(deployed: Deployed) -> float:
    (file,) = deployed.path("/var/lib/node_exporter/textfile_collector").glob("*.prom")
    (line,) = [line for line in file.read_text().splitlines() if line.startswith("reconciler_hook_exit_code{")]
    assert 'job="clicks"' in line
    return float(line.rpartition(" ")[2])


def test_a_job_that_may_start_is_submitted(deployed: Deployed) -> None:
    deployed.world.deliver(8)
    deployed.may_start()
    ended = start(deployed, "--master", "local[1]", "clicks.py", "two words")
    assert ended.returncode == 0, ended.stderr
    assert deployed.starts == ["--master local[1] clicks.py two words"]
    assert deployed.started_at_the_right_offsets
    assert exit_code_for_prometheus(deployed) == 0


def test_a_job_that_lives_at_home_is_submitted_there(deployed: Deployed) -> None:
    deployed.world.deliver(8)
    deployed.may_start()
    before = deployed.world.rows()
    deployed.moves(deployed.path("/srv/clicks/state.db"), to=None)
    ended = start(deployed, "clicks.py")
    assert ended.returncode == 0, ended.stderr
    assert 'job "clicks" starts on a, at its own offsets' in ended.stderr
    found = json.loads((deployed.world.folder / "start").read_text())
    assert (found["cluster"], found["offsets"]) == ("a", {deployed.world.topic: {"0": BASE + LAST + 1}})
    assert deployed.world.rows() == before


def test_a_job_that_needs_a_person_is_not_submitted(deployed: Deployed) -> None:
    deployed.world.deliver(8)
    deployed.needs_a_person()
    before = deployed.world.rows()
    ended = start(deployed, "clicks.py")
    assert ended.returncode == 4
    assert "must not start: a partition needs a decision" in ended.stderr
    assert (deployed.starts, deployed.world.rows()) == ([], before)
    assert exit_code_for_prometheus(deployed) == 4


def test_a_job_whose_destination_is_behind_is_submitted_once_it_is_not(deployed: Deployed) -> None:
    """The example's policy is ``wait``; the script waits for five minutes."""
    deployed.world.deliver(2)
    deployed.may_start()
    assert start(deployed, "clicks.py").returncode == 4
    assert deployed.starts == []
    names = {"RECONCILER_CONFIG": str(deployed.path("/etc/clicks/reconciler.toml"))}
    script = subprocess.Popen(
        [DEPLOY / "spark-submit.sh", "clicks.py"],
        env={**deployed.environment, **names},
        stderr=subprocess.PIPE,
        text=True,
    )
    with script:
        assert script.stderr is not None
        assert "waiting for the mirror: 1 of 1 partitions is behind" in script.stderr.readline()
        deployed.world.append({0: range(2, 8)})
        said = script.stderr.read()
    assert script.returncode == 0, said
    assert deployed.started_at_the_right_offsets


def test_a_wrong_configuration_and_a_lost_destination_start_nothing(deployed: Deployed) -> None:
    file = deployed.path("/etc/clicks/reconciler.toml")
    right = file.read_text()
    away = right.replace(deployed.world.cluster.bootstrap, f"127.0.0.1:{free_port()}")
    for text, code in ((right + "\n[surprise]\n", 2), (away + '\n[search]\ndeadline = "1s"\n', 6)):
        file.write_text(text)
        assert start(deployed, "clicks.py").returncode == code
    assert deployed.starts == []


def test_a_transient_failure_is_left_to_the_caller_of_the_script(deployed: Deployed) -> None:
    deployed.program("reconciler", ENDS_WITH.format(code=5))
    assert start(deployed, "clicks.py").returncode == 5
    assert deployed.starts == []


def test_spark_reads_from_the_right_offset_on(deployed: Deployed) -> None:
    """The real spark-submit: the job that it runs finds what the hook handed over."""
    from reconciler import artifacts

    deployed.world.deliver(8)
    deployed.may_start()
    (deployed.bin / "spark-submit").unlink()
    job, result = deployed.world.folder / "clicks.py", deployed.world.folder / "result"
    job.write_text(JOB)
    jars = ",".join(map(str, artifacts.spark_kafka_connector(print)))
    path = {"PATH": f"{deployed.bin}:{sysconfig.get_path('scripts')}:{os.environ['PATH']}"}
    ended = start(
        deployed,
        "--master",
        "local[1]",
        "--conf",
        "spark.ui.enabled=false",
        "--jars",
        jars,
        str(job),
        str(result),
        **path,
    )
    assert ended.returncode == 0, ended.stderr
    assert result.read_text().splitlines() == ["value 4 of 0", "value 5 of 0", "value 7 of 0"], "6 is a tombstone"
