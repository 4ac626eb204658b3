"""Downloads of a set of jars: with Maven if it is installed, else with the Ivy resolver inside PySpark."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

from reconciler.artifacts.java import java_home
from reconciler.artifacts.sets import GET_PYSPARK, JarSet, Recipe
from reconciler.core.errors import Unreachable

Progress = Callable[[str], None]
_FETCH_SECONDS = 900


class _AttemptFailed(Exception):
    """One way to download failed; the message is the tool's output."""


def fetch(jars: JarSet, scratch: Path, progress: Progress, java: Path) -> tuple[Path, str]:
    """Try each recipe with each tool; returns the directory of the wanted jars, and the name of the tool."""
    tools = {"Maven": _with_maven} if shutil.which("mvn") else {}
    reasons: dict[str, str] = {}
    for name, resolve in {**tools, "PySpark's resolver": _with_ivy}.items():
        for number, recipe in enumerate(jars.recipes):
            work = Path(tempfile.mkdtemp(dir=scratch))
            main = recipe[0].coordinates[0].rsplit(":", 1)[-1]
            progress(f"fetching {jars.title} with {name}" + (f", try {number + 1} ({main})" if number else ""))
            try:
                return _select(jars, recipe, resolve(recipe, work, java), work / "ready"), name
            except _AttemptFailed as failure:
                reasons[name] = str(failure)
    raise Unreachable(
        f"{jars.title} could not be fetched. " + " ".join(f"{name} said: {why}" for name, why in reasons.items()),
        hint="Check that this machine reaches its registry of Java packages (~/.m2/settings.xml for Maven; "
        "spark.jars.repositories or spark.jars.ivySettings in spark-defaults.conf for PySpark), and that the "
        f"registry has this version; then run it again. Or copy a filled cache to {scratch.parent}.",
    )


def _run(command: list[str], work: Path, java: Path, **environment: str) -> None:
    """Raises _AttemptFailed if the command fails or cannot be run."""
    environ = {**os.environ, **java_home(java), **environment}
    try:
        done = subprocess.run(
            command,
            cwd=work,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_FETCH_SECONDS,
            check=False,
        )
    except OSError as error:
        raise _AttemptFailed(f"{command[0]} cannot be run: {error.strerror or error}.") from error
    except subprocess.TimeoutExpired:
        raise _AttemptFailed(f"nothing final within {_FETCH_SECONDS} s.") from None
    if done.returncode != 0:
        raise _AttemptFailed(_useful_lines(done.stdout + done.stderr))


def _with_maven(recipe: Recipe, work: Path, java: Path) -> Path:
    pom, fetched = work / "pom.xml", work / "fetched"
    pom.write_text(_pom(recipe), encoding="utf-8")
    # -U: otherwise Maven caches for a day that an artifact was missing.
    options = ["-B", "-q", "-U", "-f", str(pom), "-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
    _run(["mvn", *options, "dependency:copy-dependencies"], work, java)
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


def _with_ivy(recipe: Recipe, work: Path, java: Path) -> Path:
    """Let spark-submit resolve packages for an empty program, with Spark's own settings for registries."""
    home, ivy, program = _pyspark_home(), work / "ivy", work / "nothing.py"
    program.write_text("", encoding="utf-8")
    # Spark reads ~/.m2/repository first, where Maven may have left a description without its jar.
    submit = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--deploy-mode", "client"]
    submit += ["--driver-java-options", f"-Duser.home={work}", "--conf", f"spark.jars.ivy={ivy}"]
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    for request in recipe:
        packages = ["--packages", ",".join(request.coordinates)]
        if request.exclusions:
            packages += ["--exclude-packages", ",".join(request.exclusions)]
        _run([*submit, *packages, str(program)], work, java, SPARK_HOME=str(home), **python)
    return ivy / "jars"


def _pyspark_home() -> Path:
    found = importlib.util.find_spec("pyspark")  # does not import it
    home = Path(found.origin).parent if found and found.origin else None
    if home is None or not (home / "bin" / "spark-submit").is_file():
        raise _AttemptFailed(f"there is no PySpark with its own Spark here. {GET_PYSPARK}")
    return home


def _select(jars: JarSet, recipe: Recipe, fetched: Path, ready: Path) -> Path:
    """Move the wanted jars to ``ready`` under their plain names. Raises _AttemptFailed if one is missing."""
    wanted = [coordinate.split(":") for request in recipe for coordinate in request.coordinates]
    prefixes = {f"{group}_" for group, _, _ in wanted} | {"org.apache.commons_", "org.apache.kafka_"}
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
    missing = [f"{name}-{version}" for _, name, version in wanted if not (ready / f"{name}-{version}.jar").is_file()]
    missing += [name for name in jars.keep if len(list(ready.glob(f"{name}-[0-9]*.jar"))) != 1]
    if missing:
        raise _AttemptFailed(f"it succeeded, but there is not exactly one {', '.join(missing)}.")
    return ready


def _useful_lines(output: str, count: int = 3, width: int = 400) -> str:
    """The last informative lines, joined: without colours, stack frames and advice about options."""
    plain = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines()]
    telling = re.compile(r"^\[ERROR\] (?!\[Help|Re-run|To see)|Exception|download failed")
    errors = [line for line in plain if telling.search(line) and not line.startswith("at ")]
    return " / ".join(line[:width] for line in (errors or plain)[-count:]) or "nothing."
