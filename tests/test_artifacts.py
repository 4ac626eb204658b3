"""Fetched jars: a torn download is never used, a whole one needs no tool, and every failure says whose move it is."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler import artifacts
from reconciler.core.errors import ConfigError, Unreachable
from tests.waiting import LIMIT_S

CONNECTOR = {
    "spark-sql-kafka-0-10_2.13-4.2.0.jar": b"connector",
    "spark-token-provider-kafka-0-10_2.13-4.2.0.jar": b"token",
    "kafka-clients-3.9.2.jar": b"clients",
    "commons-pool2-2.13.1.jar": b"pool",
}


def script(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return path


def java_saying(path: Path, version: str) -> Path:
    return script(path, f"import sys; sys.stderr.write('openjdk version \"{version}\" 2025-01-01\\n')")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it but a new enough java, an empty cache, and PySpark 4.2.0 installed."""
    tools = tmp_path / "tools"
    java_saying(tools / "java", "17.0.1")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("RECONCILER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "4.2.0")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    artifacts._version_of.cache_clear()
    return tools


@pytest.fixture
def mvn(tools: Path) -> Callable[[dict[str, bytes]], Path]:
    """Install a Maven that "fetches" the given jars, and notes each run."""

    def install(jars: dict[str, bytes], then: str = "") -> Path:
        runs = tools / "runs"
        body = (
            "import sys, pathlib\n"
            "out = next(a.split('=', 1)[1] for a in sys.argv if a.startswith('-DoutputDirectory='))\n"
            "pom = pathlib.Path(sys.argv[sys.argv.index('-f') + 1]).read_text()\n"
            f"open({str(runs)!r}, 'a').write(pom)\n"
            "pathlib.Path(out).mkdir()\n"
            f"[pathlib.Path(out, n).write_bytes(b) for n, b in {jars!r}.items()]\n" + then
        )
        script(tools / "mvn", body)
        return runs

    return install


def fetch() -> list[Path]:
    return artifacts.spark_kafka_connector(lambda _: None)


def test_the_connector_is_exactly_four_jars_of_sparks_version(mvn) -> None:
    runs = mvn({**CONNECTOR, "scala-library-2.13.16.jar": b"already in the wheel"})
    assert {jar.name for jar in fetch()} == set(CONNECTOR)
    assert "<artifactId>spark-sql-kafka-0-10_2.13</artifactId><version>4.2.0</version>" in runs.read_text()


def test_a_second_run_needs_no_tool_at_all(mvn, tools: Path) -> None:
    mvn(CONNECTOR)
    first = fetch()
    for tool in ("mvn", "java"):
        (tools / tool).unlink()
    assert fetch() == first


@pytest.mark.parametrize("damage", ["shorter", "gone", "no manifest", "torn manifest", "another definition"])
def test_a_torn_cache_or_one_of_another_definition_is_fetched_again(mvn, damage: str) -> None:
    mvn(CONNECTOR)
    jar = fetch()[0]
    manifest = jar.parent / "manifest.json"
    if damage == "shorter":
        jar.write_bytes(b"")
    elif damage == "gone":
        jar.unlink()
    elif damage == "no manifest":
        manifest.unlink()
    elif damage == "torn manifest":
        manifest.write_text(manifest.read_text()[:20])
    else:
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "set": [[["something:else:1"]]]}))
        (manifest.parent / "stray.jar").touch()
    assert {each.name: each.read_bytes() for each in fetch()} == CONNECTOR


def test_what_a_killed_fetch_left_is_swept_and_never_used(mvn, tmp_path: Path) -> None:
    left = tmp_path / "cache" / ".spark-kafka-4.2.0.part"
    (left / "ready").mkdir(parents=True)
    mvn(CONNECTOR)
    fetch()
    assert not left.exists()
    assert sorted(p.name for p in (tmp_path / "cache").iterdir() if p.suffix == ".part") == []


def test_a_failed_fetch_says_what_the_tool_said_and_leaves_nothing(mvn, tmp_path: Path) -> None:
    mvn({}, "print('\\x1b[1m[ERROR]\\x1b[m no route to the registry\\n\\tat some.Frame(X.java:1)'); sys.exit(1)")
    with pytest.raises(Unreachable, match=r"Maven said: .*no route to the registry") as caught:
        fetch()
    assert "Frame" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert caught.value.hint
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [".spark-kafka-4.2.0.lock"]


def spark_submit(path: Path) -> Path:
    """A PySpark whose resolver "fetches" the connector; the path of its spark-submit."""
    body = (
        "import sys, pathlib\n"
        "out = next(a.split('=', 1)[1] for a in sys.argv if a.startswith('spark.jars.ivy='))\n"
        "jars = pathlib.Path(out, 'jars')\n"
        "jars.mkdir(parents=True, exist_ok=True)\n"
        f"[(jars / n).write_bytes(b) for n, b in {CONNECTOR!r}.items()]"
    )
    return script(path / "bin" / "spark-submit", body)


