"""Recording: with every micro-batch, where the job is and the identity of the last record that it processed.

In: a job's batches, through ``foreachBatch`` or, for other sinks, the records that Spark observes in them. Out: rows of
an offset store, each with its anchor. Jobs import ``recording`` from here and ``observing`` from
``reconciler.spark.observing``.
"""

from reconciler.spark.recording.foreach_batch import Recording, recording

__all__ = ["Recording", "recording"]
