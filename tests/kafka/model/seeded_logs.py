"""Logs from seeds: what is done to one partition, to be done to a real one and to one in memory alike."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

BEGIN = 1_700_000_000_000
"""Where a log's times begin (epoch ms): in the past, so that markers and append times are later."""
FAR_AHEAD = BEGIN + 20 * 365 * 86_400_000
SEGMENT_MS = 86_400_000
"""Long enough that no test's own duration begins a segment."""

# ---------------------------------------------------------------- operations


@dataclass(frozen=True, slots=True)
class Message:
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Write:
    """Messages sent together by one of ``WRITERS``."""

    by: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is written while ``by``'s transaction is open, by it or by others, and then its marker."""

    by: str
    writes: tuple[Write, ...]
    commits: bool


@dataclass(frozen=True, slots=True)
class DeleteBefore:
    """DeleteRecords."""

    offset: int


@dataclass(frozen=True, slots=True)
class Clean:
    """One round of the log cleaner, over all partitions of the topic."""


Operation = Write | Transaction | DeleteBefore | Clean

WRITERS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "plain, gzip": {"compression.type": "gzip"},
    "plain, snappy": {"compression.type": "snappy"},
    "idempotent": {"enable.idempotence": "true"},
    "idempotent, lz4": {"enable.idempotence": "true", "compression.type": "lz4"},
    "transactional": {"transactional.id": "transactional"},
    "transactional, zstd": {"transactional.id": "transactional-zstd", "compression.type": "zstd"},
}
"""Producers and their settings."""
ALONE = tuple(name for name in WRITERS if not name.startswith("transactional"))
IN_TRANSACTIONS = tuple(name for name in WRITERS if name.startswith("transactional"))


@dataclass(frozen=True, slots=True)
class Kind:
    """A topic's configuration and what follows from it. Cleaned topics are cleaned between ``phases``."""

    name: str
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_cleaned(self) -> bool:
        return "compact" in self.config.get("cleanup.policy", "delete")

    @property
    def allows_deletion(self) -> bool:
        return "delete" in self.config.get("cleanup.policy", "delete")

    @property
    def append_time(self) -> bool:
        return self.config.get("message.timestamp.type") == "LogAppendTime"

    @property
    def rolls_by_time(self) -> bool:
        return self.config.get("segment.ms") == str(SEGMENT_MS)

    @property
    def delete_retention_ms(self) -> int:
        return int(self.config.get("delete.retention.ms", "86400000"))

    @property
    def phases(self) -> int:
        return 3 if self.is_cleaned else 1


ONE_SEGMENT = {"segment.ms": str(10**15), "message.timestamp.after.max.ms": str(2**62)}
BY_TIME = {**ONE_SEGMENT, "segment.ms": str(SEGMENT_MS)}
BY_BYTES = {**ONE_SEGMENT, "internal.segment.bytes": "700"}
"""``segment.bytes`` may not be so small: this is the broker's own setting for tests."""
STAMPED = {"message.timestamp.type": "LogAppendTime"}
DENSE, SPARSE = {"index.interval.bytes": "0"}, {"index.interval.bytes": "300"}

KINDS = (
    Kind("one-segment", {**ONE_SEGMENT, **SPARSE}),
    Kind("by-time", {**BY_TIME, **DENSE}),
    Kind("by-bytes", {**BY_BYTES, **SPARSE}),
    Kind("append-time", {**BY_BYTES, **STAMPED, **DENSE}),
    Kind("compacted", {**BY_BYTES, **DENSE, "cleanup.policy": "compact", "delete.retention.ms": "0"}),
    Kind("compacted-deleted", {**BY_BYTES, **SPARSE, "cleanup.policy": "compact,delete", "delete.retention.ms": "0"}),
    Kind("compacted-by-time", {**BY_TIME, **SPARSE, "cleanup.policy": "compact,delete"}),
    Kind("compacted-append-time", {**BY_BYTES, **STAMPED, "cleanup.policy": "compact", "delete.retention.ms": "0"}),
)


