"""Stored offsets without anchors, placed by the mirror's own offset pairs: from the check to the write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.core.anchors import StoredOffset
from reconciler.core.verdicts import Verdict
from reconciler.places.memory import MemoryStore
from tests.in_memory import BASE, GROUP, Memory, found, memory, stored, wide
from tests.kafka.mirror.written import LATER, SYNCS, write_checkpoints, write_syncs
from tests.memory_log import MemoryLog

__all__ = ["memory", "wide"]

POSITIONS = "mm2-offsets.a.internal"


def bare(number: int) -> StoredOffset:
    """The number alone that a job stores after record ``number``."""
    return StoredOffset(BASE + number + 1)


@pytest.fixture
def lost(memory: Memory) -> Memory:
    """Ten records, mirrored with an earlier start: record n is at offset n; the job has processed 0 to 4."""
    memory.deliver(range(10))
    memory.save({0: bare(4)})
    return memory


def test_between_two_syncs_the_place_is_exact(lost: Memory) -> None:
    write_syncs(lost.log, (BASE, 0), (BASE + 9, 9))
    row = lost.row()
    assert found(row) == (Verdict.EXACT, 5)
    assert (row.replay_at_most, row.replay_exact, row.record_offset) == (0, 0, 4)
    assert row.detail == "counted back from MirrorMaker's sync 709→9, with 700→0 before the stored offset"


def test_after_one_sync_the_replay_is_bounded(lost: Memory) -> None:
    write_syncs(lost.log, (BASE + 2, 2))
    row = lost.row()
    assert found(row) == (Verdict.EARLY, 3)
    assert row.replay_at_most == 2
    assert row.detail == "MirrorMaker's sync 702→2, 3 offsets before the stored offset"


def test_a_checkpoint_of_any_group_will_do(lost: Memory) -> None:
    write_checkpoints(lost.log, (BASE + 5, 5), group="somebody else")
    row = lost.row()
    assert found(row) == (Verdict.EARLY, 5)
    assert row.detail == 'MirrorMaker\'s checkpoint 705→5 of group "somebody else", the stored offset itself'


def test_apply_writes_the_place_with_the_record_before_it(lost: Memory) -> None:
    write_syncs(lost.log, (BASE, 0), (BASE + 9, 9))
    lost.apply()
    (row,) = [row for row in lost.rows() if row.key.topic == "a.events"]
    assert row.stored == replace(lost.own(5), written_at_ms=row.stored.written_at_ms)
    assert found(lost.row()) == (Verdict.EXACT, 5)


def test_the_policy_stop_asks_the_mirror_nothing(lost: Memory) -> None:
    write_syncs(lost.log, (BASE, 0), (BASE + 9, 9))
    assert found(lost.row('[policy]\nno_anchor = "stop"')) == (Verdict.UNRESOLVED, None)


def test_the_rows_time_is_used_only_where_the_mirror_proves_nothing(lost: Memory) -> None:
    lost.save({0: StoredOffset(BASE + 5, None, stored(8).anchor.timestamp_ms)})  # type: ignore[union-attr]
    by_time = '[policy]\nno_anchor = "row-time"\n[search]\nmax_disorder = "5s"'
    assert found(lost.row(by_time)) == (Verdict.EARLY, 3)
    write_syncs(lost.log, (BASE + 4, 4))
    assert found(lost.row(by_time)) == (Verdict.EXACT, 5)


def test_without_the_mirrors_topics_a_bare_number_is_unresolved_and_says_what_is_missing(lost: Memory) -> None:
    row = lost.row()
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert 'no topic "mm2-offset-syncs.a.internal" or "a.checkpoints.internal"' in row.detail


def test_topics_of_other_names_are_configured(lost: Memory) -> None:
    write_syncs(lost.log, (BASE + 4, 4))
    lost.log.create("own-syncs", 1)
    lost.log.partition("own-syncs", 0).records.extend(lost.log.partition("mm2-offset-syncs.a.internal", 0).records)
    lost.log.partition("own-syncs", 0).end = 1
    lost.log.delete("mm2-offset-syncs.a.internal")
    assert lost.row().finding is Verdict.UNRESOLVED
    assert found(lost.row('[mirror]\noffset_syncs_topic = "own-syncs"')) == (Verdict.EXACT, 5)


def test_pairs_that_contradict_the_log_resolve_nothing(lost: Memory) -> None:
    write_syncs(lost.log, (BASE + 3, 0), (BASE + 6, 9))
    row = lost.row()
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert "contradict the log" in row.detail


ONE_WAY = f'[mirror]\noffset_syncs_topic = "{SYNCS}"'
"""A person says that no mirror from the destination writes there."""


def test_syncs_that_may_be_of_a_mirror_the_other_way_prove_nothing(lost: Memory) -> None:
    """The destination's own topic "events" is copied to the source: those syncs have the same topic and key."""
    lost.log.create("events", 1)
    write_syncs(lost.log, (BASE, 0), (BASE + 4, 9))
    row = lost.row()
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert 'this cluster has a topic "events" of its own, so they may be of a mirror from here' in row.detail
    assert "[mirror] offset_syncs_topic" in row.detail
    write_checkpoints(lost.log, (BASE + 5, 5))
    assert found(lost.row()) == (Verdict.EARLY, 5), "checkpoints are of one mirror only"


