"""What the mirror says of itself, beside what the jobs would find: on a log in memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from reconciler.cli.commands.mirror import to_json
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ExitCode, NotRead, Refused
from reconciler.core.probes import Chunk, Withheld
from reconciler.failover.mirrored import MirrorReport, report
from reconciler.kafka.mirror.account import LOCATION
from reconciler.ports import ClusterInfo, ReadRequest, TopicPartition
from tests.in_memory import BASE, GROUP, NOW, Memory, content, memory, stored, wide
from tests.kafka.mirror.written import CHECKPOINTS, text, write_checkpoints, write_syncs
from tests.memory_log import MemoryLog

__all__ = ["memory", "wide"]
THERE = TopicPartition("a.events", 0)


def reported(memory: Memory, extra: str = "") -> MirrorReport:
    config = memory.config(extra)
    return report(config, config.jobs, memory.outside)


def positions(log: MemoryLog, *offsets: int, alias: str = "a", topic: str = "mm2-offsets.a.internal") -> None:
    """Connect has committed these source offsets of the first partition, one after the other."""
    log.create(topic, 1)
    for offset in offsets:
        key = json.dumps(["MirrorSourceConnector", {"cluster": alias, "partition": 0, "topic": "events"}]).encode()
        log.partition(topic, 0).append(NOW, key, json.dumps({"offset": offset}).encode())


@pytest.fixture
def lost(memory: Memory) -> Memory:
    """Ten records; the job has processed 0 to 4, and stores the number alone."""
    memory.deliver(range(10))
    memory.save({0: StoredOffset(BASE + 5)})
    return memory


@pytest.mark.parametrize("topic", ["mirrormaker2-cluster-offsets", "connect-offsets"])
def test_the_positions_of_another_worker_are_found_by_its_usual_topic(lost: Memory, topic: str) -> None:
    positions(lost.log, 5, topic="mm2-offsets.a.internal", alias="z")
    positions(lost.log, 7, topic=topic)
    (account,) = reported(lost).partitions
    assert account.sent is not None
    assert (account.sent.offset, account.sent.by) == (7, "connect")


def test_a_topic_of_positions_that_is_named_is_the_one_that_is_read(lost: Memory) -> None:
    positions(lost.log, 7)
    positions(lost.log, 8, topic="their-offsets")
    (account,) = reported(lost, extra='[mirror]\noffsets_topic = "their-offsets"').partitions
    assert account.sent is not None
    assert account.sent.offset == 8


def test_a_property_that_may_be_set_already_is_not_the_first_to_set(lost: Memory) -> None:
    """Without a group that commits, there are no checkpoints either."""
    write_syncs(lost.log, (BASE, 0), (BASE + 9, 9))
    found = reported(lost)
    assert found.first is not None
    assert (found.first.name, found.first.is_default) == ("emit.heartbeats.enabled", True)


def test_the_first_property_to_set_is_where_the_syncs_are(lost: Memory) -> None:
    write_checkpoints(lost.log, (BASE + 5, 5), group=GROUP)
    found = reported(lost)
    assert found.first is not None
    assert (found.first.name, found.first.wanted) == (LOCATION, "target")
    assert found.exit_code is ExitCode.OK


def test_nothing_found_is_not_all_is_well(lost: Memory) -> None:
    found = reported(lost)
    assert [each.destination for each in found.without_evidence] == [THERE]
    assert found.exit_code is ExitCode.NEEDS_PERSON
    assert any("left no offsets here" in note for note in found.notes)


def test_a_partition_that_is_not_mirrored_at_all_is_told(lost: Memory) -> None:
    """What the mirror recorded of the others proves nothing of it, and a failover would stop there (``missing``)."""
    write_syncs(lost.log, (BASE, 0), (BASE + 9, 9))
    assert reported(lost).exit_code is ExitCode.OK
    lost.save({1: StoredOffset(BASE + 5)})
    found = reported(lost)
    assert found.notes[0] == "offsets are stored for 1 partition that the destination does not have: a.events-1"
    assert found.exit_code is ExitCode.NEEDS_PERSON


def test_a_prepared_job_needs_no_mirror_and_the_report_still_says_what_it_lacks(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(4)})
    assert reported(memory).exit_code is ExitCode.NEEDS_PERSON


def test_a_partition_without_records_lacks_nothing(wide: Memory) -> None:
    wide.deliver(range(10))
    wide.save({0: StoredOffset(BASE + 5)})
    write_syncs(wide.log, (BASE + 4, 4))
    assert not reported(wide).without_evidence


def test_the_last_source_offset_is_connects_or_a_syncs_whichever_is_later(lost: Memory) -> None:
    write_syncs(lost.log, (BASE, 0), (BASE + 7, 7))
    (each,) = reported(lost).partitions
    assert each.sent is not None
    assert (each.sent.offset, each.sent.by) == (BASE + 7, "sync")
    positions(lost.log, BASE + 3, BASE + 9)
    (each,) = reported(lost).partitions
    assert each.sent is not None
    assert (each.sent.offset, each.sent.by) == (BASE + 9, "connect")
    assert each.newest_ms == content(9)[0]


def test_the_report_counts_distances_gaps_and_records_sent_again(lost: Memory) -> None:
    """From 700 to 706 five records came for six numbers; then the mirror went back to 703."""
    write_syncs(lost.log, (BASE, 0), (BASE + 6, 5), (BASE + 3, 7), (BASE + 5, 9))
    (each,) = reported(lost).partitions
    assert (each.syncs, each.median_distance, each.largest_distance) == (4, 2, 6)
    assert (each.missing, each.again) == (1, 1)


def test_the_report_shows_each_groups_place(lost: Memory) -> None:
    write_checkpoints(lost.log, (BASE + 2, 2), (BASE + 5, 5), group=GROUP)
    write_checkpoints(lost.log, (BASE + 9, 9), group="others")
    others, mine = reported(lost).groups
    assert (mine.group, mine.offset, mine.place, mine.behind) == (GROUP, BASE + 5, 5, 5)
    assert (others.group, others.behind) == ("others", 1)


def test_the_newest_heartbeat_is_reported(lost: Memory) -> None:
    assert reported(lost).heartbeat_ms is None
    lost.log.create("a.heartbeats", 1)
    beat = struct.pack(">hq", 0, NOW - 7_000)
    lost.log.partition("a.heartbeats", 0).append(NOW, text("b") + text("a"), beat)
    assert reported(lost).heartbeat_ms == NOW - 7_000


def test_what_may_not_be_read_is_told_and_hides_nothing_else(lost: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    write_syncs(lost.log, (BASE, 0), (BASE + 9, 9))
    write_checkpoints(lost.log, (BASE + 5, 5), group=GROUP)
    as_it_was = MemoryLog.describe

    def refuse(self: MemoryLog, topics: Iterable[str]) -> ClusterInfo:
        names = list(topics)
        if {CHECKPOINTS, "a.heartbeats", "mm2-offsets.a.internal"} & {*names}:
            raise Refused("Not authorized.")
        return as_it_was(self, names)

    monkeypatch.setattr(MemoryLog, "describe", refuse)
    found = reported(lost)
    assert len([note for note in found.notes if "could not be read" in note]) == 3


def test_the_json_says_null_for_what_is_not_known(lost: Memory) -> None:
    found = to_json(replace(reported(lost)), lost.config())
    (partition,) = found["partitions"]  # type: ignore[misc]
    assert partition["source_offset"] is None
    assert found["heartbeat_at"] is None
    assert found["exit_code"] == 4


@pytest.mark.parametrize("topic", ["mm2-offsets.a.internal", "a.heartbeats"])
def test_a_topic_of_the_mirror_that_cannot_be_decompressed_is_a_note(
    topic: str, lost: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    positions(lost.log, BASE + 9)
    lost.log.create("a.heartbeats", 1)
    lost.log.partition("a.heartbeats", 0).append(NOW, b"k", b"v")
    write_syncs(lost.log, (BASE, 0), (BASE + 9, 9))
    read = lost.log.read

    def refusing(requests: Sequence[ReadRequest]) -> Sequence[Chunk]:
        withheld = Withheld(NotRead(f"{topic}-0 could not be read from offset 0 on.", hint="Delete them."))
        answers = read(requests)
        return [
            withheld if each.partition.topic == topic else chunk for each, chunk in zip(requests, answers, strict=True)
        ]

    monkeypatch.setattr(lost.log, "read", refusing)
    assert any("could not be read" in note for note in reported(lost).notes)
