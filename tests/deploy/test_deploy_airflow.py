"""The DAGs of ``deploy/airflow``: their hook's words run as they stand, and, where there is an Airflow, whole DAG runs.

``.ci/outside`` installs one, and names its Python in RECONCILER_AIRFLOW_PYTHON.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.deployed import DEPLOY, ENDS_WITH, Deployed
from tests.waiting import LIMIT_S
from tests.world import World, environment

pytestmark = pytest.mark.system

DAGS = DEPLOY / "airflow"
RUN = """
import sys
from datetime import timedelta
from airflow.models.dagbag import DagBag

folder, name = sys.argv[1:]
bag = DagBag(folder, include_examples=False)
assert not bag.import_errors, bag.import_errors
dag = bag.dags[name]
for task in dag.tasks:
    task.retry_delay = timedelta(seconds=1)
tasks = dag.test().get_task_instances()
print("ENDED " + ",".join(f"{task.task_id} {task.state} {task.try_number}" for task in tasks))
"""
ONCE = '#!/bin/sh\n[ -e "{mark}" ] || {{ touch "{mark}"; exit {code}; }}\nexec "{real}" "$@"\n'
"""Ends with a code once; what comes then is the real one."""


@pytest.fixture
def deployed(world: World) -> Deployed:
    deployed = Deployed(world)
    deployed.configure((DEPLOY / "reconciler.toml").read_text(), deployed.path("/etc/clicks/reconciler.toml"))
    return deployed


# ---------------------------------------------------------------- without Airflow


def constants() -> dict[str, Any]:
    """The constants that the example's module sets before its classes, without Airflow."""
    module = ast.parse((DAGS / "clicks.py").read_text())
    kept = [node for node in module.body if isinstance(node, ast.Assign) and "RETRIES" not in ast.dump(node)]
    found: dict[str, Any] = {"os": os}
    exec(compile(ast.Module(kept, []), "clicks.py", "exec"), found)
    return found


def test_the_dags_hook_starts_a_job_or_does_not(deployed: Deployed) -> None:
    words = [deployed.moved(word) for word in constants()["HOOK"]]
    deployed.world.deliver(8)
    deployed.needs_a_person()

    def run() -> int:
        words_now = [*words, "--", "spark-submit", deployed.moved("/srv/clicks/clicks.py")]
        return subprocess.run(words_now, env=deployed.environment, timeout=LIMIT_S, check=False).returncode

    assert (run(), deployed.starts) == (4, [])
    deployed.may_start()
    assert (run(), deployed.starts) == (0, [str(deployed.path("/srv/clicks/clicks.py"))])
    assert deployed.started_at_the_right_offsets


def test_only_what_cannot_heal_is_not_tried_again() -> None:
    assert set(constants()["NOT_RETRIED"]) == {2, 4}


# ---------------------------------------------------------------- with Airflow


@pytest.fixture
def airflow(deployed: Deployed) -> Airflow:
    named = os.environ.get("RECONCILER_AIRFLOW_PYTHON")
    if named is None:
        pytest.skip("RECONCILER_AIRFLOW_PYTHON names no Python with an Airflow")
    return Airflow(Path(named), deployed)


class Airflow:
    """An Airflow with a database of its own, and a job before it."""

    def __init__(self, python: Path, deployed: Deployed) -> None:
        self._python = python
        self._deployed = deployed
        connection = {"conn_type": "spark", "host": "local[1]"}
        self._names = {
            "AIRFLOW_HOME": str(deployed.world.folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection),
            "RECONCILER_CONFIG": str(deployed.path("/etc/clicks/reconciler.toml")),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        for words in (("db", "migrate"), ("dags", "reserialize")):
            self._call("-m", "airflow", *words)

    def _call(self, *words: str) -> str:
        names = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
        path = f"{self._deployed.bin}:{names['PATH']}"
        done = subprocess.run(
            [str(self._python), *words],
            env={**names, **self._names, "PATH": path},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def ended(self, dag: str) -> list[str]:
        """Run a DAG: its tasks, each with its state and how often it was tried."""
        said = self._call("-c", RUN, str(DAGS), dag)
        (line,) = [line for line in said.splitlines() if line.startswith("ENDED ")]
        return sorted(line.removeprefix("ENDED ").split(","))


@pytest.fixture
def hooked(deployed: Deployed) -> Deployed:
    """Airflow's environment is not the tests': the hook brings its own."""
    from tests.world import ROOT

    text = (deployed.bin / "reconciler").read_text()
    deployed.program("reconciler", text.replace("exec ", f'PYTHONPATH="{ROOT}" exec ', 1))
    deployed.world.deliver(8)
    return deployed


def test_airflow_starts_a_job_that_may_start(hooked: Deployed, airflow: Airflow) -> None:
    hooked.may_start()
    assert airflow.ended("clicks") == ["clicks success 1"]
    assert hooked.started_at_the_right_offsets
    assert airflow.ended("clicks_by_operator") == ["job success 1", "offsets success 1"]
    assert hooked.started_at_the_right_offsets
    assert len(hooked.starts) == 2


def test_airflow_does_not_try_again_what_needs_a_person(hooked: Deployed, airflow: Airflow) -> None:
    hooked.needs_a_person()
    assert airflow.ended("clicks") == ["clicks failed 1"]
    assert airflow.ended("clicks_by_operator") == ["job upstream_failed 0", "offsets failed 1"]
    assert hooked.starts == []
    hooked.program("reconciler", ENDS_WITH.format(code=2))
    assert airflow.ended("clicks") == ["clicks failed 1"]


@pytest.mark.parametrize("code", [5, 6, 7])
def test_airflow_tries_again_what_may_heal_by_itself(hooked: Deployed, airflow: Airflow, code: int) -> None:
    hooked.may_start()
    (hooked.bin / "reconciler").rename(hooked.bin / "real")
    once = ONCE.format(mark=hooked.world.folder / "mark", code=code, real=hooked.bin / "real")
    hooked.program("reconciler", once)
    assert airflow.ended("clicks") == ["clicks success 2"]
    assert hooked.started_at_the_right_offsets
