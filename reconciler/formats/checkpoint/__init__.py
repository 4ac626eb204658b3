"""A checkpoint of Structured Streaming as text: the offset and commit logs, their edits, and a copy's manifest.

Spark's own files go in as text, and come out as offsets, positions and progress. The manifest is this product's.
"""
