"""The pre-start hook: check, correct, then become the job's command.

In: one job of a configuration. Out: a decision whether it may start, the files and variables that the command is to
find, and figures for Prometheus.
"""
