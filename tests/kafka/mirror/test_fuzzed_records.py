"""Records of a mirror's own topics, whatever their bytes: read, or counted as unreadable; and any names of topics."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hypothesis import strategies as st

from reconciler.kafka.memory import MemoryLog
from reconciler.kafka.mirror import topics
from reconciler.kafka.mirror.reading import OwnTopics, Wanted, read_pairs
from reconciler.kafka.mirror.records import UnreadableRecord, read_checkpoint, read_heartbeat, read_sync
from reconciler.ports import TopicPartition
from tests.fuzz import NUMBERS, attempt, fuzz, sized, slips
from tests.kafka.mirror.written import CHECKPOINTS, SYNCS, checkpoint_key, checkpoint_value, sync_key, sync_value, text


@dataclass(frozen=True, slots=True)
class Made:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = 0
    timestamp_ms: int | None = 1
    append_time: bool = False


EDGES = [number for number in NUMBERS if -(2**63) <= number < 2**63]
KEYS = [
    sync_key(),
    sync_key("x" * 249, 2**31 - 1),
    checkpoint_key("readers"),
    text("a") + text("b"),
    struct.pack(">h", -1),
]
VALUES = [
    *(sync_value(number, EDGES[-number % len(EDGES)]) for number in EDGES),
    *(checkpoint_value(number, 5) for number in EDGES),
    checkpoint_value(5, 5, version=1),
    struct.pack(">hq", 0, 1_700_000_000_000),
]
RECORDS = st.builds(Made, st.none() | slips(KEYS), st.none() | slips(VALUES))


@sized
def test_any_record_of_a_mirror_is_read_or_unreadable(runs: int) -> None:
    wanted = [Wanted(TopicPartition("events", 0), TopicPartition("a.events", 0), offset) for offset in (None, 5)]
    readers: tuple[Callable[..., object], ...] = (read_sync, read_checkpoint, read_heartbeat)

    def claim(records: list[Made]) -> None:
        log = MemoryLog("b", {SYNCS: 1, CHECKPOINTS: 1})
        unreadable = dict.fromkeys((SYNCS, CHECKPOINTS), 0)
        for each in records:
            found = [attempt(partial(read, each), codec=(UnreadableRecord,)) for read in readers]
            for topic, pair in zip((SYNCS, CHECKPOINTS), found[:2], strict=True):
                log.partition(topic, 0).append(1, each.key, each.value)
                unreadable[topic] += pair is None and each.value is not None
                assert pair is None or min(pair[1].upstream, pair[1].downstream, pair[0].partition) >= 0  # type: ignore[index]
        known = read_pairs(log, OwnTopics((SYNCS,), (CHECKPOINTS,)), wanted)
        for topic, count in unreadable.items():
            assert (f'{count:,} records of "{topic}" are not of a known format' in known.note) == bool(count)

    fuzz(runs, st.lists(RECORDS, max_size=3), claim)


@sized
def test_any_names_of_topics_are_of_a_mirror_or_not(runs: int) -> None:
    parts = [
        "a",
        "b.c",
        "events",
        "heartbeats",
        "checkpoints",
        "internal",
        "mm2-offset-syncs",
        ".",
        "_",
        "-",
        "..",
        ".",
    ]
    legal = st.text("abAB09._-", max_size=249)
    name = st.lists(st.sampled_from(parts) | legal, max_size=8).map(lambda found: "".join(found)[:249])

    def claim(names: list[str]) -> None:
        for mirror in attempt(lambda: topics.mirrors(names)) or ():
            assert mirror.topics
            assert not set(mirror.topics) & set(filter(topics.is_internal, names))
            assert all(mirror.source_of(topic) in topic for topic in mirror.topics)
        topics.is_source(names)

    fuzz(runs, st.lists(name, max_size=6), claim)
