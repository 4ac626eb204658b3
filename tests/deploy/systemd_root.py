"""A real systemd in a root of its own: as process 1 of a container made with unshare(1).

The root is a directory made with ``debootstrap --include=systemd,python3``, with the Python version of the tests.
Nothing of this machine is reachable inside but the package and its dependencies, read-only, and the network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests import ROOT
from tests.waiting import LIMIT_S, wait_until

T = TypeVar("T")
CODE, PACKAGES = "/opt/reconciler", "/opt/packages"

ENTER = """
set -eu
root=$1 code=$2 packages=$3
[ "$(realpath "$root")" != / ] && [ -e "$root/etc/debian_version" ]
mount --make-rprivate /
mount --bind "$root" "$root"
for pair in "$code:opt/reconciler" "$packages:opt/packages"; do
    mkdir -p "$root/${pair##*:}"
    mount --bind "${pair%:*}" "$root/${pair##*:}"
    mount -o remount,bind,ro "$root/${pair##*:}"
done
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
for place in run tmp dev var/log; do mount -t tmpfs tmpfs "$root/$place"; done
mkdir -p "$root/run/old"
for node in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do
    set -- $node
    mknod -m 666 "$root/dev/$1" c "$2" "$3"
done
cd "$root"
pivot_root . run/old
umount -l /run/old
[ ! -e /run/old/etc ] && rmdir /run/old
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin container=test /lib/systemd/systemd --unit=basic.target
"""


@dataclass(frozen=True)
class Systemd:
    """A running one; ``root`` is its root directory as seen from outside, ``pid`` its process 1."""

    root: Path
    pid: int

    def run(self, *command: str, check: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a command inside."""
        enter = [
            "nsenter",
            "--target",
            str(self.pid),
            "--mount",
            "--pid",
            "--uts",
            "--ipc",
            "--cgroup",
            "--root",
            "--wd",
        ]
        return subprocess.run([*enter, *command], capture_output=True, text=True, timeout=LIMIT_S, check=check)

    def shown(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit."""
        said = self.run("systemctl", "show", unit, "--property", ",".join(names), check=True).stdout
        return dict(line.split("=", 1) for line in said.splitlines())

    def log(self, unit: str) -> str:
        return self.run("journalctl", "--no-pager", "--output=cat", "--unit", unit).stdout

    def awaited(self, look: Callable[[], T], came: Callable[[T], bool], what: str) -> T:
        """The first result of ``look`` that ``came`` accepts."""
        seen = look()

        def has_come() -> bool:
            nonlocal seen
            seen = look()
            return came(seen)

        wait_until(has_come, lambda: f"{what}: still {seen}")
        return seen


@contextmanager
def running(root: Path) -> Iterator[Systemd]:
    """Start it, and end it with everything inside."""
    hierarchy = next(
        Path(words[1])
        for words in map(str.split, Path("/proc/mounts").read_text().splitlines())
        if words[2] == "cgroup2"
    )
    group = hierarchy / f"reconciler-{os.getpid()}"
    group.mkdir()
    code = ROOT
    arguments = [str(root), str(code), sysconfig.get_path("platlib")]
    words = ["unshare", "--cgroup", "--mount", "--pid", "--fork", "--uts", "--ipc", "--kill-child"]
    joined = f'echo $$ > {group}/cgroup.procs; exec {" ".join(words)} sh -c "$0" enter "$@"'
    process = subprocess.Popen(
        ["sh", "-c", joined, ENTER, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield _started(root, process)
    finally:
        process.kill()
        process.wait(30)
        _removed(group)


def _started(root: Path, process: subprocess.Popen[bytes]) -> Systemd:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if children and Path(f"/proc/{children[0]}/comm").read_text().strip() == "systemd":
            inside = Systemd(root, int(children[0]))
            if inside.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"):
                return inside
        time.sleep(0.2)
    process.kill()
    said = process.communicate()[0].decode(errors="replace")
    raise RuntimeError(f"systemd did not start in {root}: {said[-2000:]}")


def _removed(group: Path) -> None:
    """The cgroup with those that systemd made in it; they are empty once its last process is gone."""
    deadline = time.monotonic() + 30
    while group.exists() and time.monotonic() < deadline:
        for folder, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                time.sleep(0.1)


def can_run(root: Path) -> str | None:
    """Why it cannot run here, None if it can."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return "it takes root, and unshare(1)"
    python = root / f"usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    return None if python.exists() else f"{root} holds no {python.name}"
