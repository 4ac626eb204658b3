"""A job's start: find where it lives, check its offsets, correct them.

In: one job of a configuration. Out: a decision whether it may start, the files and variables for its process, and
metrics for Prometheus. ``starting.begin`` does all this, for the command line and for ``job(config, name)``. The
command line also uses ``kept`` and ``figures``.
"""
