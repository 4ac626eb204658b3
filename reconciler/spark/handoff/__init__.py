"""The hand-off: from a plan to the options that start a Spark Kafka source exactly where the plan says.

In: a plan file, or the environment that ``reconciler hook`` sets. Out: the options of a new query or of a batch read.
Jobs import from here; no module of this room needs pyspark.
"""

from reconciler.spark.handoff.options import (
    OFFSETS_VARIABLE,
    PLAN_VARIABLE,
    Handoff,
    from_environment,
    load,
    read_options,
    read_stream_options,
    starting_offsets,
    starting_offsets_json,
)

__all__ = [
    "OFFSETS_VARIABLE",
    "PLAN_VARIABLE",
    "Handoff",
    "from_environment",
    "load",
    "read_options",
    "read_stream_options",
    "starting_offsets",
    "starting_offsets_json",
]
