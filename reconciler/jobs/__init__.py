"""Processes beside jobs: the hook before a start, tracking, the watcher and the drill. Without
Spark.

In: a configuration, and the state store. Out: a start that may begin, journals, and figures for Prometheus.
"""
