"""The picture of one partition, as SVG without inline style.

A plan says what the destination was asked, not where its log begins and ends, and so the picture shows neither. It
shows distances from the resume point, in records, on one logarithmic scale for the whole page, so that rows can be
compared by eye.

Two lines. The lower one is the destination's log around the resume point: the record right before it that was found and
compared, and the records that will be read again. The upper one is in the numbers that were stored, which are the
source's until a partition is handed over: the stored offset and its anchor. They have no number in common, so the
stored offset is never drawn as a place in the destination's log; what leads from one to the other is solid only where
the anchor's own record was found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from reconciler.core.verdicts import MatchedBy, Position, Verdict
from reconciler.formats.plan import PartitionPlan

WIDTH, HEIGHT = 240, 44
PIVOT = 56
"""Where the resume point stands."""
_END = 232
_UPPER, _LOWER = 13, 32

SHAPES = (
    '<svg width="0" height="0" aria-hidden="true" class="away"><defs>'
    '<g id="log"><path class="l" d="M0 32H240"/><path class="t" d="M56 6V40"/></g>'
    '<path id="nolog" class="u" d="M0 32H240"/>'
    '<path id="go" d="M56 24.5L66 32L56 39.5Z"/>'
    "</defs></svg>"
)

LEGEND = (
    ('<path class="s" d="M15 4l5 5l-5 5l-5-5Z"/>', "stored offset, in the numbers it was stored with"),
    ('<path class="q" d="M15 4l5 5l-5 5l-5-5Z"/>', "the same number is right here"),
    ('<path class="k" d="M15 3V15"/>', "its anchor: the record last processed"),
    ('<path class="k" d="M20 3L10 15"/>', "resumes there: the anchor's own record was found"),
    ('<path class="u" d="M20 3L10 15"/>', "resumes there: by time, a bound, policy or a person"),
    ('<circle class="f" cx="15" cy="9" r="4.5"/>', "record found here, right before the resume point"),
    ('<path class="r" d="M10 2L20 9L10 16Z"/>', "resume point"),
    ('<path class="h" d="M10 2L20 9L10 16Z"/>', "resume point set or accepted by a person"),
    ('<rect class="x" x="2" y="5" width="26" height="8"/>', "read again: exactly so many"),
    ('<rect class="m" x="2" y="5" width="26" height="8"/>', "read again: at most so many"),
    ('<rect class="o" x="2" y="5" width="26" height="8"/>', "the same, and a person must decide"),
)
"""Symbols and their meaning."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Where a distance in records stands: logarithmic, 0 at the resume point."""

    most: int

    @classmethod
    def of(cls, rows: Iterable[PartitionPlan]) -> Scale:
        """The one that has room for the largest replay, and for a thousand records at least."""
        return cls(max(1_000, *(row.replay_at_most or 0 for row in rows), 0))

    def x(self, distance: int) -> float:
        """Left of the resume point there is little room: what is further away stands at the edge."""
        reach = (_END - PIVOT) / math.log10(1 + self.most)
        place = PIVOT + math.copysign(reach * math.log10(1 + abs(distance)), distance)
        return round(min(max(place, 6.0), float(_END)), 1)


def axis(scale: Scale, budget: int) -> str:
    """The scale's numbers for the column's head, with the budget where it is in reach."""
    powers = [10**power for power in range(1, 20) if 10**power <= scale.most]
    every = math.ceil(len(powers) / 5)
    shown = [power for index, power in enumerate(powers) if (len(powers) - 1 - index) % every == 0]
    marks = "".join(
        f'<path class="k" d="M{scale.x(at)} 14V18"/><text x="{scale.x(at)}" y="11">{_short(at)}</text>'
        for at in (0, *shown)
    )
    limit = ""
    if budget <= scale.most:
        x = scale.x(budget)
        limit = f'<path class="b" d="M{x} 14V21"/><text class="e" x="{min(x, 208)}" y="30">max_replay</text>'
    return (
        f'<svg class="axis" viewBox="0 0 {WIDTH} 32" aria-hidden="true"><path class="k" d="M{PIVOT} 18H{WIDTH}"/>'
        f"{marks}{limit}</svg>"
    )


