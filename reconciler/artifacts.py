"""Jars this product runs but does not ship: fetched once, kept in a cache, checked before every use.

There are several sets: Kafka itself (broker, MirrorMaker; for ``reconciler demo`` and the tests), Spark's Kafka
connector (for PySpark jobs), and ZooKeeper (for the tests). Maven fetches them where it is installed; otherwise,
and also when Maven fails, the Ivy resolver inside PySpark does. Where either looks for jars is its own
configuration; nothing here names a registry.

A set is fetched into a directory beside its place and renamed when it is whole. Its manifest names every
file with its size, so a torn directory is fetched again, never used. One process fetches at a time; a warm
start only reads the manifest and the files' sizes.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.sax.saxutils import escape

from reconciler.core.errors import ConfigError, Unreachable

Progress = Callable[[str], None]
Way = Literal["auto", "maven", "ivy"]

KAFKA_VERSION = "4.1.0"
ZOOKEEPER_VERSION = "3.9.5"
MINIMUM_JAVA = 17
_MANIFEST = "manifest.json"
_FETCH_SECONDS = 900
_REPORT_SECONDS = 15
_GET_PYSPARK = "Install it with: pip install 'pyspark==4.2.0'."


@dataclass(frozen=True, slots=True)
class Request:
    """Coordinates ``group:artifact:version``, and what they need but shall not bring (``group:artifact``)."""

    coordinates: tuple[str, ...]
    exclusions: tuple[str, ...] = ()


Recipe = tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class JarSet:
    """A set by its name in the cache. Recipes are tried in order; ``keep`` names the only artifacts wanted."""

    name: str
    title: str
    recipes: tuple[Recipe, ...]
    keep: tuple[str, ...] = ()
    scala_library: bool = False

    def definition(self) -> list[list[list[str]]]:
        """What the manifest must repeat for a cached directory to be this set."""
        return [[[*request.coordinates, "without", *request.exclusions] for request in r] for r in self.recipes]


class _AttemptFailed(Exception):
    """One way of fetching did not work; the message is what the tool said."""


# ---------------------------------------------------------------- the sets


def kafka_jars(progress: Progress, *, way: Way = "auto") -> Path:
    """The directory with everything a Kafka broker and MirrorMaker need on their class path."""
    return _cached(_kafka_set(), progress, way)


def spark_kafka_connector(progress: Progress, *, way: Way = "auto") -> list[Path]:
    """The four jars that PySpark's wheel lacks for Kafka, in the installed PySpark's version."""
    return sorted(_cached(_connector_set(_pyspark_version()), progress, way).glob("*.jar"))


def _kafka_set() -> JarSet:
    artifacts = ("kafka_2.13", "kafka-tools", "connect-mirror", "connect-runtime")
    kafka = tuple(f"org.apache.kafka:{artifact}:{KAFKA_VERSION}" for artifact in artifacts)
    # Kafka asks for slf4j 1.7, its Jetty for 2.0: Maven would take the former, Ivy the latter. Naming the newer
    # API and its binding makes both choose the same, and gives the servers' logs something to say.
    logging = ("org.slf4j:slf4j-api:2.0.17", "org.slf4j:slf4j-simple:2.0.17")
    return JarSet(
        name=f"kafka-{KAFKA_VERSION}",
        title=f"Kafka {KAFKA_VERSION} (54 MB)",
        recipes=((Request(logging + kafka),),),
        scala_library=True,
    )


def zookeeper_jars(progress: Progress, *, way: Way = "auto") -> Path:
    """The directory with everything a ZooKeeper server needs on its class path."""
    return _cached(_zookeeper_set(), progress, way)


def _zookeeper_set() -> JarSet:
    logging = ("org.slf4j:slf4j-api:2.0.17", "org.slf4j:slf4j-simple:2.0.17")
    # The server asks for these two at run time, and its description of itself does not name them.
    unnamed = ("io.dropwizard.metrics:metrics-core:4.1.12.1", "org.xerial.snappy:snappy-java:1.1.10.5")
    server = f"org.apache.zookeeper:zookeeper:{ZOOKEEPER_VERSION}"
    return JarSet(
        name=f"zookeeper-{ZOOKEEPER_VERSION}",
        title=f"ZooKeeper {ZOOKEEPER_VERSION} (5 MB)",
        recipes=((Request((*logging, *unnamed, server), ("io.netty:*", "ch.qos.logback:*")),),),
    )


def _connector_set(version: str) -> JarSet:
    connector, token = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"
    # Spark has these already, and two versions of them must not meet in one driver.
    in_the_wheel = (
        *("org.apache.hadoop:*", "org.scala-lang:*", "org.scala-lang.modules:*", "org.slf4j:*"),
        *("at.yawk.lz4:*", "org.lz4:*", "org.xerial.snappy:*", "com.github.luben:*"),
        *("com.google.code.findbugs:*", "org.apache.spark:spark-tags_2.13"),
    )

    def recipes(release: str) -> tuple[Recipe, Recipe]:
        wanted = (f"org.apache.spark:{connector}:{release}",)
        plain = (Request(wanted, in_the_wheel),)
        # Some registries lack newer token providers. 4.0.0's passes for the later connectors: they ask it for
        # delegation tokens only. The two are apart because Ivy's exclusions also strike what was asked for.
        with_old_token = (
            Request(wanted, (*in_the_wheel, f"org.apache.spark:{token}")),
            Request((f"org.apache.spark:{token}:4.0.0",), (*in_the_wheel, "org.apache.kafka:*")),
        )
        return plain, with_old_token

    # A connector of another minor version loads and then fails; another patch release of the same one fits.
    first = ".".join(version.split(".")[:2]) + ".0"
    releases = dict.fromkeys((version, first))
    return JarSet(
        name=f"spark-kafka-{version}",
        title=f"Spark's Kafka connector {version} (10 MB)",
        recipes=tuple(recipe for release in releases for recipe in recipes(release)),
        keep=(connector, token, "kafka-clients", "commons-pool2"),
    )


def _pyspark_version() -> str:
    try:
        version = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError("PySpark is not installed here.", hint=_GET_PYSPARK) from None
    if int(version.split(".")[0]) < 4:
        raise ConfigError(
            f"PySpark {version} is installed, and this product needs 4.0 or newer.",
            hint=_GET_PYSPARK,
        )
    return version


# ---------------------------------------------------------------- the cache


def cache_directory() -> Path:
    """Where fetched jars are kept: ``$RECONCILER_CACHE``, else the user's cache directory."""
    if own := os.environ.get("RECONCILER_CACHE"):
        return Path(own).absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache"
    return base / "failover-offset-reconciler"


