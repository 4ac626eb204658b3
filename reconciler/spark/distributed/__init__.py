"""A check's searches on a Spark cluster (``--engine spark``), for estates too large for one machine.

In: inquiries. Out: the same findings that the local engine gives.
"""
