"""The recorder behind ``Job.track(query)``: a stay's journal, from a running query's checkpoint.

``query`` is what its driver sees of it; ``watching`` is the thread in the driver that decides when
``reconciler.jobs.tracking.recorder`` looks and appends.
"""
