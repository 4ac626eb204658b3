"""The pre-start hook: check, correct, then become the job's command.

In: one job of a configuration. Out: a decision whether it may start, the files and variables for its command, and
metrics for Prometheus. The command line uses ``start``, ``waiting``, ``environment`` and ``figures``.
"""
