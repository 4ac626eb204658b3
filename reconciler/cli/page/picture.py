"""The picture of one partition, as SVG without inline style.

A plan does not record where the destination's log begins and ends, so the picture shows neither. It shows distances
from the resume point, in records, on one logarithmic scale for the whole page, so that rows can be compared by eye.

There are two lines. The lower one is the destination's log around the resume point: the record right before it that was
found and compared, and the records that will be read again. The upper one is in the numbers that were stored, which are
the source's until a partition is handed over: the stored offset and its anchor. The two lines share no numbers, so the
stored offset is never drawn as a place in the destination's log; the line from one to the other is solid only if the
anchor's own record was found. The symbols are defined and explained in ``assets/plan.html``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.cli.page.markup import Markup, fill, fill_each
from reconciler.core.verdicts import MatchedBy, Position, Verdict
from reconciler.formats.plan import PartitionPlan

WIDTH, HEIGHT = 240, 44
PIVOT = 56
"""The x of the resume point."""
_END = 232
_UPPER, _LOWER = 13, 32


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps a distance in records to an x: logarithmic, 0 at the resume point."""

    most: int

    @classmethod
    def of(cls, rows: Iterable[PartitionPlan]) -> Scale:
        """The scale with room for the largest replay, and for a thousand records at least."""
        return cls(max(1_000, *(row.replay_at_most or 0 for row in rows), 0))

    def x(self, distance: int) -> float:
        """There is little room left of the resume point: larger distances stand at the edge."""
        reach = (_END - PIVOT) / math.log10(1 + self.most)
        place = PIVOT + math.copysign(reach * math.log10(1 + abs(distance)), distance)
        return round(min(max(place, 6.0), float(_END)), 1)


def axis(scale: Scale, max_replay: int) -> Markup:
    """The scale's numbers for the column's head, with ``max_replay`` if it is in reach."""
    powers = [10**power for power in range(1, 20) if 10**power <= scale.most]
    every = math.ceil(len(powers) / 5)
    shown = [power for index, power in enumerate(powers) if (len(powers) - 1 - index) % every == 0]
    marks = fill_each("axis_mark", ({"x": scale.x(at), "label": _short(at)} for at in (0, *shown)))
    budget = Markup()
    if max_replay <= scale.most:
        x = scale.x(max_replay)
        budget = fill("axis_budget", x=x, text_x=min(x, 208))
    return fill("axis", width=WIDTH, pivot=PIVOT, marks=marks, budget=budget)


def _short(number: int) -> str:
    for size, unit in ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number // size}{unit}"
    return str(number)


def picture(row: PartitionPlan, scale: Scale, *, stopped: bool) -> Markup:
    """One partition's picture, with a description for screen readers."""
    parts = Markup(_destination(row, scale, stopped=stopped) + _stored(row, scale))
    return fill("picture", width=WIDTH, height=HEIGHT, label=described(row), parts=parts)


def described(row: PartitionPlan) -> str:
    """The picture in words: numbers only, no names."""
    parts = []
    if row.resume_offset is None:
        parts.append("no resume point")
    else:
        parts.append(f"resumes at {row.resume_offset}")
        if row.record_offset is not None:
            parts.append(f"right behind record {row.record_offset}")
        if row.replay_at_most is not None:
            parts.append(f"{'' if row.replay_exact is not None else 'at most '}{row.replay_at_most} read again")
    if row.stored_offset is not None:
        numbers = "the same number" if row.is_right else "a number of where it was stored"
        parts.append(f"stored {row.stored_offset}, {numbers}")
    return ", ".join(parts)


def _is_proven(row: PartitionPlan) -> bool:
    """True if the anchor's record itself was found, not only a time, a bound or a person's decision."""
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
    """The line in stored numbers, placed so that the offset after the anchor stands above the resume point."""
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
    parts.append(f'<path class="{"q" if row.is_right else "s"}" d="M{x} {_UPPER - 4}l4 4l-4 4l-4-4Z"/>')
    parts.append(_label(x + 6, 8, f"stored {row.stored_offset:,}", west=x > 170, back=12))
    return "".join(parts)


def _label(x: float, y: float, text: str, *, west: bool = False, back: int = 0) -> str:
    side = ' class="w"' if west else ""
    return f'<text{side} x="{round(x - (back if west else 0), 1)}" y="{y}">{text}</text>'
