"""A check's searches on a Spark cluster (``--engine spark``), for estates too large for one machine.

In: the searches of a check, and a SparkSession. Out: the same findings, probes and errors as from the local engine.
"""
