"""The units of ``deploy/systemd``: their commands run as they stand, and, where there is a root for it, a real systemd.

``.ci/outside`` makes one, and names it in RECONCILER_SYSTEMD_ROOT.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.deploy import systemd_root
from tests.deploy.deployed import DEPLOY, ENDS_WITH, Deployed
from tests.deploy.systemd_root import Systemd
from tests.waiting import LIMIT_S
from tests.world import World, free_port

pytestmark = pytest.mark.system

UNITS = ("clicks.service", "clicks-pre.service")
PROGRAMS = "/srv/clicks/venv/bin"
SYSTEMD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What systemd gives a unit that names none."""


# ---------------------------------------------------------------- without systemd


def settings(unit: str) -> dict[str, list[str]]:
    """A unit's settings, each with its values in their order."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "systemd" / unit).read_text().splitlines():
        name, mark, value = line.partition("=")
        if mark and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def started(unit: str, deployed: Deployed) -> int:
    """Run a unit's commands in their order, with the environment that they are given; the exit code of the last.

    As in systemd, SuccessExitStatus= counts for each of them.
    """
    of = {name: [deployed.moved(value) for value in values] for name, values in settings(unit).items()}
    fixed = dict(value.split("=", 1) for value in of["Environment"])
    successes = {0, *(int(word) for word in " ".join(of["SuccessExitStatus"]).split() if word.isdecimal())}
    for command in [*of.get("ExecStartPre", []), *of["ExecStart"]]:
        read: dict[str, str] = {}
        for file in of.get("EnvironmentFile", []):
            assert file.startswith("-"), "it is not there when the first command is run"
            if os.path.exists(file[1:]):
                read |= dict(line.split("=", 1) for line in shlex.split(Path(file[1:]).read_text()))
        ended = subprocess.run(
            shlex.split(command.removeprefix("+")),
            env={**deployed.environment, **fixed, **read},
            timeout=LIMIT_S,
            check=False,
        )
        if ended.returncode not in successes:
            break
    return ended.returncode


@pytest.fixture
def deployed(world: World) -> Deployed:
    deployed = Deployed(world)
    deployed.configure((DEPLOY / "reconciler.toml").read_text(), deployed.path("/etc/clicks/reconciler.toml"))
    programs = deployed.path(PROGRAMS)
    programs.parent.mkdir(parents=True, exist_ok=True)
    programs.symlink_to(deployed.bin)
    return deployed


@pytest.mark.parametrize("unit", UNITS)
def test_a_units_job_is_started_or_not_as_the_hook_says(unit: str, deployed: Deployed) -> None:
    deployed.world.deliver(8)
    deployed.needs_a_person()
    assert started(unit, deployed) == 4
    assert deployed.starts == []
    deployed.may_start()
    assert started(unit, deployed) == 0
    assert deployed.starts == [str(deployed.path("/srv/clicks/clicks.py"))]
    assert deployed.started_at_the_right_offsets


@pytest.mark.parametrize("unit", UNITS)
def test_a_units_job_is_not_started_after_a_hook_that_a_signal_ended(unit: str, deployed: Deployed) -> None:
    deployed.program("reconciler", ENDS_WITH.format(code=143))
    success_or_failure = {"clicks.service": 143, "clicks-pre.service": 1}  # a failure is tried again
    assert started(unit, deployed) == success_or_failure[unit]
    assert deployed.starts == []


@pytest.mark.parametrize("unit", UNITS)
def test_a_units_environment_lets_the_spark_submit_of_a_virtual_environment_find_its_spark(
    unit: str, tmp_path: Path
) -> None:
    venv = Path(sys.prefix)
    assert (venv / "bin/spark-submit").is_file(), "these tests run in an environment with a pip-installed PySpark"
    (tmp_path / "srv/clicks").mkdir(parents=True)
    (tmp_path / "srv/clicks/venv").symlink_to(venv)
    given = (value.split("=", 1) for value in settings(unit)["Environment"])
    variables = {"PATH": SYSTEMD_PATH, **{name: value.replace("/srv/", f"{tmp_path}/srv/") for name, value in given}}
    if "JAVA_HOME" in os.environ:  # of this machine, as it would be of the unit's
        variables["JAVA_HOME"] = os.environ["JAVA_HOME"]
    said = subprocess.run(
        [tmp_path / PROGRAMS[1:] / "spark-submit", "--version"],
        env=variables,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert said.returncode == 0, said.stderr
    assert f"version {importlib.metadata.version('pyspark')}" in said.stderr


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_finds_nothing_wrong_with_a_unit(unit: str, tmp_path: Path) -> None:
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not here")
    place = tmp_path / "etc/systemd/system"
    place.mkdir(parents=True)
    shutil.copy(DEPLOY / "systemd" / unit, place)
    programs = tmp_path / PROGRAMS[1:]
    programs.mkdir(parents=True)
    for name in ("reconciler", "spark-submit"):
        (programs / name).touch(mode=0o755)
    words = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", f"--root={tmp_path}", unit]
    said = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


# ---------------------------------------------------------------- with systemd

INSIDE = '#!/bin/sh\nexec env PYTHONPATH={code}:{packages} PYTHONDONTWRITEBYTECODE=1 python3 -m reconciler "$@"\n'
AT_ONCE = "[Unit]\nStartLimitBurst=3\n[Service]\nRestartSec=100ms\n"
STARTED = """#!/bin/sh
set -eu
echo "$*" >> /var/lib/clicks/started
test -s "$RECONCILER_PLAN"
cp "$RECONCILER_START" /var/lib/clicks/start
"""


class Unit:
    """A unit on a real systemd, and the job's world outside."""

    def __init__(self, systemd: Systemd, name: str, world: World) -> None:
        self.systemd = systemd
        self.name = name
        self.job = Deployed(world)
        self._install()

    def _install(self) -> None:
        root = self.systemd.root
        self.systemd.run("useradd", "--system", "clicks")
        for place in ("srv/clicks/venv/bin", "etc/clicks", "var/lib/node_exporter/textfile_collector"):
            (root / place).mkdir(parents=True, exist_ok=True)
        inside = INSIDE.format(code=systemd_root.CODE, packages=systemd_root.PACKAGES)
        for name, text in (("reconciler", inside), ("spark-submit", STARTED)):
            file = root / PROGRAMS[1:] / name
            file.write_text(text)
            file.chmod(0o755)
        self.configured()
        self.job.moves(root / "srv/clicks/state.db")
        self.job.world.address = f"sqlite:///{root}/srv/clicks/offsets.db"  # the world outside writes to it
        shutil.copy(DEPLOY / "systemd" / self.name, root / "etc/systemd/system")
        drop_in = root / "etc/systemd/system" / f"{self.name}.d"
        drop_in.mkdir(exist_ok=True)
        (drop_in / "at-once.conf").write_text(AT_ONCE)
        shutil.rmtree(root / "var/lib/clicks", ignore_errors=True)
        self.systemd.run("systemctl", "daemon-reload", check=True)

    def configured(self, bootstrap: str | None = None) -> None:
        """The example's configuration, for this cluster."""
        world, root = self.job.world, self.systemd.root
        text = (DEPLOY / "reconciler.toml").read_text().replace("kafka-b:9092", bootstrap or world.cluster.bootstrap)
        text = text.replace('["events"]', f'["{world.topic}"]').replace(
            'name = "clicks"', f'name = "clicks"\ngroup = "{world.group}"'
        )
        (root / "etc/clicks/reconciler.toml").write_text(text)

    def start(self) -> None:
        self.systemd.run("systemctl", "reset-failed", self.name)
        for place in ("/srv/clicks", "/var/lib/node_exporter/textfile_collector"):
            self.systemd.run("chown", "-R", "clicks:", place, check=True)
        self.systemd.run("systemctl", "start", "--no-block", self.name, check=True)

    def awaited(self, came: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """The unit's properties once ``came`` says that they are what is waited for."""
        names = ("ActiveState", "SubState", "Result", "NRestarts", "ExecMainStatus")
        return self.systemd.awaited(lambda: self.systemd.shown(self.name, *names), came, self.name)

    @property
    def starts(self) -> list[str]:
        file = self.systemd.root / "var/lib/clicks/started"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture(scope="module")
def systemd() -> Iterator[Systemd]:
    named = os.environ.get("RECONCILER_SYSTEMD_ROOT")
    if named is None:
        pytest.skip("RECONCILER_SYSTEMD_ROOT names no root for a systemd")
    reason = systemd_root.can_run(Path(named))
    if reason is not None:
        pytest.skip(reason)
    with systemd_root.running(Path(named)) as running:
        yield running


@pytest.fixture(params=UNITS)
def unit(request: pytest.FixtureRequest, systemd: Systemd, world: World) -> Iterator[Unit]:
    unit = Unit(systemd, request.param, world)
    yield unit
    systemd.run("systemctl", "stop", unit.name)
    (systemd.root / "srv/clicks/offsets.db").unlink(missing_ok=True)


def ended(now: dict[str, str]) -> bool:
    return now["ActiveState"] in ("inactive", "failed")


def test_systemd_starts_a_job_that_may_start(unit: Unit) -> None:
    unit.job.world.deliver(8)
    unit.job.may_start()
    unit.start()
    assert unit.awaited(ended)["Result"] == "success", unit.systemd.log(unit.name)
    assert unit.starts == ["/srv/clicks/clicks.py"]
    shutil.copy(unit.systemd.root / "var/lib/clicks/start", unit.job.world.folder / "start")
    assert unit.job.started_at_the_right_offsets


def test_systemd_leaves_a_job_alone_that_needs_a_person(unit: Unit) -> None:
    unit.job.world.deliver(8)
    unit.job.needs_a_person()
    unit.start()
    state = unit.awaited(lambda now: now["ActiveState"] == "failed" and now["SubState"] == "failed")
    assert state["Result"] == "exit-code", state
    assert unit.starts == []
    assert "must not start: a partition needs a decision" in unit.systemd.log(unit.name)
    one_process = unit.name == "clicks.service"
    assert state["NRestarts"] == ("0" if one_process else "3"), "ExecStartPre is tried again as often as the limit says"
    assert (state["ExecMainStatus"] == "4") == one_process


def test_systemd_tries_again_when_the_destination_is_away(unit: Unit) -> None:
    unit.job.world.deliver(8)
    unit.job.may_start()
    unit.configured(f"127.0.0.1:{free_port()}")
    file = unit.systemd.root / "etc/clicks/reconciler.toml"
    file.write_text(file.read_text() + '\n[search]\ndeadline = "1s"\n')
    unit.start()
    unit.awaited(lambda now: int(now["NRestarts"]) >= 1)
    assert unit.starts == []
    unit.configured()
    unit.awaited(lambda now: bool(unit.starts))


@pytest.mark.parametrize("words", [("stop",), ("kill", "--signal=TERM")], ids=["stop", "kill"])
def test_systemd_starts_no_job_after_a_hook_that_was_ended_while_it_waited(unit: Unit, words: tuple[str, ...]) -> None:
    unit.job.world.deliver(2)
    unit.job.may_start()
    unit.start()
    unit.systemd.awaited(lambda: unit.systemd.log(unit.name), lambda log: "waiting for the mirror" in log, unit.name)
    unit.systemd.run("systemctl", *words, unit.name, check=True)
    if words == ("stop",) or unit.name == "clicks.service":
        assert unit.awaited(ended)["Result"] == "success", "where it was killed, it was the main process"
        assert "Interrupted. Nothing was written." in unit.systemd.log(unit.name)
    else:
        unit.awaited(lambda now: int(now["NRestarts"]) >= 1)
    assert unit.starts == []


def test_systemd_counts_a_start_that_was_stopped_at_once_as_no_failure(unit: Unit) -> None:
    """Before the hook can say anything."""
    unit.job.world.deliver(2)
    unit.job.may_start()
    unit.start()
    unit.awaited(lambda now: now["ActiveState"] in ("activating", "active"))
    unit.systemd.run("systemctl", "stop", unit.name, check=True)
    assert (unit.awaited(ended)["Result"], unit.starts) == ("success", [])
