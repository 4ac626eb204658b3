"""The sets of jars, by coordinates."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

from reconciler.core.errors import ConfigError

HADOOP_VERSION = "3.4.1"
HBASE_VERSION = "2.6.1"
KAFKA_VERSION = "4.1.0"
ZOOKEEPER_VERSION = "3.9.5"
GET_PYSPARK = "Install it with: pip install 'pyspark==4.2.0'."
STAND_INS = {"4.3": "4.2.0"}
"""The connector for a minor version of Spark whose own cannot be had, if one of another passed this project's tests."""


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


def zookeeper_set() -> JarSet:
    logging = ("org.slf4j:slf4j-api:2.0.17", "org.slf4j:slf4j-simple:2.0.17")
    # The server needs these two at run time, and its POM does not list them.
    unnamed = ("io.dropwizard.metrics:metrics-core:4.1.12.1", "org.xerial.snappy:snappy-java:1.1.10.5")
    server = f"org.apache.zookeeper:zookeeper:{ZOOKEEPER_VERSION}"
    return JarSet(
        name=f"zookeeper-{ZOOKEEPER_VERSION}",
        title=f"ZooKeeper {ZOOKEEPER_VERSION} (5 MB)",
        recipes=((Request((*logging, *unnamed, server), ("io.netty:*", "ch.qos.logback:*")),),),
    )


def hbase_set() -> JarSet:
    """HBase with its Thrift 1 server, without the parts that a server on local disk does not use."""
    unused = (
        *("org.apache.hadoop:hadoop-distcp", "org.apache.hadoop:hadoop-hdfs", "org.apache.hadoop:hadoop-yarn-client"),
        *("org.apache.hadoop:hadoop-yarn-common", "org.apache.hbase.thirdparty:hbase-shaded-jersey"),
        *("org.glassfish.web:*", "org.glassfish:*", "javax.servlet.jsp:*", "com.sun.jersey:*", "org.eclipse.jetty:*"),
        *("com.sun.jersey.contribs:*", "com.github.pjfanning:*", "org.apache.curator:*", "org.apache.kerby:*"),
        *("com.google.inject.extensions:*", "com.google.inject:*", "com.google.guava:*", "com.google.code.gson:*"),
        *("com.nimbusds:*", "net.minidev:*", "org.apache.avro:*", "com.jcraft:*", "dnsjava:*", "org.jline:*"),
        *("com.squareup.okhttp3:*", "io.netty:netty"),
    )
    # There is no Thrift server built for Hadoop 3. The plain one works, but its dependencies would conflict.
    of_the_server = tuple(
        f"org.apache.hbase:{name}"
        for name in (
            "hbase-common",
            "hbase-protocol",
            "hbase-client",
            "hbase-server",
            "hbase-hadoop-compat",
            "hbase-hadoop2-compat",
        )
    )
    provided = (
        *("org.apache.hbase.thirdparty:*", "org.slf4j:*", "org.apache.commons:*", "org.apache.thrift:*"),
        *("javax.servlet:*", "org.glassfish.web:*", "org.glassfish:*", "org.apache.yetus:*", "org.apache.hadoop:*"),
    )
    server = Request((f"org.apache.hbase:hbase-server:{HBASE_VERSION}-hadoop3",), unused)
    thrift_server = Request((f"org.apache.hbase:hbase-thrift:{HBASE_VERSION}",), (*of_the_server, *provided))
    thrift = Request(
        ("org.apache.thrift:libthrift:0.14.1",),
        ("org.apache.tomcat.embed:*", "org.apache.httpcomponents:*", "javax.annotation:*", "org.slf4j:*"),
    )
    return JarSet(
        name=f"hbase-{HBASE_VERSION}",
        title=f"HBase {HBASE_VERSION} (77 MB)",
        recipes=((server, thrift_server, thrift),),
    )


def hdfs_set() -> JarSet:
    """HDFS in one process: Hadoop's own small cluster for tests, with its dependencies inside."""
    logging = ("org.slf4j:slf4j-api:2.0.17", "org.slf4j:slf4j-simple:2.0.17")
    unused = (
        "junit:junit",
        "org.hamcrest:*",
        "com.google.code.findbugs:*",
        "org.xerial.snappy:*",
        "javax.activation:*",
    )
    # WebHDFS needs it, and Java 11 removed it.
    jaxb = "javax.xml.bind:jaxb-api:2.3.1"
    cluster = f"org.apache.hadoop:hadoop-client-minicluster:{HADOOP_VERSION}"
    return JarSet(
        name=f"hdfs-{HADOOP_VERSION}",
        title=f"HDFS {HADOOP_VERSION} (90 MB)",
        recipes=((Request((*logging, jaxb, cluster), unused),),),
    )


def connector_set(version: str) -> JarSet:
    connector, token = "spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13"
    # Spark has these already, and one driver must not load two versions.
    in_the_wheel = (
        *("org.apache.hadoop:*", "org.scala-lang:*", "org.scala-lang.modules:*", "org.slf4j:*"),
        *("at.yawk.lz4:*", "org.lz4:*", "org.xerial.snappy:*", "com.github.luben:*"),
        *("com.google.code.findbugs:*", "org.apache.spark:spark-tags_2.13"),
    )

    def recipes(release: str) -> tuple[Recipe, Recipe]:
        wanted = (f"org.apache.spark:{connector}:{release}",)
        plain = (Request(wanted, in_the_wheel),)
        # Some registries lack newer token providers. That of 4.0.0 works for the later connectors, which use it only
        # for delegation tokens. There are two requests because Ivy's exclusions also remove requested artifacts.
        with_old_token = (
            Request(wanted, (*in_the_wheel, f"org.apache.spark:{token}")),
            Request((f"org.apache.spark:{token}:4.0.0",), (*in_the_wheel, "org.apache.kafka:*")),
        )
        return plain, with_old_token

    # A connector of another minor version loads and then fails; another patch release works. So do the stand-ins.
    minor = ".".join(version.split(".")[:2])
    releases = dict.fromkeys((version, f"{minor}.0", *(stand_in for of, stand_in in STAND_INS.items() if of == minor)))
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
    if int(version.split(".")[0]) < 4:
        raise ConfigError(
            f"PySpark {version} is installed, and this product needs 4.0 or newer.",
            hint=GET_PYSPARK,
        )
    return version
