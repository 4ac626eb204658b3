"""The search on a history of a log in memory, as a program: change the history, and run it again.

A record was sent twice. The job has processed the records up to ``b``, and has saved the next offset, 702, with the
anchor of ``b``. It prints the finding, where to resume, how many records may be read again, and the number of probes::

    exact 2 1 3

The job reads the second ``b`` again: it may be a different record with the same content.
"""

from reconciler.core.anchors import Anchor, Identity, IdOrder, StoredOffset, fingerprint, record_timestamp
from reconciler.core.question import Limits, Question
from reconciler.core.reconcile import reconcile
from reconciler.kafka.engine import Inquiry, run
from reconciler.ports import TopicPartition
from tests.memory_log import MemoryLog

log = MemoryLog("cluster-b", {"a.events": 1})
partition = log.partition("a.events", 0)
for time_ms, value in [(1000, b"a"), (1010, b"b"), (1010, b"b"), (1020, b"c")]:
    partition.append(time_ms, key=b"k", value=value, headers=(("id", value),))
partition.append_marker(5000)  # the end of a transaction: it takes an offset, and readers do not see it

identity = Identity(
    timestamp_of=record_timestamp,  # the record's Kafka timestamp; for another time also record_time=False
    id_of=lambda record: dict(record.headers).get("id"),
    id_order=IdOrder.OPAQUE,  # or INCREASING, if ids grow along a source partition
)
anchor = Anchor(701, 1010, b"b", fingerprint(b"k", b"b"), cluster_id="cluster-a", topic_id="events-at-a")
question = Question(
    stored=StoredOffset(702, anchor),
    cluster_id="cluster-b",  # the cluster that is searched
    topic_id=None,
    identity=identity,
    limits=Limits(max_disorder_ms=0),  # the promise of the producers
)
inquiry = Inquiry(TopicPartition("a.events", 0), lambda: reconcile(question))
found = run(log, {"clicks": inquiry}, clock=lambda: 0.0).found["clicks"]
print(found.finding.verdict.value, found.finding.resume_offset, found.finding.replay_at_most, found.probes)
