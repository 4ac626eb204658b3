"""Moves stored offsets with their anchors, and the jobs' entries of the [state] store, as JSON lines. export prints the
rows of a job's store, where the job lives, its plans, and the newest numbers of its journal. import writes rows into
any writable store, and the rest into a state store that lacks it. Without PATH the lines go to stdout, or come from
stdin. Neither reads the destination's log.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TextIO

from reconciler import written
from reconciler.cli import arguments, context
from reconciler.cli.terminal.help import CONFIG_ENVIRONMENT, Help
from reconciler.cli.terminal.output import show_data
from reconciler.clock import clock_ms
from reconciler.config.file import Config, Job
from reconciler.core.errors import (
    Changed,
    ConfigError,
    ExitCode,
    NeedsPerson,
    OutcomeUnknown,
    ReconcilerError,
    as_sentence,
    worst,
)
from reconciler.core.text import counted
from reconciler.failover import inputs
from reconciler.failover.apart import read_all
from reconciler.failover.checking.numbers import job_topics
from reconciler.failover.inputs import refuse_wrong
from reconciler.failover.unlisted import UnlistedTopics, no_rows
from reconciler.failover.writing.plan_checks import AGAIN
from reconciler.fileio import FileKind, making, refuse_unwritable, why, write_whole
from reconciler.near import known_names
from reconciler.ports import UNKNOWN_PARTITION, Change, OffsetStore, Row, by_key
from reconciler.state import lines as state_lines
from reconciler.state.jobs import JobState
from reconciler.state.lines import FORMAT, LONGEST_LINE, MOST_LINES, AnchorLine, JobLines, dump_line, load_lines

MOST_NAMED = 20
"""At most so many rows are named as not exported, one a line."""
PARTIAL = ".partial"
"""Ends the name of an export that lacks rows."""
ANCHORS = FileKind.of_json("an export of anchors", FORMAT)
"""The only kind of file that an export replaces."""
EXAMPLE = "reconciler anchors export -c reconciler.toml --job clicks anchors.jsonl"
HELP = Help(
    __doc__,
    [
        ("to a file", EXAMPLE),
        ("into another configuration's stores", "reconciler anchors import -c other.toml anchors.jsonl"),
    ],
    {
        ExitCode.OK: "the lines were written, or existed already",
        ExitCode.USAGE: "usage or configuration, import has no line, or one that matches no job, or a line for "
        "stdout holds a configured secret",
        ExitCode.NEEDS_PERSON: "a row cannot be read: export wrote the others, and names this row on stderr; import "
        "wrote nothing",
        ExitCode.CHANGED: "import: a row differs and --replace was not given, or a line contradicts the state store; "
        "nothing was written",
        ExitCode.UNREACHABLE: "a store could not be reached, or refused: export wrote the rows of the other jobs, and "
        "names this job on stderr; import wrote nothing",
        ExitCode.UNKNOWN_OUTCOME: "import: a write's outcome is unknown or partial; run it again",
    },
    environment=CONFIG_ENVIRONMENT,
    files={"PATH.partial": "an export that lacks rows, which could not be read; PATH then keeps the earlier export"},
    see_also=("docs/reference/formats.md", "docs/how-to/track-anchors.md"),
)

_Work = Sequence[tuple[JobState, JobLines]]
"""The lines that the state store lacks, by job."""

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    # One parser each: argparse loses a PATH after options if another positional precedes them.
    ways = parser.add_subparsers(dest="direction", metavar="export|import", required=True)
    for name, summary in (
        ("export", "read them from the stores"),
        ("import", "write them into the stores"),
    ):
        way = ways.add_parser(name, help=summary, description=summary)
        arguments.add_config(way)
        arguments.add_jobs(way)
        if name == "import":
            way.add_argument("--replace", action="store_true", help="overwrite rows that differ (default: refuse)")
        pipe = "stdin" if name == "import" else "stdout"
        way.add_argument("path", metavar="PATH", nargs="?", help=f"a file (default: {pipe})")


def run(options: argparse.Namespace) -> ExitCode:
    config = context.read_config(options)
    jobs = config.chosen(*options.job)
    config = inputs.with_topics(config, jobs, inputs.locations_of(config, jobs), lenient=True)
    jobs = config.chosen(*options.job)
    if options.direction == "export" and options.path not in (None, "-"):
        refuse_unwritable(Path(options.path), replaces=ANCHORS)
    refuse_wrong(config, jobs)
    if options.direction == "export":
        return _export(config, jobs, options.path)
    lines, recorded = _read_lines(options.path)
    if not (lines or recorded) and options.path != os.devnull:  # which creates the store, and imports nothing
        raise ConfigError(
            f"{'stdin' if options.path in (None, '-') else options.path} holds no line. Nothing was imported.",
            hint="Check the command that wrote the lines: its group or its filter may be wrong.",
        )
    return _import(config, jobs, lines, recorded, options)


def _export(config: Config, jobs: Sequence[Job], path: str | None) -> ExitCode:
    """Print the rows that can be read, and name the others: a failover would be the first to miss them.

    One job alone raises its store's error. If no store of several jobs can be read, a file keeps what it holds.
    """
    recorded = _recorded_lines(config, jobs)
    rows, failed = _rows(config, jobs)
    if failed and len(jobs) == 1:
        raise failed[jobs[0].name]
    for name, error in failed.items():
        log.warning('not exported: job "%s": %s', name, as_sentence(error))
        log.debug('job "%s" was not exported', name, exc_info=error)
    code = worst(as_sentence(error).exit_code for error in failed.values())
    if len(failed) == len(jobs):
        return code
    _warn_of_none(config, [job for job in jobs if job.name not in {*failed, *recorded}], rows)
    more = [line for job in jobs if job.name not in failed for line in recorded.get(job.name, ())]
    return worst([code, _export_rows(rows, more, path, is_whole=not failed)])


def _warn_of_none(config: Config, jobs: Sequence[Job], rows: Sequence[tuple[Job, Row]]) -> None:
    """Name the jobs without anything to export: an empty export looks like a complete one."""
    there, open_store = {job.name for job, _ in rows}, inputs.stores(config)
    for job in jobs:
        if job.name not in there and job.new is None:
            with closing(open_store(job.store)) as store:
                log.warning('nothing to export of job "%s": %s', job.name, no_rows(store, job.group, *job.topics))


def _export_rows(
    rows: Sequence[tuple[Job, Row]], recorded: Sequence[str], path: str | None, *, is_whole: bool
) -> ExitCode:
    sound = [(job, row) for job, row in rows if row.malformed is None]
    lines = [AnchorLine(job.group, row.key.topic, row.key.partition, row.stored) for job, row in sound]
    _print([*map(dump_line, lines), *recorded], path, is_whole=is_whole and len(sound) == len(rows))
    bad = [row.malformed.refused for _, row in rows if row.malformed is not None]
    for error in bad[:MOST_NAMED]:
        log.warning("not exported: %s", error)
    if (more := len(bad) - MOST_NAMED) > 0:
        log.warning("not exported: %s more; `reconciler plan` lists all", f"{more:,}")
    return ExitCode.NEEDS_PERSON if bad else ExitCode.OK


def _print(lines: Sequence[str], path: str | None, *, is_whole: bool = True) -> ExitCode:
    """Write the lines to the file if none is missing. Otherwise write them beside it, and keep the earlier export."""
    text = "".join(f"{line}\n" for line in lines)
    if path is None or path == "-":
        show_data(text, instead="Give a PATH: a file gets the lines as they are.")
        return ExitCode.OK
    part = Path(f"{path}{PARTIAL}")
    write_whole(Path(path) if is_whole else part, text)
    count = counted(len(lines), "line")
    if is_whole:
        log.info("%s written to %s", count, path)
        with making(part):
            part.unlink(missing_ok=True)  # of an earlier export, which this one completes
    else:
        earlier = "keeps the earlier export" if Path(path).exists() else "was not written"
        log.info("%s written to %s: not all could be read, so %s %s", count, part, path, earlier)
    return ExitCode.OK


def _rows(config: Config, jobs: Sequence[Job]) -> tuple[list[tuple[Job, Row]], dict[str, Exception]]:
    """The jobs' rows, in the jobs' order; and by a job's name, why its rows could not be read."""
    read = read_all(config, jobs, inputs.stores(config), time.monotonic)
    failed = {name: failure.error for name, failure in read.failed.items()}
    for name, error in failed.items():
        if isinstance(error, UnlistedTopics):  # the listed topics were read
            log.warning('job "%s": only the listed topics are exported: %s', name, error)
    failed = {name: error for name, error in failed.items() if not isinstance(error, UnlistedTopics)}
    rows: list[tuple[Job, Row]] = []
    for job in (each for each in jobs if each.name not in failed):
        rows += [(job, row) for row in read.copies[job.store].read(job.group, job_topics(config, job))]
    return rows, failed


