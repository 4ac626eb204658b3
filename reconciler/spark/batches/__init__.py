"""Batches of offset ranges: a job plans which offsets it reads, reads them as a DataFrame, and saves its position.

This is the counterpart of Spark's direct DStreams, on DataFrames. In: the stored rows of a group, the edges of a log,
and the job's function. Out: the function's effects or results, and the group's new rows with their anchors.

- ``runner``: the job, and its semantics by name (at most once, at least once, exactly once)
- ``planning``: which ranges a run reads (no I/O); ``reading``: the ranges as a DataFrame; ``offsets``: the group's rows
- ``transactional``, ``postgresql``, ``hashed_files``: sinks for exactly once
"""

from reconciler.spark.batches.hashed_files import HashNamedFiles
from reconciler.spark.batches.planning import Caps, OffsetRange, Policy
from reconciler.spark.batches.postgresql import PostgresUpsert
from reconciler.spark.batches.runner import RangeBatches, at_least_once, at_most_once, exactly_once
from reconciler.spark.batches.transactional import PostgresTransaction

__all__ = [
    "Caps",
    "HashNamedFiles",
    "OffsetRange",
    "Policy",
    "PostgresTransaction",
    "PostgresUpsert",
    "RangeBatches",
    "at_least_once",
    "at_most_once",
    "exactly_once",
]
