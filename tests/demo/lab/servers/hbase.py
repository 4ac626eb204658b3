"""A standalone HBase with its Thrift 1 server on this machine, for the tests.

Two processes: HBase itself (master, region server and its ZooKeeper in one) and the Thrift server, which clients talk
to. Each can be killed and frozen alone. What HBase has acknowledged outlives its process: the raw local file system
hands every edit of the write-ahead log to the kernel, where Hadoop's default one keeps some in the process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self
from xml.sax.saxutils import escape

from reconciler.artifacts import java_executable
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.demo.lab.kafka import HOST, QUICK_JVM, free_ports, sharing
from reconciler.demo.lab.processes import Child
from tests.demo.lab.lasting import started

START_SECONDS = 180
# HBase 2.6 reaches into parts of the JDK that modules have closed since.
_OPEN_MODULES = (
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
    "--add-modules=jdk.unsupported",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
)
_LOGGING = """\
log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c{1}: %m%n
"""


class HBase:
    """HBase on ports of its own, with its data below ``directory``. ``region`` and ``thrift`` are its processes.

    ``jvm``: options for HBase itself, instead of those for the archive of its classes.
    """

    def __init__(self, directory: Path, jars: Path, *, jvm: Sequence[str] = ()) -> None:
        self.directory = directory.absolute()
        self._jars = jars
        self._jvm = jvm
        self._ports: tuple[int, ...] | None = None
        self._answered = False
        self._region: Child | None = None
        self._thrift: Child | None = None

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start what does not run, and wait until it answers. The second start finds the first one's data."""
        self._launch()
        self._wait()
        return self

    def stop(self) -> None:
        """At once: nothing here is worth the ten seconds of an orderly end, and the data survive it."""
        self.kill()

    def kill(self) -> None:
        """The disaster: both processes gone between two instructions."""
        for child in (self._thrift, self._region):
            if child is not None:
                child.kill()

    def restart(self) -> Self:
        """Up again after ``stop`` or ``kill`` (or stopped first): the same ports, the same data."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze the Thrift server: connections stay open, nothing is answered."""
        self.thrift.pause()

    def resume(self) -> None:
        self.thrift.resume()

    def __enter__(self) -> Self:
        return self if self._answered else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def region(self) -> Child:
        """HBase itself."""
        return _running(self._region)

    @property
    def thrift(self) -> Child:
        """The server that clients talk to."""
        return _running(self._thrift)

    @property
    def port(self) -> int:
        """The Thrift server's."""
        if self._ports is None:
            raise ConfigError("HBase has no address yet.", hint="Start it first.")
        return self._ports[0]

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    # ------------------------------------------------------------ use

    def connection(self, *, timeout_s: float = 30.0) -> Any:
        """A plain client's connection (happybase's)."""
        import happybase

        return happybase.Connection(HOST, self.port, timeout=round(timeout_s * 1000))

    def create_namespace(self, name: str) -> None:
        """Make a namespace. It takes a JDK's compiler, which Debian's runtime environments have, too."""
        source = Path(__file__).with_name("HBaseNamespace.java")
        command = self._command(str(source), name, heap="128m")
        child = Child("Making a namespace", command, self.directory / "namespace.log", cwd=self.directory)
        if child.wait(START_SECONDS) != 0:
            raise Unreachable(f"{child.name} failed.", hint=f"Its log, {child.log}, ends: {child.log_tail()}")

    # ------------------------------------------------------------ starting

    def _launch(self) -> None:
        if self._ports is None:
            self._ports = free_ports(4)
        settings = self.directory / "conf"
        settings.mkdir(parents=True, exist_ok=True)
        (settings / "hbase-site.xml").write_text(_as_xml(self._settings(self._ports)), encoding="utf-8")
        (settings / "log4j.properties").write_text(_LOGGING, encoding="utf-8")
        if self._region is None or not self._region.running:
            main = "org.apache.hadoop.hbase.master.HMaster"
            self._region = self._child("HBase", self._command(main, "start", heap="384m", jvm=self._jvm), "hbase.log")
        if self._thrift is None or not self._thrift.running:
            main = "org.apache.hadoop.hbase.thrift.ThriftServer"
            self._thrift = self._child("HBase's Thrift server", self._command(main, "start", heap="128m"), "thrift.log")

    def _child(self, name: str, command: list[str], log: str) -> Child:
        return started(lambda: Child(name, command, self.directory / log, cwd=self.directory))

    def _wait(self) -> None:
        self.region.wait_until(self._answers, START_SECONDS, "its first answer")
        self._answered = True

    def _answers(self) -> bool:
        """True once the master says which tables there are, and rows can be read; until then calls fail, or hang."""
        if not self.thrift.running:
            self.thrift.wait_until(lambda: None, 0, "its first answer")
        with contextlib.suppress(Exception):
            connection = self.connection(timeout_s=5)
            try:
                connection.tables()
                connection.table("hbase:meta").row(b"none")
                return True
            finally:
                connection.close()
        return False

    def _command(self, main: str, *arguments: str, heap: str, jvm: Sequence[str] = ()) -> list[str]:
        """``jvm``: as the class's. A JVM that writes an archive has no folder on its class path.

        One that uses an archive may have more on it than that one had, behind the jars.
        """
        java, settings = java_executable(), self.directory / "conf"
        command = [str(java), *QUICK_JVM, *(jvm or sharing(self._jars)), "-XX:+IgnoreUnrecognizedVMOptions"]
        command += [*_OPEN_MODULES, f"-Dlog4j.configuration=file:{settings / 'log4j.properties'}", f"-Xmx{heap}"]
        if jvm:
            return [*command, "-cp", f"{self._jars}/*", main, "-conf", str(settings / "hbase-site.xml"), *arguments]
        return [*command, "-cp", f"{self._jars}/*:{settings}", main, *arguments]

    def _settings(self, ports: tuple[int, ...]) -> dict[str, str]:
        thrift, zookeeper, master, region = map(str, ports)
        return {
            "hbase.cluster.distributed": "false",
            "hbase.rootdir": f"file://{self.directory / 'data'}",
            "hbase.tmp.dir": str(self.directory / "tmp"),
            "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
            "hbase.unsafe.stream.capability.enforce": "false",
            "hbase.wal.provider": "filesystem",
            "hbase.zookeeper.property.dataDir": str(self.directory / "zookeeper"),
            "hbase.zookeeper.property.clientPort": zookeeper,
            "hbase.zookeeper.quorum": HOST,
            **{f"hbase.{name}.info.port": "-1" for name in ("master", "regionserver", "thrift")},
            **{f"hbase.{name}.hostname": "localhost" for name in ("master", "regionserver")},
            **{f"hbase.{name}.ipc.address": HOST for name in ("master", "regionserver")},
            "hbase.master.port": master,
            "hbase.regionserver.port": region,
            "hbase.master.wait.on.regionservers.mintostart": "1",
            "hbase.master.wait.on.regionservers.maxtostart": "1",
            "hbase.regionserver.thrift.port": thrift,
            "hbase.regionserver.thrift.ipaddress": HOST,
            # Otherwise a client that says nothing for a minute is cut off.
            "hbase.thrift.server.socket.read.timeout": "0",
        }


def _running(child: Child | None) -> Child:
    if child is None:
        raise ConfigError("HBase is not running.", hint="Start it first.")
    return child


def _as_xml(settings: Mapping[str, str]) -> str:
    properties = (f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in settings.items())
    return f"<configuration>\n{chr(10).join(properties)}\n</configuration>\n"
