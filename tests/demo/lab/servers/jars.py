"""The jars of the servers that only tests start: ZooKeeper, HBase and HDFS, cached as the product's own are."""

from __future__ import annotations

from pathlib import Path

from reconciler.artifacts import JarSet, Request, cached

HADOOP_VERSION = "3.4.1"
HBASE_VERSION = "2.6.1"
ZOOKEEPER_VERSION = "3.9.5"


def zookeeper_jars() -> Path:
    """The directory of a class path for a ZooKeeper server."""
    return cached(zookeeper_set(), print)


def hbase_jars() -> Path:
    """The directory of a class path for HBase and its Thrift 1 server."""
    return cached(hbase_set(), print)


def hdfs_jars() -> Path:
    """The directory of a class path for HDFS."""
    return cached(hdfs_set(), print)


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
