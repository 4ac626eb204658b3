"""Reading a Kafka cluster's log with confluent-kafka, thousands of partitions a call.

How it stays fast and safe (figures: docs/decisions, measured with librdkafka 2.16 and 2,000 partitions):

- Offsets and time lookups go through ``Consumer.offsets_for_times``, which sends one ListOffsets request a broker:
  about 25 ms where the admin client, with a future a partition, takes 90 ms or more; where a broker stays silent, the
  admin client answers -1001 and no error. -1 and -2 are ListOffsets' own words for "end" and "start" (KIP-79).
- Reads ``assign`` all partitions at once with explicit offsets and ``auto.offset.reset=error``: a position that is
  gone is an error, never a silent jump. ``check.crcs`` refuses corrupt batches.
- A client may have asked for such a position twice before it stops, and then reports it twice: the second report, which
  unlike records and ends is not tied to its ``assign``, comes into the next read. So the next read gets a new client.
  (On a busy machine 32 of 11,552 reads after such a read were wrongly told that their position was deleted.)
- A fetch size below a partition's batch starves it while other partitions answer, so reads start small, and
  partitions without a record are read again with a larger size. While no partition at all has answered, the size is not
  why: a broker sends the first batch whole (KIP-74). It is far away, busy or dead, and is waited for.
- A client that reads on finds the leaders of further topics when its timer of one second runs. The reader makes it ask
  for them before: a read of other topics than the last one then takes milliseconds.
- ``isolation.level=read_uncommitted``, unless ``committed_only``, or a request is: the search must see every record any
  job may see, and aborted first copies only move a resume point earlier. A later copy that takes the place of an
  earlier one must be committed (``core.resent``): such requests have a client of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from reconciler.core.anchors import real_topic_id
from reconciler.core.errors import ReconcilerError
from reconciler.core.probes import Chunk
from reconciler.kafka.connection import ONE_BATCH, POINT_READS, Connection
from reconciler.kafka.errors import UNANSWERED, Needs
from reconciler.kafka.records import FetchWait, Gathering, arrived, turns, turns_of
from reconciler.kafka.sent import frames, pack, unpack
from reconciler.ports import ClusterInfo, ReadRequest, TopicInfo, TopicPartition
from reconciler.waits import note_answer

if TYPE_CHECKING:
    from reconciler.kafka.reading_process import ProcessReader

log = logging.getLogger(__name__)

END, START = -1, -2
FETCH_BYTES = (64 * 1024, 1024 * 1024, 16 * 1024 * 1024, 128 * 1024 * 1024)
"""Fetch sizes to try for a partition, in bytes. The last is above any broker's usual ``message.max.bytes``."""
FEW_PARTITIONS = 64
"""Up to this many partitions a large fetch costs little: the small one is left out, messages are taken as they come. A
read of 4 partitions then takes 15 ms instead of 52; at 100 this would be slower, 97 ms instead of 74 (2 cores, one
broker).
"""
ANSWER_BYTES, SMALL_ANSWER_BYTES = 8 * 1024 * 1024, 1024 * 1024
"""Of a broker's answer, which has one batch at least. A client hears nothing of an answer that is not whole: where none
is in ``PATIENCE`` of the time for one, smaller ones are asked for, which 1 Mbit/s delivers in that time."""
PATIENCE = 0.5
LEADERS_S = 1.0
"""The client's own timer finds leaders in so many seconds, so a look-up waits no longer."""
Kind = tuple[int, str]
"""A kind of consumer: its fetch size in bytes, and its isolation level."""
AT_ONCE = 1_000
"""Partitions in one look-up of offsets. librdkafka's own work grows faster than they do: 10,000 take 0.05 s of CPU in
calls of so many, and 0.37 s in one call."""
DESCRIBE = "describe the cluster"
LOOKUP_NEEDS = Needs(topic="Describe on the job's topics")


