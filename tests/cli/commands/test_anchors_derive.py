"""What ``anchors derive`` says of the lines that it has found. Without Spark, unlike ``tests/spark/test_derive.py``."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.cli.commands.prepare.anchors_derive import _report
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.formats.anchor_lines import AnchorLine

LINES = [AnchorLine("clicks", "events", 0, StoredOffset(106, Anchor(105, 1, b"e105")))]


@pytest.mark.parametrize("left_out", [False, True])
def test_derive_warns_that_records_may_be_held_back_in_the_state(
    caplog: pytest.LogCaptureFixture, *, left_out: bool
) -> None:
    """A join may have put record 105 out, and still hold 101 back."""
    job: Any = SimpleNamespace(name="clicks", topics=("events",))
    with caplog.at_level(logging.INFO):
        _report(job, LINES, [], left_out=left_out)
    (said,) = caplog.messages
    assert "If the query holds records back in its state (a join of two streams," in said
    assert "do not use these lines" in said
    assert ("The newest batch of each topic was left out, with earlier ones that hold some" in said) == left_out
