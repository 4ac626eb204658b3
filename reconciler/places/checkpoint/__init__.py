"""Structured Streaming checkpoints: read, shown, and copied. Without Spark.

``log``: the files as text. ``restart``: where a restart continues. ``reading``: a folder's content. ``show``: its
offsets as a place, and its content for people. ``files`` and ``copying``: the copy of a folder.
"""
