"""The mirror's own account, beside what a check finds: MirrorMaker's offsets, and a failover that was not prepared.

In: checked jobs, and what was read of MirrorMaker's topics. Out: the offset that MirrorMaker would hand out, what
numbers alone would give, and the report of ``reconciler mirror``.
"""
