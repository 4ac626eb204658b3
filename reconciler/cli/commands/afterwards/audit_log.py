"""``reconciler audit-log``: verify and show the log of who applied and rolled back what."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import Help
from reconciler.cli.terminal.table import Cell, print_table
from reconciler.core.errors import Changed, ConfigError, ExitCode
from reconciler.trust.audit_log import Record, TornLine, verified

EXAMPLE = "reconciler audit-log verify -c reconciler.toml"
HELP = Help(
    "Verifies and shows the audit log: what apply, rollback, hook, anchors import and checkpoint clone wrote, and for "
    "whom. Verifying finds lines that were altered, removed or moved. A log that was cut off at its end can only be "
    "detected with a hash noted earlier: --expect.",
    [
        ("verify the chain", EXAMPLE),
        ("verify that a record noted earlier is still there", "reconciler audit-log verify audit.jsonl --expect 3f9a…"),
        ("the last ten attempts", "reconciler audit-log show -c reconciler.toml --last 10"),
    ],
    exits={
        ExitCode.OK: "the chain is intact",
        ExitCode.USAGE: "usage, or no such log",
        ExitCode.CHANGED: "a line was altered, removed, moved or inserted, or the expected hash is missing",
    },
    see_also=("docs/how-to/trusted-plans.md",),
)
OPEN = "open"
COLOURS = {"done": "good", "nothing": "dim", "partial": "warn", "refused": "warn", "unknown": "bad", OPEN: "bad"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_subparsers(dest="way", metavar="verify|show", required=True)
    for name, summary in (("verify", "verify the chain of hashes"), ("show", "print a line for every attempt")):
        way = ways.add_parser(name, help=summary, description=summary)
        way.add_argument("path", metavar="PATH", nargs="?", type=Path, help="the log (default: [trust] audit_log)")
        arguments.add_optional_config(way, "the configuration that names the log")
        if name == "verify":
            way.add_argument("--expect", metavar="HASH", help="a hash noted earlier, which must be in the log")
        else:
            way.add_argument("--last", metavar="N", type=int, help="only the last N attempts")
            arguments.add_format(way)


def run(options: argparse.Namespace) -> ExitCode:
    path = _path(options)
    return _verify(path, options.expect) if options.way == "verify" else _show(path, options)


def _path(options: argparse.Namespace) -> Path:
    if options.path is not None:
        return Path(options.path)
    if options.config is None:
        raise ConfigError("Which log?", hint="Give its path, or the configuration with -c FILE.")
    named = context.read_config(options).trust.audit_log
    if named is None:
        raise ConfigError(f"{options.config} has no [trust] audit_log.", hint="Add it, or give the log's path.")
    return Path(named)


@dataclass(slots=True)
class _Attempt:
    """One attempt: its first record, and the one that ended it."""

    first: Record
    last: Record | None = None

    @property
    def outcome(self) -> str:
        return OPEN if self.last is None else str(self.last["outcome"])


@dataclass(slots=True)
class _Read:
    """The content of a log, read to its end."""

    records: int = 0
    head: str = ""
    hashes: set[str] = field(default_factory=set)
    torn: list[TornLine] = field(default_factory=list)
    attempts: dict[str, _Attempt] = field(default_factory=dict)

    def take(self, found: Iterable[Record | TornLine]) -> Iterator[Record]:
        """Collect everything, and yield the records."""
        for each in found:
            if isinstance(each, TornLine):
                self.torn.append(each)
                continue
            self.records, self.head = each["line"], each["hash"]
            self.hashes.add(self.head)
            if each["of"] in self.attempts:
                self.attempts[each["of"]].last = each
            elif each["kind"] != "torn":
                self.attempts[self.head] = _Attempt(each, None if each["kind"] == "intention" else each)
            yield each

    @property
    def open(self) -> list[_Attempt]:
        return [attempt for attempt in self.attempts.values() if attempt.last is None]


def _verify(path: Path, expected: str | None) -> ExitCode:
    read = _Read()
    for _ in read.take(verified(path)):
        pass
    if expected is not None and expected.lower() not in read.hashes:
        raise Changed(
            f"The audit log {path} has no record with the hash {expected[:64]}: its end was cut off, or it was "
            "replaced.",
            hint="Compare it with a copy.",
        )
    for torn in read.torn:
        note = "the next record confirms it" if torn.declared else "nothing was written since"
        print(f"After record {torn.after_line}, the writing of a line was cut off ({torn.bytes} bytes); {note}.")
    for attempt in read.open:
        first = attempt.first
        print(
            f"Record {first['line']} is open: {_who(first)} began {first['action']} at {first['time']}, and no "
            "record tells how it ended. Its process was killed, or is still running."
        )
    print(f"{read.records:,} records, and the chain is intact. The last hash: {read.head or '(none)'}")
    return ExitCode.OK


# ---------------------------------------------------------------- show


def _show(path: Path, options: argparse.Namespace) -> ExitCode:
    read = _Read()
    records = list(read.take(verified(path)))
    attempts = list(read.attempts.values())
    if options.last is not None:
        attempts = attempts[len(attempts) - min(max(options.last, 0), len(attempts)) :]
    if options.format == "json":
        wanted = {id(each) for attempt in attempts for each in (attempt.first, attempt.last)}
        for record in records:
            if id(record) in wanted:
                print(json.dumps(record, ensure_ascii=False, sort_keys=True))
        return ExitCode.OK
    heads = ("TIME", "WHO", "ACTION", "OUTCOME", "ROWS", "PLAN", "JOBS")
    print_table(heads, [_row(each) for each in attempts], right=frozenset({4}))
    return ExitCode.OK


def _row(attempt: _Attempt) -> tuple[Cell, ...]:
    first = attempt.first
    jobs: list[dict[str, Any]] = first["jobs"] or []
    plan = first["plan"] or {}
    rows = sum(len(job["rows"]) for job in jobs)
    return (
        Cell(str(first["time"])[:19] + "Z"),
        Cell(_who(first)),
        Cell(str(first["action"])),
        Cell(attempt.outcome, COLOURS.get(attempt.outcome, "")),
        Cell(f"{rows:,}" if jobs else "-"),
        Cell(str(plan.get("sha256") or "-")[:8]),
        Cell(", ".join(job["name"] for job in jobs)),
    )


def _who(record: Record) -> str:
    by = record["by"] or {}
    user = by.get("user") or by.get("uid")
    by_sudo = f"{by['sudo_user']} as " if by.get("sudo_user") else ""
    return f"{by_sudo}{user}@{by.get('host')}"
