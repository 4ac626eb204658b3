"""The import path of ``observing`` for jobs; the code is in ``spark.recording.observing``."""

from reconciler.spark.recording.observing import Observer, observing

__all__ = ["Observer", "observing"]
