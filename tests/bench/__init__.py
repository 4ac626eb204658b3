"""What it costs: programs that start servers, run this product beside others, and print a table and a line of JSON.

``plans``: a plan by partitions, jobs and shapes of logs. ``stores``: rows, checkpoints and sinks at size. ``running``:
what runs all year. ``test_no_slower`` and ``kept.json`` guard the ratios in the thorough run. What they gave stands in
``docs/explanation/performance.md``, with the commands.
"""
