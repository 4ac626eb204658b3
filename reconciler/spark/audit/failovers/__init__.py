"""Several failovers there and back in one audit: the sink's rows against both clusters' logs, by name.

In: the applied plans, the clusters, and the rows that the job has put out. Out: how many records the sink lacks, how
many rows are there too often or match no record of either cluster, and examples with their places.

Theory of operation. Each plan ends one *stay* of the job and begins the next: the job read a cluster's partition from
the one plan's resume offset up to the stored offset of the plan that took it away. Every record of both logs is
sighted once: its name, its cluster, and how many stays read it. Grouped by name with the sink's rows, the sightings are
a handful of numbers (``figures.Counts``), from which all figures follow by one pure function.

- F1  Every range is fixed before the first record is read, as in an audit of one failover (A1).
- F2  A record may stand in both logs, since mirrors copy it either way. It is one record: the larger of both counts is
      the most, the smaller the least that the job had to put out. Unique ids make both 1.
- F3  Only counters and 16 bytes of a name pass between executors, and only names with a finding are kept.
- F4  A side of which nothing was read proves nothing: the audit is then not clean.

``stays``, ``figures`` and ``result`` are plain Python; other modules import pyspark.
"""

from reconciler.spark.audit.failovers.result import StaysResult
from reconciler.spark.audit.failovers.run import audit_stays

__all__ = ["StaysResult", "audit_stays"]
