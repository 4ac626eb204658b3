"""``python -m tests.soak.clock SECONDS …``: a command of the product on a machine whose clock is off by so much."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

_TRUE_NS: Callable[[], int] = time.time_ns


def be_off(seconds: float) -> None:
    """From now on this process has a clock that is off from the true one. Waits are not changed."""
    by = int(seconds * 1e9)
    for name, clock in (("time_ns", lambda: _TRUE_NS() + by), ("time", lambda: (_TRUE_NS() + by) / 1e9)):
        setattr(time, name, clock)


if __name__ == "__main__":
    from reconciler.cli.main import main

    be_off(float(sys.argv.pop(1)))
    sys.exit(main())
