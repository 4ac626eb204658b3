"""A checkpoint's copy at a plan's offsets: what is checked before, the new offsets, and the copy itself.

In: a plan, and the folder of a query's checkpoint (``places.checkpoint``). Out: a copy that continues at another
cluster, with its state. The original is never changed.
"""
