"""Limits of this process that stand for a machine's."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """No file can grow beyond ``size`` bytes, as on a full disk. Python ignores the signal, and gets EFBIG.

    It holds for pytest's own output as well, where that is a file, so no test may report within.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
