"""For PySpark jobs: keep anchors while the job runs, and start it at the right offsets after a move.

In: the start that the hook hands over, and a job's query or its range batches. Out: Spark's Kafka source, the journal
of the job's stay, or rows with anchors. ``audit`` counts the records that a failover lost or repeated.

``from reconciler.spark import job`` is all that a job needs. Import the other submodules by name.
"""

from __future__ import annotations

from typing import Any

__all__ = ["job"]


def __getattr__(name: str) -> Any:
    """``job``, loaded at its first use: other parts of this room do without it."""
    if name == "job":
        from reconciler.spark.started import job

        return job
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
