"""Jars that this product runs but does not ship: downloaded once, cached, and checked before every use.

In: the coordinates of a set. Out: a directory of jars, whole and of the sizes that were downloaded.

There are two sets: Kafka itself (broker, MirrorMaker; for ``reconciler demo``) and Spark's Kafka connector
(for PySpark jobs). Maven downloads them if it is installed; if it is missing or fails, the Ivy resolver inside PySpark
does. Each uses its own configuration of registries; nothing here names one.

A set is downloaded into a directory beside its final one and renamed when it is complete. Its manifest lists every file
with its size, so an incomplete directory is downloaded again, never used. One process downloads at a time; a warm start
only reads the manifest and the files' sizes.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from xml.sax.saxutils import escape

from reconciler.core.errors import ConfigError, Unreachable

KAFKA_VERSION = "4.3.1"
GET_PYSPARK = "Install it with: pip install 'pyspark==4.2.0'."
STAND_INS = {"4.3": "4.2.0"}
"""The connector for a minor version of Spark whose own cannot be had, if one of another passed this project's tests."""

OLDEST_SPARK = (3, 5)
OLD_TOKEN = {"2.12": "3.5.0", "2.13": "4.0.0"}
"""The oldest token provider for each version of Scala."""


@dataclass(frozen=True, slots=True)
class Request:
    """Coordinates ``group:artifact:version``, and the dependencies to leave out (``group:artifact``)."""

    coordinates: tuple[str, ...]
    exclusions: tuple[str, ...] = ()


Recipe = tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class JarSet:
    """A set with its name in the cache. Recipes are tried in order; only artifacts in ``keep`` are kept, if any."""

    name: str
    title: str
    recipes: tuple[Recipe, ...]
    keep: tuple[str, ...] = ()
    scala_library: bool = False

    def definition(self) -> list[list[list[str]]]:
        """The part of the manifest that identifies this set."""
        return [[[*request.coordinates, "without", *request.exclusions] for request in r] for r in self.recipes]


def kafka_set() -> JarSet:
    artifacts = ("kafka_2.13", "kafka-tools", "connect-mirror", "connect-runtime")
    kafka = tuple(f"org.apache.kafka:{artifact}:{KAFKA_VERSION}" for artifact in artifacts)
    # Kafka depends on slf4j 1.7, its Jetty on 2.0: Maven would take the former, Ivy the latter. Requesting the newer
    # API and its binding makes both choose the same, and enables the servers' logs.
    logging = ("org.slf4j:slf4j-api:2.0.17", "org.slf4j:slf4j-simple:2.0.17")
    return JarSet(
        name=f"kafka-{KAFKA_VERSION}",
        title=f"Kafka {KAFKA_VERSION} (54 MB)",
        recipes=((Request(logging + kafka),),),
        scala_library=True,
    )


def scala_of(pyspark_version: str) -> str:
    """The Scala version that a wheel of PySpark is built for: its jars carry it in their names."""
    return "2.12" if int(pyspark_version.split(".")[0]) < 4 else "2.13"


def connector_set(version: str) -> JarSet:
    scala = scala_of(version)
    connector, token = f"spark-sql-kafka-0-10_{scala}", f"spark-token-provider-kafka-0-10_{scala}"
    # Spark has these already, and one driver must not load two versions.
    in_the_wheel = (
        *("org.apache.hadoop:*", "org.scala-lang:*", "org.scala-lang.modules:*", "org.slf4j:*"),
        *("at.yawk.lz4:*", "org.lz4:*", "org.xerial.snappy:*", "com.github.luben:*"),
        *("com.google.code.findbugs:*", f"org.apache.spark:spark-tags_{scala}"),
    )

    def recipes(release: str) -> tuple[Recipe, Recipe]:
        wanted = (f"org.apache.spark:{connector}:{release}",)
        plain = (Request(wanted, in_the_wheel),)
        # Some registries lack newer token providers. The oldest works for the later connectors, which use it only for
        # delegation tokens. There are two requests because Ivy's exclusions also remove requested artifacts.
        with_old_token = (
            Request(wanted, (*in_the_wheel, f"org.apache.spark:{token}")),
            Request((f"org.apache.spark:{token}:{OLD_TOKEN[scala]}",), (*in_the_wheel, "org.apache.kafka:*")),
        )
        return plain, with_old_token

    # A connector of another minor version loads and then fails. An earlier patch release works; so do the stand-ins.
    # The newest comes first: with that of 4.1.0, PySpark 4.1.4 cannot repeat a batch (NullPointerException).
    minor = ".".join(version.split(".")[:2])
    patch = int(match[1]) if (match := re.match(r"\d+\.\d+\.(\d+)", version)) else 0
    earlier = (f"{minor}.{number}" for number in (patch - 1, patch - 2, 0) if 0 <= number < patch)
    stand_ins = (stand_in for of, stand_in in STAND_INS.items() if of == minor)
    releases = dict.fromkeys((version, *earlier, *stand_ins))
    return JarSet(
        name=f"spark-kafka-{version}",
        title=f"Spark's Kafka connector {version} (10 MB)",
        recipes=tuple(recipe for release in releases for recipe in recipes(release)),
        keep=(connector, token, "kafka-clients", "commons-pool2"),
    )


