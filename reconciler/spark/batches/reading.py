"""The edges of the log, a DataFrame of exactly the planned ranges, and their last records.

- R1  The partitions are assigned by number, and each has a start and an end: none is read from a default.
- R2  ``failOnDataLoss`` stays on: a missing offset fails the batch, and Spark's error becomes one of this product's.
- R3  If a partition's last record is before the planned end, the log must still hold the offsets in between: a range
      that was deleted or cut off is not an empty range.
- R4  When a batch is saved, the topics must have the ids that they had when it was planned: Spark's offsets name none.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from reconciler.core import json_fields
from reconciler.core.anchors import Record
from reconciler.core.errors import Changed, ConfigError, NeedsPerson, ReconcilerError
from reconciler.core.text import some
from reconciler.jobs.tracking.source import last_in
from reconciler.kafka.engine import EngineSettings, Inquiry, run
from reconciler.ports import ClusterInfo, LogReader, ReadRequest, TopicPartition
from reconciler.spark.batches.planning import LogEdges, OffsetRange
from reconciler.spark.logins import with_login
from reconciler.spark.session import DATA_LOSS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
_DECIDED_HERE = frozenset(
    {"subscribe", "subscribepattern", "assign", "failondataloss", "kafka.bootstrap.servers"}
    | {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy"}
    | {"endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"}
)
"""Options, in lower case, that would contradict the ranges."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """One cluster, as Kafka's client and Spark's Kafka source reach it. Both may hold passwords: its repr is empty.

    ``client``: librdkafka properties, ``bootstrap.servers`` among them. ``options``: further options of Spark's Kafka
    source, such as ``includeHeaders``; with the login, if they come from ``of`` or ``at``.
    """

    client: Mapping[str, Any] = field(repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def at(
        cls,
        bootstrap_servers: str,
        kafka_client: Mapping[str, str] | None = None,
        options: Mapping[str, str] | None = None,
    ) -> ClusterAccess:
        """As ``of``."""
        return cls.of({"bootstrap.servers": bootstrap_servers, **(kafka_client or {})}, options)

    @classmethod
    def of(cls, client: Mapping[str, Any], options: Mapping[str, str] | None = None) -> ClusterAccess:
        """With the login of ``client`` for Spark, too, unless ``options`` have one. Raises as ``with_login``."""
        return cls(client, with_login(client, options))

    @property
    def bootstrap_servers(self) -> str:
        return str(self.client["bootstrap.servers"])

    def reader(
        self, who: str = "job's", *, timeout_s: float = 10.0, committed_only: bool = False, deadline_s: float = 0.0
    ) -> LogReader:
        """A connection to the cluster's log. ``who``: whose settings these are, for errors.

        With ``deadline_s``, a call is retried for so many seconds while the cluster is unreachable or its leaders move.
        """
        from reconciler.kafka.reader import KafkaLogReader
        from reconciler.retry import PatientReader

        reader = KafkaLogReader(self.client, timeout_s=timeout_s, who=who, committed_only=committed_only)
        return PatientReader(reader, monotonic, deadline_s) if deadline_s else reader


def look_up_edges(reader: LogReader, topics: Iterable[str]) -> LogEdges:
    """The topics' partitions and edges. For a reader of committed records the end is the last stable offset.

    Raises Unreachable and Refused, and Changed for a topic that was recreated meanwhile.
    """
    wanted = sorted(set(topics))
    seen = reader.describe(wanted)
    while True:
        partitions = _partitions(seen)
        starts = reader.log_starts(partitions) if partitions else {}
        ends = reader.log_ends(partitions) if partitions else {}
        now = reader.describe(wanted)
        if not all(now.numbers_as(seen, topic) for topic in wanted):
            raise Changed(
                "A topic was deleted or recreated while its partitions were looked up.", hint="Run this again."
            )
        if partitions == _partitions(now):
            return LogEdges(now, starts, ends)
        seen = now  # partitions were added: they have edges, too


def _partitions(cluster: ClusterInfo) -> list[TopicPartition]:
    return [place for info in cluster.topics.values() for place in info.places]


def check_options(options: Mapping[str, str]) -> None:
    """Raise ConfigError for an option that would contradict the ranges."""
    wrong = sorted(name for name in options if name.lower() in _DECIDED_HERE)
    if wrong:
        raise ConfigError(
            f"The option {', '.join(wrong)} is decided by the ranges that are read.",
            hint="Leave it out: topics and bootstrap_servers are the job's own arguments.",
        )


def reads_committed(options: Mapping[str, str]) -> bool:
    """True if the options leave out records of aborted and open transactions."""
    return any(name.lower() == "kafka.isolation.level" and value == "read_committed" for name, value in options.items())


def options_for(
    ranges: Sequence[OffsetRange], bootstrap_servers: str, options: Mapping[str, str] | None = None
) -> dict[str, str]:
    """All options of ``spark.read.format("kafka")`` that read these ranges and nothing else.

        options_for([OffsetRange("events", 0, 10, 20)], "kafka:9092")["startingOffsets"]   # {"events":{"0":10}}

    Raises ConfigError for an option that the ranges decide, ValueError without ranges.
    """
    check_options(options or {})
    if not ranges:
        raise ValueError("no ranges to read")
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for each in sorted(ranges):
        starts.setdefault(each.topic, {})[str(each.partition)] = each.from_offset
        ends.setdefault(each.topic, {})[str(each.partition)] = each.until_offset
    assigned = {topic: [int(partition) for partition in of] for topic, of in starts.items()}
    return {
        **(options or {}),
        "kafka.bootstrap.servers": bootstrap_servers,
        "assign": json_fields.compact(assigned),
        "startingOffsets": json_fields.compact(starts),
        "endingOffsets": json_fields.compact(ends),
        "failOnDataLoss": "true",
    }


def read(
    spark: SparkSession,
    ranges: Sequence[OffsetRange],
    bootstrap_servers: str,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The records of these ranges, with the Kafka source's columns. Lazy: Spark reads them when it runs a job.

        frame = read(spark, [OffsetRange("events", 0, 10, 20)], "kafka:9092", {"minPartitions": "8"})

    Raises as ``options_for`` does.
    """
    return spark.read.format("kafka").options(**options_for(ranges, bootstrap_servers, options)).load()


