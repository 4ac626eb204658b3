"""The traces of a mirror at the destination, read and judged.

In: a cluster's topics and records. Out: which topics a mirror fills and how far it is behind.
"""
