"""The completion that ``reconciler completion`` prints, in real shells; those that are not installed are left out."""

from __future__ import annotations

import os
import pty
import re
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.cli.commands.learn.completion import SHELLS, job_names, script
from tests import ROOT

DEADLINE_S = 60
CONFIG = """
[[jobs]]
name = "clicks"
[[jobs]]
name = "cl $(touch planted) `touch planted` ic"
[[jobs]]
name = "views"
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder with a configuration and the scripts, and a ``reconciler`` on the path."""

    folder: Path
    config: Path
    environment: dict[str, str]

    def script(self, shell: str) -> Path:
        return self.folder / f"reconciler.{shell}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("completion")
    command = folder / "bin" / "reconciler"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m reconciler "$@"\n')
    command.chmod(0o755)
    config = folder / "jobs of mine.toml"
    config.write_text(CONFIG)
    for shell in SHELLS:
        (folder / f"reconciler.{shell}").write_text(script(shell))
    path = f"{command.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(folder), "TERM": "dumb"}
    return Place(folder, config, {name: value for name, value in environment.items() if name != "RECONCILER_CONFIG"})


def needs(shell: str) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


def in_bash(place: Place, *words: str, **environment: str) -> list[str]:
    """The completions that the tab key offers for the last word."""
    program = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_reconciler\n'
        "[ ${#COMPREPLY[@]} = 0 ] || printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    command = [needs("bash"), "--norc", "-c", program, "bash", str(place.script("bash")), "reconciler", *words]
    return _lines(command, place, environment)


def in_fish(place: Place, line: str, **environment: str) -> list[str]:
    program = f"source {place.script('fish')}; complete -C {line!r}"
    found = _lines([needs("fish"), "--no-config", "-c", program], place, environment)
    return [each.partition("\t")[0] for each in found]


def _lines(command: Sequence[str], place: Place, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        cwd=place.folder,
        env={**place.environment, **environment},
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_bash_completes_commands_and_their_actions(place: Place) -> None:
    assert in_bash(place, "roll") == ["rollback"]
    assert set(in_bash(place, "check")) == {"check", "checkpoint"}
    assert in_bash(place, "config", "") == ["check"]
    assert set(in_bash(place, "anchors", "")) == {"export", "import"}


def test_bash_completes_options_and_their_choices(place: Place) -> None:
    assert in_bash(place, "check", "--form") == ["--format"]
    assert set(in_bash(place, "check", "--format", "")) == {"text", "json"}
    assert "unresolved" not in in_bash(place, "check", "--accept", "")
    assert in_bash(place, "check", "--accept", "rema") == ["remapped"]


def test_bash_completes_files(place: Place) -> None:
    assert in_bash(place, "check", "-c", "jobs") == ["jobs of mine.toml"]


def test_bash_completes_the_jobs_of_the_configuration_that_is_named(place: Place) -> None:
    assert in_bash(place, "check", "-c", place.config.name, "--job", "vi") == ["views"]
    assert in_bash(place, "check", "--config", "=", place.config.name, "--job", "vi") == ["views"]
    assert in_bash(place, "check", "--job", "vi", RECONCILER_CONFIG=place.config.name) == ["views"]
    assert in_bash(place, "check", "--job", "") == []


def test_a_name_in_a_configuration_is_never_run_by_the_shell(place: Place) -> None:
    offered = in_bash(place, "check", "-c", place.config.name, "--job", "cl")
    assert offered == ["clicks", "cl\\ \\$\\(touch\\ planted\\)\\ \\`touch\\ planted\\`\\ ic"]
    assert not (place.folder / "planted").exists()


def test_fish_completes_commands_options_and_jobs(place: Place) -> None:
    assert in_fish(place, "reconciler roll") == ["rollback"]
    assert "--format" in in_fish(place, "reconciler check --form")
    assert set(in_fish(place, "reconciler check --format ")) >= {"text", "json"}
    assert in_fish(place, f"reconciler check -c '{place.config.name}' --job vi") == ["views"]
    assert not (place.folder / "planted").exists()


def test_zsh_completes_commands_and_jobs(place: Place) -> None:
    zsh = needs("zsh")
    folder = place.folder / "functions"
    folder.mkdir()
    (folder / "_reconciler").write_text(place.script("zsh").read_text())
    setup = f"PROMPT='' ; fpath=({folder} $fpath); autoload -U compinit; compinit -u -D; echo re''ady\n"
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place.folder)
        os.execve(zsh, ["zsh", "-f", "-i"], place.environment)
    try:
        assert "ready" in typed(terminal, setup, "ready")
        assert "rollback" in typed(terminal, "reconciler roll\t", "rollback")
        typed(terminal, "\x15echo d''one\n", "done")
        line = f"reconciler check -c {place.config.name.replace(' ', chr(92) + ' ')} --job vi\t"
        assert "views" in typed(terminal, line, "views")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert not (place.folder / "planted").exists()


def typed(terminal: int, keys: str, until: str) -> str:
    """A terminal's output after some keys, up to an expected word."""
    os.write(terminal, keys.encode())
    shown = ""
    deadline = time.monotonic() + DEADLINE_S
    with selectors.DefaultSelector() as waiting:
        waiting.register(terminal, selectors.EVENT_READ)
        while until not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown):
            assert waiting.select(deadline - time.monotonic()), f"{until!r} did not come: {shown!r}"
            shown += os.read(terminal, 4096).decode(errors="replace")
    return shown


@pytest.mark.parametrize(
    "text", ["", "jobs = 1", "jobs = [1]", "[[jobs]]\nname = 1", "[[jobs]]\nname = 'a\\u0007'", "[x"]
)
def test_a_configuration_that_makes_no_sense_has_no_names_to_offer(tmp_path: Path, text: str) -> None:
    path = tmp_path / "reconciler.toml"
    path.write_text(text.replace("'", '"'))
    assert job_names(path) == []
    assert job_names(tmp_path / "none.toml") == []
