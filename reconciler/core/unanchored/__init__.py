"""Where a job continues whose stored offset has no anchor, by the offsets that the mirror recorded at the destination.

In come a question, as for any search, and the pairs of offsets that bear on it; out goes a finding that the records at
the destination prove, or none. ``mirrored`` has the argument, ``pairs`` chooses the evidence, ``between`` counts.
"""
