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
from reconciler.formats.plan import parse_plan
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
    config = world.config()
    ended = run_process(
        "hook", "--to", "destination", "-c", config, "--plans", plans, "--", sys.executable, "-c", SHOW, KEPT="yes"
    )
    assert ended.code == 0, ended.output
    found = json.loads(ended.out.splitlines()[-1])
    assert found["kept"] == "yes"
    assert Path(found["plan"]).parent == plans
    assert parse_plan(found["applied"]).job("clicks").partitions[0].resume_offset == right["0"]
    assert json.loads(found["offsets"]) == {world.mirrored: right}
    assert world.offsets() == {0: right["0"]}
    assert "1 offset corrected" in ended.err
    assert f"reconciler rollback {found['plan']}" in ended.err

    after = world.rows()
    again = run_process(
        "hook", "--to", "destination", "-c", config, "--plans", plans, "--", sys.executable, "-c", SHOW, KEPT="again"
    )
    found = json.loads(again.out)
    assert (again.code, found["kept"]) == (0, "again")
    assert json.loads(found["offsets"]) == {world.mirrored: right}
    assert "every stored offset is right, and 1 partition without one starts as new" in again.err
    assert world.rows() == after

    (snapshot,) = plans.glob("*.applied.json")
    applied = snapshot.with_name(snapshot.name.removesuffix(".applied.json"))
    assert world.run("rollback", applied, "-c", config, "--yes").code == 0
    assert world.offsets() == {}


def test_the_commands_exit_code_is_the_hooks(world: World, plans: Path) -> None:
    world.deliver(6)
    world.processed(3)
    command = (sys.executable, "-c", "import sys; sys.exit(int(sys.argv[1]))", "42")
    assert run_process("hook", "--to", "destination", "-c", world.config(), "--plans", plans, "--", *command).code == 42


def test_a_job_that_must_not_start_does_not(world: World, plans: Path) -> None:
    world.deliver(6)
    world.save({0: StoredOffset(BASE + 4)})
    before = world.rows()
    ran = world.folder / "ran"
    ended = run_process("hook", "--to", "destination", "-c", world.config(), "--plans", plans, "--", "touch", ran)
    assert ended.code == 4
    assert 'Job "clicks" must not start: a partition needs a decision.' in ended.err
    assert (ended.out, "1 unresolved" in ended.err) == ("", True)
    assert not ran.exists()
    assert world.rows() == before
    kept = re.search(r"Plan: (\S+)", ended.err)
    assert kept is not None
    assert world.run("show", kept[1]).code == 0


def test_a_persons_word_starts_it(world: World, plans: Path) -> None:
    world.deliver(6)
    world.save({0: StoredOffset(BASE + 4)})
    word = ("--set", f"{world.mirrored}:0=2", "--accept", "skips")
    ended = run_process(
        "hook", "--to", "destination", "-c", world.config(), "--plans", plans, *word, "--", "echo", "ran"
    )
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "ran")
    assert world.offsets() == {0: 2}


@pytest.mark.parametrize("command", ["no-such-command-anywhere", "/no/such/command", "{folder}"])
def test_a_command_that_cannot_run_costs_no_correction(world: World, plans: Path, command: str) -> None:
    command = command.format(folder=world.folder)
    world.deliver(6)
    world.processed(3)
    before = world.rows()
    ended = world.run("hook", "--to", "destination", "-c", world.config(), "--plans", plans, "--", command)
    assert ended.code == 2
    assert f"The command {command} was not found or cannot be run. Nothing was checked." in ended.err
    assert world.rows() == before
    assert not plans.exists()


def test_without_a_command_the_files_are_named(world: World, plans: Path) -> None:
    world.deliver(6)
    world.processed(3)
    ended = world.run("hook", "--to", "destination", "-c", world.config(), "--plans", plans)
    assert ended.code == 0
    named = dict(line.split("=", 1) for line in ended.out.splitlines() if line.startswith("RECONCILER_"))
    offsets = json.loads(Path(named["RECONCILER_STARTING_OFFSETS"]).read_text())
    assert offsets == {world.mirrored: {"0": world.offset_of(3) + 1}}
    assert parse_plan(Path(named["RECONCILER_PLAN"]).read_text()).job().name == "clicks"


# ---------------------------------------------------------------- waiting for a mirror


def test_the_hook_waits_for_a_mirror_that_is_behind(world: World, plans: Path) -> None:
    world.deliver(6)
    world.processed(9)
    config = world.config(extra="[policy]\nbehind = 'wait'")
    assert world.run("check", "-c", config).code == 4
    words = ("hook", "--to", "destination", "-c", config, "--plans", plans, "--wait", "600")
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


