"""HDFS on this machine, for the tests: a NameNode and a DataNode in one process, reached over WebHDFS."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from reconciler.artifacts import java_executable
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.lab.broker import HOST, QUICK_JVM
from reconciler.lab.ports import launched_on_free_ports
from reconciler.lab.processes import Child

START_SECONDS = 180
_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
_SETTINGS = {
    # What it has acknowledged outlives its process in the kernel's cache all the same.
    "dfs.namenode.edits.noeditlogchannelflush": "true",
    "dfs.permissions.enabled": "true",
    "dfs.replication": "1",
}


class Hdfs:
    """HDFS with its data below ``directory``, on ports of its own. Everybody may write below ``/``."""

    def __init__(self, directory: Path, jars: Path, *, heap: str = "256m") -> None:
        self.directory = directory.absolute()
        self._jars = jars
        self._heap = heap
        self._ports: tuple[int, ...] | None = None
        self._child: Child | None = None

    # ------------------------------------------------------------ life

    def start(self) -> Self:
        """Start it and wait until it takes files. The second start finds the first one's data at the same address."""
        if self._ports is not None:
            self._launch(self._ports, new=False)
            return self
        self._ports = launched_on_free_ports(2, lambda ports: self._launch(ports, new=True), self._port_was_taken)
        self._ask("PUT", "/?op=SETPERMISSION&permission=777")
        return self

    def stop(self) -> None:
        """At once: nothing here is worth an orderly end, and the data survive it."""
        self.kill()

    def kill(self) -> None:
        """The disaster: gone between two instructions."""
        if self._child is not None:
            self._child.kill()

    def restart(self) -> Self:
        """Up again after ``stop`` or ``kill`` (or stopped first): the same address, the same data."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Freeze it: connections stay open, nothing is answered."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def __enter__(self) -> Self:
        return self if self._child is not None and self._child.running else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def url(self, path: str, user: str = "tester") -> str:
        """A path's address as fsspec takes it."""
        return f"webhdfs://{user}@{HOST}:{self._web}{path}"

    # ------------------------------------------------------------ starting

    def _launch(self, ports: tuple[int, ...], *, new: bool) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        settings = {**_SETTINGS, "hdfs.minidfs.basedir": str(self.directory / "data")}
        command = [
            *(str(java_executable()), *QUICK_JVM, f"-Xmx{self._heap}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
            "--add-opens=java.base/java.lang=ALL-UNNAMED",  # it reaches into parts of the JDK that are closed since
            *("-cp", f"{self._jars}/*", _MAIN, *(["-format"] if new else []), "-datanodes", "1"),
            *("-nnport", str(ports[0]), "-httpport", str(ports[1])),
            *(word for key, value in settings.items() for word in ("-D", f"{key}={value}")),
        ]
        self._child = Child("HDFS", command, self.directory / "hdfs.log", cwd=self.directory)
        self._child.wait_until(lambda: self._takes_files(ports[1]), START_SECONDS, "its first live DataNode")

    def _takes_files(self, port: int) -> bool:
        """True once the NameNode has left its safe mode and knows a DataNode."""
        try:
            with urllib.request.urlopen(
                f"http://{HOST}:{port}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo", timeout=2
            ) as answer:
                told = json.load(answer)["beans"][0]
        except (OSError, ValueError, LookupError):
            return False
        return told["Safemode"] == "" and told["LiveNodes"] not in ("", "{}")

    def _ask(self, method: str, what: str) -> None:
        """One WebHDFS request, as the user that HDFS runs as."""
        import getpass

        url = f"http://{HOST}:{self._web}/webhdfs/v1{what}&user.name={getpass.getuser()}"
        try:
            urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60).close()
        except (urllib.error.URLError, OSError) as error:
            raise Unreachable(f"HDFS does not answer as it should: {error}.") from error

    def _port_was_taken(self) -> bool:
        log = (self.directory / "hdfs.log").read_text(errors="replace")
        return re.search(r"Address already in use|BindException", log) is not None

    @property
    def _web(self) -> int:
        if self._ports is None:
            raise ConfigError("HDFS has no address yet.", hint="Start it first.")
        return self._ports[1]

    @property
    def _process(self) -> Child:
        if self._child is None:
            raise ConfigError("HDFS is not running.", hint="Start it first.")
        return self._child
