"""Starts servers from one thread that lives as long as this process.

Linux ends a child with the *thread* that started it (PR_SET_PDEATHSIG), and a test may start a broker again from a
thread of its own that ends at once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_starter = ThreadPoolExecutor(1, "starts-servers")


def started(start: Callable[[], T]) -> T:
    """What ``start`` returns."""
    return _starter.submit(start).result()