class KafkaLogReader:
    """A cluster's log: ``ports.LogReader`` and ``ReadsApart``. Connects at the first call.

    ``committed_only``: records of aborted and open transactions are left out, for a job that leaves them out too.
    ``records``: reads them in place of this object. ``sparing``: one batch is read at a time. ``most_bytes``: a read
    ends with so many bytes of values, or a little more.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        *,
        timeout_s: float = 10.0,
        who: str = "destination",
        committed_only: bool = False,
        records: ProcessReader | None = None,
        sparing: bool = False,
        most_bytes: int | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._sparing = sparing
        self._most_bytes = most_bytes
        self._records = records
        self._isolation = "read_committed" if committed_only else "read_uncommitted"
        self._connection = Connection(client, timeout_s=timeout_s, whose=who)
        self._consumers: dict[Kind, Consumer] = {}
        self._topics: dict[Kind, Collection[str]] = {}
        """The topics of each consumer's last read."""
        self._admin: AdminClient | None = None
        self._answer_bytes = ANSWER_BYTES

    # ------------------------------------------------------------ metadata

    def describe(self, topics: Iterable[str]) -> ClusterInfo:
        """Cluster id, and ids and partitions of those of ``topics`` that exist."""
        names = sorted(set(topics))
        admin = self._administration()
        described, configs = {}, {}
        if names:
            described = admin.describe_topics(TopicCollection(names), request_timeout=self._timeout_s)
            resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
            asked = admin.describe_configs(resources, request_timeout=self._timeout_s)
            configs = {resource.name: future for resource, future in asked.items()}
        try:  # all three run at once; this one is awaited first: it shows whether the cluster lets this user in
            cluster_id = self._connection.cluster_id(admin, DESCRIBE)
        except KafkaException as error:
            self._forget()
            raise self._connection.failure(error, DESCRIBE) from error
        found: dict[str, TopicInfo] = {}
        for name, future in described.items():
            info = self._topic(name, future)
            if info is not None:
                numbers = tuple(sorted(partition.id for partition in info.partitions))
                topic_id = real_topic_id(str(info.topic_id))
                found[name] = TopicInfo(name, topic_id, numbers, self._is_compacted(name, configs[name]))
        return ClusterInfo(cluster_id, found)

    def _topic(self, name: str, future: Any) -> Any:
        try:
            with self._connection.waiting():
                return future.result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            needs = Needs(topic=f'Describe on topic "{name}" (Read for its records), if there is such a topic')
            raise self._connection.failure(error, f'look up topic "{name}"', needs) from error

    def _is_compacted(self, topic: str, future: Any) -> bool | None:
        """Whether the topic's cleanup.policy compacts; None where this user may not read it."""
        try:
            return "compact" in str(future.result()["cleanup.policy"].value)
        except KafkaException as error:
            if error.args[0].code() in UNANSWERED:  # a gap would be taken for compaction
                self._forget()
                raise self._connection.failure(error, f'look up the settings of topic "{topic}"') from error
            log.debug("cleanup.policy is not known: %s", error)
            return None

    # ------------------------------------------------------------ offsets

    def log_starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._edges(partitions, START)

    def log_ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._edges(partitions, END)

    def offsets_for_times(self, asked: Sequence[tuple[TopicPartition, int]]) -> Sequence[int | None]:
        answers: list[int | None] = [None] * len(asked)
        for turn in turns([tp for tp, _ in asked]):
            found = self._list_offsets([asked[index] for index in turn])
            for index, offset in zip(turn, found, strict=True):
                answers[index] = None if offset < 0 else offset
            self._doubt([index for index in turn if answers[index] is None], asked, answers)
        return answers

    def _doubt(
        self, silent: Sequence[int], asked: Sequence[tuple[TopicPartition, int]], answers: list[int | None]
    ) -> None:
        """Put the log's start in place of a "none" that is not proven.

        A broker answers from the first segment that ever held so new a record, even if all such records of it were
        deleted (DeleteRecords; it keeps the segment for minutes) or compacted away (an emptied batch keeps its largest
        timestamp, an emptied segment counts as new as its file), and then says "none" whatever the later segments hold.
        The log's largest timestamp, deleted segments included, tells.
        """
        if not silent:
            return
        places = [asked[index][0] for index in silent]
        starts, ends = self.log_starts(places), self.log_ends(places)
        doubtful = [index for index in silent if starts[asked[index][0]] < ends[asked[index][0]]]
        latest = self._latest_times([asked[index][0] for index in doubtful])
        for index in doubtful:
            tp, timestamp_ms = asked[index]
            newest = latest[tp]
            if newest is None or newest >= timestamp_ms:
                answers[index] = starts[tp]

    def _latest_times(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | None]:
        """The largest timestamp a log has held (KIP-734).

        None where the broker is too old or silent, or cannot say, as the batch with that timestamp has been emptied.
        """
        if not partitions:
            return {}
        query = {KafkaPartition(tp.topic, tp.partition): OffsetSpec.max_timestamp() for tp in partitions}
        answers = self._administration().list_offsets(query, request_timeout=self._timeout_s)
        found: dict[TopicPartition, int | None] = {}
        for place, future in answers.items():
            tp = TopicPartition(place.topic, place.partition)
            try:
                with self._connection.waiting():
                    newest = future.result().timestamp
                found[tp] = None if newest < 0 else newest
            except KafkaException as error:
                if error.args[0].code() not in (KafkaError.UNSUPPORTED_VERSION, KafkaError._UNSUPPORTED_FEATURE):
                    self._forget()
                    raise self._lookup_failed(error, tp.topic, tp.partition) from error
                found[tp] = None
        return found

    def _administration(self) -> AdminClient:
        if self._admin is None:
            self._admin = self._connection.admin()
        return self._admin

    def _lookup_failed(self, error: KafkaException, topic: str, partition: int) -> ReconcilerError:
        needs = Needs(topic=f'Describe on topic "{topic}"')
        return self._connection.failure(error, f"look up offsets of {TopicPartition(topic, partition)}", needs)

    def _edges(self, partitions: Sequence[TopicPartition], which: int) -> Mapping[TopicPartition, int]:
        return dict(zip(partitions, self._list_offsets([(tp, which) for tp in partitions]), strict=True))

    def _list_offsets(self, asked: Sequence[tuple[TopicPartition, int]]) -> list[int]:
        """One ListOffsets a broker for each ``AT_ONCE``; each partition at most once. -1: no record is that new."""
        slices = (asked[first : first + AT_ONCE] for first in range(0, len(asked), AT_ONCE))
        return [offset for each in slices for offset in self._list_some(each)]

    def _list_some(self, asked: Sequence[tuple[TopicPartition, int]]) -> list[int]:
        consumer = self._consumer((FETCH_BYTES[0], self._isolation))
        query = [KafkaPartition(tp.topic, tp.partition, stamp) for tp, stamp in asked]
        try:
            with self._connection.waiting():
                answers = consumer.offsets_for_times(query, timeout=self._timeout_s)
        except KafkaException as error:
            self._forget()
            raise self._connection.failure(error, "look up offsets", LOOKUP_NEEDS) from error
        for answer in answers:
            if answer.error is not None:
                self._forget()
                raise self._lookup_failed(KafkaException(answer.error), answer.topic, answer.partition)
        by_name = {(answer.topic, answer.partition): answer.offset for answer in answers}
        return [by_name[tp.topic, tp.partition] for tp, _ in asked]

    # ------------------------------------------------------------ records

    @property
    def reads_apart(self) -> bool:
        return self._records is not None

    def expect(self, topics: Mapping[str, TopicInfo]) -> None:
        if self._records is not None:
            self._records.expect(topics)

    def read(self, requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        if self._records is not None:
            return self._records.read(requests)
        framed = (memoryview(b"".join(pack(frame))) for each in self.read_each(requests) for frame in frames(each))
        chunks = dict(chain.from_iterable(map(unpack, framed)))
        return [chunks[index] for index in range(len(requests))]

    def read_each(self, requests: Sequence[ReadRequest]) -> Iterator[list[tuple[int, Chunk]]]:
        """The requests' indexes and answers, as soon as some are known. Their records are messages, for ``pack``."""
        wait_s = self._timeout_s * (PATIENCE if self._may_ask_for_less else 1)
        for turn in turns_of(requests):
            first = 1 if len(turn) <= FEW_PARTITIONS else 0
            sizes = [1] if self._sparing else list(FETCH_BYTES[first:])
            waiting = {requests[index].partition: (index, requests[index]) for index in turn}
            while waiting and sizes:
                left = [request for _, request in waiting.values()]
                done, full = self._read_with(sizes[0], left, wait_s, last=len(sizes) == 1)
                yield [(waiting.pop(tp)[0], chunk) for tp, chunk in done.items()]
                if done and not full:
                    del sizes[0]
                elif not done and self._may_ask_for_less:
                    self._answer_bytes = SMALL_ANSWER_BYTES
                    self._forget()  # an answer under way would hold the others up
                elif not done:
                    break  # silence: a larger fetch would meet the same
            if waiting:
                self._forget()
                names = ", ".join(str(tp) for tp in sorted(waiting)[:3])
                raise self._connection.cluster.no_answer(f"Could not read {names}")

    @property
    def _may_ask_for_less(self) -> bool:
        return not self._sparing and self._answer_bytes > SMALL_ANSWER_BYTES

    def _read_with(
        self, fetch_bytes: int, requests: Sequence[ReadRequest], wait_s: float, *, last: bool
    ) -> tuple[dict[TopicPartition, Chunk], bool]:
        """Read until every partition has a record or an end, or no more come; the partitions left out starved.

        The answer is empty if nothing came in ``wait_s``. True with it: enough has come for one call, and those
        left out have to be read again. ``last``: there is no larger fetch size.
        """
        kind = fetch_bytes, "read_committed" if requests[0].committed else self._isolation
        consumer = self._consumer(kind)
        self._find_leaders(kind, requests)
        consumer.assign([KafkaPartition(r.partition.topic, r.partition.partition, r.offset) for r in requests])
        gathering = Gathering(requests)
        few, most = len(requests) <= FEW_PARTITIONS, self._most_bytes
        full = False
        with self._connection.waiting():
            wait = FetchWait(len(requests), wait_s, last=last, clock=monotonic)
            while not gathering.complete and not full:
                messages = arrived(consumer, few=few)
                try:
                    news = gathering.take(messages, self._connection)
                except ReconcilerError:
                    self._forget()
                    raise
                if news:
                    note_answer()
                    if wait.on_news(gathering.answered):
                        break
                    full = self._sparing or (most is not None and gathering.bytes >= most)
                elif wait.is_over(gathering.any_unanswered):
                    break
        if gathering.refused_position:
            self._topics.pop(kind)
            self._consumers.pop(kind).close()
        else:
            consumer.unassign()
        return gathering.chunks(), full

    def _find_leaders(self, kind: Kind, requests: Sequence[ReadRequest]) -> None:
        """Have a consumer that has read before learn who leads further topics; a failure is left to the read.

        One that connects for its first read asks for its topics by itself. A lookup asks for all leaders at once.
        """
        places = {each.partition.topic: each.partition for each in requests}
        before = self._topics.get(kind, places.keys())
        further = [KafkaPartition(topic, tp.partition, END) for topic, tp in places.items() if topic not in before]
        self._topics[kind] = places.keys()
        until = monotonic() + min(LEADERS_S, self._timeout_s)
        with suppress(KafkaException), self._connection.waiting():
            for first in range(0, len(further), AT_ONCE):
                if (left := until - monotonic()) > 0:
                    self._consumers[kind].offsets_for_times(further[first : first + AT_ONCE], timeout=left)

    def _consumer(self, kind: Kind) -> Consumer:
        if kind not in self._consumers:
            fetch_bytes, isolation_level = kind
            isolation = {"isolation.level": isolation_level}
            sparing = ONE_BATCH if self._sparing else {"fetch.max.bytes": self._answer_bytes}
            properties = {**POINT_READS, **isolation, **sparing, "max.partition.fetch.bytes": fetch_bytes}
            self._consumers[kind] = self._connection.consumer(properties)
        return self._consumers[kind]

    def close(self) -> None:
        self._forget()
        if self._records is not None:
            self._records.close()

    def _forget(self) -> None:
        """Drop all clients, so that a repeated call uses new ones: an old one keeps asking the leader that it knew, and
        waits longer and longer to reconnect.
        """
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()
        self._topics.clear()
        self._admin = None
