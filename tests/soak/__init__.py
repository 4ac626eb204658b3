"""A year of failovers in an hour: moves there and back over two real clusters, with faults, and every record counted.

``python -m tests.soak --moves 20 --seed 1``. ``choices``: what happens at each move, by the seed alone. ``estate``: the
clusters, the mirrors, the producer and the product's commands. ``jobs``: the jobs, each a real program (``driver``,
``consumer``), and what each has processed. ``story``: move after move, each counted against what was produced and
shown.
"""
