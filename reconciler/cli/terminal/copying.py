"""The display of a copy: a line rewritten on a terminal, an occasional line in a log."""

from __future__ import annotations

import logging
from time import monotonic
from typing import TYPE_CHECKING

from reconciler.cli.terminal.output import can_rewrite, rewrite
from reconciler.cli.terminal.text import in_bytes

if TYPE_CHECKING:
    from reconciler.checkpoints.copying import Copied

FIRST_S = 10.0
"""Before the first line of a log; after it the pause doubles up to ``LONGEST_S``."""
LONGEST_S = 300.0
REWRITE_S = 0.1

log = logging.getLogger("reconciler.checkpoint")


class CopyDisplay:
    def __init__(self) -> None:
        self._terminal = can_rewrite()
        self._pause_s = REWRITE_S if self._terminal else FIRST_S
        self._next_s: float | None = None

    def __call__(self, now: Copied) -> None:
        if self._next_s is None:
            self._next_s = monotonic() + self._pause_s
        if now.files == now.of_files:
            if self._terminal:
                rewrite()
        elif monotonic() >= self._next_s:
            if self._terminal:
                rewrite(line(now))
            else:
                log.info("%s", line(now))
                self._pause_s = min(2 * self._pause_s, LONGEST_S)
            self._next_s = monotonic() + self._pause_s


def line(now: Copied) -> str:
    """``copied 3,214 of 20,000 files, 1.2 GiB of 5.0 GiB``."""
    return f"copied {now.files:,} of {now.of_files:,} files, {in_bytes(now.size)} of {in_bytes(now.of_size)}"
