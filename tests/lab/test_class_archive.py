"""The archive of Kafka's classes: made once, and used only if it is whole and of this JVM and these jars."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from reconciler.artifacts import java_executable
from reconciler.core.errors import Unreachable
from reconciler.lab import class_archive
from reconciler.lab.broker import java_command
from reconciler.lab.class_archive import make_archive, sharing


class Runs:
    """Stands for the JVM that writes the archive."""

    def __init__(self, content: bytes | None = b"the classes") -> None:
        self.count = 0
        self._content = content

    def __call__(self, folder: Path, jvm: Sequence[str]) -> None:
        self.count += 1
        assert folder.is_dir()
        if self._content is not None:
            (option,) = jvm
            Path(option.removeprefix("-XX:ArchiveClassesAtExit=")).write_bytes(self._content)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    java = tmp_path / "java"
    java.write_text("one")
    monkeypatch.setattr(class_archive, "java_executable", lambda: java)
    return java


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    jars = tmp_path / "cache" / "kafka"
    jars.mkdir(parents=True)
    (jars / "one.jar").write_bytes(b"classes")
    return jars


def archives(jars: Path) -> list[Path]:
    return list(jars.glob("*.jsa"))


def test_the_archive_is_made_once(java: Path, jars: Path) -> None:
    assert sharing(java, jars) == []
    runs = Runs()
    for _ in range(2):
        make_archive(jars, runs)
    assert runs.count == 1
    (archive,) = archives(jars)
    assert archive.read_bytes() == b"the classes"
    assert f"-XX:SharedArchiveFile={archive}" in sharing(java, jars)
    assert [path.name for path in jars.parent.iterdir() if path.suffix == ".part"] == []


@pytest.mark.parametrize("change", ["cut", "another java", "another jar", "a jar of another time"])
def test_one_that_does_not_belong_is_not_used_and_is_replaced(java: Path, jars: Path, change: str) -> None:
    make_archive(jars, Runs())
    if change == "cut":
        archives(jars)[0].write_bytes(b"the cl")
    elif change == "another java":
        java.write_text("another")
    elif change == "another jar":
        (jars / "two.jar").touch()
    else:
        os.utime(jars / "one.jar", (1, 1))
    assert sharing(java, jars) == []
    make_archive(jars, Runs(b"new"))
    (archive,) = archives(jars)
    assert archive.read_bytes() == b"new"
    assert sharing(java, jars)


def test_a_jvm_that_writes_none_is_asked_once(java: Path, jars: Path) -> None:
    runs = Runs(content=None)
    for _ in range(2):
        make_archive(jars, runs)
    assert runs.count == 1
    assert sharing(java, jars) == []


def test_one_whose_jvm_was_killed_is_not_kept(java: Path, jars: Path) -> None:
    def killed(folder: Path, jvm: Sequence[str]) -> None:
        Runs(b"half of")(folder, jvm)
        raise Unreachable("It was killed.")

    make_archive(jars, killed)
    assert archives(jars) == []
    assert [path.name for path in jars.parent.iterdir() if path.suffix == ".part"] == []


def test_two_processes_do_not_make_it_at_once(java: Path, jars: Path) -> None:
    runs = Runs()
    with (jars.parent / ".kafka.classes.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        make_archive(jars, runs)
    assert runs.count == 0


def test_a_cache_of_another_user_stays_without(java: Path, jars: Path) -> None:
    (jars.parent / ".kafka.classes.lock").mkdir()  # cannot be opened, whoever runs this
    runs = Runs()
    make_archive(jars, runs)
    assert runs.count == 0


@pytest.mark.system
def test_a_broker_loads_its_classes_from_the_archive(kafka_jars: Path) -> None:
    if not sharing(java_executable(), kafka_jars):
        pytest.skip("this JVM writes no archive, or another run is just making it")
    java, *options = java_command(kafka_jars, "kafka.Kafka", "--version", heap="64m")
    loaded = subprocess.run([java, "-Xlog:class+load", *options], capture_output=True, text=True, check=True).stdout
    assert "kafka.Kafka source: shared objects file (top)" in loaded


@pytest.mark.system
def test_a_jvm_that_rejects_the_archive_says_nothing(kafka_jars: Path, tmp_path: Path) -> None:
    options = sharing(java_executable(), kafka_jars)
    if not options:
        pytest.skip("this JVM writes no archive, or another run is just making it")
    (tmp_path / "other.jar").touch()
    command = [str(java_executable()), "-XX:+UseSerialGC", *options, "-cp", str(tmp_path / "other.jar"), "-version"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout == ""
    assert "archive" not in run.stderr


def test_a_server_uses_the_archive_although_the_cache_is_a_link(
    java: Path, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reconciler.lab.broker.java_executable", lambda: java)
    make_archive(jars, Runs())
    (linked := jars.parent / "linked").symlink_to(jars)
    (archive,) = archives(jars)
    command = java_command(linked, "kafka.Kafka", heap="1m")
    assert f"-XX:SharedArchiveFile={archive}" in command
    assert command[command.index("-cp") + 1] == f"{jars}/*", "the path for which it was made"
