"""The demo's environment: its folder, its output, the programs that it runs, and its stateful query's proof."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.core.errors import ConfigError, ReconcilerError
from reconciler.core.text import command
from reconciler.demo.job import KILLED, Work
from reconciler.demo.lab.in_use import Event
from reconciler.demo.lab.kafka import QUICK_JVM
from reconciler.demo.lab.processes import Child, kill_all
from reconciler.demo.proof import Comparison, compare, counts_in, plain_counts
from reconciler.fileio import making
from reconciler.state.start import PLAN_VARIABLE

TOPIC, GROUP, PARTITIONS = "events", "clicks", 4
MIRRORED = f"a.{TOPIC}"
COUNTS_JOB = "counts"
IDS_ON_A, IDS_ON_B, COUNTS_ON_A, COUNTS_ON_B = "ids-a", "ids-b", "counts-a", "counts-b"
IDS_BACK, COUNTS_BACK = "ids-back", "counts-back"
"""The folders of the job's queries: their checkpoints, and a directory for each batch."""
JOB_S = 900.0
"""Seconds: ten times as long as the job takes on a slow machine."""
DYING_S = 10.0
"""Seconds to wait for killed processes, which may still create a file."""
_MARK = ".reconciler-demo"
"""Marks a demo's folder: in other folders no process is ended and no file deleted."""
_PROGRAMS = (
    "kafka.Kafka",
    "org.apache.kafka.connect.mirror.MirrorMaker",
    "reconciler.demo.job",
    "org.apache.spark.deploy.SparkSubmit",
)

Command = Callable[[Sequence[str]], int]
"""The reconciler's own command line: arguments in, exit code out, output on stdout."""


class DemoFailed(ReconcilerError):
    """A step of the demo failed."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The demo's folder, its output, and the reconciler's command line. ``keep``: the servers outlive this process."""

    folder: Path
    say: Callable[[str], None]
    reconciler: Command
    keep: bool = False

    def path(self, name: str) -> Path:
        return self.folder / name

    @property
    def config(self) -> Path:
        return self.path("reconciler.toml")

    def plan(self, job: str) -> Path:
        return self.path(f"{job}.plan.json")

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

    def hook(self, job: str) -> dict[str, str]:
        """Run a job's hook; the variables that its command would find. Its plan, if it made one, is ``plan(job)``."""
        file = self.path(f"{job}.env")
        self.expect(0, "hook", "-c", self.config, "--job", job, "--plans", self.path("plans"), "--env-file", file)
        found = dict(word.split("=", 1) for word in shlex.split(file.read_text()))
        if PLAN_VARIABLE in found:
            shutil.copy(found[PLAN_VARIABLE], self.plan(job))
        return found

    def run_job(self, name: str, work: Work) -> None:
        """Run the PySpark job to its end. Raises DemoFailed with the end of its log for an unexpected exit code."""
        work_file, log = self.path(f"{name}.json"), self.path(f"{name}.log")
        work_file.write_text(work.to_json())
        words = [sys.executable, "-m", "reconciler.demo.job", str(work_file)]
        passing = self.path("tmp")  # a killed job leaves files there, which are deleted with the demo's folder
        passing.mkdir(exist_ok=True)
        quick = {"SPARK_SUBMIT_OPTS": " ".join(QUICK_JVM), **os.environ}
        places = {"TMPDIR": str(passing), "SPARK_LOCAL_DIRS": str(passing)}
        job = Child("The PySpark job", words, log, cwd=Path.cwd(), env={**quick, **places})
        code, expected = job.wait(JOB_S), KILLED if work.die_at_batch >= 0 else 0
        if code != expected:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise DemoFailed(f"The PySpark job ended with {code} instead of {expected}:\n{tail}")


def begin(folder: Path) -> None:
    """Make the folder of a demo. Raises ConfigError if it is not new or empty."""
    with making(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / _MARK).exists():
            stop = command("reconciler", "demo", "stop", "--folder", folder)
            raise ConfigError(f"An earlier demo is in {folder}.", hint=f"End it and delete its data: {stop}")
        if any(folder.iterdir()):  # a cluster would start with another one's data, and never answer
            raise ConfigError(f"The folder {folder} is not empty.", hint="Name a new or an empty one for the demo.")
        (folder / _MARK).touch()


def end(folder: Path, *names: str) -> bool:
    """End a demo's processes, whichever command started them: all, or those of ``names``. False if there is none.

    Raises ConfigError if the folder is not a demo's.
    """
    if (folder / _MARK).exists():
        return kill_all(folder, _PROGRAMS, *names)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not a demo's folder.", hint="Name the demo's folder with --folder.")
    return False


def delete(folder: Path) -> bool:
    """End a demo and delete its folder; repeat that while its processes still end. False if there is no demo."""
    end(folder)
    if not (folder / _MARK).exists():
        return False
    until = time.monotonic() + DYING_S
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)
    return True


def source_options(bootstrap: str, topic: str) -> dict[str, str]:
    """Options of Spark's Kafka source for a query that knows nothing of this product."""
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}


def prove_counts(stage: Stage, events: Iterable[Event]) -> Comparison:
    """The counts after both moves."""
    outputs = [stage.path(each) for each in (COUNTS_ON_A, COUNTS_ON_B, COUNTS_BACK)]
    return compare(counts_in(outputs), plain_counts(events))
