"""A drill: the failover of one job, tried against the destination without touching the job.

In: a job's plan and checkpoint. Out: what its first batch would read. Everything made is temporary.
"""
