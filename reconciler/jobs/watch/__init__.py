"""The watcher: every job checked again and again, for Prometheus (``reconciler watch``).

In: a configuration. Out: metrics on a listener, and one line in the log for each change.
"""