def write_position(log: MemoryLog, upstream: int, topic: str = "events", at_ms: int = LATER, name: str = "any") -> None:
    """What Connect commits for the mirror's connector."""
    if POSITIONS not in log.topic_ids:
        log.create(POSITIONS, 1)
    key = b'["%b",{"cluster":"a","partition":0,"topic":"%b"}]' % (name.encode(), topic.encode())
    log.partition(POSITIONS, 0).append(at_ms, key, b'{"offset":%d}' % upstream)


LEFT_OUT = "offset syncs are left out, since they may be of a mirror from here"


def test_syncs_that_nothing_confirms_are_left_out(lost: Memory) -> None:
    """A topic "events" was here, was mirrored to the source, and is gone: its number 704 was at 7 there."""
    write_syncs(lost.log, (BASE + 4, 7), at_ms=LATER)
    row = lost.row()
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert LEFT_OUT in row.detail
    assert "nothing here confirms that the mirror to this cluster wrote them" in row.detail
    assert "[mirror] offset_syncs_topic" in row.detail
    assert found(lost.row(ONE_WAY)) == (Verdict.EXACT, 8), "a person says that they are the mirror's"


def test_syncs_that_the_mirrors_own_position_contradicts_are_left_out(lost: Memory) -> None:
    """Although a record that was made shortly before happens to be at the place."""
    write_syncs(lost.log, (BASE + 4, 7))
    assert found(lost.row()) == (Verdict.EXACT, 8), "nothing tells"
    write_position(lost.log, BASE + 9)
    row = lost.row()
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert LEFT_OUT in row.detail
    assert "has delivered up to 709, which does not follow from the sync 704→7" in row.detail


def test_what_connect_committed_confirms_the_last_sync(lost: Memory) -> None:
    write_syncs(lost.log, (BASE + 4, 4), at_ms=LATER)
    assert found(lost.row()) == (Verdict.UNRESOLVED, None)
    write_position(lost.log, BASE + 9)
    assert found(lost.row()) == (Verdict.EXACT, 5)


def test_a_mirror_whose_position_follows_from_its_syncs_is_believed(lost: Memory) -> None:
    write_syncs(lost.log, (BASE, 0), (BASE + 9, 9))
    write_position(lost.log, BASE + 20, name="an old one", at_ms=1)
    for position in (BASE + 3, BASE + 9):
        write_position(lost.log, position)
        assert found(lost.row()) == (Verdict.EXACT, 5)


