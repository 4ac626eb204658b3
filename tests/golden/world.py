"""Two clusters in memory, a folder with a configuration and stores, and commands run in it, as transcripts."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import shlex
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from tests.golden import internals
from tests.golden.internals import NOW_MS, MemoryLog, StoredOffset, TopicPartition
from tests.starting import with_empty_state, with_state

SOURCE, DESTINATION, GONE = "kafka-a:9092", "kafka-b:9092", "127.0.0.1:1"
"""Addresses: of the source, of the destination, and where nothing listens."""
_DURATION = re.compile(r"^(reconciler_\w*(?:duration|held_back)_seconds\w*(?:\{[^}]*\})?) \S+$", re.M)
_ENDED = re.compile(r"^(reconciler_hook_timestamp_seconds\{[^}]*\}) \S+$", re.M)
_HASH = re.compile(r"\b(?!0{64})[0-9a-f]{64}\b")
_CAUSE = re.compile(r"(?<= s) \((?:[^()]|\([^()]*\))*\)(?=[.;])")
_CHOICES = re.compile(r"\(choose from [^)]*\)")
"""Python 3.12 and later do not quote them."""
_LOGGED = re.compile(r'"time": "[\d-]{10}T[\d:]{8}"(?=, "level")')
_STATE_ID = re.compile(r"(?<=its id begins with )\w{8}")


class Result:
    """One command's exit code, stdout and stderr."""

    def __init__(self, line: str, code: int, out: str, err: str) -> None:
        self.line, self.code, self.out, self.err = line, code, out, err

    @property
    def transcript(self) -> str:
        """What a terminal shows, without hashes (they cover prose) and the cause that a client knew in time."""
        shown = [
            (name, _CAUSE.sub("", _HASH.sub("<HASH>", text))) for name, text in (("out", self.out), ("err", self.err))
        ]
        parts = [f"$ {self.line}\n", *(_block(name, text) for name, text in shown)]
        return "".join([*parts, f"exit code {self.code}\n"])


def _block(name: str, text: str) -> str:
    lines = "".join(f"{name} | {line}\n".replace("| \n", "|\n") for line in text.split("\n")[:-1])
    last = text.split("\n")[-1]
    return lines + (f"{name} | {last}\\\n" if last else "")


class World:
    """A working directory, a source and a destination in memory, and a clock that a test may set."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.now_ms = NOW_MS
        self.source, self.destination = MemoryLog("cluster-a"), MemoryLog("cluster-b")
        self._patch = monkeypatch
        logs = {SOURCE: self.source, DESTINATION: self.destination}
        internals.patched(monkeypatch, logs, lambda: self.now_ms)
        monkeypatch.chdir(folder)
        for name in [name for name in os.environ if name.startswith("RECONCILER_") or name in ("FORCE_COLOR",)]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TZ", "UTC")
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))

    # ------------------------------------------------------------ what is there

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return path

    def read(self, name: str) -> str:
        return self.clean((self.folder / name).read_bytes().decode())

    def columns(self, width: int) -> None:
        self._patch.setenv("COLUMNS", str(width))

    def environ(self, **variables: str) -> None:
        for name, value in variables.items():
            self._patch.setenv(name, value)

    def store(self, address: str, group: str, rows: Mapping[tuple[str, int], StoredOffset]) -> None:
        """Store rows as a job does."""
        keys = {TopicPartition(topic, partition): row for (topic, partition), row in rows.items()}
        internals.write_rows(address, group, keys)

    def located(self, name: str = "reconciler.toml", *, to: str | None = None) -> None:
        """Give the configuration a state store, in which its jobs live at home; with ``to`` they are moving there."""
        with_state(self.folder / name, to=to)

    def with_state(self, name: str = "reconciler.toml") -> None:
        """Give the configuration a state store, which knows no job yet."""
        with_empty_state(self.folder / name)

    # ------------------------------------------------------------ commands

    def run(self, *words: object, stdin: str = "") -> Result:
        """``reconciler WORDS`` in this process, in this folder."""
        arguments = [str(word) for word in words]
        out, err = io.StringIO(), io.StringIO()
        self._patch.setattr(sys, "stdin", io.StringIO(stdin))
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code = internals.run_main(arguments)
            except SystemExit as ended:  # --help and --version
                code = int(ended.code or 0)
            finally:
                gc.unfreeze()  # ``watch`` freezes what there is, for the rest of its process
        line = self.clean(shlex.join(["reconciler", *arguments]))
        return Result(line, code, self.clean(out.getvalue()), self.clean(err.getvalue()))

    def session(self, *lines: str) -> str:
        """The transcripts of commands, one after another."""
        return "\n".join(self.run(*shlex.split(line)).transcript for line in lines)

    def clean(self, text: str) -> str:
        """``text`` without what differs from run to run: the folder's name and measured times."""
        text = text.replace(str(self.folder.resolve()), "<TMP>").replace(str(self.folder), "<TMP>")
        text = _STATE_ID.sub("<ID>", text)
        text = _LOGGED.sub('"time": "<TIME>"', text)
        text = _CHOICES.sub(lambda found: found[0].replace("'", ""), text)
        return _ENDED.sub(r"\1 <TIME>", _DURATION.sub(_hidden, text))

    # ------------------------------------------------------------ what was written

    def files(self, under: str = ".", *, but: Iterable[str] = ()) -> str:
        """Every file under a folder, by name, with its content as text."""
        root = self.folder / under
        found = sorted(path for path in root.rglob("*") if path.is_file())
        named = [(str(path.relative_to(root)), path) for path in found]
        return "".join(
            f"==> {name}\n{_readable(self.clean(path.read_bytes().decode('utf-8', 'backslashreplace')))}"
            for name, path in named
            if not any(re.fullmatch(pattern, name) for pattern in but)
        )

    def tables(self, name: str) -> str:
        """The tables of a SQLite file: their declarations and rows."""
        with sqlite3.connect(self.folder / name) as db:
            declared = db.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
            tables = [table for table, sql in declared if sql.startswith("CREATE TABLE") and "sqlite_" not in table]
            lines = [sql for _, sql in declared if "sqlite_" not in sql]
            lines += [f"{pragma} = {db.execute(pragma).fetchone()[0]}" for pragma in _PRAGMAS]
            for table in tables:
                cursor = db.execute(f"SELECT * FROM {table}")
                heads = [column for column, *_ in cursor.description]
                for row in cursor.fetchall():
                    cells = dict(zip(heads, row, strict=True))
                    if table == "reconciler_store":
                        cells["name"] = "<RANDOM>"
                    lines.append(f"{table}: {json.dumps(cells, default=_hex)}")
        db.close()
        return "\n".join(lines) + "\n"


_PRAGMAS = ("PRAGMA application_id", "PRAGMA user_version")


def _hidden(found: re.Match[str]) -> str:
    kept = found.group(1).partition("{")[0].endswith("_count")
    return found.group(0) if kept or "<N>" in found.group(0) else f"{found.group(1)} <SECONDS>"


def _readable(text: str) -> str:
    """``text`` with its control characters spelled out and the lack of a last line break marked."""
    text = re.sub(r"[\x00-\x08\x0b-\x1f]", lambda found: f"\\x{ord(found.group()):02x}", text)
    return text if text.endswith("\n") else f"{text}\\\n"


def _hex(value: Any) -> str:
    return f"hex:{value.hex()}"