def pyspark_version() -> str:
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError("PySpark is not installed here.", hint=GET_PYSPARK) from None
    if tuple(map(int, version.split(".")[:2])) < OLDEST_SPARK:
        raise ConfigError(
            f"PySpark {version} is installed, and this product needs 3.5 or newer.",
            hint=GET_PYSPARK,
        )
    return version


MINIMUM_JAVA = 17


def java_executable() -> Path:
    """A Java of at least ``MINIMUM_JAVA``: that of JAVA_HOME, else the first on the PATH. Raises ConfigError."""
    home = os.environ.get("JAVA_HOME")
    places = [os.path.join(home, "bin", "java")] if home else []
    places += [found] if (found := shutil.which("java")) else []
    versions = {place: version for place in places if (version := _version_of(place))}
    for place, version in versions.items():
        if version >= MINIMUM_JAVA:
            return Path(place)
    found_here = "; ".join(f"{place} is Java {version}" for place, version in versions.items())
    raise ConfigError(
        f"Java {MINIMUM_JAVA} or newer is needed, and {found_here or 'there is none here'}.",
        hint=f"Install one (Debian and Ubuntu: openjdk-{MINIMUM_JAVA}-jre-headless, Fedora: "
        f"java-{MINIMUM_JAVA}-openjdk-headless, macOS: openjdk@{MINIMUM_JAVA}) and put it on the PATH, or set "
        "JAVA_HOME.",
    )


@lru_cache(maxsize=8)
def _version_of(executable: str) -> int | None:
    """The feature release, 8 for "1.8"; None if it does not run as Java. Asked once: a lab starts dozens of JVMs."""
    try:
        answer = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, errors="replace", timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def java_home(java: Path) -> dict[str, str]:
    """The environment that makes Maven and Spark use this Java; empty for a version manager's shim."""
    real = java.resolve()
    return {"JAVA_HOME": str(real.parent.parent)} if real.parent.name == "bin" else {}


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


_MANIFEST = "manifest.json"


def cache_directory() -> Path:
    """The cache's directory: ``$RECONCILER_CACHE``, else in the user's cache directory."""
    if own := os.environ.get("RECONCILER_CACHE"):
        return Path(own).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return base / "failover-offset-reconciler"


def cached(jars: JarSet, progress: Progress) -> Path:
    """The directory of a set, downloaded if needed. Raises ConfigError if the cache is not writable.

    One process downloads a set at a time. The kernel releases the lock when its holder dies.
    """
    directory = cache_directory() / jars.name
    if _is_complete(directory, jars):
        return directory
    java = java_executable()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with (directory.parent / f".{jars.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_complete(directory, jars):
                _fill(directory, jars, progress, java)
    except OSError as error:
        raise ConfigError(
            f"The cache {directory.parent} cannot be written: {error.strerror or error}.",
            hint="Free some space, grant the permission, or set RECONCILER_CACHE to another directory.",
        ) from error
    return directory


def _is_complete(directory: Path, jars: JarSet) -> bool:
    try:
        manifest = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["set"] != jars.definition():
            return False
        return all((directory / name).stat().st_size == size for name, size in manifest["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _fill(directory: Path, jars: JarSet, progress: Progress, java: Path) -> None:
    """Download it into a directory beside its final one, and rename that once it is complete."""
    scratch = directory.parent / f".{jars.name}.part"
    shutil.rmtree(scratch, ignore_errors=True)  # of a killed process: this one has the lock
    scratch.mkdir()
    try:
        ready, tool = fetch(jars, scratch, progress, java)
        files = {jar.name: jar.stat().st_size for jar in sorted(ready.glob("*.jar"))}
        manifest = {"set": jars.definition(), "fetched_by": tool, "files": files}
        (ready / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        if directory.exists():  # incomplete; a rename cannot replace a non-empty directory
            directory.rename(scratch / "torn")
        ready.rename(directory)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    progress(f"{jars.title} is in {directory}")


def kafka_jars(progress: Progress) -> Path:
    """The directory of a class path for a Kafka broker and MirrorMaker."""
    return cached(kafka_set(), progress)


def spark_kafka_connector(progress: Progress) -> list[Path]:
    """The four jars for Kafka that PySpark's wheel lacks, in the installed PySpark's version, else its stand-in's."""
    return sorted(cached(connector_set(pyspark_version()), progress).glob("*.jar"))
