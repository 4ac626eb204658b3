"""Stored offsets with their anchors, and the state store's entries of jobs, as JSON lines: ``reconciler.anchors/1``.

A row of a place has one line: ``{"format": "reconciler.anchors/1", "group", "topic", "partition", "stored_offset",
"anchor": null or {"offset", "timestamp_ms", "id_base64", "fingerprint", "cluster_id", "topic_id"}}``. Absent values are
null or left out. Two more keys appear only where the line would otherwise mean something else: ``names`` inside an
anchor that does not name the last processed record (``next``, ``max-time``), and ``written_at_ms`` (epoch ms) on a row
whose time of writing is known. Any other key is an error.

A job has a line for each plan, one for each entry of its location since it last lived somewhere, and one for each
partition: its newest processed number in the stay that counts, with the record before it. ``missing`` compares these
lines with the store and writes nothing; ``append`` then writes what is missing.

- C1  What the store has is never replaced. A plan or an entry of the location that differs is refused, and so is a
      number with another record. The location is taken over whole, or it is the same one.
- C2  The newest entry of the location is appended first, and the others behind it: from the first append on, no hook
      finds the job where it lived before. Plans come before it, since it names one.
- C3  Numbers go into the journal of the stay that counts. The entry carries the run of the entry before it (B1 of
      ``tracking.beside``), so it ends no driver. If some numbers are below the newest ones, a further entry has the
      newest again: the last entry stays the newest number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

from reconciler.config.streams import Stream
from reconciler.core import anchor_fields, json_fields
from reconciler.core.anchor_fields import LONG
from reconciler.core.anchors import Anchor, StoredOffset, TopicPartition
from reconciler.core.errors import Changed, ConfigError
from reconciler.core.json_fields import FieldError
from reconciler.core.text import command
from reconciler.state import journal, locations, plans
from reconciler.state.jobs import JobState
from reconciler.state.journal import OUTSIDE, StreamPartition
from reconciler.state.locations import Location, Phase
from reconciler.state.plans import Numbers
from reconciler.state.store import FIRST
from reconciler.state.stored import Known

LONGEST_LINE = 16 * 1024 * 1024
"""Characters, including the line break: a plan is one line."""


@dataclass(slots=True)
class JobLines:
    """One job's lines."""

    plans: dict[int, Numbers] = field(default_factory=dict)
    locations: dict[int, Location] = field(default_factory=dict)
    numbers: dict[tuple[int, StreamPartition], Known[Anchor]] = field(default_factory=dict)
    """By the stay."""

    @property
    def count(self) -> int:
        return len(self.plans) + len(self.locations) + len(self.numbers)


def newest(job: JobState) -> JobLines:
    """The lines of a job in the store. Raises as the store does."""
    history = job.history()
    since = list(takewhile(lambda each: each.phase is not Phase.LIVES, reversed(history)))
    kept = history[len(history) - len(since) - 1 :] if history else []
    stay = history[-1].stay if history else 1
    known = journal.latest(job.newest(stay))
    numbers = {(stay, at): each for at, each in known.items()}
    return JobLines(job.plans(), {each.number: each for each in kept}, numbers)


# ---------------------------------------------------------------- into a store


def missing(job: JobState, lines: JobLines) -> JobLines:
    """The lines that the store lacks. Raises Changed for a line that contradicts it, and as the store does."""
    there, history = job.plans(), {each.number: each for each in job.history()}
    for number, plan in lines.plans.items():
        if number in there and there[number] != plan:
            raise _differs(job, f"plan {number}")
    absent = {number: each for number, each in lines.locations.items() if number not in history}
    if any(history[number] != each for number, each in lines.locations.items() if number in history):
        raise _differs(job, "the location")
    if absent and not history.keys() <= lines.locations.keys():
        raise _differs(job, "the location")
    here = max((history | lines.locations).items(), default=(0, None))[1]
    numbers = _missing_numbers(job, 1 if here is None else here.stay, lines)
    return JobLines({number: each for number, each in lines.plans.items() if number not in there}, absent, numbers)


def _missing_numbers(job: JobState, stay: int, lines: JobLines) -> dict[tuple[int, StreamPartition], Known[Anchor]]:
    if other := {each for each, _ in lines.numbers} - {stay}:
        raise Changed(
            f'The lines have numbers of stay {min(other)} of job "{job.job}", which is in stay {stay}.',
            hint="Nothing was imported. Import the job's newest export.",
        )
    entries = job.journal(stay) if lines.numbers else []
    found = {}
    for (_, at), known in lines.numbers.items():
        there = [each for each in journal.known_of(entries, at) if each.number == known.number and each.processed]
        if there and there[-1].record != known.record:
            raise _differs(job, f"the record before {known.number:,} of {Stream(at.topic, at.origin)}-{at.partition}")
        if not there:
            found[stay, at] = known
    if found:
        _refuse_ended(job, stay, entries)
    return found