def test_the_wait_ends_and_the_policy_decides(world: World, plans: Path) -> None:
    world.deliver(6)
    world.processed(9)
    before = world.rows()
    waits = world.config(extra="[policy]\nbehind = 'wait'")
    stopped = world.run("hook", "--to", "destination", "-c", waits, "--plans", plans, "--wait", "0.2")
    assert (stopped.code, world.rows()) == (4, before)
    started = world.run("hook", "--to", "destination", "-c", world.config(), "--plans", plans, "--wait", "0.2")
    assert started.code == 0
    assert world.offsets() == {0: world.offset_of(5) + 1}


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_hook_that_is_stopped_while_it_waits_has_written_nothing(
    world: World, plans: Path, sent: signal.Signals, code: int
) -> None:
    world.deliver(6)
    world.processed(9)
    before = world.rows()
    ran = world.folder / "ran"
    words = (
        "hook",
        "--to",
        "destination",
        "-c",
        world.config(),
        "--plans",
        plans,
        "--wait",
        "3600",
        "--",
        "touch",
        ran,
    )
    command = [sys.executable, "-m", "reconciler", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as hook:
        assert hook.stderr is not None
        assert "waiting for the mirror: 1 of 1 partitions is behind" in hook.stderr.readline()
        hook.send_signal(sent)
        said = hook.stderr.read()
    assert hook.returncode == code, said
    assert "Interrupted. Nothing was written." in said
    assert "Traceback" not in said
    assert (world.rows(), ran.exists(), list(plans.iterdir())) == (before, False, [])


@pytest.mark.parametrize("wait", ["-1", "nan", "inf", "700000"])
def test_a_wait_that_is_none_is_refused(world: World, plans: Path, wait: str) -> None:
    ended = world.run(
        "hook", "--to", "destination", "-c", world.config(), "--plans", plans, f"--wait={wait}", "--", "true"
    )
    assert ended.code == 2
    assert "is not a number of seconds from 0 to a week" in ended.err


# ---------------------------------------------------------------- the environment in a file


def test_the_environments_file_is_there_only_if_the_job_may_start(world: World, plans: Path) -> None:
    world.deliver(6)
    world.save({0: StoredOffset(BASE + 4)})
    file = world.folder / "run" / "hook.env"
    file.parent.mkdir()
    file.write_text("RECONCILER_PLAN=/of/an/earlier/start\n")
    arguments = ("hook", "--to", "destination", "-c", world.config(), "--plans", plans, "--env-file", file)
    assert world.run(*arguments).code == 4
    assert not file.exists()
    world.processed(3)
    started = world.run(*arguments)
    assert (started.code, file.read_text()) == (0, started.out)
    names = dict(line.split("=", 1) for line in file.read_text().splitlines())
    assert json.loads(Path(names["RECONCILER_STARTING_OFFSETS"]).read_text()) == {
        world.mirrored: {"0": world.offset_of(3) + 1}
    }


# ---------------------------------------------------------------- small print


def test_the_hook_loads_neither_spark_nor_what_it_does_not_need(world: World, plans: Path) -> None:
    world.deliver(6)
    world.processed(3)
    arguments = ("hook", "--to", "destination", "-c", world.config(), "--plans", plans, "--", "true")
    ended = run_process(*arguments, options=("-X", "importtime"))
    assert ended.code == 0
    loaded = {line.rpartition("|")[2].strip() for line in ended.err.splitlines() if line.startswith("import time:")}
    assert "reconciler.failover.check" in loaded
    heavy = {"pyspark", "py4j", "pandas", "numpy", "happybase", "prometheus_client", "tenacity"}
    assert not heavy & {name for each in loaded for name in (each, each.partition(".")[0])}


def test_plans_of_a_job_with_a_longer_name_do_not_push_this_ones_out(world: World, plans: Path) -> None:
    """Plans are thinned out a job at a time: ``clicks`` and ``clicks-eu`` keep their own."""
    world.deliver(6)
    world.processed(3)
    plans.mkdir()
    others = [plans / f"clicks-eu-20990101T0000{number:02d}-000-1.plan.json" for number in range(30)]
    for other in others:
        other.write_text("{}")
    ended = world.run("hook", "--to", "destination", "-c", world.config(), "--plans", plans)
    assert ended.code == 0, ended.output
    named = dict(line.split("=", 1) for line in ended.out.splitlines() if line.startswith("RECONCILER_"))
    assert Path(named["RECONCILER_PLAN"]).exists()
    assert all(other.exists() for other in others)


def test_old_plans_that_were_not_applied_go(world: World, plans: Path) -> None:
    world.deliver(6)
    world.processed(3)
    plans.mkdir()
    names = [f"clicks-20200101T0000{number:02d}-000-1" for number in range(30)]
    for name in names:
        (plans / f"{name}.plan.json").write_text("{}")
        (plans / f"{name}.starting-offsets.json").write_text("{}")
    (plans / f"{names[0]}.plan.json.applied.json").write_text("{}")
    assert world.run("hook", "--to", "destination", "-c", world.config(), "--plans", plans).code == 0
    left = [name for name in names if (plans / f"{name}.plan.json").exists()]
    assert left[0] == names[0]  # the way back of one that was applied stays
    assert len(left) == 20
    assert {path.name.partition(".")[0] for path in plans.glob("*.starting-offsets.json")} >= set(left)


def test_plans_that_cannot_be_kept_stop_the_hook_before_anything(world: World) -> None:
    world.deliver(6)
    world.processed(3)
    before = world.rows()
    file = world.folder / "a-file"
    file.write_text("")
    ended = world.run("hook", "--to", "destination", "-c", world.config(), "--plans", file / "plans", "--", "true")
    assert ended.code == 2
    assert "cannot be written: " in ended.err
    assert world.rows() == before


def test_plans_are_kept_where_the_environment_says(world: World) -> None:
    world.deliver(6)
    world.processed(3)
    state = world.folder / "state"
    ended = run_process(
        "hook", "--to", "destination", "-c", world.config(), "--", shutil.which("true"), XDG_STATE_HOME=str(state)
    )
    assert ended.code == 0
    (plan,) = (state / "reconciler" / "plans").glob("*.plan.json")
    assert os.stat(plan).st_mode & 0o777 == 0o600
