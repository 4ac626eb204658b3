"""From a plan to written offsets, and back.

In: a plan that was read strictly, and the jobs' stores. Out: rows written by compare-and-set, after the plan was held
against the cluster, the configuration and the records as they are now, and is in the state store with what it replaces.
"""
