"""The steps of a check: gather (``numbers``, ``recorded``, ``gather``), judge (``questions``, ``passes``,
``undelivered``, ``positions``, ``decisions``), and report (``rows``).
"""