def _refuse_ended(job: JobState, stay: int, entries: Sequence[journal.Entry]) -> None:
    if entries and entries[-1].closed_by is not None:
        raise Changed(
            f'Stay {stay} of job "{job.job}" has ended.', hint=f"See: {command('reconciler', 'status', '--history')}"
        )


def _differs(job: JobState, what: str) -> Changed:
    return Changed(
        f'{what[0].upper()}{what[1:]} of job "{job.job}" in {job.store.shown} differs from the lines.',
        hint="Nothing was imported. Import into an empty state store, or leave these lines out.",
    )


def append(job: JobState, found: JobLines, at_ms: int) -> None:
    """Append what ``missing`` has found (C2, C3). Raises Changed if somebody else wrote meanwhile: run it again."""
    for _, plan in sorted(found.plans.items()):
        job.restore_plan(plan)
    for _, location in sorted(found.locations.items(), reverse=True):
        job.restore_location(location)
    numbers: dict[int, dict[StreamPartition, Known[Anchor]]] = {}
    for (stay, at), known in found.numbers.items():
        numbers.setdefault(stay, {})[at] = known
    for stay, new in numbers.items():
        _append_numbers(job, stay, new, at_ms)


def _append_numbers(job: JobState, stay: int, new: Mapping[StreamPartition, Known[Anchor]], at_ms: int) -> None:
    entries = job.newest(stay)
    _refuse_ended(job, stay, entries)
    next_number, run = FIRST, OUTSIDE
    if entries:
        next_number = entries[-1].number + 1
        run = OUTSIDE if stay > 1 and entries[-1].number == FIRST else entries[-1].run
    elif began := [each.plan for each in job.history() if each.phase is Phase.LIVES and each.plan is not None]:
        plan = job.plan(began[-1])
        first = {at: each.row.first() for at, each in plan.rows.items()}
        entries = [journal.opening(first, f"plan {plan.number}", at_ms)]
    before = journal.latest(entries)
    last = {**before, **{at: each for at, each in new.items() if at not in before or before[at].number < each.number}}
    parts = [journal.opening({**before, **new}, run, at_ms)]
    if last != {**before, **new}:
        parts.append(journal.opening(last, run, at_ms))
    for part in [*(entries if next_number == FIRST else ()), *parts]:
        if not job.append_journal(stay, next_number, part):
            raise Changed(f'The journal of job "{job.job}" has grown meanwhile.', hint="Run this again.")
        next_number += 1


# ---------------------------------------------------------------- their form


def dump(job: str, lines: JobLines) -> Iterator[str]:
    """The lines of a job, of ASCII text, without line breaks. ``load`` reads them back."""
    for number, plan in sorted(lines.plans.items()):
        yield _line(job, {"plan": number, "entry": plans.dump(plan)})
    for number, location in sorted(lines.locations.items()):
        yield _line(job, {"location": number, "entry": locations.dump(location)})
    for (stay, at), known in sorted(lines.numbers.items(), key=lambda each: each[0]):
        fields: dict[str, Any] = {
            "stay": stay,
            "stream": str(Stream(at.topic, at.origin)),
            "partition": at.partition,
            "number": known.number,
            "anchor": None if known.record is None else anchor_fields.dump(known.record, LONG),
        }
        yield _line(job, fields | {name: getattr(known, name) for name in ("again", "older") if getattr(known, name)})


def _line(job: str, fields: Mapping[str, Any]) -> str:
    return json.dumps({"format": FORMAT, "job": job, **fields}, ensure_ascii=True)


def load(texts: Iterable[str]) -> dict[str, JobLines]:
    """The lines, by job; blank ones are skipped.

    Raises ConfigError naming the line and the field at the first one that is not of this format, or repeats another.
    """
    found: dict[str, JobLines] = {}
    for _ in objects_in(texts, partial(_take, found), longest=LONGEST_LINE):
        pass  # each was put into ``found``
    return found


def _take(found: dict[str, JobLines], content: Mapping[str, Any]) -> None:
    # The format comes first: in a file of another format, every other complaint would mislead.
    if content.get("format") != FORMAT:
        raise FieldError("format", f"is not {FORMAT!r}")
    lines = found.setdefault(json_fields.required_text(content, "job"), JobLines())
    if "plan" in content:
        number, entry = _entry(content, "plan")
        _put(lines.plans, number, plans.load(number, entry), "plan")
    elif "location" in content:
        number, entry = _entry(content, "location")
        _put(lines.locations, number, locations.load(number, entry), "location")
    else:
        _put(lines.numbers, *_number(content), "partition")


def _put(into: dict[Any, Any], key: Any, value: Any, name: str) -> None:
    if key in into:
        raise FieldError(name, "is in a line before this one")
    into[key] = value


def _entry(content: Mapping[str, Any], name: str) -> tuple[int, Mapping[str, Any]]:
    json_fields.no_unknown(content, frozenset(("format", "job", name, "entry")))
    entry = content.get("entry")
    if not isinstance(entry, dict):
        raise FieldError("entry", "is not a JSON object")
    return json_fields.required(json_fields.integer(content, name, low=FIRST), name), entry


