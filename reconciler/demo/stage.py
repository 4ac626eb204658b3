"""The demo's environment: its folder, its output, its topic, and the programs that it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.core.errors import ReconcilerError
from reconciler.demo.job import KILLED, Work
from reconciler.lab.broker import QUICK_JVM
from reconciler.lab.processes import Child

TOPIC, GROUP, PARTITIONS = "events", "clicks", 4
MIRRORED = f"a.{TOPIC}"
COUNTS_JOB = "counts"
JOB_S = 900.0
"""Ten times what it takes on a slow machine."""

Command = Callable[[Sequence[str]], int]
"""The reconciler's own command line: arguments in, exit code out, output on stdout."""


class DemoFailed(ReconcilerError):
    """A step of the demo failed."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The demo's folder, its output, and the reconciler's command line."""

    folder: Path
    say: Callable[[str], None]
    reconciler: Command
    detached: bool = False

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder / 'offsets.db'}"

    @property
    def config(self) -> Path:
        return self.folder / "reconciler.toml"

    @property
    def plan(self) -> Path:
        return self.folder / "clicks.plan.json"

    @property
    def counts_plan(self) -> Path:
        return self.folder / "counts.plan.json"

    @property
    def ids_on_a(self) -> Path:
        return self.folder / "ids-a"

    @property
    def ids_on_b(self) -> Path:
        return self.folder / "ids-b"

    @property
    def counts_on_a(self) -> Path:
        return self.folder / "counts-a"

    @property
    def counts_on_b(self) -> Path:
        return self.folder / "counts-b"

    def expect(self, code: int, *arguments: object) -> None:
        """Run a command and print it. Raises DemoFailed if it ends with another exit code."""
        words = [str(argument) for argument in arguments]
        shown = " ".join(words).replace(str(self.folder), ".")
        self.say(f"\n   $ reconciler {shown}")
        found = self.reconciler(words)
        self.say(f"   (exit code {found})")
        if found != code:
            raise DemoFailed(
                f"`reconciler {shown}` ended with {found} instead of {code}.", hint="Run the demo with --keep."
            )

    def run_job(self, name: str, work: Work) -> None:
        """Run the PySpark job to its end. Raises DemoFailed with the end of its log for an unexpected exit code."""
        work_file = self.folder / f"{name}.json"
        work_file.write_text(work.to_json())
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-m", "reconciler.demo.job", str(work_file)]
        passing = self.folder / "tmp"  # what a job that is killed leaves there goes with the demo's folder
        passing.mkdir(exist_ok=True)
        quick = {"SPARK_SUBMIT_OPTS": " ".join(QUICK_JVM), **os.environ}
        places = {"TMPDIR": str(passing), "SPARK_LOCAL_DIRS": str(passing)}
        job = Child("The PySpark job", command, log, cwd=Path.cwd(), env={**quick, **places})
        try:
            code = job.wait(JOB_S)
        except BaseException:
            job.kill()  # its JVM, too: one that is just starting outlives its Python
            raise
        expected = KILLED if work.die_at_batch >= 0 else 0
        if code != expected:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise DemoFailed(f"The PySpark job ended with {code} instead of {expected}:\n{tail}")
