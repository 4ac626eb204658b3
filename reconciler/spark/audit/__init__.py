"""After failovers: which records a job lost or processed twice; counted exactly, on Spark.

In: the applied plans, the clusters' logs, and the rows that the job has written. Out: figures for each partition,
examples with their places, all findings as Parquet, and what could not be compared.

    from reconciler.spark.audit import Columns, Output, audit

    result = audit(
        spark,
        ["failover.plan.json"],                                 # and those of the way back
        destination={"bootstrap.servers": "kafka-b:9092"},
        source={"bootstrap.servers": "kafka-a:9092"},           # omitted: gone
        output=Output(spark.read.parquet("/srv/clicks/out"), Columns(id="event_id")),
        id="header:message-id",
    )
    print(result.verdict, result.totals["lost"])

Theory of operation. Each plan ends one *stay* of the job and begins the next. In a stay the job reads a partition from
the resume offset of one plan up to the stored offset of the next plan. One failover is two stays. Every record of the
logs is *sighted* once: its name, its cluster, and how many stays read it. The name is the job's message id, or a hash
of key and value. Sightings and the output's rows are grouped by name; from each name's counts (``result.Counts``) one
pure function computes all figures. Without an output, the records that the stays read take its place: that shows what
the resume offsets skip and repeat.

- A1  Every range is fixed before the first record is read, and read once: all figures are about the same records.
- A2  A record may be in two logs, since mirrors copy it. It is one record: the job had to put it out at most as often
      as the larger of both counts, and at least as often as the smaller. With unique ids both are 1. Over one failover
      the log that the job left has the right number.
- A3  Only counters and 16 bytes of a name pass between executors. Names with a finding are kept on their disks; only
      sums by partition and a bounded number of examples reach the driver.
- A4  ``uncompared`` lists everything that was not compared, with its reason: a side of which nothing was read, records
      without an id, records that no log still has. A result is clean only if the list is empty.
"""

from reconciler.spark.audit.output import Columns, Output
from reconciler.spark.audit.result import AuditResult
from reconciler.spark.audit.run import audit

__all__ = ["AuditResult", "Columns", "Output", "audit"]