def _import(
    config: Config,
    jobs: Sequence[Job],
    lines: Sequence[AnchorLine],
    recorded: Mapping[str, JobLines],
    options: argparse.Namespace,
) -> ExitCode:
    wanted: dict[str, list[AnchorLine]] = {job.name: [] for job in jobs}
    for line in lines:
        wanted[_job_of(config, jobs, line).name].append(line)
    total = 0
    concerned = [job for job in jobs if wanted[job.name] or (len(jobs) == 1 and not recorded)]
    lacks = _missing(config, jobs, recorded)
    with ExitStack() as until_the_end:
        work, open_store = [], inputs.stores(config)
        for job in concerned:
            store = open_store(job.store)
            until_the_end.callback(store.close)
            work.append((job, store, _changes(config, job, store, wanted[job.name], replace=options.replace)))
        names = [_name_of(job, len(changes)) for job, _, changes in work if changes]
        written.intend(*_names_of(lacks), *names)
        total += _append(lacks)
        for job, store, changes in work:  # every job is checked before the first is written
            if changes:
                _put(store, job, changes, any_written=total > 0)
                total += len(changes)
    every = len(lines) + sum(each.count for each in recorded.values())
    log.info("%s written, %s existed already.", counted(total, "line"), f"{every - total:,}")
    return ExitCode.OK


