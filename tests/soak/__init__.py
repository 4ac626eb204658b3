"""A year of failovers in an hour: moves there and back over two real clusters, with faults, and every record counted.

``python -m tests.soak --moves 20 --seed 1``. ``choices``: what happens at each move, by the seed alone. ``estate``: the
clusters, the mirrors, the producer and the product's commands. ``jobs``: the jobs, each a real program (``driver``,
``consumer``). ``account``: what each has processed, against what was produced and what each move showed. ``story``:
move after move.
"""
