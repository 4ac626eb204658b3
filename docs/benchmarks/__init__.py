"""What it costs: programs that run this product beside others, and print a table and a line of JSON.

What they gave is in ``README.md`` beside them, with the commands. ``test_no_slower`` and ``kept.json`` guard
the ratios in the thorough run.
"""