@contextmanager
def data_loss_as_error(ranges: Sequence[OffsetRange], *, saved: bool = False) -> Iterator[None]:
    """Turn Spark's error for missing records (R2) into NeedsPerson; all other exceptions pass.

    ``saved``: the batch's offsets were saved before it was read.
    """
    try:
        yield
    except Exception as error:
        if DATA_LOSS in str(error) and not hasattr(error, "exit_code"):
            raise lost_while_reading(ranges, saved=saved) from error
        raise


def last_records(
    ranges: Sequence[OffsetRange], reader: LogReader, *, timeout_s: float = TIMEOUT_S
) -> dict[TopicPartition, Record]:
    """The last record of each range that has one: a point read each (R3). The reader must leave out the same records as
    Spark.

    Raises Unreachable and Refused, and NeedsPerson for a range that the log no longer holds.
    """
    searches = {each.at: Inquiry(each.at, last_in(each.from_offset, each.until_offset)) for each in ranges}
    answers = run(reader, searches, clock=monotonic, settings=EngineSettings(deadline_s=timeout_s)).found
    found = {at: answer.finding for at, answer in answers.items() if answer.finding is not None}
    after = {each: found[each.at].offset + 1 if each.at in found else each.from_offset for each in ranges}
    short = [each for each, offset in after.items() if offset < each.until_offset]
    chunks = reader.read([ReadRequest(each.at, after[each], 1) for each in short]) if short else []
    gone = [each for each, chunk in zip(short, chunks, strict=True) if chunk.out_of_range]
    if gone:
        raise lost_while_reading(gone)
    return found


def check_topics(cluster: ClusterInfo, reader: LogReader) -> None:
    """Raise Changed if a topic was recreated since ``cluster`` was described (R4).

    If the cluster does not answer, the batch is saved: its work is done, and need not be repeated.
    """
    try:
        now = reader.describe(cluster.topics)
    except ReconcilerError as error:
        log.debug("the topics could not be looked up again: %s", error)
        return
    if not all(now.numbers_as(cluster, topic) for topic in cluster.topics):
        raise Changed(
            "A topic was deleted or recreated while its records were read. Nothing was saved.", hint="Run this again."
        )


def lost_while_reading(ranges: Sequence[OffsetRange], *, saved: bool = False) -> ReconcilerError:
    """The error for records that were removed, or offsets that never existed, while Spark read a batch.

    ``saved``: its offsets were saved before, by at most once.
    """
    prevent = "Read in smaller batches (Caps), or raise the topic's retention."
    return NeedsPerson(
        f"Spark could not read all of {some(list(map(str, ranges)))}: records were removed while they were read. "
        + (
            "The offsets after the batch are saved: at most once does not repeat it." if saved else "Nothing was saved."
        ),
        hint=prevent if saved else f"Run this again: the policy for retention (overtaken) then decides. {prevent}",
    )


def require_single_attempts(master: str, settings: Mapping[str, str]) -> None:
    """Raise ConfigError if Spark may run a task twice, and so repeat its effects."""
    local = re.fullmatch(r"local(\[[^,\]]+(?:,\s*(\d+))?\])?", master.strip())
    attempts = (local[2] or "1") if local else settings.get("spark.task.maxFailures", "4")
    if attempts != "1" or settings.get("spark.speculation", "false").lower() == "true":
        raise ConfigError(
            "At most once is impossible while Spark repeats tasks.",
            hint="Start Spark with spark.task.maxFailures=1 and spark.speculation=false.",
        )
