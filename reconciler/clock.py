"""The time of day as the product keeps it: epoch ms, and RFC 3339 text to the second."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def clock_ms() -> int:
    """The time now, epoch ms."""
    return time.time_ns() // 1_000_000


def stamp(epoch_ms: int) -> str:
    """Epoch ms as RFC 3339 text in UTC, to the second."""
    return datetime.fromtimestamp(epoch_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
