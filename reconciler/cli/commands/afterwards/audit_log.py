"""``reconciler audit-log``: verify and show the log of who applied and rolled back what."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import OPTIONAL_CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import say, show_json
from reconciler.cli.terminal.table import Cell, print_table
from reconciler.config.settings import TrustSettings
from reconciler.core.errors import Changed, ConfigError, ExitCode
from reconciler.formats.decimal_text import counted
from reconciler.trust.audit_log import Record, TornLine, verified
from reconciler.trust.witness import compare

EXAMPLE = "reconciler audit-log verify -c reconciler.toml"
HELP = Help(
    """
    Verifies and shows the audit log: what apply, rollback, hook, anchors import and checkpoint clone wrote, and for
    whom. Verifying finds lines that were altered, removed or moved one by one. Anyone who can write the file can also
    make the whole chain again, or cut off its end. Only hashes that were kept elsewhere reveal that: give them with
    --expect or --witness, or have them kept by [trust] audit_heads.
    """,
    [
        ("verify the chain", EXAMPLE),
        ("verify that a record noted earlier is still there", "reconciler audit-log verify audit.jsonl --expect 3f9a…"),
        ("verify against the messages that a log server has collected", f"{EXAMPLE} --witness messages.txt"),
        ("the last ten attempts", "reconciler audit-log show -c reconciler.toml --last 10"),
    ],
    exits={
        ExitCode.OK: "the chain is whole, and the hashes that were given are in it",
        ExitCode.USAGE: "usage, no such log, or a file that is no audit log",
        ExitCode.CHANGED: "a line was altered, removed, moved or inserted, the log holds no record, or a hash kept "
        "elsewhere does not fit",
    },
    environment=OPTIONAL_CONFIG_ENVIRONMENT,
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
            way.add_argument(
                "--witness",
                metavar="FILE",
                type=Path,
                help="a file with hashes of the log's records, kept elsewhere: the commands' collected messages, or "
                "the file of [trust] audit_heads (default: that one)",
            )
        else:
            way.add_argument("--last", metavar="N", type=int, help="only the last N attempts")
            arguments.add_format(way)


def run(options: argparse.Namespace) -> ExitCode:
    if options.path is not None and options.config is options.by_variable:
        trust = TrustSettings()  # that log may be another one than the configuration's
    else:
        config = context.config_if_named(options)
        trust = TrustSettings() if config is None else config.trust
    path = _path(options, trust)
    if options.way == "show" and options.last is not None and options.last < 1:
        raise ConfigError(f"--last {options.last} must be at least 1.")
    if options.way == "show":
        return _show(path, options)
    kept = Path(trust.audit_heads) if trust.audit_heads is not None else None
    return _verify(path, options.expect, options.witness or kept)


def _path(options: argparse.Namespace, trust: TrustSettings) -> Path:
    if options.path is not None:
        return Path(options.path)
    if options.config is None:
        raise ConfigError("Which log?", hint="Give its path, or the configuration with -c FILE.")
    if trust.audit_log is None:
        raise ConfigError(f"{options.config} has no [trust] audit_log.", hint="Add it, or give the log's path.")
    return Path(trust.audit_log)


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
    hashes: dict[int, str] = field(default_factory=dict)
    torn: list[TornLine] = field(default_factory=list)
    attempts: dict[str, _Attempt] = field(default_factory=dict)

    def take(self, found: Iterable[Record | TornLine]) -> Iterator[Record]:
        """Collect everything, and yield the records."""
        for each in found:
            if isinstance(each, TornLine):
                self.torn.append(each)
                continue
            self.records, self.head = each["line"], each["hash"]
            self.hashes[self.records] = self.head
            if each["of"] in self.attempts:
                self.attempts[each["of"]].last = each
            elif each["kind"] != "torn":
                self.attempts[self.head] = _Attempt(each, None if each["kind"] == "intention" else each)
            yield each

    @property
    def open(self) -> list[_Attempt]:
        return [attempt for attempt in self.attempts.values() if attempt.last is None]


def _verify(path: Path, expected: str | None, witness: Path | None) -> ExitCode:
    read = _Read()
    for _ in read.take(verified(path)):
        pass
    vouched = _vouched_for(read, path, expected, witness)
    if not read.records:
        torn_only = ", only the beginning of one whose writing was cut off" if read.torn else ""
        raise Changed(
            f"The audit log {path} holds no record{torn_only}.",
            hint="Either no command has logged anything yet, or the log was emptied: compare it with a copy, or with "
            "the hashes that were kept elsewhere.",
        )
    for torn in read.torn:
        note = "the next record confirms it" if torn.declared else "nothing was written since"
        say(f"After record {torn.after_line}, the writing of a line was cut off ({torn.bytes} bytes); {note}.")
    for attempt in read.open:
        first = attempt.first
        say(
            f"Record {first['line']} is open: {_who(first)} began {first['action']} at {first['time']}, and no "
            "record tells how it ended. Its process was killed, or is still running."
        )
    records = counted(read.records, "record")
    say(f"{records}, and each follows from the one before. The last hash: {read.head}")
    if vouched < read.records:
        since = f" after record {vouched:,}" if vouched else ""
        say(
            f"Nothing kept elsewhere vouches for the records{since}: anyone who can write the file can make such a "
            "chain. Compare it with --expect HASH or --witness FILE."
        )
    return ExitCode.OK


def _vouched_for(read: _Read, path: Path, expected: str | None, witness: Path | None) -> int:
    """The last record that a hash kept elsewhere vouches for. Raises Changed for a hash that the log does not have."""
    vouched = 0
    if expected is not None:
        found = [number for number, each in read.hashes.items() if each == expected.lower()]
        if not found:
            raise Changed(
                f"The audit log {path} has no record with the hash {expected[:64]}: it was rewritten, cut off or "
                "replaced.",
                hint="Compare it with a copy.",
            )
        vouched = found[0]
    if witness is not None:
        heads = compare(path, read.hashes, witness)
        say(f"{witness} vouches for the records up to {heads.last:,}.")
        if heads.others:
            others = counted(len(heads.others), "other audit log")
            say(f"It also has heads of {others}, which say nothing about this one: {heads.others_text}.")
        vouched = max(vouched, heads.last)
    return vouched


# ---------------------------------------------------------------- show


def _show(path: Path, options: argparse.Namespace) -> ExitCode:
    read = _Read()
    records = list(read.take(verified(path)))
    attempts = list(read.attempts.values())
    if options.last is not None:
        attempts = attempts[-options.last :]
    if options.format == "json":
        wanted = {id(each) for attempt in attempts for each in (attempt.first, attempt.last)}
        for record in records:
            if id(record) in wanted:
                show_json(record, indent=None, sort_keys=True)
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
