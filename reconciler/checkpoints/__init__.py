"""Shows, translates, copies and verifies Structured Streaming checkpoints, without Spark.

In: a checkpoint folder on any file system, and a plan. Out: a description of what a restart would read, or a copy whose
next batch starts at the plan's offsets. The original is never changed.
"""
