"""``reconciler demo``: a whole failover on this machine, and the proof that nothing was lost or doubled.

In: a folder. Out: the printed steps of ``scenario``, and the counts of ``proof``. ``stage`` is the environment; ``job``
runs as a process of its own.
"""
