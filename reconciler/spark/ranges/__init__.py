"""Batches of offset ranges: a job plans which offsets it reads, reads them as a DataFrame, and saves where it is.

What Spark's direct DStreams were, on DataFrames. Import the submodules by name:

- ``runner``: the job, and its semantics by name (at most once, at least once, exactly once)
- ``planning``: which ranges a run reads (no I/O)
- ``transactional``, ``idempotent``, ``hashed_files``: where results go for exactly once
- ``output``, ``compaction``: reading what ``hashed_files`` wrote, and merging its small files
- ``avro``: values in Avro
"""
