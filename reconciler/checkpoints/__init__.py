"""Structured Streaming checkpoints: read, shown, and copied to continue at another cluster. Without Spark.

``log``: the files as text. ``restart``: where a restart continues. ``reading``: a folder's content. ``show``: the same
for people. ``files``, ``needed``, ``copying``: the copy of a folder. ``translate``, ``verify``, ``clone``: a copy at a
plan's offsets. The original is never changed.
"""
