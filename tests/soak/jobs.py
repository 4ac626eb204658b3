"""The jobs of a soak: queries and range batches in one Spark driver, a consumer group, and what each processed."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from reconciler.state.start import START_VARIABLE, load
from tests import ROOT
from tests.soak.estate import SoakFailed

IN_SPARK = ("files", "delta", "rows", "sums", "ranges")
AT_LEAST_ONCE = ("ranges", "group")
"""What they have processed, and not stored, comes again: their sinks are plain files."""
GROUP = "group"
GROUPS = {"a": GROUP, "b": f"a.{GROUP}"}
"""Its name on each cluster, as a mirror that renames groups gives it."""
END_S = 5
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
    _read: dict[str, list[str]] = field(default_factory=dict)
    """The ids in a sink's files that never change."""
    _lists: dict[str, tuple[int, dict[str, list[str]]]] = field(default_factory=dict)
    """By file of ``sums``: its time, and its lists."""

    def settings(self) -> dict[str, str]:
        """Each job's place, and its sink where the product can ask it."""
        queries = {
            name: f"checkpoint:{self.folder}/disk/checkpoints/{name}" for name in ("files", "delta", "rows", "sums")
        }
        places = {**queries, "ranges": f"sqlite:///{self.folder}/ranges.db", GROUP: "kafka-group:"}
        sinks = {name: f'\nsink = "{name}:{self.folder}/{name}"' for name in ("files", "delta")}
        others = {**sinks, GROUP: f"\ngroup = {{a = {json.dumps(GROUPS['a'])}, b = {json.dumps(GROUPS['b'])}}}"}
        return {name: f'offsets = "{place}"{others.get(name, "")}' for name, place in places.items()}

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
            words = [
                start.bootstrap_servers,
                GROUPS[start.cluster],
                ",".join(start.topics),
                str(self.folder / "group.txt"),
            ]
            with (self.folder / "group.log").open("ab") as log:
                self.consumer = subprocess.Popen(
                    [sys.executable, "-m", "tests.soak.consumer", *words], cwd=ROOT, stdout=log, stderr=log
                )
        else:
            self._ask({"do": "start", "job": name, "start": variables[START_VARIABLE]})
        self.running.add(name)

    def set_clock(self, off_s: float) -> None:
        """The driver's clock is off from the true one from now on."""
        self._ask({"do": "set clock", "seconds": off_s})

    def stop_all(self) -> None:
        """All at once: each may wait for calls to a cluster that is dead."""
        if self.consumer is not None:
            self.consumer.send_signal(signal.SIGTERM)
        if self.driver is not None:
            self._ask({"do": "stop", "jobs": [name for name in IN_SPARK if name in self.running]})
        if self.consumer is not None:
            try:
                self.consumer.wait(END_S)
            except subprocess.TimeoutExpired:  # its last commit waits for a cluster that is killed
                self.consumer.kill()
                self.consumer.wait()
        self.running.clear()

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

    def _ask(self, asked: dict[str, Any]) -> None:
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
        """How often each id is in the job's sink."""
        found: dict[str, Callable[[], Counter[str]]] = {
            "files": self._in_files,
            "delta": self._in_delta,
            "rows": self._in_rows,
            "sums": self._in_sums,
        }
        return found[name]() if name in found else self._in_lines(name)

    def _in_files(self) -> Counter[str]:
        """By the sink's own log: files that are in the folder only are of a batch that did not end."""
        paths: set[str] = set()
        for file in (self.folder / "files" / "_spark_metadata").glob("[0-9]*"):
            lines = [json.loads(line) for line in file.read_text().splitlines()[1:]]
            paths |= {each["path"].removeprefix("file://") for each in lines}

        def ids(path: str) -> list[str]:
            return [json.loads(line)["id"] for line in Path(path).read_text().splitlines()]

        return self._of_all(paths, ids)

    def _in_delta(self) -> Counter[str]:
        import pyarrow.parquet
        from deltalake import DeltaTable

        table = self.folder / "delta"
        if not any((table / "_delta_log").glob("*.json")):
            return Counter()

        def ids(path: str) -> list[str]:
            return list(pyarrow.parquet.read_table(path, columns=["id"])["id"].to_pylist())

        return self._of_all(set(DeltaTable(str(table)).file_uris()), ids)

    def _of_all(self, paths: set[str], ids: Callable[[str], list[str]]) -> Counter[str]:
        """The ids in files that never change."""
        for path in paths - self._read.keys():
            self._read[path] = ids(path)
        return Counter(itertools.chain.from_iterable(self._read[path] for path in paths))

    def _in_rows(self) -> Counter[str]:
        import psycopg

        with psycopg.connect(self.database) as connection:
            return Counter(dict(connection.execute("SELECT id, n FROM rows").fetchall()))

    def _in_sums(self) -> Counter[str]:
        """The newest list of each bucket. A batch that is repeated replaces its file."""
        for file in (self.folder / "sums").glob("*.json"):
            written = file.stat().st_mtime_ns
            if self._lists.get(file.name, (0,))[0] != written:
                self._lists[file.name] = (written, json.loads(file.read_text()))
        newest: dict[str, list[str]] = {}
        for _, (_, lists) in sorted(self._lists.items()):
            newest |= lists
        return Counter(itertools.chain.from_iterable(newest.values()))

    def _in_lines(self, name: str) -> Counter[str]:
        file = self.folder / f"{name}.txt"
        return Counter(file.read_text().split()) if file.exists() else Counter()
