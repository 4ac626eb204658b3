"""Commands that need no Spark job on their machine run in an install without PySpark, HBase's client and Java."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT
from tests.spark.environments import python_with
from tests.waiting import LIMIT_S
from tests.world import CommandResult, World, environment

pytestmark = pytest.mark.system

LOCK = ROOT / "deploy" / "locks" / "light.txt"
HEAVY = ("pyspark", "py4j", "pandas", "pyarrow", "happybase", "thriftpy2")
WITHOUT = f"""
import sys
sys.modules.update(dict.fromkeys({HEAVY!r}))  # None in sys.modules: the import fails as if it were not installed
from reconciler.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

Run = Callable[..., CommandResult]


def runner(python: str | Path, path: str) -> Run:
    def run(*arguments: object) -> CommandResult:
        command = [str(python), "-c", WITHOUT, *map(str, arguments)]
        # No program is found by PATH: neither java nor spark-submit.
        variables = environment(PATH="/nowhere", JAVA_HOME="/nowhere", PYTHONPATH=path)
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, env=variables, check=False, text=True)
        return CommandResult(done.returncode, done.stdout, done.stderr)

    return run


def a_failover_is_checked_drilled_watched_applied_and_started(world: World, run: Run) -> None:
    world.deliver(20)
    world.processed(9)
    config, plan = world.config(lives="a"), world.folder / "plan.json"
    right = world.offset_of(9) + 1
    for code, *command in (
        (3, "plan", "-c", config),
        (0, "drill", "-c", config, "--job", "clicks"),
        (0, "watch", "-c", config, "--once"),
        (0, "plan", "-c", config, "-o", plan),
        (0, "apply", plan, "-c", config, "--yes"),
        (0, "plan", "-c", config, "--to", "b"),
        (0, "rollback", "-c", config, "--job", "clicks", "--yes"),
        (0, "move", "--to", "b", "-c", config, "--yes"),
        (0, "hook", "-c", config, "--plans", world.folder / "plans"),
    ):
        ended = run(*command)
        assert ended.code == code, (command, ended.output)
    assert world.offsets() == {0: right}


def test_without_the_heavy_packages_every_command_but_those_for_spark_works(world: World) -> None:
    a_failover_is_checked_drilled_watched_applied_and_started(world, runner(sys.executable, str(ROOT)))


def test_a_store_whose_client_is_left_out_says_so(world: World) -> None:
    config = world.config(world.job(store="hbase://localhost:9090/offsets"))
    ended = runner(sys.executable, str(ROOT))("plan", "-c", config)
    assert ended.code == 2
    assert "happybase" in ended.err


@pytest.mark.thorough
def test_the_locked_packages_are_enough_and_small(world: World) -> None:
    python = python_with(
        f"light-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}", "--require-hashes", "-r", str(LOCK)
    )
    a_failover_is_checked_drilled_watched_applied_and_started(world, runner(python, str(ROOT)))
    packages = next((python.parent.parent / "lib").glob("python3*/site-packages"))
    ours = [path for path in packages.rglob("*") if path.is_file() and path.relative_to(packages).parts[0] != "pip"]
    assert sum(path.stat().st_size for path in ours) < 100_000_000
