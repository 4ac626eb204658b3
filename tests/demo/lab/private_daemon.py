"""A Docker daemon of the tests' own, beside any other: its own socket, data, processes and bridge.

No registry is needed: ``deploy/images/base.sh`` builds the base image. The daemon leaves the machine's packet filter
alone and forwards nothing: its containers reach no network, and are reached at published ports, through Docker's proxy.
It needs its own bridge: a daemon without one deletes the bridge of the machine's daemon. Leaving the ``with`` block
removes all of it.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Self

from reconciler.artifacts import cache_directory
from reconciler.core.errors import Unreachable
from reconciler.demo.lab.processes import Child
from tests.demo.lab.containers import REPOSITORY

BASE = "reconciler-base:tests"
START_SECONDS = 60
STOP_SECONDS = 30
NEEDED = ("dockerd", "containerd", "runc", "debootstrap", "ip", "unshare")


# What a daemon with one container asks of the kernel, tried without any: namespaces, and a pair of ends on a bridge.
_KERNEL = "mount --make-rprivate / && ip link add b0 type bridge && ip link add v0 type veth peer name v1"
_KERNEL += " && ip link set v0 master b0"


class PrivateDaemon:
    """``client`` is Docker's client of it, ``address`` its socket."""

    def __init__(self) -> None:
        self.name = f"tests-{secrets.token_hex(4)}"  # its bridge's, too: those names must be short
        self.folder = Path(tempfile.gettempdir(), self.name)
        self.folder.mkdir(mode=0o700)
        self._child: Child | None = None
        self._client: Any = None

    @property
    def address(self) -> str:
        return f"unix://{self.folder}/socket"

    @property
    def client(self) -> Any:
        return self._client

    def __enter__(self) -> Self:
        try:
            self._start()
            self._load_base()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            for container in self._containers():
                container.remove(force=True)
            self._client.close()
        if self._child is not None:
            self._child.stop(STOP_SECONDS)
        subprocess.run(["ip", "link", "delete", self.name], check=False, capture_output=True)
        self._unmount()
        shutil.rmtree(self.folder)

    def leftovers(self) -> list[str]:
        """Mounts, interfaces and processes that have to do with this daemon."""
        found = [*self._mounts(), *(path.name for path in Path("/sys/class/net").glob(self.name))]
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                try:
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue  # it has ended meanwhile
                if str(self.folder) in command:
                    found.append(command)
        return found

    # ------------------------------------------------------------ starting

    def _start(self) -> None:
        import docker

        self._make_bridge()
        places = {"data-root": "data", "exec-root": "run", "pidfile": "pid", "config-file": "daemon.json"}
        (self.folder / "daemon.json").write_text("{}")  # not the machine's
        command = ["dockerd", *(f"--{option}={self.folder / place}" for option, place in places.items())]
        command += [f"--host={self.address}", f"--bridge={self.name}"]
        command += ["--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
        # Where a daemon of the machine runs, its containerd may be shared: not what is in it.
        command += [
            f"--containerd-namespace={self.name}",
            f"--containerd-plugins-namespace={self.name}-p",
        ]
        self._child = Child("dockerd", command, self.folder / "log", cwd=self.folder)

        def answered() -> Any:
            try:
                return docker.DockerClient(base_url=self.address, timeout=600)  # it asks for the version at once
            except docker.errors.DockerException:
                return None

        self._client = self._child.wait_until(answered, START_SECONDS, "its first answer")

    def _make_bridge(self) -> None:
        address = f"169.254.{secrets.randbelow(160) + 1}.1/28"  # link-local: used by no other network
        made = ["ip", "link", "add", "dev", self.name, "type", "bridge"]
        for command in (made, ["ip", "address", "add", address, "dev", self.name]):
            subprocess.run(command, check=True)

    def _load_base(self) -> None:
        """The base image, from the cache, where it is kept as long as its recipe stays the same."""
        recipe = REPOSITORY / "deploy/images/base.sh"
        number = hashlib.sha256(recipe.read_bytes()).hexdigest()[:12]
        archive = cache_directory() / "images" / f"base-{number}.tar"
        if not archive.exists():
            archive.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run([str(recipe), str(archive)], check=True)
        name, tag = BASE.split(":")
        self._client.api.import_image(src=str(archive), repository=name, tag=tag)

    # ------------------------------------------------------------ ending

    def _containers(self) -> list[Any]:
        return list(self._client.containers.list(all=True))

    def _unmount(self) -> None:
        """Unmount what a killed daemon has left mounted: a deletion would go through the mounts."""
        deadline = time.monotonic() + STOP_SECONDS
        while places := [line.split()[1] for line in self._mounts()]:
            for place in reversed(places):
                subprocess.run(["umount", "--lazy", place], check=False)
            if time.monotonic() > deadline:
                raise Unreachable(f"{places} stay mounted.")

    def _mounts(self) -> list[str]:
        return [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(self.folder) in line]


def lacking() -> list[str]:
    """The programs that are not installed here."""
    return [name for name in NEEDED if shutil.which(name) is None]


def kernel_lacks() -> str | None:
    """Why no daemon can run on this machine; None where one can."""
    if not any(Path("/sys/fs/cgroup").glob("*")):
        return "no control groups are mounted"
    spaces = ["--mount", "--net", "--ipc", "--uts", "--pid", "--fork"]
    tried = subprocess.run(["unshare", *spaces, "sh", "-c", _KERNEL], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"the kernel refuses what containers need: {tried.stderr.strip()}"