def _read_lines(path: str | None) -> tuple[list[AnchorLine], dict[str, JobLines]]:
    piped = path in (None, "-")
    try:
        if piped:
            return _parted(list(_bounded(sys.stdin)))
        with open(str(path), encoding="utf-8-sig") as file:
            return _parted(list(_bounded(file)))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{'stdin' if piped else path} cannot be read: {why(error)}.",
            hint="Give the path of a file that anchors export wrote.",
        ) from error


def _parted(texts: Sequence[str]) -> tuple[list[AnchorLine], dict[str, JobLines]]:
    """The rows' lines, and the lines about jobs. Raises ConfigError for the first line that is neither."""
    rows, recorded = _split(texts)
    return list(load_lines(rows)), recorded


def _bounded(file: TextIO) -> Iterator[str]:
    """At most ``MOST_LINES`` + 1 lines of the file. A line that is too long is cut off, and is the last."""
    begin = "\ufeff"  # editors on Windows begin a file with a byte order mark, and a pipe may bring it along
    for _ in range(MOST_LINES + 1):
        text = file.readline(LONGEST_LINE + 1)
        if not text:
            return
        yield text.removeprefix(begin)
        if len(text) > LONGEST_LINE:
            return
        begin = ""


def _job_of(config: Config, jobs: Iterable[Job], line: AnchorLine) -> Job:
    fitting = [job for job in jobs if job.group == line.group and line.topic in job_topics(config, job)]
    if len(fitting) != 1:
        what = "No job" if not fitting else "More than one job"
        raise ConfigError(
            f'{what} of the configuration has group "{line.group}" and topic "{line.topic}".',
            hint="Correct the lines, or choose the job with --job.",
        )
    return fitting[0]


def _changes(
    config: Config, job: Job, store: OffsetStore, lines: Sequence[AnchorLine], *, replace: bool
) -> list[Change]:
    """One job's changes. Creates the store if it is missing; writes no row."""
    store.create()
    rows = by_key(store.read(job.group, job_topics(config, job)))
    changes = []
    for line in lines:
        key = line.key
        there = rows.get(key)
        _refuse_malformed(there or rows.get(key._replace(partition=UNKNOWN_PARTITION)))
        if there and (there.stored.offset, there.stored.anchor) == (line.stored.offset, line.stored.anchor):
            continue
        if there and not replace:
            raise Changed(
                f"{key} is stored already, with offset {there.stored.offset}.",
                hint="Nothing was written. Add --replace to overwrite it.",
            )
        # How far such a job was is unknown: row-time by the time of the import would skip all records until then.
        undated = line.stored.anchor is None and line.stored.written_at_ms is None
        changes.append(Change(key, there.version if there else None, line.stored, undated=undated))
    if changes:
        store.check_writable(job.group)
    return changes


