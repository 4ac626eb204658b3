"""Downloads of a set of jars: with Maven if it is installed, else with the Ivy resolver inside PySpark."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape

from reconciler.artifacts.java import java_home
from reconciler.artifacts.sets import GET_PYSPARK, JarSet, Recipe
from reconciler.core.errors import ConfigError, Unreachable

Progress = Callable[[str], None]
Way = Literal["auto", "maven", "ivy"]

_FETCH_SECONDS = 900
_REPORT_SECONDS = 15


class _AttemptFailed(Exception):
    """One way to download failed; the message is the tool's output."""


def fetch(jars: JarSet, scratch: Path, progress: Progress, way: Way, java: Path) -> tuple[Path, str]:
    """Try each recipe in each way; returns the directory of the wanted jars, and the name of the way that worked."""
    reasons: dict[str, str] = {}
    for name, resolve in _ways(way):
        for number, recipe in enumerate(jars.recipes):
            work = Path(tempfile.mkdtemp(dir=scratch))
            main = recipe[0].coordinates[0].rsplit(":", 1)[-1]
            progress(f"fetching {jars.title} with {name}" + (f", try {number + 1} ({main})" if number else ""))
            try:
                fetched = resolve(recipe, _Tool(work, progress, java))
                return _select(jars, recipe, fetched, work / "ready"), name
            except _AttemptFailed as failure:
                reasons[name] = str(failure)
    raise Unreachable(
        f"{jars.title} could not be fetched. " + " ".join(f"{name} said: {why}" for name, why in reasons.items()),
        hint="Check that this machine reaches its registry of Java packages (~/.m2/settings.xml for Maven; "
        "spark.jars.repositories or spark.jars.ivySettings in spark-defaults.conf for PySpark), and that the "
        f"registry has this version; then run it again. Or copy a filled cache to {scratch.parent}.",
    )


def _ways(way: Way) -> list[tuple[str, Callable[[Recipe, _Tool], Path]]]:
    maven, ivy = ("Maven", _with_maven), ("PySpark's resolver", _with_ivy)
    if way == "ivy":
        return [ivy]
    if shutil.which("mvn") is None:
        if way == "maven":
            raise ConfigError("Maven was requested, and there is no mvn on the PATH.", hint="Install Maven.")
        return [ivy]
    return [maven] if way == "maven" else [maven, ivy]


@dataclass(frozen=True, slots=True)
class _Tool:
    """Runs one attempt's commands in its own directory."""

    work: Path
    progress: Progress
    java: Path

    def run(self, command: list[str], **environment: str) -> None:
        """Run it in its own process group, which is killed on an interrupt, and report progress.

        Raises _AttemptFailed if it fails or cannot be run.
        """
        log = self.work / "tool.log"
        with log.open("w") as output:
            try:
                tool = subprocess.Popen(
                    command,
                    cwd=self.work,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **java_home(self.java), **environment},
                    start_new_session=True,
                )
            except OSError as error:
                raise _AttemptFailed(f"{command[0]} cannot be run: {error.strerror or error}.") from error
            try:
                status = self._wait(tool)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(tool.pid, signal.SIGKILL)
                tool.wait()
        if status is None:
            raise _AttemptFailed(f"nothing final within {_FETCH_SECONDS} s.")
        if status != 0:
            raise _AttemptFailed(_useful_lines(log.read_text(errors="replace")))

    def _wait(self, tool: subprocess.Popen[bytes]) -> int | None:
        for passed in range(_REPORT_SECONDS, _FETCH_SECONDS + 1, _REPORT_SECONDS):
            try:
                return tool.wait(_REPORT_SECONDS)
            except subprocess.TimeoutExpired:
                self.progress(f"still fetching, {passed} s so far")
        return None


def _with_maven(recipe: Recipe, tool: _Tool) -> Path:
    pom, fetched = tool.work / "pom.xml", tool.work / "fetched"
    pom.write_text(_pom(recipe), encoding="utf-8")
    # -U: otherwise Maven caches for a day that an artifact was missing.
    options = ["-B", "-q", "-U", "-f", str(pom), "-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
    tool.run(["mvn", *options, "dependency:copy-dependencies"])
    return fetched


def _pom(recipe: Recipe) -> str:
    def element(tag: str, coordinate: str, inside: str = "") -> str:
        parts = zip(("groupId", "artifactId", "version"), coordinate.split(":"), strict=False)
        return f"<{tag}>" + "".join(f"<{k}>{escape(v)}</{k}>" for k, v in parts) + inside + f"</{tag}>"

    dependencies = ""
    for request in recipe:
        left_out = "".join(element("exclusion", exclusion) for exclusion in request.exclusions)
        inside = f"<exclusions>{left_out}</exclusions>" if left_out else ""
        dependencies += "".join(element("dependency", c, inside) for c in request.coordinates)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>reconciler</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )


