"""For PySpark jobs: keep anchors while the job runs, and start it at corrected offsets after a failover.

Import the submodules by name. None is imported here: ``handoff`` is plain Python and must stay usable without pyspark.
"""
