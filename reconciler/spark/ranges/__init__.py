"""Batches of offset ranges: a job plans which offsets it reads, reads them as a DataFrame, and saves its position.

In: the stored rows of a group, the edges of a log, and the job's function. Out: the function's effects or results, and
the group's new rows with their anchors. This is the counterpart of Spark's direct DStreams, on DataFrames. Import the
submodules by name:

- ``runner``: the job, and its semantics by name (at most once, at least once, exactly once)
- ``planning``: which ranges a run reads (no I/O)
- ``transactional``, ``idempotent``, ``hashed_files``: sinks for exactly once
- ``avro``: values in Avro
"""
