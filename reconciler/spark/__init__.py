"""For PySpark jobs: keep anchors while the job runs, and start it at corrected offsets after a failover.

In: the start that the hook hands over, and a job's query or its range batches. Out: Spark's Kafka source, the journal
of the job's stay, or rows with anchors; and counts of what a failover lost or repeated (``audit``).

``from reconciler.spark import job`` is all that a job needs. Import the other submodules by name.
"""

from __future__ import annotations

from typing import Any

__all__ = ["job"]


def __getattr__(name: str) -> Any:
    """``job``, loaded at its first use: the hook imports a part of this room at every start, and needs none of it."""
    if name == "job":
        from reconciler.spark.started import job

        return job
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
