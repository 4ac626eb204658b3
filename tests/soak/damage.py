"""A disk that can be full, and a log whose end can be taken away."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from reconciler.demo.lab.kafka import Broker

SIZE = "512m"


class Disk:
    """A file system of its own at ``path``, until ``until_the_end`` is closed. Who may not mount one has a folder that
    is never full.
    """

    def __init__(self, path: Path, until_the_end: ExitStack) -> None:
        self.path = path
        path.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "soak", path]
        self.is_own = os.geteuid() == 0 and subprocess.run(mount, check=False).returncode == 0
        if self.is_own:
            until_the_end.callback(subprocess.run, ["umount", "-l", path], check=False)

    @contextmanager
    def full(self, left: int) -> Iterator[None]:
        """No more than about ``left`` bytes are free within the block."""
        filler = self.path / "filler"
        with filler.open("wb") as file:
            free = os.statvfs(self.path)
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - left))
        try:
            yield
        finally:
            filler.unlink()


def cut_back(broker: Broker, topic: str, share: float) -> None:
    """Take the end off a topic's partitions, as an unclean election does: the topic keeps its id.

    ``share``: how much of each last segment stays. The broker is killed, and started again.
    """
    broker.kill()
    for folder in broker.data.glob(f"{topic}-[0-9]*"):
        segment = max(folder.glob("*.log"))
        os.truncate(segment, int(segment.stat().st_size * share))
        for made in (*folder.glob("*index"), *folder.glob("*.snapshot")):
            made.unlink()  # it is made again from the segments
    broker.start()
