"""A plan as its file's text and its digest, made a few rows at a time: a large plan is never in memory as text.

The digest is that of ``json_fields.digest_without(plan, "sha256")``. ``fields`` are a plan's JSON values without
``sha256``, and with an empty list of jobs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from reconciler.core.json_fields import canonical

if TYPE_CHECKING:
    from reconciler.plan.document import JobPlan

ROWS = 500
"""Rows in one piece of a text."""

_LINE = json.JSONEncoder(ensure_ascii=False).encode
_INDENTED = json.JSONEncoder(ensure_ascii=False, indent=1).encode
_NO_JOBS, _NO_ROWS = '"jobs": []', '"partitions": []'
"""Each is in the text once: within a string its quotes would be escaped."""


class TextLayout(NamedTuple):
    """A layout of jobs and rows as text. ``around``: a job's text before and after its rows; ``close`` ends them."""

    around: Callable[[dict[str, Any]], tuple[str, str]]
    row: Callable[[dict[str, Any]], str]
    close: str


def _around_lines(job: dict[str, Any]) -> tuple[str, str]:
    last = {"partitions": job.pop("partitions")}
    return "\n  " + _LINE(job | last).removesuffix("]}"), "]}"


def _around_indented(job: dict[str, Any]) -> tuple[str, str]:
    before, _, after = _INDENTED(job).replace("\n", "\n  ").partition(_NO_ROWS)
    return f'\n  {before}"partitions": [', f"]{after}"


LINES = TextLayout(_around_lines, lambda row: f"\n   {_LINE(row)}", "\n  ")
"""A plan's file: one line a partition, so that two plans can be compared by eye."""
INDENTED = TextLayout(_around_indented, lambda row: "\n    " + _INDENTED(row).replace("\n", "\n    "), "\n   ")
"""As ``json.dumps`` does it with ``indent=1``."""


def texts(fields: Mapping[str, Any], jobs: Sequence[JobPlan], layout: TextLayout = LINES) -> Iterator[str]:
    """The plan's text in pieces."""
    digest = hashlib.sha256()
    for text, content in _pieces(fields, jobs, layout):
        digest.update(content)
        yield text
    yield _INDENTED({**fields, "sha256": digest.hexdigest()}).partition(_NO_JOBS)[2] + "\n"


def digest_of(fields: Mapping[str, Any], jobs: Sequence[JobPlan]) -> str:
    """The plan's ``sha256``."""
    digest = hashlib.sha256()
    for _, content in _pieces(fields, jobs, LINES):
        digest.update(content)
    return digest.hexdigest()


def _pieces(fields: Mapping[str, Any], jobs: Sequence[JobPlan], layout: TextLayout) -> Iterator[tuple[str, bytes]]:
    """The text up to the end of the jobs, and the canonical JSON, in pieces that belong together."""
    before, _, after = canonical(fields).partition(b'"jobs":[]')
    yield _INDENTED(fields).partition(_NO_JOBS)[0] + '"jobs": [', before + b'"jobs":['
    for number, job in enumerate(jobs):
        own, comma = job.fields(), "," if number else ""
        begin, _, end = canonical(own).partition(b'"partitions":[]')
        head, tail = layout.around(own)
        yield comma + head, comma.encode() + begin + b'"partitions":['
        rows = job.partitions
        for first in range(0, len(rows), ROWS):
            values, comma = [row.to_json() for row in rows[first : first + ROWS]], "," if first else ""
            yield comma + ",".join(map(layout.row, values)), comma.encode() + canonical(values)[1:-1]
        yield (layout.close if rows else "") + tail, b"]" + end
    yield "\n ]" if jobs else "]", b"]" + after