def test_a_topic_that_is_mirrored_from_here_shows_whose_the_syncs_are(lost: Memory) -> None:
    write_syncs(lost.log, (BASE, 0), (BASE + 9, 9))
    write_syncs(lost.log, (5, 5), topic="orders")
    write_syncs(lost.log, (5, 5), topic="heartbeats")
    lost.log.create("heartbeats", 1)
    lost.log.create("orders", 1)
    lost.log.create("a.orders", 1)
    assert found(lost.row()) == (Verdict.EXACT, 5), "both clusters have such a topic"
    lost.log.delete("a.orders")
    row = lost.row()
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert 'this cluster has a topic "orders" of its own' in row.detail


def test_syncs_that_are_said_to_be_of_one_mirror_are_used_beside_a_topic_of_that_name(lost: Memory) -> None:
    lost.log.create("events", 1)
    write_syncs(lost.log, (BASE, 0), (BASE + 9, 9))
    assert found(lost.row(ONE_WAY)) == (Verdict.EXACT, 5)


def test_one_partition_without_pairs_does_not_hide_the_others(wide: Memory) -> None:
    for partition in range(3):
        wide.deliver(range(10), partition)
    wide.save({0: bare(4), 1: bare(4), 2: stored(4, 2)})
    write_syncs(wide.log, (BASE + 4, 4))
    assert [found(row) for row in wide.job().partitions] == [
        (Verdict.EXACT, 5),
        (Verdict.UNRESOLVED, None),
        (Verdict.EXACT, 5),
    ]


def test_offset_0_needs_no_anchor_where_the_destination_has_fewer_partitions(wide: Memory) -> None:
    wide.save({0: stored(4), 1: stored(4), 2: stored(4), 3: StoredOffset(0)})
    wide.deliver(range(10))
    assert {found(row) for row in wide.job().partitions} == {(Verdict.EARLY, 0)}
    wide.save({number: StoredOffset(0) for number in range(4)})
    assert {found(row) for row in wide.job().partitions} == {(Verdict.EXACT, 0)}


# ---------------------------------------------------------------- groups that MirrorMaker keeps


class Synced(MemoryStore):
    """A store whose rows MirrorMaker writes."""

    capabilities = replace(MemoryStore.capabilities, translated_by_mirror=True)


@pytest.fixture
def group(memory: Memory) -> Memory:
    memory.deliver(range(10))
    memory.deliver(range(3, 6))  # sent again, and cut off: 3 4 5 at 10 11 12
    memory.store, memory.place = Synced("synced"), "kafka-group:"
    return memory


def test_a_synced_offset_that_would_skip_is_corrected(group: Memory) -> None:
    """MirrorMaker put the group behind the later copy of 4: 5 to 9 would never be read."""
    group.save({0: StoredOffset(12)}, topic="a.events")
    write_checkpoints(group.log, (BASE + 5, 12), group=GROUP)
    write_syncs(group.log, (BASE, 0), (BASE + 4, 11))
    assert found(group.row()) == (Verdict.EXACT, 5)


def test_a_synced_offset_that_is_right_is_a_match(group: Memory) -> None:
    group.save({0: StoredOffset(5)}, topic="a.events")
    write_checkpoints(group.log, (BASE + 5, 5), group=GROUP)
    write_syncs(group.log, (BASE + 4, 4))
    assert found(group.row()) == (Verdict.EXACT, 5)


def test_a_number_that_no_checkpoint_names_is_the_groups_own(group: Memory) -> None:
    group.save({0: StoredOffset(7)}, topic="a.events")
    write_checkpoints(group.log, (BASE + 5, 5), group=GROUP)
    write_checkpoints(group.log, (BASE + 7, 7), group="others")
    row = group.row()
    assert found(row) == (Verdict.UNRESOLVED, None)
    assert "MirrorMaker did not put it there" in row.detail


def test_nothing_behind_a_number_that_only_an_older_checkpoint_names_is_safe(group: Memory) -> None:
    """A person may have put the group back to it."""
    group.save({0: StoredOffset(2)}, topic="a.events")
    write_checkpoints(group.log, (BASE + 5, 2), (BASE + 8, 8), group=GROUP)
    write_syncs(group.log, (BASE + 1, 1), (BASE + 4, 4))
    assert found(group.row()) == (Verdict.EARLY, 2)
