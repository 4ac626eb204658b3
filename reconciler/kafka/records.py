"""Sorts the messages of one read into chunks, and says how long it waits for more."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, repeat
from operator import is_not
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from reconciler.core.errors import NotRead
from reconciler.core.probes import Chunk, Withheld
from reconciler.kafka.connection import Connection
from reconciler.kafka.errors import Needs
from reconciler.ports import ReadRequest, TopicPartition

log = logging.getLogger(__name__)

POLL_S = 0.05
FLOW_S = 0.005
"""A call for many messages that are not all there yet waits so long, also after the last one has come."""
BATCH = 2_000
GOES_ON = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.MSG_SIZE_TOO_LARGE})
"""Errors after which the client reads on. It reports a message as too large whenever a response held no record, as with
batches that the log cleaner has emptied, once its fetches are as large as they can be."""
STALL_S, STALL = 0.5, 2
"""Seconds without a new record or end for any waiting partition, after the first one, before the fetch size grows, or
the read is complete; and so many times the first one's, over a slow link.

Ends come a moment after the last records. A read that gave up sooner would be repeated, and on a busy machine the same
inputs would cost other numbers of probes.
"""
DRIP_S = 0.25
DRIP = 0.1
"""If all batches are above the fetch size, each answer of a broker holds one batch, of one partition (KIP-74). So where
less than this part of the partitions without a record got one in so many seconds, the others need a larger fetch."""


def arrived(consumer: Consumer, *, few: bool) -> list[Any]:
    """The messages that have come; of ``few`` partitions as soon as there is one, since a call for many would wait for
    its timeout.
    """
    messages: list[Any] = consumer.consume(1, POLL_S) if few else consumer.consume(BATCH, FLOW_S)
    return messages + consumer.consume(BATCH, 0) if few and messages else messages


class _Place:
    """The messages of one request so far."""

    __slots__ = ("ended_at", "gone", "messages", "open", "refused", "request", "wanted")

    def __init__(self, request: ReadRequest) -> None:
        self.request = request
        self.messages: list[Any] = []
        self.wanted = request.max_records
        self.open = True
        self.ended_at: int | None = None
        self.gone = False
        self.refused: NotRead | None = None

    def chunk(self) -> Chunk | None:
        """The answer, its records as messages; None before the first message."""
        if self.refused is not None and not self.messages:
            return Withheld(self.refused)
        if self.gone:
            return Chunk((), self.request.offset, out_of_range=True)
        if self.ended_at is not None:
            return Chunk(self.messages, max(self.ended_at, self.request.offset))
        return Chunk(self.messages, self.messages[-1].offset() + 1) if self.messages else None


class FetchWait:
    """The wait of one fetch of ``partitions``; ``clock`` gives monotonic seconds.

    Until the first news it lasts up to ``wait_s``, since silence says nothing about the fetch size. ``last``: no larger
    fetch is left, so that partitions without an answer are waited for as long.
    """

    def __init__(self, partitions: int, wait_s: float, *, last: bool, clock: Callable[[], float]) -> None:
        self._partitions, self._wait_s, self._last, self._clock = partitions, wait_s, last, clock
        self._stall_s = STALL_S
        self._last_news_s = clock()
        self._counted_s: float | None = None
        """When the answers were counted; at first, when the first came."""
        self._answered = 0

    def on_news(self, answered: Callable[[], int]) -> bool:
        """Note new records or ends; True if the rest comes too slowly for this fetch size.

        ``answered`` counts the partitions with a record or an end.
        """
        before_s, self._last_news_s = self._last_news_s, self._clock()
        if self._counted_s is None:
            self._stall_s = min(max(STALL_S, STALL * (self._last_news_s - before_s)), self._wait_s)
            self._counted_s = self._last_news_s
        if self._last or self._last_news_s - self._counted_s <= DRIP_S:
            return False
        before, self._answered, self._counted_s = self._answered, answered(), self._last_news_s
        return 0 < self._answered - before < DRIP * (self._partitions - self._answered)

    def is_over(self, any_unanswered: Callable[[], bool]) -> bool:
        """True if no more news is expected, after a look that found none."""
        waits_long = self._counted_s is None or (self._last and any_unanswered())
        return self._clock() - self._last_news_s > (self._wait_s if waits_long else self._stall_s)


class Gathering:
    """Sorts one round's messages by partition until every request is served."""

    def __init__(self, requests: Sequence[ReadRequest]) -> None:
        self._places = {(r.partition.topic, r.partition.partition): _Place(r) for r in requests}
        self._open = len(self._places)
        self.refused_position = False
        """The client reported a position as deleted: it may report it again, to the next read."""
        self.bytes = 0
        """Bytes of the values so far."""
        topics = {topic for topic, _ in self._places}
        # Nearly always there is one topic, and then the partition's number is a sufficient key.
        self._by_number = {number: place for (_, number), place in self._places.items()} if len(topics) == 1 else None

    @property
    def complete(self) -> bool:
        return self._open == 0

    def any_unanswered(self) -> bool:
        """True while some partition has neither a record nor an end."""
        return any(place.open and not place.messages for place in self._places.values())

    def answered(self) -> int:
        """How many partitions have a record or an end."""
        return sum(not place.open or bool(place.messages) for place in self._places.values())

    def take(self, messages: Sequence[Any], connection: Connection) -> bool:
        """Sort messages in; True if any was new. They come in runs of one partition, and a run is taken as a whole."""
        news, places = False, self._by_number or self._places
        name_of = Message.partition if self._by_number is not None else _name_of
        for name, run in groupby(messages, name_of):
            place = places.get(name)
            if place is None or not place.open:
                continue
            own = list(run)
            if not any(map(is_not, map(Message.error, own), repeat(None))):  # the client's errors cannot be compared
                self._take_records(place, own)
                news = True
                continue
            for message in own:
                if not place.open:
                    break
                if message.error() is not None:
                    news = self._take_error(place, message, connection) or news
                else:
                    self._take_records(place, [message])
                    news = True
        return news

    def _take_records(self, place: _Place, messages: list[Any]) -> None:
        del messages[place.wanted :]
        place.messages += messages
        place.wanted -= len(messages)
        self.bytes += sum(map(len, messages))
        if place.wanted == 0:
            self._shut(place)

    def _take_error(self, place: _Place, message: Any, connection: Connection) -> bool:
        code = message.error().code()
        if message.topic() is None:
            # Not about a partition, whatever its number: the client did not find the coordinator of the group that
            # it must be given, and that is never used.
            log.debug("not about a partition: %s", message.error())
            return False
        if code == KafkaError._PARTITION_EOF:
            place.ended_at = message.offset()
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self.refused_position = True
            if place.messages or 0 <= message.offset() != place.request.offset:
                log.debug("not about this read: %s at offset %s", message.error(), message.offset())
                return False
            place.gone = True
        elif code == KafkaError._BAD_COMPRESSION:
            place.refused = NotRead(
                f"{message.topic()}-{message.partition()} could not be read from offset {message.offset():,} on: the "
                "records there cannot be decompressed, or not within 512 MiB.",
                hint="Find out who wrote them, and delete the records up to there.",
            )
        elif message.error().retriable() or code in GOES_ON:
            return False  # the client retries by itself; the stall or the deadline decides
        else:
            needs = Needs(topic=f'Read on topic "{message.topic()}"')
            doing = f"read {message.topic()}-{message.partition()}"
            raise connection.failure(KafkaException(message.error()), doing, needs)
        self._shut(place)
        return True

    def _shut(self, place: _Place) -> None:
        place.open = False
        self._open -= 1

    def chunks(self) -> dict[TopicPartition, Chunk]:
        """A chunk for every partition that has records, an end, or an answer that its offset was deleted."""
        answers = {place.request.partition: place.chunk() for place in self._places.values()}
        return {tp: chunk for tp, chunk in answers.items() if chunk is not None}


def _name_of(message: Any) -> tuple[str, int]:
    return message.topic(), message.partition()


def turns(partitions: Sequence[TopicPartition]) -> list[list[int]]:
    """Indexes of ``partitions`` in turns, each partition at most once per turn."""
    turns: list[list[int]] = []
    seen: dict[TopicPartition, int] = {}
    for index, tp in enumerate(partitions):
        turn = seen.get(tp, 0)
        seen[tp] = turn + 1
        if turn == len(turns):
            turns.append([])
        turns[turn].append(index)
    return turns


def turns_of(requests: Sequence[ReadRequest]) -> Iterator[list[int]]:
    """Indexes of ``requests`` in turns: each partition at most once, and all of one isolation."""
    for committed in (False, True):
        here = [index for index, request in enumerate(requests) if request.committed is committed]
        for turn in turns([requests[index].partition for index in here]):
            yield [here[place] for place in turn]