@dataclass(frozen=True, slots=True)
class SeededLog:
    """All that happens to one partition."""

    seed: int
    kind: Kind
    operations: tuple[Operation, ...]

    def phases(self) -> Iterator[tuple[Operation, ...]]:
        """The operations up to each cleaning, it included."""
        phase: list[Operation] = []
        for operation in self.operations:
            phase.append(operation)
            if isinstance(operation, Clean):
                yield tuple(phase)
                phase = []
        yield tuple(phase)


# ---------------------------------------------------------------- making one


def make_log(seed: int) -> SeededLog:
    """Everything about one log, from its seed; the seed's remainder says of which kind it is."""
    maker = _Maker(seed)
    operations: list[Operation] = []
    for phase in range(maker.kind.phases):
        if phase:
            operations.append(Clean())
        operations += maker.phase()
    return SeededLog(seed, maker.kind, tuple(operations))


class _Maker:
    """Keeps what the next operation depends on: the clock and the log's end."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.kind = KINDS[seed % len(KINDS)]
        self._order = self._rng.choice(("steady", "ties", "bounded", "any"))
        self._keys = self._rng.choice((2, 4, 9))
        self._empty = self._rng.random() < 0.08
        self._clock = BEGIN
        self._start = self._end = 0

    def phase(self) -> list[Operation]:
        if self._empty:
            return []
        made = [self._operation() for _ in range(self._rng.randint(4, 9))]
        if self.kind.allows_deletion and self._rng.random() < 0.06:
            made.append(self._delete_before(self._end))
        return made

    def _operation(self) -> Operation:
        luck = self._rng.random()
        if luck < 0.12 and self.kind.allows_deletion and self._end > self._start:
            return self._delete_before(self._rng.randint(self._start + 1, self._end))
        # A marker's time, which is now, ends all rolling by the times of records.
        if luck < (0.2 if self.kind.rolls_by_time else 0.45):
            return self._transaction()
        return self._write(self._rng.choice(ALONE))

    def _delete_before(self, offset: int) -> DeleteBefore:
        self._start = offset
        return DeleteBefore(offset)

    def _transaction(self) -> Transaction:
        by = self._rng.choice(IN_TRANSACTIONS)
        writers = [by, *(self._rng.choice((by, self._rng.choice(ALONE))) for _ in range(self._rng.randrange(3)))]
        made = Transaction(by, tuple(self._write(each) for each in writers), self._rng.random() < 0.55)
        self._end += 1
        return made

    def _write(self, by: str) -> Write:
        if self._rng.random() < 0.2:
            self._clock += self._rng.choice((-40, 2 * SEGMENT_MS if self.kind.rolls_by_time else 2_000))
        # A batch must fit into a segment.
        most = 5 if "internal.segment.bytes" in self.kind.config else self._rng.choice((5, 5, 40))
        messages = tuple(self._message() for _ in range(self._rng.randint(1, most)))
        self._end += len(messages)
        return Write(by, messages)

    def _message(self) -> Message:
        key: bytes | None = b"k%d" % self._rng.randrange(self._keys)
        if not self.kind.is_cleaned and self._rng.random() < 0.2:
            key = self._rng.choice((None, b""))
        value = None if self._rng.random() < 0.2 else self._rng.randbytes(self._rng.randrange(30))
        headers: list[tuple[str, bytes | None]] = [("id", b"%08x" % self._rng.getrandbits(32))]
        headers += [("none", None), ("id", b"")][: self._rng.choice((0, 0, 0, 1, 2))]
        return Message(self._stamp(), key, value, tuple(headers) if self._rng.random() < 0.9 else ())

    def _stamp(self) -> int:
        if self._rng.random() < 0.02:
            return FAR_AHEAD + self._rng.randrange(3)
        if self._order == "any":
            return self._clock + self._rng.randrange(60)
        self._clock += self._rng.choice((0, 0, 0, 1) if self._order == "ties" else (0, 1, 2, 9))
        return self._clock + (self._rng.randint(-15, 15) if self._order == "bounded" else 0)
