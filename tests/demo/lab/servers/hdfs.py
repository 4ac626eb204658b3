"""HDFS on this machine, for the tests: a NameNode and a DataNode in one process, reached over WebHDFS."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from reconciler.artifacts import java_executable
from reconciler.core.errors import Unreachable
from reconciler.demo.lab.kafka import HOST, QUICK_JVM, sharing
from tests.demo.lab.servers.server import Server

_MAIN = "org.apache.hadoop.test.MiniDFSClusterManager"
_SETTINGS = {
    # Acknowledged data outlives the process in the kernel's cache anyway.
    "dfs.namenode.edits.noeditlogchannelflush": "true",
    "dfs.permissions.enabled": "true",
    "dfs.replication": "1",
}


class Hdfs(Server):
    """HDFS with a NameNode and a DataNode. Every user may write below ``/``.

    ``jvm``: more options, instead of those for the archive of its classes.
    """

    name = "HDFS"
    port_count = 2
    start_seconds = 180.0

    def __init__(self, directory: Path, jars: Path, *, heap: str = "256m", jvm: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self._jars = jars
        self._heap = heap
        self._jvm = jvm

    def start(self) -> Self:
        """Start it and wait until it accepts files. A second start keeps the address and the data."""
        is_new = self._ports is None
        super().start()
        if is_new:
            self._ask("PUT", "/?op=SETPERMISSION&permission=777")
        return self

    def stop(self) -> None:
        """Kill it: the data survive, and an orderly stop is slow."""
        if self._child is not None:
            self._child.kill()

    def url(self, path: str, user: str = "tester") -> str:
        """A path's address for fsspec."""
        return f"webhdfs://{user}@{HOST}:{self.ports[1]}{path}"

    def command(self, *ports: int) -> list[str]:
        is_new = self._ports is None
        settings = {**_SETTINGS, "hdfs.minidfs.basedir": str(self.directory / "data")}
        java = java_executable()
        return [
            *(str(java), *QUICK_JVM, *(self._jvm or sharing(self._jars)), f"-Xmx{self._heap}"),
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "--add-opens=java.base/java.lang=ALL-UNNAMED",  # it uses internals of the JDK
            *("-cp", f"{self._jars}/*", _MAIN, *(["-format"] if is_new else []), "-datanodes", "1"),
            *("-nnport", str(ports[0]), "-httpport", str(ports[1])),
            *(word for key, value in settings.items() for word in ("-D", f"{key}={value}")),
        ]

    def is_ready(self, *ports: int) -> bool:
        """True once the NameNode has left its safe mode and knows a DataNode."""
        try:
            with urllib.request.urlopen(
                f"http://{HOST}:{ports[1]}/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo", timeout=2
            ) as answer:
                info = json.load(answer)["beans"][0]
        except (OSError, ValueError, LookupError):
            return False
        return info["Safemode"] == "" and info["LiveNodes"] not in ("", "{}")

    def _ask(self, method: str, what: str) -> None:
        """One WebHDFS request, as HDFS's own user."""
        import getpass

        url = f"http://{HOST}:{self.ports[1]}/webhdfs/v1{what}&user.name={getpass.getuser()}"
        try:
            urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=60).close()
        except (urllib.error.URLError, OSError) as error:
            raise Unreachable(f"HDFS refused a request: {error}.") from error