def test_a_tool_that_cannot_be_run_is_named_and_is_not_the_caches_fault(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = spark_submit(tmp_path / "pyspark")
    submit.chmod(0o644)
    monkeypatch.setattr(artifacts, "_pyspark_home", lambda: tmp_path / "pyspark")
    with pytest.raises(Unreachable, match=rf"resolver said: {submit} cannot be run: Permission denied\.") as caught:
        fetch()
    assert "cannot be written" not in str(caught.value)


def test_where_one_tool_cannot_be_run_the_other_is_tried(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tools / "mvn", "").write_text("#!/nowhere/sh\n")
    spark_submit(tmp_path / "pyspark")
    monkeypatch.setattr(artifacts, "_pyspark_home", lambda: tmp_path / "pyspark")
    assert {jar.name for jar in fetch()} == set(CONNECTOR)


def test_an_older_token_provider_is_tried_when_sparks_own_is_not_to_be_had(mvn) -> None:
    with_old = {name.replace("13-4.2.0", "13-4.0.0") if "token" in name else name: b for name, b in CONNECTOR.items()}
    runs = mvn(with_old, "if '<version>4.0.0' not in pom: print('[ERROR] no token provider'); sys.exit(1)")
    assert "spark-token-provider-kafka-0-10_2.13-4.0.0.jar" in {jar.name for jar in fetch()}
    assert runs.read_text().count("<project") == 2


def test_a_connector_of_another_version_is_refused(mvn) -> None:
    mvn({name.replace("sql-kafka-0-10_2.13-4.2.0", "sql-kafka-0-10_2.13-4.1.0"): b for name, b in CONNECTOR.items()})
    with pytest.raises(Unreachable, match=r"not exactly one spark-sql-kafka-0-10_2\.13-4\.2\.0"):
        fetch()


@pytest.mark.parametrize(
    ("pyspark", "had", "asked"),
    [
        ("4.3.1", "4.2.0", ["4.3.1", "4.3.0", "4.2.0"]),  # none of its minor version: the one that was tried with it
        ("4.1.4", "4.1.2", ["4.1.4", "4.1.3", "4.1.2"]),  # the newest of its earlier patch releases
    ],
)
def test_a_spark_whose_connector_is_not_to_be_had_gets_another_after_its_own(
    mvn, monkeypatch: pytest.MonkeyPatch, pyspark: str, had: str, asked: list[str]
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: pyspark)
    jars = {name.replace("sql-kafka-0-10_2.13-4.2.0", f"sql-kafka-0-10_2.13-{had}"): b for name, b in CONNECTOR.items()}
    runs = mvn(jars, f"if '13</artifactId><version>{had}' not in pom: print('[ERROR] none'); sys.exit(1)")
    assert {jar.name for jar in fetch()} == set(jars)
    found = re.findall(r"spark-sql-kafka-0-10_2.13</artifactId><version>([\d.]+)<", runs.read_text())
    assert list(dict.fromkeys(found)) == asked


def test_pyspark_3_gets_a_connector_for_its_scala(mvn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "3.5.7")
    jars = {name.replace("_2.13-4.2.0", "_2.12-3.5.7"): content for name, content in CONNECTOR.items()}
    mvn(jars)
    assert {jar.name for jar in fetch()} == set(jars)


@pytest.mark.parametrize(
    ("version", "said"),
    [("3.4.4", r"PySpark 3\.4\.4 is installed, .* needs 3\.5 or newer"), (None, "PySpark is not installed")],
)
def test_an_old_or_absent_pyspark_is_named(
    tools: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, said: str
) -> None:
    def find(name: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(importlib.metadata, "version", find)
    with pytest.raises(ConfigError, match=said):
        fetch()


def test_a_cache_that_cannot_be_written_is_the_callers_move(
    mvn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mvn(CONNECTOR)
    (tmp_path / "file").touch()
    monkeypatch.setenv("RECONCILER_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(ConfigError, match=r"cannot be written.*RECONCILER_CACHE"):
        fetch()


def test_two_processes_do_not_fetch_at_once(mvn, tools: Path) -> None:
    runs = mvn(CONNECTOR, "import time; time.sleep(0.5)")
    code = (
        "import importlib.metadata as m; m.version = lambda _: '4.2.0'\n"
        "from reconciler import artifacts\n"
        "print(len(artifacts.spark_kafka_connector(lambda _: None)))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(artifacts.__file__).parents[2])}
    racers = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [racer.communicate(timeout=LIMIT_S)[0].strip() for racer in racers] == ["4", "4"]
    assert runs.read_text().count("<project") == 1


def test_java_of_java_home_comes_first(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = java_saying(tmp_path / "home" / "bin" / "java", "21.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert artifacts.java_executable() == own


def test_an_old_java_home_does_not_hide_a_newer_java(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_saying(tmp_path / "home" / "bin" / "java", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert artifacts.java_executable() == tools / "java"


@pytest.mark.parametrize(("said", "release"), [("1.8.0_402", 8), ("11.0.22", 11)])
def test_a_java_too_old_is_named(tools: Path, said: str, release: int) -> None:
    java_saying(tools / "java", said)
    with pytest.raises(ConfigError, match=rf"Java 17 or newer is needed, .*is Java {release}\. Install one"):
        artifacts.java_executable()


@pytest.mark.parametrize("broken", [True, False])
def test_no_java_is_said_with_what_to_install(tools: Path, broken: bool) -> None:
    if broken:
        script(tools / "java", "import sys; sys.exit('Unable to locate a Java Runtime.')")
    else:
        (tools / "java").unlink()
    with pytest.raises(ConfigError, match=r"there is none here.*openjdk-17"):
        artifacts.java_executable()


def test_kafka_without_scalas_library_is_refused_and_the_reason_is_named(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark 3.5 has none for Scala 2.13, and its resolver never brings one."""
    spark_submit(tmp_path / "pyspark")
    monkeypatch.setattr(artifacts, "_pyspark_home", lambda: tmp_path / "pyspark")
    with pytest.raises(Unreachable, match=r"leaves out Scala's library, and this PySpark has none for Scala 2\.13"):
        artifacts.kafka_jars(lambda _: None)
