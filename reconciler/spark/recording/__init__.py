"""Recording: with every micro-batch, where the job is and the identity of the last record that it processed.

In: the offsets of a job's batches, and the records before them, read from Kafka. Out: rows of
an offset store, each with its anchor. Jobs import ``recording`` from here.
"""

from reconciler.spark.recording.foreach_batch import Recording, recording

__all__ = ["Recording", "recording"]
