"""The sets of jars, by coordinates."""

from __future__ import annotations

import importlib.metadata
import re
from dataclasses import dataclass

from reconciler.core.errors import ConfigError

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
