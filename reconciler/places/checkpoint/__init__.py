"""Structured Streaming checkpoints: read, shown, and copied. Without Spark.

``log``: the files as text. ``restart``: where a restart continues. ``reading``: a folder's content. ``show``: the same
for people. ``files``, ``needed``, ``copying``: the copy of a folder. ``place``: its offsets as a place.
"""
