"""The heart: from stored offsets to a plan, and from a plan to written offsets and back.

In: a configuration, the destination's log, the jobs' stores. Out: a plan with a verdict a partition; rows written by
compare-and-set, after a snapshot of what they replace.
"""
