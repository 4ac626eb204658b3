"""The time of day as the product keeps it: epoch ms, and RFC 3339 text to the second."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

_EPOCH = datetime.fromtimestamp(0, UTC)


def clock_ms() -> int:
    """The time now, epoch ms."""
    return time.time_ns() // 1_000_000


def stamp(epoch_ms: int) -> str:
    """Epoch ms as RFC 3339 text in UTC, to the second; the number itself for a year that this text cannot have."""
    try:
        return datetime.fromtimestamp(epoch_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms"


def zoned_ms(text: str) -> int | None:
    """The epoch ms of an ISO 8601 time with its zone; None for any other text: a local time is not a point in time."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else (moment - _EPOCH) // timedelta(milliseconds=1)
