"""The jobs of a soak: queries and range batches in one Spark driver, a consumer group, and what each processed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from reconciler.state.start import START_VARIABLE, load
from tests import ROOT
from tests.soak.estate import SoakFailed

IN_SPARK = ("files", "rows", "sums", "ranges")
GROUP = "group"
ALL = (*IN_SPARK, GROUP)


@dataclass
class Jobs:
    """``database``: a PostgreSQL address with the tables of ``rows``."""

    folder: Path
    database: str
    driver: subprocess.Popen[str] | None = None
    consumer: subprocess.Popen[bytes] | None = None
    running: set[str] = field(default_factory=set)
    _log: TextIO | None = None

    def places(self) -> dict[str, str]:
        queries = {name: f"checkpoint:{self.folder}/checkpoints/{name}" for name in ("files", "rows", "sums")}
        return {**queries, "ranges": f"sqlite:///{self.folder}/ranges.db", GROUP: "kafka-group:"}

    def prepare(self) -> None:
        import psycopg

        with psycopg.connect(self.database) as connection:
            connection.execute("CREATE TABLE rows (id text PRIMARY KEY, n int NOT NULL)")
            connection.execute("CREATE TABLE batches (number bigint PRIMARY KEY)")

    # ------------------------------------------------------------ running

    def start(self, name: str, variables: dict[str, str]) -> None:
        """Start a job from what its hook handed over."""
        if name == GROUP:
            path = variables[START_VARIABLE]
            start = load(Path(path).read_text(), path)
            words = [start.bootstrap_servers, GROUP, ",".join(start.topics), str(self.folder / "group.txt")]
            with (self.folder / "group.log").open("ab") as log:
                self.consumer = subprocess.Popen(
                    [sys.executable, "-m", "tests.soak.consumer", *words], cwd=ROOT, stdout=log, stderr=log
                )
        else:
            self._ask({"do": "start", "job": name, "start": variables[START_VARIABLE]})
        self.running.add(name)

    def stop(self, name: str) -> None:
        if name not in self.running:
            return
        if name == GROUP and self.consumer is not None:
            self.consumer.send_signal(signal.SIGTERM)
            self.consumer.wait(60)
        elif self.driver is not None:
            self._ask({"do": "stop", "job": name})
        self.running.discard(name)

    def stop_all(self) -> None:
        for name in ALL:
            self.stop(name)

    def kill_driver(self) -> None:
        """As a machine that is lost: within whatever batch each job is."""
        if self.driver is not None:
            os.killpg(self.driver.pid, signal.SIGKILL)
            self.driver.wait()
            self.driver = None
        self.running -= set(IN_SPARK)

    def close(self) -> None:
        self.kill_driver()
        if self.consumer is not None:
            self.consumer.kill()
            self.consumer.wait()

    def _ask(self, asked: dict[str, str]) -> None:
        if self.driver is None:
            self._log = (self.folder / "driver.log").open("a")
            words = [sys.executable, "-m", "tests.soak.driver", str(self.folder), self.database]
            self.driver = subprocess.Popen(
                words,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                start_new_session=True,
            )
            self._answer()
        assert self.driver is not None
        assert self.driver.stdin is not None
        self.driver.stdin.write(json.dumps(asked) + "\n")
        self.driver.stdin.flush()
        if error := self._answer().get("error"):
            raise SoakFailed(f"{asked}: {error}")

    def _answer(self) -> dict[str, str]:
        """The next line that is an answer: Spark's launcher prints others."""
        assert self.driver is not None
        assert self.driver.stdout is not None
        for line in self.driver.stdout:
            if line.startswith("{"):
                return dict(json.loads(line))
        raise SoakFailed(f"the driver ended: see {self.folder}/driver.log")

    # ------------------------------------------------------------ what was processed

    def processed(self, name: str) -> Counter[str]:
        """How often each id is in the job's sink; of ``sums``, how many records each key counts."""
        found: Callable[[], Counter[str]] = {
            "files": self._in_files,
            "rows": self._in_rows,
            "sums": self._in_sums,
        }.get(name, lambda: self._in_lines(name))
        return found()

    def _in_files(self) -> Counter[str]:
        """By the sink's own log: files that are in the folder only are of a batch that did not end."""
        paths: set[str] = set()
        for file in (self.folder / "files" / "_spark_metadata").glob("[0-9]*"):
            lines = [json.loads(line) for line in file.read_text().splitlines()[1:]]
            paths |= {each["path"].removeprefix("file://") for each in lines}
        texts = (Path(each).read_text() for each in paths)
        return Counter(json.loads(line)["id"] for text in texts for line in text.splitlines())

    def _in_rows(self) -> Counter[str]:
        import psycopg

        with psycopg.connect(self.database) as connection:
            return Counter(dict(connection.execute("SELECT id, n FROM rows").fetchall()))

    def _in_sums(self) -> Counter[str]:
        found: dict[str, int] = {}
        for file in sorted((self.folder / "sums").glob("*.json")):
            found |= json.loads(file.read_text() or "{}")
        return Counter(found)

    def _in_lines(self, name: str) -> Counter[str]:
        file = self.folder / f"{name}.txt"
        return Counter(file.read_text().split()) if file.exists() else Counter()