def _with_ivy(recipe: Recipe, tool: _Tool) -> Path:
    """Let spark-submit resolve packages for an empty program, with Spark's own settings for registries."""
    home, ivy, program = _pyspark_home(), tool.work / "ivy", tool.work / "nothing.py"
    program.write_text("", encoding="utf-8")
    spark = {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    submit = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--deploy-mode", "client"]
    submit += ["--conf", f"spark.jars.ivy={ivy}"]
    for request in recipe:
        packages = ["--packages", ",".join(request.coordinates)]
        if request.exclusions:
            packages += ["--exclude-packages", ",".join(request.exclusions)]
        try:
            tool.run([*submit, *packages, str(program)], **spark)
        except _AttemptFailed as failure:
            # Spark reads ~/.m2/repository first, where Maven may have left a description without its jar.
            if "download failed" not in str(failure):
                raise
            shutil.rmtree(ivy / "cache", ignore_errors=True)
            apart = ["--driver-java-options", f"-Duser.home={tool.work}"]
            tool.run([*submit, *apart, *packages, str(program)], **spark)
    return ivy / "jars"


def _pyspark_home() -> Path:
    found = importlib.util.find_spec("pyspark")  # does not import it
    home = Path(found.origin).parent if found and found.origin else None
    if home is None or not (home / "bin" / "spark-submit").is_file():
        raise _AttemptFailed(f"there is no PySpark with its own Spark here. {GET_PYSPARK}")
    return home


def _select(jars: JarSet, recipe: Recipe, fetched: Path, ready: Path) -> Path:
    """Move the wanted jars to ``ready`` under their plain names. Raises _AttemptFailed if one is missing."""
    asked = [coordinate.split(":") for request in recipe for coordinate in request.coordinates]
    prefixes = {f"{group}_" for group, _, _ in asked} | {"org.apache.commons_", "org.apache.kafka_"}
    ready.mkdir()
    for jar in fetched.glob("*.jar"):
        # Ivy writes group_artifact-version.jar; other sets' odd groups may keep it.
        name = jar.name[max((len(p) for p in prefixes if jar.name.startswith(p)), default=0) :]
        if not jars.keep or any(re.fullmatch(rf"{re.escape(k)}-\d[^_]*\.jar", name) for k in jars.keep):
            jar.rename(ready / name)
    if jars.scala_library and not any(ready.glob("scala-library-*.jar")):
        for jar in (_pyspark_home() / "jars").glob("scala-library-2.13.*.jar"):
            shutil.copyfile(jar, ready / jar.name)  # Spark's resolver never brings it, as Spark has its own
        if not any(ready.glob("scala-library-*.jar")):
            raise _AttemptFailed("it leaves out Scala's library, and this PySpark has none for Scala 2.13 (4.0 has).")
    missing = [f"{name}-{version}" for _, name, version in asked if not (ready / f"{name}-{version}.jar").is_file()]
    missing += [name for name in jars.keep if len(list(ready.glob(f"{name}-[0-9]*.jar"))) != 1]
    if missing:
        raise _AttemptFailed(f"it succeeded, but there is not exactly one {', '.join(missing)}.")
    return ready


_NOISE = re.compile(
    r"^\s*(at |\.\.\. \d+ more|::|==|--|\||$)|^\[ERROR\] *(\[Help.*)?$|To see the full stack|Re-run Maven"
    r"|SPARK_LOCAL_IP|For more information|Using incubator|NativeCodeLoader|VERBOSE OR DEBUG|log4j"
)


def _useful_lines(output: str, count: int = 3, width: int = 400) -> str:
    """The last informative lines, joined: without colours, stack frames and advice about options."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines()
    useful = [line.strip() for line in plain if not _NOISE.search(line)]
    errors = [line for line in useful if line.startswith("[ERROR]") or "Exception" in line]
    lines = [line if len(line) <= width else line[:width] + "…" for line in (errors or useful)[-count:]]
    return " / ".join(lines) or "nothing."
