"""The traces of a mirror at the destination, read and judged.

In: a cluster's topics and records. Out: which topics a mirror fills, how far it is behind, and which offsets of the
source it recorded with which offsets here.
"""
