"""The failover offset reconciler: the right Kafka offset after a failover, proven before the job starts.

``translate`` gives a Python program a job's offsets on another cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reconciler.failover.translation import Found, translate

__all__ = ["Found", "translate"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """PEP 562: most processes that import a part of the package load no check."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from reconciler.failover import translation  # noqa: PLC0415 - see above

    return getattr(translation, name)
