"""A drill: the failover of one job, tried against the destination without touching the job.

In: a configuration, one of its jobs, and a temporary folder. Out: the plan, and what the job's first batch would read.
Nothing is written to stores, and the copy of a checkpoint is temporary.
"""
