"""The hook: check, correct, become the command; or do not start it at all."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.plan.document import parse_plan
from tests.world import BASE, World, environment, run_process, source_record

pytestmark = pytest.mark.system

SHOW = (
    "import json, os; plan, offsets = os.environ['RECONCILER_PLAN'], os.environ['RECONCILER_STARTING_OFFSETS'];"
    "print(json.dumps({'pid': os.getpid(), 'plan': plan, 'offsets': open(offsets).read(), 'applied': open(plan).read(),"
    " 'kept': os.environ['KEPT']}))"
)


@pytest.fixture
def plans(world: World) -> Path:
    return world.folder / "plans"


def test_the_hook_corrects_and_becomes_the_command(world: World, plans: Path) -> None:
    world.deliver(20, 6)
    world.save({0: source_record(9).stored})
    right = {"0": world.offset_of(9) + 1, "1": 0}
    config = world.config(to="b")
    ended = run_process("hook", "-c", config, "--plans", plans, "--", sys.executable, "-c", SHOW, KEPT="yes")
    assert ended.code == 0, ended.output
    found = json.loads(ended.out.splitlines()[-1])
    assert found["kept"] == "yes"
    assert Path(found["plan"]).parent == plans
    assert parse_plan(found["applied"]).job("clicks").partitions[0].resume_offset == right["0"]
    assert json.loads(found["offsets"]) == {world.mirrored: right}
    assert world.offsets() == {0: right["0"], 1: 0}
    assert "2 offsets corrected" in ended.err
    assert f"To undo: reconciler rollback -c {config} --job clicks" in ended.err

    after = world.rows()
    again = run_process("hook", "-c", config, "--plans", plans, "--", sys.executable, "-c", SHOW, KEPT="again")
    found = json.loads(again.out)
    assert (again.code, found["kept"]) == (0, "again")
    assert json.loads(found["offsets"]) == {world.mirrored: right}
    assert "every offset is right: at most 8 records will be read again" in again.err  # nothing was processed since
    assert world.rows() == after

    back = world.run("rollback", "-c", config, "--job", "clicks", "--yes")
    assert (back.code, "clicks: lives on a" in back.out) == (0, True), back.output


def test_the_commands_exit_code_is_the_hooks(world: World, plans: Path) -> None:
    world.deliver(6)
    world.processed(3)
    command = (sys.executable, "-c", "import sys; sys.exit(int(sys.argv[1]))", "42")
    assert run_process("hook", "-c", world.config(to="b"), "--plans", plans, "--", *command).code == 42


def test_a_job_that_must_not_start_does_not(world: World, plans: Path) -> None:
    world.deliver(6)
    world.save({0: StoredOffset(BASE + 4)})
    before = world.rows()
    ran = world.folder / "ran"
    ended = run_process("hook", "-c", world.config(to="b"), "--plans", plans, "--", "touch", ran)
    assert ended.code == 4
    assert 'Job "clicks" must not start: a partition needs a decision.' in ended.err
    assert (ended.out, "1 unresolved" in ended.err) == ("", True)
    assert not ran.exists()
    assert world.rows() == before
    kept = re.search(r"Plan: (\S+)", ended.err)
    assert kept is not None
    assert world.run("show", kept[1]).code == 0


def test_the_hook_waits_for_a_mirror_that_is_behind(world: World, plans: Path) -> None:
    world.deliver(6)
    world.processed(9)
    config = world.config(extra="[policy]\nbehind = 'wait'", to="b")
    assert world.run("plan", "-c", config).code == 4
    words = ("hook", "-c", config, "--plans", plans, "--wait", "600")
    command = [sys.executable, "-m", "reconciler", *map(str, words)]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment()
    ) as hook:
        assert hook.stderr is not None
        first = hook.stderr.readline()
        world.append({0: range(6, 14)})
        rest = hook.stderr.read()
    assert hook.returncode == 0, first + rest
    assert "waiting for the mirror: 1 of 1 partitions is behind; " in first
    assert "left; lag 2 s (" in first
    assert "the mirror has delivered the missing records" in rest
    assert world.offsets() == {0: world.offset_of(9) + 1}


def test_a_hook_that_is_stopped_while_it_waits_has_written_nothing(world: World, plans: Path) -> None:
    world.deliver(6)
    world.processed(9)
    before, ran = world.rows(), world.folder / "ran"
    words = ("hook", "-c", world.config(to="b"), "--plans", plans, "--wait", "3600", "--", "touch", ran)
    command = [sys.executable, "-m", "reconciler", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as hook:
        assert hook.stderr is not None
        assert "waiting for the mirror: 1 of 1 partitions is behind" in hook.stderr.readline()
        hook.send_signal(signal.SIGTERM)
        said = hook.stderr.read()
    assert hook.returncode == 143, said
    assert "Interrupted. Nothing was written." in said
    assert "Traceback" not in said
    assert (world.rows(), ran.exists(), list(plans.iterdir())) == (before, False, [])


def test_the_environments_file_is_there_only_if_the_job_may_start(world: World, plans: Path) -> None:
    world.deliver(6)
    world.save({0: StoredOffset(BASE + 4)})
    file = world.folder / "run" / "hook.env"
    file.parent.mkdir()
    file.write_text("RECONCILER_PLAN=/of/an/earlier/start\n")
    arguments = ("hook", "-c", world.config(to="b"), "--plans", plans, "--env-file", file)
    assert world.run(*arguments).code == 4
    assert not file.exists()
    world.processed(3)
    started = world.run(*arguments)
    assert (started.code, file.read_text()) == (0, started.out)
    names = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert json.loads(Path(names["RECONCILER_STARTING_OFFSETS"]).read_text()) == {
        world.mirrored: {"0": world.offset_of(3) + 1}
    }


def test_the_hook_loads_neither_spark_nor_what_it_does_not_need(world: World, plans: Path) -> None:
    world.deliver(6)
    world.processed(3)
    arguments = ("hook", "-c", world.config(to="b"), "--plans", plans, "--", "true")
    ended = run_process(*arguments, options=("-X", "importtime"))
    assert ended.code == 0
    loaded = {line.rpartition("|")[2].strip() for line in ended.err.splitlines() if line.startswith("import time:")}
    assert "reconciler.failover.check" in loaded
    heavy = {"pyspark", "py4j", "pandas", "numpy", "happybase", "prometheus_client", "tenacity", "cryptography"}
    assert not heavy & {name for each in loaded for name in (each, each.partition(".")[0])}


def test_plans_are_kept_where_the_environment_says(world: World) -> None:
    world.deliver(6)
    world.processed(3)
    state = world.folder / "state"
    ended = run_process("hook", "-c", world.config(to="b"), "--", shutil.which("true"), XDG_STATE_HOME=str(state))
    assert ended.code == 0
    (plan,) = (state / "reconciler" / "plans").glob("*.plan.json")
    assert os.stat(plan).st_mode & 0o777 == 0o600
