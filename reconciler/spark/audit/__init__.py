"""After a failover: which records a job lost, processed twice, or put out in another order; counted exactly, on Spark.

    from reconciler.spark.audit import Columns, Output, audit

    result = audit(
        spark,
        ["failover.plan.json"],
        destination={"bootstrap.servers": "kafka-b:9092"},
        source={"bootstrap.servers": "kafka-a:9092"},           # left out, or not answering: dead
        output=Output(spark.read.parquet("/srv/clicks/out"), Columns(id="event_id")),
        id="header:message-id",
    )
    print(result.verdict, result.totals["lost"])

Theory of operation. A plan cuts every log in two: what the job had processed at the source (in front of the stored
offset) from what it had not, and what it does not read at the destination (in front of the resume offset) from what it
reads. Every record is *sighted* once: topic, partition, on which side of which cut, its name, its offset. The name is
the job's message id, or a hash of key and value. Grouped by name, the sightings are five numbers: how often a record
lies in front of and behind each cut, and how often it is in the output. All figures are sums over these numbers, so
equal records are counted as often as they occur.

- A1  Every range is fixed before the first record is read, and read once: all figures are of the same records. What was
      read is kept on the executors' disks; nothing but sums and a bounded number of examples comes to the driver.
- A2  Where the source lives, how often a record should have been processed is how often it is in the source's log.
- A3  Where it does not, the destination's log stands for it. A record that is there more than once may have been sent
      more than once: what hangs on that is ``possibly`` lost or doubled, unless ids are said to be unique.
- A4  Order is judged for records that occur equally often on both sides; how many were not judged is said.
- A5  What was not compared is said in ``unknown``; without a source and an output nothing is called clean.

``spans`` and ``result`` are plain Python; the rest needs pyspark when it is called.
"""

from reconciler.spark.audit.output import Columns, Output
from reconciler.spark.audit.result import AuditResult
from reconciler.spark.audit.run import audit

__all__ = ["AuditResult", "Columns", "Output", "audit"]
