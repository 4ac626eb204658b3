"""The demo's environment: its folder, its output, the programs that it runs; and its stateful query in each place."""

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
from reconciler.demo.job import COUNTS, KILLED, Query, Work
from reconciler.demo.lab.in_use import Event
from reconciler.demo.lab.kafka import QUICK_JVM
from reconciler.demo.lab.processes import Child, kill_all
from reconciler.demo.proof import Comparison, compare, counts_in, plain_counts
from reconciler.fileio import making
from reconciler.plan.document import parse_plan
from reconciler.plan.start import planned_text
from reconciler.state.start import PLAN_VARIABLE

TOPIC, GROUP, PARTITIONS = "events", "clicks", 4
MIRRORED = f"a.{TOPIC}"
COUNTS_JOB = "counts"
IDS_ON_A, IDS_ON_B, COUNTS_ON_A, COUNTS_ON_B = "ids-a", "ids-b", "counts-a", "counts-b"
IDS_BACK, COUNTS_BACK = "ids-back", "counts-back"
"""The folders of the job's queries: their checkpoints, and a directory for each batch."""
JOB_S = 900.0
"""Ten times what it takes on a slow machine."""
DYING_S = 10.0
"""How long killed processes are waited for at most: until then they may still create a file."""
_MARK = ".reconciler-demo"
"""Says that a folder is a demo's: in no other one is anything ended or deleted."""
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
        passing = self.path("tmp")  # what a job that is killed leaves there goes with the demo's folder
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
    """End a demo's processes, whichever command started them: all, or the ones of ``names``. False if there is none.

    Raises ConfigError if the folder is not a demo's.
    """
    if (folder / _MARK).exists():
        return kill_all(folder, _PROGRAMS, *names)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not a demo's folder.", hint="Name the demo's folder with --folder.")
    return False


def delete(folder: Path) -> bool:
    """End a demo and delete its folder, again and again while its processes still end. False if there is no demo."""
    end(folder)
    if not (folder / _MARK).exists():
        return False
    until = time.monotonic() + DYING_S
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)
    return True


@dataclass(frozen=True, slots=True)
class StateProof:
    """The counts after the failover, and those of two alternatives: all three really ran."""

    cloned: Comparison
    renamed: Comparison
    new_checkpoint: Comparison


def counts_table(stage: Stage) -> str:
    """The query's ``[[jobs]]`` table: its offsets are in its checkpoint, their anchors in the anchor store."""
    return f"""[[jobs]]
name = "{COUNTS_JOB}"
home = "a"
topics = ["{TOPIC}"]
offsets = "checkpoint:{counts_on_a(stage).checkpoint}"
"""


def counts_on_a(stage: Stage, options: dict[str, str] | None = None) -> Query:
    return Query(COUNTS, str(stage.path(COUNTS_ON_A)), options or {})


def counts_on_b(stage: Stage, bootstrap: str, copy: str) -> Query:
    """The query on the copy of its checkpoint: only the servers and the topic differ."""
    return Query(COUNTS, str(stage.path(COUNTS_ON_B)), _restarted(bootstrap), copy=copy)


def counts_back_on_a(stage: Stage, bootstrap: str, copy: str) -> Query:
    """The query on the copy of that copy."""
    return Query(COUNTS, str(stage.path(COUNTS_BACK)), {**_restarted(bootstrap), "subscribe": TOPIC}, copy=copy)


def with_new_checkpoint(stage: Stage) -> Query:
    """An alternative: the right offsets with a new checkpoint, so without the state."""
    plan = parse_plan(stage.plan(COUNTS_JOB).read_text())
    # The query died within a batch, so the plan has a start and an end, and a new query cannot use the end.
    options = {**_restarted(plan.bootstrap_servers), "startingOffsets": planned_text(plan.starts)}
    return Query(COUNTS, str(stage.path("counts-anew")), options)


def with_renamed_topic(stage: Stage, bootstrap: str) -> Query:
    """An alternative: the old checkpoint with only the topic's name edited, as an operator would do by hand."""
    query = Query(COUNTS, str(stage.path("counts-renamed")), _restarted(bootstrap))
    shutil.copytree(counts_on_a(stage).checkpoint, query.checkpoint)
    for below in ("offsets", "sources/0"):
        for file in query.checkpoint.joinpath(below).iterdir():
            if file.name.endswith(".crc"):
                file.unlink()  # the checksum of the unedited file
            else:
                file.write_text(file.read_text().replace(f'"{TOPIC}":', f'"{MIRRORED}":'))
    return query


def _restarted(bootstrap: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": MIRRORED, "startingOffsets": "earliest"}


def prove_counts_back(stage: Stage, events: Iterable[Event]) -> Comparison:
    """The counts after both moves."""
    outputs = [stage.path(each) for each in (COUNTS_ON_A, COUNTS_ON_B, COUNTS_BACK)]
    return compare(counts_in(outputs), plain_counts(events))


def prove_counts(stage: Stage, events: Iterable[Event]) -> StateProof:
    plain = plain_counts(events)

    def of(output: str) -> Comparison:
        return compare(counts_in([stage.path(COUNTS_ON_A), stage.path(output)]), plain)

    return StateProof(of(COUNTS_ON_B), of("counts-renamed"), of("counts-anew"))