def _refuse_malformed(row: Row | None) -> None:
    """Raise NeedsPerson for a row that cannot be read: an import would overwrite it, and nothing keeps its content.

    A row whose partition cannot be read may be that of any partition without a row.
    """
    if row is not None and row.malformed is not None:
        bad = row.malformed
        raise NeedsPerson(f"{bad.message} Nothing was written.", hint=f"{bad.hint} Then run this again.")


def _name_of(job: Job, rows: int) -> str:
    """A job's write in sentences."""
    return f'job "{job.name}" ({counted(rows, "offset")})'


def _put(store: OffsetStore, job: Job, changes: Sequence[Change], *, any_written: bool) -> None:
    """Write one job's changes by compare-and-set.

    Raises Changed for a conflict, and OutcomeUnknown if other rows or, by ``any_written``, other jobs were written.
    """
    try:
        with written.writing(_name_of(job, len(changes))):
            result = store.write(job.group, changes, reason="import", now_ms=clock_ms())
            if not result.conflicts:
                return
            problem = f'The store of job "{job.name}" changed while it was being written: {result.conflicts[0]}'
            if result.written:
                raise OutcomeUnknown(
                    f"{problem}; {len(result.written)} of its {len(changes)} rows were written.", hint="Run this again."
                )
            raise Changed(f"{problem}.{'' if any_written else ' Nothing was written.'}", hint=AGAIN)
    except ReconcilerError as error:
        if not any_written or isinstance(error, OutcomeUnknown):
            raise
        raise OutcomeUnknown(
            f'Other jobs were written, job "{job.name}" was not: {error.message}', hint="Run this again."
        ) from error


# ---------------------------------------------------------------- what the state store has


def _recorded_lines(config: Config, jobs: Sequence[Job]) -> dict[str, list[str]]:
    """By job, the lines of what the state store has of it; without jobs of which it has nothing. Raises as it does."""
    states = inputs.states_if_any(config, jobs)
    found = {name: list(state_lines.dump(name, state_lines.newest(state))) for name, state in states.items()}
    return {name: lines for name, lines in found.items() if lines}


def _split(texts: Sequence[str]) -> tuple[list[str], dict[str, JobLines]]:
    """The rows' lines, blank where a line is about a job; and the lines about jobs. Raises as ``state.lines.load``."""
    of_jobs = [_is_of_job(text) for text in texts]
    rows = ["" if is_one else text for text, is_one in zip(texts, of_jobs, strict=True)]
    return rows, state_lines.load(text if is_one else "" for text, is_one in zip(texts, of_jobs, strict=True))


def _is_of_job(text: str) -> bool:
    try:
        return '"job"' in text and "job" in json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return False  # the reader of rows says what is wrong


def _missing(config: Config, jobs: Sequence[Job], lines: Mapping[str, JobLines]) -> _Work:
    """The lines that the state store lacks. Raises ConfigError for a job not chosen, Changed for a contradiction."""
    if not lines:
        return []
    names = [job.name for job in jobs]
    for name in lines:
        if name not in names:
            raise ConfigError(
                f'A line is of job "{name}", which is not among the chosen jobs of the configuration.',
                hint=f"These are: {known_names(name, names)}.",
            )
    inputs.open_state_store(config).close()  # raises if the configuration names none
    states = inputs.states_if_any(config, [job for job in jobs if job.name in lines])
    return [(states[name], state_lines.missing(states[name], each)) for name, each in lines.items()]


def _names_of(work: _Work) -> list[str]:
    """The writes that are ahead, for sentences."""
    return [_name_of_lines(state, found) for state, found in work if found.count]


def _append(work: _Work) -> int:
    """Append what is missing, and count it. Raises as the state store does, and Changed if it has changed since."""
    for state, found in work:
        if found.count:
            with written.writing(_name_of_lines(state, found)):
                state_lines.append(state, found, clock_ms())
    return sum(found.count for _, found in work)


def _name_of_lines(state: JobState, found: JobLines) -> str:
    return f'{counted(found.count, "record")} of job "{state.job}"'