def _cached(jars: JarSet, progress: Progress, way: Way) -> Path:
    directory = cache_directory() / jars.name
    if _is_whole(directory, jars):
        return directory
    java = java_executable()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(directory.parent / f".{jars.name}.lock", jars, progress):
            if not _is_whole(directory, jars):
                _fill(directory, jars, progress, way, java)
    except OSError as error:
        raise ConfigError(
            f"The cache {directory.parent} cannot be written: {error.strerror or error}.",
            hint="Make room or give the permission, or set RECONCILER_CACHE to another directory.",
        ) from error
    return directory


def _is_whole(directory: Path, jars: JarSet) -> bool:
    try:
        manifest = json.loads((directory / _MANIFEST).read_text(encoding="utf-8"))
        if manifest["set"] != jars.definition():
            return False
        return all((directory / name).stat().st_size == size for name, size in manifest["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


@contextlib.contextmanager
def _only_one(lock: Path, jars: JarSet, progress: Progress) -> Iterator[None]:
    """Hold the set's lock. The kernel releases it when its holder dies, so it can never be stale."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"another process is fetching {jars.title}; waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _fill(directory: Path, jars: JarSet, progress: Progress, way: Way, java: Path) -> None:
    for left_over in directory.parent.glob(f".{jars.name}.*.part"):
        shutil.rmtree(left_over, ignore_errors=True)  # a killed process's: as the lock is ours, nobody is there
    with tempfile.TemporaryDirectory(
        dir=directory.parent, prefix=f".{jars.name}.", suffix=".part", ignore_cleanup_errors=True
    ) as scratch:
        ready, taken = _fetch(jars, Path(scratch), progress, way, java)
        files = {jar.name: jar.stat().st_size for jar in sorted(ready.glob("*.jar"))}
        manifest = {"set": jars.definition(), "fetched_by": taken, "files": files}
        (ready / _MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        if directory.exists():  # torn: out of the way first, as a rename cannot replace a full directory
            directory.rename(Path(scratch) / "torn")
        ready.rename(directory)
    progress(f"{jars.title} is in {directory}")


# ---------------------------------------------------------------- fetching


def _fetch(jars: JarSet, scratch: Path, progress: Progress, way: Way, java: Path) -> tuple[Path, str]:
    """Try each way, and with each way each recipe: the directory of wanted jars, and the way that worked."""
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
        f"registry has this version; then run it again. Or copy a filled cache to {cache_directory()}.",
    )


def _ways(way: Way) -> list[tuple[str, Callable[[Recipe, _Tool], Path]]]:
    maven, ivy = ("Maven", _with_maven), ("PySpark's resolver", _with_ivy)
    if way == "ivy":
        return [ivy]
    if shutil.which("mvn") is None:
        if way == "maven":
            raise ConfigError("Maven was asked for, and there is no mvn on the PATH.", hint="Install Maven.")
        return [ivy]
    return [maven] if way == "maven" else [maven, ivy]


@dataclass(frozen=True, slots=True)
class _Tool:
    """Runs one attempt's commands in its own directory."""

    work: Path
    progress: Progress
    java: Path

    def run(self, command: list[str], **environment: str) -> None:
        """Run it in a group of its own, so that nothing outlives an interrupt; say now and then that it runs."""
        log = self.work / "tool.log"
        with log.open("w") as output:
            tool = subprocess.Popen(
                command,
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_java_home(self.java), **environment},
                start_new_session=True,
            )
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
    # -U: Maven remembers for a day that something was not there; whoever tries again has a reason to.
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
    """Let spark-submit resolve packages for an empty program: Spark's own settings for registries hold."""
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
            # Spark looks into ~/.m2/repository first, where Maven may have left a description without its jar.
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
        raise _AttemptFailed(f"there is no PySpark with its own Spark here. {_GET_PYSPARK}")
    return home


def _select(jars: JarSet, recipe: Recipe, fetched: Path, ready: Path) -> Path:
    """Move the wanted jars to ``ready`` under their plain names, and insist on those that were named."""
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
    missing = [f"{name}-{version}" for _, name, version in asked if not (ready / f"{name}-{version}.jar").is_file()]
    missing += [name for name in jars.keep if len(list(ready.glob(f"{name}-[0-9]*.jar"))) != 1]
    if missing:
        raise _AttemptFailed(f"it ended well, and yet there is not exactly one {', '.join(missing)}.")
    return ready


_NOISE = re.compile(
    r"^\s*(at |\.\.\. \d+ more|::|==|--|\||$)|^\[ERROR\] *(\[Help.*)?$|To see the full stack|Re-run Maven"
    r"|SPARK_LOCAL_IP|For more information|Using incubator|NativeCodeLoader|VERBOSE OR DEBUG|log4j"
)


def _useful_lines(output: str, count: int = 3, width: int = 400) -> str:
    """The last lines that say something, as one: no colours, no stack frames, no advice about switches."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines()
    useful = [line.strip() for line in plain if not _NOISE.search(line)]
    errors = [line for line in useful if line.startswith("[ERROR]") or "Exception" in line]
    lines = [line if len(line) <= width else line[:width] + "…" for line in (errors or useful)[-count:]]
    return " / ".join(lines) or "nothing."


# ---------------------------------------------------------------- Java


def java_executable() -> Path:
    """A Java that is new enough: that of JAVA_HOME, else the first on the PATH."""
    home = os.environ.get("JAVA_HOME")
    places = [os.path.join(home, "bin", "java")] if home else []
    places += [found] if (found := shutil.which("java")) else []
    too_old: list[str] = []
    for place in places:
        version = _java_version(place)
        if version is not None and version >= MINIMUM_JAVA:
            return Path(place)
        if version is not None:
            too_old.append(f"{place} is Java {version}")
    what = f"Java {MINIMUM_JAVA} or newer is needed, and " + ("; ".join(too_old) or "there is none here")
    raise ConfigError(
        what + ".",
        hint=f"Install one (Debian and Ubuntu: openjdk-{MINIMUM_JAVA}-jre-headless, Fedora: "
        f"java-{MINIMUM_JAVA}-openjdk-headless, macOS: openjdk@{MINIMUM_JAVA}) and put it on the PATH, or set "
        "JAVA_HOME.",
    )


def _java_version(executable: str) -> int | None:
    """The feature release, 8 for "1.8"; None where nothing there runs as Java."""
    try:
        said = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, errors="replace", timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found[1]) if found else None


def _java_home(java: Path) -> dict[str, str]:
    """What makes Maven and Spark use that very Java. A version manager's shim sits in no home: nothing then."""
    real = java.resolve()
    return {"JAVA_HOME": str(real.parent.parent)} if real.parent.name == "bin" else {}
