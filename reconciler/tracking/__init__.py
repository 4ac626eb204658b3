"""Anchors for jobs that store bare offsets, kept from the outside while the source is alive (``reconciler track``).

In: a job's rows and the source's log. Out: anchors in the ``[anchors]`` store.
"""
