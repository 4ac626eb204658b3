"""The contract's words in plain English: each verdict in one clause, and the terms of a plan in one sentence."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.cli.terminal.output import Shown, wrap
from reconciler.cli.terminal.text import fold
from reconciler.core.verdicts import Verdict

VERDICTS = {
    Verdict.MATCH: "the stored offset is right here",
    Verdict.MOVED: "the anchor is elsewhere, proven by id or fingerprint",
    Verdict.NEW: "nothing was stored: starts by policy",
    Verdict.TIED: "only the anchor's time is known: starts at the first record of that time",
    Verdict.BOUNDED: "not pinned: starts at an offset that skips nothing",
    Verdict.REMAPPED: "partitions do not correspond: starts by the earliest anchor's time",
    Verdict.BEHIND: "the mirror has not delivered the anchor yet",
    Verdict.LOST: "unprocessed records may be gone from the destination",
    Verdict.MISSING: "the destination has no such partition",
    Verdict.UNRESOLVED: "nothing could be proven",
}

_BRIEF = {
    Verdict.MATCH: "right as stored",
    Verdict.MOVED: "anchor found elsewhere",
    Verdict.NEW: "nothing stored",
    Verdict.TIED: "only its time is known",
    Verdict.BOUNDED: "not pinned, skips nothing",
    Verdict.REMAPPED: "partition counts differ",
    Verdict.BEHIND: "not mirrored yet",
    Verdict.LOST: "records may be gone",
    Verdict.MISSING: "no such partition",
    Verdict.UNRESOLVED: "nothing proven",
}

TERMS = {
    "stored offset": "the next offset to read as the job saved it, in the source cluster's numbers",
    "anchor": "the identity of the last record that the job processed: its offset, time, id and fingerprint",
    "fingerprint": "a hash of a record's key and value",
    "resume offset": "the next offset to read in the destination's numbers",
    "replay": "records already processed that will be read again: a bound (≤), or exact where that is known",
    "verdict": "the finding for one partition; a run's verdict is its worst",
    "evidence": "what the resume offset rests on",
}


def legend(verdicts: Iterable[Verdict], columns: int | None) -> Shown:
    """The given verdicts in a few words each, best first, folded to ``columns``; empty if there are none."""
    present = sorted(set(verdicts))
    if not present:
        return Shown("")
    meanings = " · ".join(f"{verdict.value}: {_BRIEF[verdict]}" for verdict in present)
    return wrap(f"{meanings} (more: reconciler check --explain)", columns=columns)


def glossary(columns: int) -> Shown:
    """Every term and every verdict, for ``check --explain``."""
    verdicts = {verdict.value: meaning for verdict, meaning in VERDICTS.items()}
    lines = []
    for title, entries in (("terms", TERMS), ("verdicts, best to worst", verdicts)):
        size = max(map(len, entries))
        lines += ["", f"{title}:"]
        for name, meaning in entries.items():
            lines.append(fold(f"  {name:<{size}}  {meaning}", columns, indent=" " * (size + 4)))
    return Shown("\n".join([*lines[1:], "", "More: docs/reference/verdicts.md"]))
