"""The search for one partition's right offset, as pure functions: no I/O, no clock, no logging.

In: a question (a stored offset with its anchor, and limits) and the log's answers to probes. Out: probes to ask, then a
finding with its verdict.
"""
