"""Anchors for sinks other than foreachBatch: the import path that jobs have; the code is in ``spark.recording``."""

from reconciler.spark.recording.observing import Observer, observing

__all__ = ["Observer", "observing"]