def _number(content: Mapping[str, Any]) -> tuple[tuple[int, StreamPartition], Known[Anchor]]:
    json_fields.no_unknown(content, _NUMBER)
    try:
        topic, origin = Stream.parse(json_fields.required_text(content, "stream"))
    except ValueError as error:
        raise FieldError("stream", f"is a name that {error}") from error
    partition = json_fields.required(json_fields.integer(content, "partition", 0, json_fields.INT32_MAX), "partition")
    known = Known(
        json_fields.required(json_fields.integer(content, "number", low=0), "number"),
        anchor_fields.load_optional(content.get("anchor")),
        json_fields.integer(content, "again", low=0) or 0,
        json_fields.integer(content, "older", low=0) or 0,
    )
    stay = json_fields.required(json_fields.integer(content, "stay", low=1), "stay")
    return (stay, StreamPartition(topic, origin, partition)), known


_NUMBER = frozenset(("format", "job", "stay", "stream", "partition", "number", "anchor", "again", "older"))


T = TypeVar("T")
FORMAT = "reconciler.anchors/1"

LONGEST_ROW = 4 * 1024 * 1024
"""Characters, including the line break. An id may be a record's whole key."""
MOST_LINES = 500_000

_LINE_KEYS = frozenset({"format", "group", "topic", "partition", "stored_offset", "anchor", "written_at_ms"})


@dataclass(frozen=True, slots=True)
class AnchorLine:
    """One line: a group's stored offset for one partition, by the source's topic name."""

    group: str
    topic: str
    partition: int
    stored: StoredOffset

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def dump_line(line: AnchorLine) -> str:
    """One line of ASCII text, without its line break. ``load_lines`` reads it back."""
    content = line_json(line)
    if line.stored.written_at_ms is not None:
        content["written_at_ms"] = line.stored.written_at_ms
    return json.dumps(content, ensure_ascii=True)


def load_lines(lines: Iterable[str]) -> Iterator[AnchorLine]:
    """Read lines one by one; blank ones are skipped.

    Raises ConfigError naming the line and the field at the first line that is not of this format, and at the
    second of two lines for the same group, topic and partition.
    """
    seen: dict[tuple[str, str, int], int] = {}
    for number, line in objects_in(lines, line_of, longest=LONGEST_ROW):
        first = seen.setdefault((line.group, line.topic, line.partition), number)
        if first != number:
            row = f"{line.key} of group {line.group!r}"
            raise _wrong_line(number, f"repeats {row}, which line {first} already has")
        yield line


def objects_in(
    lines: Iterable[str], read: Callable[[Mapping[str, Any]], T], *, longest: int
) -> Iterator[tuple[int, T]]:
    """The results of ``read`` on the JSON object in each line, with the line's number; blank lines are skipped.

    ``longest``: characters, including the line break. Raises ConfigError naming the line where it is longer, has no
    object, or ``read`` raises FieldError; and after ``MOST_LINES``.
    """
    for number, text in enumerate(lines, start=1):
        if len(text) > longest:
            raise _wrong_line(number, f"it has more than {longest:,} characters")
        if number > MOST_LINES:
            raise _wrong_line(number, f"at most {MOST_LINES:,} lines are read at once")
        if not text.strip():
            continue
        try:
            found = read(json_fields.json_object(text))
        except FieldError as error:
            raise _wrong_line(number, error.sentence) from error
        yield number, found


def _wrong_line(number: int, problem: str) -> ConfigError:
    return ConfigError(
        f"Line {number} of the anchor lines: {problem}.",
        hint=f"Correct the line; the format is {FORMAT}, one JSON object a line.",
    )


def line_json(line: AnchorLine) -> dict[str, object]:
    """One line as JSON values, without the time of a row that has an anchor."""
    content: dict[str, object] = {
        "format": FORMAT,
        "group": line.group,
        "topic": line.topic,
        "partition": line.partition,
        "stored_offset": line.stored.offset,
        "anchor": None if line.stored.anchor is None else anchor_fields.dump(line.stored.anchor, LONG),
    }
    if line.stored.anchor is None and line.stored.written_at_ms is not None:
        content["written_at_ms"] = line.stored.written_at_ms
    return content


def line_of(content: Mapping[str, object]) -> AnchorLine:
    """The line in JSON values. Raises FieldError."""
    # The format comes first: in a file of another format, every other complaint would mislead.
    if content.get("format") != FORMAT:
        raise FieldError("format", f"is not {FORMAT!r}")
    json_fields.no_unknown(content, _LINE_KEYS)
    stored = StoredOffset(
        offset=json_fields.required(json_fields.integer(content, "stored_offset"), "stored_offset"),
        anchor=anchor_fields.load_optional(content.get("anchor")),
        written_at_ms=json_fields.integer(content, "written_at_ms"),
    )
    return AnchorLine(
        group=json_fields.required_text(content, "group"),
        topic=json_fields.required_text(content, "topic"),
        partition=json_fields.required(
            json_fields.integer(content, "partition", 0, json_fields.INT32_MAX), "partition"
        ),
        stored=stored,
    )
