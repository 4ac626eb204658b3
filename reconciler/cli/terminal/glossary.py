"""The contract's words in plain English: each finding in one clause, and the terms of a plan in one sentence."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.cli.terminal.output import Shown, wrap
from reconciler.cli.terminal.text import fold
from reconciler.core.verdicts import Verdict

FINDINGS = {
    Verdict.EXACT: "the job's last record is proven: it starts right behind it",
    Verdict.NEW: "the job has no offset of this partition: starts by policy",
    Verdict.EARLY: "a proven lower bound: nothing is skipped, some records come again",
    Verdict.BEHIND: "the mirror has not delivered the job's last record yet",
    Verdict.LOST: "records that the job has not processed may be gone from the destination",
    Verdict.UNRESOLVED: "nothing could be proven, or the partition is not there",
}

_BRIEF = {
    Verdict.EXACT: "the last record is proven",
    Verdict.NEW: "nothing stored",
    Verdict.EARLY: "skips nothing, some come again",
    Verdict.BEHIND: "not mirrored yet",
    Verdict.LOST: "records may be gone",
    Verdict.UNRESOLVED: "nothing proven",
}

TERMS = {
    "stored offset": "the next offset to read as the job saved it, in the source cluster's numbers",
    "anchor": "the identity of the last record that the job processed: its offset, time, id and fingerprint",
    "fingerprint": "a hash of a record's key and value",
    "resume offset": "the next offset to read in the destination's numbers",
    "again": "records already processed that will be read again: a bound (≤), or exact where that is known",
    "finding": "what was found for one partition; a run's is its worst",
    "evidence": "what the resume offset rests on",
}


def legend(found: Iterable[Verdict], columns: int | None) -> Shown:
    """The given findings in a few words each, best first, folded to ``columns``; empty if there are none."""
    present = sorted(set(found))
    if not present:
        return Shown("")
    meanings = " · ".join(f"{each.value}: {_BRIEF[each]}" for each in present)
    return wrap(f"{meanings} (more: reconciler check --explain)", columns=columns)


def glossary(columns: int) -> Shown:
    """Every term and every finding, for ``check --explain``."""
    findings = {found.value: meaning for found, meaning in FINDINGS.items()}
    lines = []
    for title, entries in (("terms", TERMS), ("findings, best to worst", findings)):
        size = max(map(len, entries))
        lines += ["", f"{title}:"]
        for name, meaning in entries.items():
            lines.append(fold(f"  {name:<{size}}  {meaning}", columns, indent=" " * (size + 4)))
    return Shown("\n".join([*lines[1:], "", "More: docs/reference/findings.md"]))
