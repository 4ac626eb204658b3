"""After a failover: which records a job lost, processed twice, or wrote in another order; counted exactly, on Spark.

In: the applied plans, the destination's log, and if there are any the source's log and the job's output. Out: figures
for each partition, examples, and all findings as Parquet.

    from reconciler.spark.audit import Columns, Output, audit

    result = audit(
        spark,
        ["failover.plan.json"],
        destination={"bootstrap.servers": "kafka-b:9092"},
        source={"bootstrap.servers": "kafka-a:9092"},           # omitted, or not answering: dead
        output=Output(spark.read.parquet("/srv/clicks/out"), Columns(id="event_id")),
        id="header:message-id",
    )
    print(result.verdict, result.totals["lost"])

Theory of operation. A plan cuts every log in two: at the source at the stored offset, before which the job had
processed all records, and at the destination at the resume offset, from which it reads. Every record is *sighted* once:
topic, partition, side of the cut, name, offset. The name is the job's message id, or a hash of key and value. Grouped
by name, the sightings are five numbers: how often a record lies before and after each cut, and how often it is in the
output. All figures are sums over these numbers, so equal records are counted as often as they occur.

- A1  Every range is fixed before the first record is read, and read once: all figures are about the same records. The
      sightings stay on the executors' disks, and so do the figures of records with a finding: each is computed once.
      Only sums and a bounded number of examples reach the driver.
- A2  If the source is alive, a record should have been processed as often as it is in the source's log.
- A3  If it is dead, the destination's log stands for it. A record that is there more than once may have been sent more
      than once: figures that depend on that are ``possibly`` lost or doubled, unless ids are declared unique.
- A4  Order is judged for records that occur equally often on both sides; the result says how many were not judged.
- A5  ``unknown`` lists everything that was not compared. No result is clean unless every record of the logs was: not
      without a source and an output, nor with records that have no id, or that no log has any more.

``resumed_rows`` and ``result`` are plain Python; other modules import pyspark.
"""

from reconciler.spark.audit.output import Columns, Output
from reconciler.spark.audit.result import AuditResult
from reconciler.spark.audit.run import audit

__all__ = ["AuditResult", "Columns", "Output", "audit"]
