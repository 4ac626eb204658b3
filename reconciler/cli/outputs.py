"""What the files that commands write may replace: an earlier file of the same kind, and nothing else."""

from __future__ import annotations

import re

from reconciler.fileio import FileKind
from reconciler.plan import document as plan
from reconciler.state import anchor_lines

PLAN = FileKind.of_json("a plan", plan.FORMAT)
ANCHORS = FileKind.of_json("an export of anchors", anchor_lines.FORMAT)
PAGE = FileKind("an HTML page", re.compile(rb"(?:\xef\xbb\xbf)?\s*<!doctype html", re.IGNORECASE))
AUDIT = FileKind("an audit's result", re.compile(rb'\{"clusters":\['))
"""Canonical JSON: the first key by name, of ``reconciler.audit/1``."""
