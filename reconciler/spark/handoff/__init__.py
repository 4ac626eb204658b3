"""The hand-off: from a plan to the options that start a Spark Kafka source exactly where the plan says.

In: a plan file, or the environment that ``reconciler hook`` sets, on either side. Out: the options of a new query or of
a batch read, and where the query keeps its checkpoint. Jobs import from here; no module of this room needs pyspark.
"""

from reconciler.formats.start import Side
from reconciler.spark.handoff.environment import from_environment
from reconciler.spark.handoff.options import (
    OFFSETS_VARIABLE,
    PLAN_VARIABLE,
    START_VARIABLE,
    Handoff,
    load,
    read_options,
    read_stream_options,
    starting_offsets,
    starting_offsets_json,
)

__all__ = [
    "OFFSETS_VARIABLE",
    "PLAN_VARIABLE",
    "START_VARIABLE",
    "Handoff",
    "Side",
    "from_environment",
    "load",
    "read_options",
    "read_stream_options",
    "starting_offsets",
    "starting_offsets_json",
]
