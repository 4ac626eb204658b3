"""Queries in a process of their own, killed at a step of a batch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests import ROOT
from tests.failover.sinks.queries import Flow
from tests.waiting import LIMIT_S

STEPS = ("planned", "writing", "taken", "committed")
"""Of a batch: in the offset log, with data files, in the sink's log, in the commit log."""
Child = subprocess.Popen[bytes]


@dataclass(frozen=True)
class At:
    """One query and the files that tell where it is."""

    flow: Flow
    checkpoint: Path

    def step(self, batch: int) -> str | None:
        """The last step of this batch that it has reached."""
        log = self.checkpoint
        if (log / "commits" / str(batch)).exists():
            return "committed" if not (log / "offsets" / str(batch + 1)).exists() else "over"
        if not (log / "offsets" / str(batch)).exists():
            return None
        if self.flow.has_taken(batch):
            return "taken"
        return "writing" if self.flow.has_written(log / "offsets" / str(batch)) else "planned"

    @property
    def next_batch(self) -> int:
        done = self.checkpoint / "commits"
        return 1 + max((int(path.name) for path in done.glob("*") if path.name.isdecimal()), default=-1)


@dataclass(frozen=True)
class Program:
    """Queries that one process runs. ``folder``: its log and its answer."""

    flows: Mapping[str, Flow]
    folder: Path
    python: str = sys.executable

    def run(self, bootstrap: str, topic: str, checkpoints: Mapping[str, Path]) -> dict[str, list[int]]:
        """The queries to their end, and what the sinks hold then."""
        with self.running(bootstrap, topic, checkpoints) as child:
            assert child.wait(LIMIT_S) == 0, (self.folder / "queries.log").read_text()[-3000:]
        found: dict[str, list[int]] = json.loads((self.folder / "ids.json").read_text())
        return found

    def killed_at(
        self, step: str, of: str, bootstrap: str, topic: str, checkpoints: Mapping[str, Path], skip: int
    ) -> bool:
        """The queries, killed as soon as one has reached this very step; after ``skip`` of its batches.

        The process is frozen to look; a query that has gone on is looked at in its next batch. False: it ended before.
        """
        at = At(self.flows[of], checkpoints[of])
        batch = at.next_batch + skip
        with self.running(bootstrap, topic, checkpoints) as child:
            while child.poll() is None:
                if at.step(batch) not in ("over", *STEPS[STEPS.index(step) :]):
                    time.sleep(0.001)
                    continue
                os.killpg(child.pid, signal.SIGSTOP)
                if at.step(batch) == step:
                    return True
                batch = max(batch + 1, at.next_batch)
                os.killpg(child.pid, signal.SIGCONT)
        return False

    @contextmanager
    def running(self, bootstrap: str, topic: str, checkpoints: Mapping[str, Path]) -> Iterator[Child]:
        """The queries in a process group of their own, which is killed at the end."""
        given = {
            "flows": {kind: flow.folder for kind, flow in self.flows.items()},
            "reads": [bootstrap, topic],
            "checkpoints": {kind: str(path) for kind, path in checkpoints.items()},
            "answer": str(self.folder / "ids.json"),
        }
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": self.python}
        self.folder.mkdir(parents=True, exist_ok=True)
        words = [self.python, "-m", "tests.failover.sinks.queries", json.dumps(given)]
        with (self.folder / "queries.log").open("ab") as log:
            child = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True, env=environment)
        try:
            yield child
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait(30)