def _short(number: int) -> str:
    for size, unit in ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)


def picture(row: PartitionPlan, scale: Scale, *, stopped: bool) -> str:
    """One partition's picture, with its description for those who do not see it."""
    parts = [_destination(row, scale, stopped=stopped), _stored(row, scale)]
    label = quoteattr(described(row))
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label={label}>{"".join(parts)}</svg>'


def described(row: PartitionPlan) -> str:
    """The picture in words. Holds numbers only, no names."""
    said = []
    if row.resume_offset is None:
        said.append("no resume point")
    else:
        said.append(f"resumes at {row.resume_offset}")
        if row.record_offset is not None:
            said.append(f"right behind record {row.record_offset}")
        if row.replay_at_most is not None:
            said.append(f"{'' if row.replay_exact is not None else 'at most '}{row.replay_at_most} read again")
    if row.stored_offset is not None:
        numbers = "the same number" if _is_own(row) else "a number of where it was stored"
        said.append(f"stored {row.stored_offset}, {numbers}")
    return ", ".join(said)


def _is_own(row: PartitionPlan) -> bool:
    return row.verdict is Verdict.MATCH and row.stored_offset == row.resume_offset


def _is_proven(row: PartitionPlan) -> bool:
    """True if the place was found by the anchor's record itself, not by time, a bound or a person."""
    return row.verdict is Verdict.MATCH or row.matched_by in (MatchedBy.ID, MatchedBy.FINGERPRINT)


def _destination(row: PartitionPlan, scale: Scale, *, stopped: bool) -> str:
    if row.resume_offset is None:
        return f'<use href="#nolog"/><text x="{PIVOT}" y="29">nothing proven</text>'
    parts = ['<use href="#log"/>']
    again = row.replay_at_most or 0
    if again and row.position != Position.END:
        tone = "o" if stopped else ("x" if row.replay_exact is not None else "m")
        size = round(max(scale.x(again) - PIVOT, 2), 1)
        sign = "" if row.replay_exact is not None else "≤ "
        parts.append(f'<rect class="{tone}" x="{PIVOT}" y="28" width="{size}" height="8"/>')
        parts.append(_label(PIVOT + 14, 26, f"read again {sign}{again:,}"))
    if row.record_offset is not None:
        x = scale.x(row.record_offset - row.resume_offset)
        parts.append(f'<circle class="f" cx="{x}" cy="{_LOWER}" r="3.5"/>')
        parts.append(_label(x - 6, 42, f"{row.record_offset:,}", west=True))
    parts.append(f'<use href="#go" class="{"h" if row.set_by_hand else "r"}"/>')
    parts.append(_label(PIVOT + 6, 43, f"resume {row.resume_offset:,}"))
    return "".join(parts)


def _stored(row: PartitionPlan, scale: Scale) -> str:
    """The line in stored numbers, laid so that right behind the anchor stands above the resume point."""
    if row.stored_offset is None:
        return ""
    anchor = row.anchor.offset if row.anchor is not None else None
    behind = row.stored_offset - anchor - 1 if anchor is not None else 0
    x = scale.x(behind)
    parts = [f'<path class="u" d="M0 {_UPPER}H{WIDTH}"/>']
    if row.resume_offset is not None:
        line = "k" if _is_proven(row) else "u"
        parts.append(f'<path class="{line}" d="M{x} {_UPPER}L{PIVOT} 26"/>')
    if anchor is not None:
        at = scale.x(-1)
        parts.append(f'<path class="k" d="M{at} {_UPPER - 5}V{_UPPER + 5}"/>')
        parts.append(_label(at - 3, 7, f"anchor {anchor:,}", west=True))
    parts.append(f'<path class="{"q" if _is_own(row) else "s"}" d="M{x} {_UPPER - 4}l4 4l-4 4l-4-4Z"/>')
    parts.append(_label(x + 6, 8, f"stored {row.stored_offset:,}", west=x > 170, back=12))
    return "".join(parts)


def _label(x: float, y: float, text: str, *, west: bool = False, back: int = 0) -> str:
    side = ' class="w"' if west else ""
    return f'<text{side} x="{round(x - (back if west else 0), 1)}" y="{y}">{text}</text>'
