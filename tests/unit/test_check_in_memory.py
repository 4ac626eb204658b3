"""``check`` over a log and a store in memory: every verdict, and which stored row speaks for a partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import ConfigError
from reconciler.core.plan import JobPlan, PartitionPlan, why_stopped
from reconciler.core.verdicts import Verdict
from reconciler.operations.apply import prepare, write
from reconciler.operations.check import ByHand, Checked, Outside, check
from reconciler.operations.config import Config, load_config
from reconciler.ports import Change, Row, TopicPartition
from reconciler.readers.memory import MemoryLog, MemoryRecord
from reconciler.stores.memory import MemoryStore

NOW = 1_800_000_000_000
BEGIN = 1_700_000_000_000
BASE = 700
"""The source's offset of record 0."""
GROUP = "readers"


def content(number: int, partition: int = 0) -> tuple[int, bytes, bytes]:
    """Time, key and value of record ``number``: a second apart, except that 6 and 7 share one."""
    second = 6 if number == 7 else number
    return BEGIN + 1_000 * second, b"k%d" % number, b"v%d of %d" % (number, partition)


def anchor(number: int, partition: int = 0, cluster: str | None = "a") -> Anchor:
    stamp, key, value = content(number, partition)
    return Anchor(BASE + number, stamp, None, fingerprint(key, value), cluster, f"{cluster}/events")


def stored(number: int, partition: int = 0, written_at_ms: int | None = None) -> StoredOffset:
    return StoredOffset(BASE + number + 1, anchor(number, partition), written_at_ms)


@dataclass
class Memory:
    """A destination and a store in memory, and how to check them."""

    log: MemoryLog
    store: MemoryStore
    folder: Path
    clock: float = 0.0

    def deliver(
        self, numbers: range, partition: int = 0, *, origin: int | None = None, topic: str = "a.events"
    ) -> None:
        """Append copies; ``origin`` is the source partition they come from, if the mirror did not keep it."""
        for number in numbers:
            stamp, key, value = content(number, partition if origin is None else origin)
            self.log.partition(topic, partition).append(stamp, key, value)

    def save(self, rows: Mapping[int, StoredOffset], topic: str = "events", group: str = GROUP) -> None:
        there = {row.key: row.version for row in self.store.read(group)}
        keys = {TopicPartition(topic, partition): row for partition, row in rows.items()}
        changes = [Change(key, there.get(key), row) for key, row in keys.items()]
        assert not self.store.write(group, changes, reason="test", now_ms=NOW).conflicts

    def own(self, offset: int, partition: int = 0) -> StoredOffset:
        """A row as a job on the destination writes it, after the record before ``offset``."""
        record: MemoryRecord = self.log.partition("a.events", partition).records[offset - 1]
        digest = fingerprint(record.key, record.value)
        own = Anchor(record.offset, record.timestamp_ms, None, digest, "b", "b/a.events")
        return StoredOffset(record.offset + 1, own, NOW)

    @property
    def outside(self) -> Outside:
        return Outside(self.log, lambda _: self.store, lambda: self.clock, lambda: NOW)

    def config(self, extra: str = "", jobs: str = "") -> Config:
        job = f'[[jobs]]\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\nstore = "memory:"\n'
        text = f'[source]\nalias = "a"\n[destination]\nbootstrap_servers = "b"\n{extra}\n{jobs or job}'
        path = self.folder / "reconciler.toml"
        path.write_text(text)
        return load_config(path, {})

    def check(self, extra: str = "", by_hand: ByHand | None = None) -> Checked:
        config = self.config(extra)
        return check(config, config.jobs, self.outside, by_hand)

    def job(self, extra: str = "", by_hand: ByHand | None = None) -> JobPlan:
        (job,) = self.check(extra, by_hand).plan.jobs
        return job

    def row(self, extra: str = "", by_hand: ByHand | None = None) -> PartitionPlan:
        return self.job(extra, by_hand).partitions[0]

    def apply(self, extra: str = "", by_hand: ByHand | None = None) -> None:
        checked, config = self.check(extra, by_hand), self.config(extra)
        path = self.folder / f"{self.clock}.plan.json"
        write(prepare(checked.plan, config, self.outside), checked.plan, path, self.outside)
        self.clock += 1

    def rows(self) -> list[Row]:
        return self.store.read(GROUP)


@pytest.fixture
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Memory:
    return Memory(MemoryLog("b", {"a.events": 1}), MemoryStore(request.node.nodeid), tmp_path)


@pytest.fixture
def wide(memory: Memory) -> Memory:
    """Three partitions."""
    memory.log.create("a.events", 3)
    return memory


def found(row: PartitionPlan) -> tuple[Verdict, int | None]:
    return row.verdict, row.resume_offset


# ---------------------------------------------------------------- verdicts


def test_moved(memory: Memory) -> None:
    memory.deliver(range(3, 10))
    memory.save({0: stored(6)})
    row = memory.row()
    assert found(row) == (Verdict.MOVED, 4)
    assert (row.matched_by, row.record_offset, row.replay_exact) == ("fingerprint", 3, 0)


def test_match_once_it_was_applied(memory: Memory) -> None:
    memory.deliver(range(3, 10))
    memory.save({0: stored(6)})
    memory.apply()
    checked = memory.check()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, 4)
    assert checked.to_write == frozenset()


def test_new(memory: Memory) -> None:
    memory.deliver(range(5))
    assert found(memory.row()) == (Verdict.NEW, 0)
    assert memory.check().to_write == frozenset()
    memory.save({0: StoredOffset(-1)})
    assert found(memory.row()) == (Verdict.NEW, 0)


def test_new_where_the_policy_says(memory: Memory) -> None:
    memory.deliver(range(5))
    assert found(memory.row('[policy]\nnew = "latest"')) == (Verdict.NEW, 5)
    assert len(memory.check('[policy]\nnew = "latest"').to_write) == 1
    assert found(memory.row('[policy]\nnew = "2023-11-14T22:13:22Z"')) == (Verdict.NEW, 2)
    memory.apply('[policy]\nnew = "latest"')
    memory.deliver(range(5, 8))
    assert found(memory.row('[policy]\nnew = "latest"')) == (Verdict.MATCH, 5)


def test_tied(memory: Memory) -> None:
    memory.deliver(range(10))
    only_time = Anchor(BASE + 7, content(7)[0], cluster_id="a")
    memory.save({0: StoredOffset(BASE + 8, only_time)})
    row = memory.row()
    assert found(row) == (Verdict.TIED, 6)
    assert row.replay_at_most == 2
    assert why_stopped(row, memory.config().policy.start) is None


def test_bounded(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: StoredOffset(BASE + 9, anchor(5))})  # the anchor is three offsets older than the offset
    row = memory.row()
    assert found(row) == (Verdict.BOUNDED, 6)
    assert row.replay_at_most == 3
    policy = memory.config("[policy]\nmax_replay = 2").policy.start
    assert "more than max_replay = 2" in str(why_stopped(row, policy))


def test_bounded_by_the_rows_own_time(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: StoredOffset(BASE + 6, None, content(5)[0])})
    assert found(memory.row()) == (Verdict.UNRESOLVED, None)
    row = memory.row('[policy]\nno_anchor = "row-time"')
    assert found(row) == (Verdict.BOUNDED, 5)
    assert row.replay_exact is None


def test_behind(memory: Memory) -> None:
    memory.deliver(range(4))
    memory.save({0: stored(6)})
    row = memory.row()
    assert found(row) == (Verdict.BEHIND, 4)
    stops = {kind: why_stopped(row, memory.config(f'[policy]\nbehind = "{kind}"').policy.start) for kind in WAYS}
    assert {kind: why is None for kind, why in stops.items()} == {"start": True, "wait": False, "stop": False}


WAYS = ("start", "wait", "stop")


def test_lost(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.log.partition("a.events", 0).delete_before(8)
    memory.save({0: stored(2)})
    row = memory.row()
    assert found(row) == (Verdict.LOST, 8)
    assert "--accept lost" in str(why_stopped(row, memory.config().policy.start))
    accepted = memory.row(by_hand=ByHand(accepted=frozenset({Verdict.LOST})))
    assert (found(accepted), accepted.set_by_hand) == ((Verdict.LOST, 8), True)
    assert why_stopped(accepted, memory.config().policy.start) is None


def test_missing(wide: Memory) -> None:
    for partition in range(3):
        wide.deliver(range(5), partition)
    rows: dict[int, StoredOffset] = {partition: stored(2, partition) for partition in range(3)}
    wide.save({**rows, 7: StoredOffset(12)})  # bare: no time to remap by
    job = wide.job()
    assert [(row.partition, row.verdict) for row in job.partitions][-1] == (7, Verdict.MISSING)
    assert job.verdict is Verdict.UNRESOLVED


def test_a_missing_topic(memory: Memory) -> None:
    memory.log.partitions.clear()
    memory.log.topic_ids.clear()
    memory.save({0: stored(2)})
    row = memory.row()
    assert (found(row), row.topic_id) == ((Verdict.MISSING, None), None)
    assert 'no topic "a.events"' in row.detail


def test_unresolved(memory: Memory) -> None:
    memory.deliver(range(5))
    memory.save({0: StoredOffset(BASE + 3)})
    assert found(memory.row()) == (Verdict.UNRESOLVED, None)
    assert found(memory.row(by_hand=ByHand(accepted=frozenset({Verdict.UNRESOLVED})))) == (Verdict.UNRESOLVED, None)
    chosen = memory.row(by_hand=ByHand({("a.events", 0): 3}))
    assert (found(chosen), chosen.set_by_hand, chosen.record_offset) == ((Verdict.UNRESOLVED, 3), True, 2)


def test_a_topic_that_is_nowhere(memory: Memory) -> None:
    memory.log.topic_ids.clear()
    with pytest.raises(ConfigError, match=r'no topic "a\.events", and the store holds no offset'):
        memory.check()


# ---------------------------------------------------------------- partitions that do not correspond


def spread(memory: Memory, partitions: int) -> None:
    """Records of two source partitions, mixed over all partitions of the destination in time's order."""
    for number in range(12):
        for origin in (0, 1):
            memory.deliver(range(number, number + 1), (2 * number + origin) % partitions, origin=origin)


def test_remapped_to_fewer_partitions(memory: Memory) -> None:
    spread(memory, 1)
    memory.save({0: stored(3), 1: stored(5, 1)})
    job = memory.job()
    (row,) = job.partitions
    assert (job.verdict, row.verdict) == (Verdict.REMAPPED, Verdict.REMAPPED)
    first_unprocessed = next(r for r in memory.log.partition("a.events", 0).records if r.value == b"v4 of 0")
    assert row.resume_offset is not None
    assert row.resume_offset <= first_unprocessed.offset
    assert row.replay_at_most is not None
    assert row.replay_at_most >= 2  # records 4 and 5 of partition 1 are among what is read again


def test_remapped_to_more_partitions_that_hold_older_records(wide: Memory) -> None:
    spread(wide, 3)
    wide.save({0: stored(8), 1: stored(9, 1)})
    job = wide.job()
    assert {row.verdict for row in job.partitions} == {Verdict.REMAPPED}
    for row in job.partitions:
        for record in wide.log.partition("a.events", row.partition).records:
            number, origin = (int(part) for part in (record.value or b"")[1:].split(b" of "))
            unprocessed = number > (8, 9)[origin]
            assert not unprocessed or record.offset >= (row.resume_offset or 0)


def test_a_job_that_was_remapped_goes_on_from_where_it_is(memory: Memory) -> None:
    """A hook before every start is safe for ever: also where the source had more partitions."""
    spread(memory, 1)
    memory.save({0: stored(3), 1: stored(5, 1)})
    memory.apply()
    (applied,) = [row for row in memory.rows() if row.key.topic == "a.events"]
    checked = memory.check()
    assert checked.to_write == frozenset()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, applied.stored.offset)

    memory.save({0: replace(memory.own(20), written_at_ms=None)}, topic="a.events")
    checked = memory.check()
    assert checked.to_write == frozenset()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, 20)


def test_a_job_that_was_remapped_to_more_goes_on_from_where_it_is(wide: Memory) -> None:
    spread(wide, 3)
    wide.save({0: stored(8), 1: stored(9, 1)})
    wide.apply()
    checked = wide.check()
    assert checked.to_write == frozenset()
    assert {row.verdict for row in checked.plan.jobs[0].partitions} == {Verdict.MATCH}


# ---------------------------------------------------------------- jobs, and which row speaks


TWO = "".join(
    f'[[jobs]]\nname = "{name}"\ngroup = "{name}-readers"\ntopics = ["events"]\nstore = "memory:"\n'
    for name in ("fast", "slow")
)


def test_two_jobs_that_share_a_topic_have_their_own_offsets(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(8)}, group="fast-readers")
    memory.save({0: stored(2)}, group="slow-readers")
    config = memory.config(jobs=TWO)
    plan = check(config, config.jobs, memory.outside).plan
    assert {job.name: found(job.partitions[0]) for job in plan.jobs} == {
        "fast": (Verdict.MOVED, 9),
        "slow": (Verdict.MOVED, 3),
    }
    write(prepare(plan, config, memory.outside), plan, memory.folder / "plan.json", memory.outside)
    offsets = {
        g: [row.stored.offset for row in memory.store.read(g, ["a.events"])] for g in ("fast-readers", "slow-readers")
    }
    assert offsets == {"fast-readers": [9], "slow-readers": [3]}


def test_the_row_under_the_destinations_name_wins(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(2, written_at_ms=NOW - 10)})
    memory.save({0: memory.own(8)}, topic="a.events")
    assert found(memory.row()) == (Verdict.MATCH, 8)
    assert memory.check().to_write == frozenset()


def test_a_row_of_the_source_that_was_written_later_wins(memory: Memory) -> None:
    """The job went back to the source, and has failed over again."""
    memory.deliver(range(10))
    memory.save({0: memory.own(3)}, topic="a.events")
    memory.save({0: stored(6, written_at_ms=NOW + 10)})
    checked = memory.check()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MOVED, 7)
    memory.apply()
    assert found(memory.row()) != (Verdict.MATCH, 3)


def test_after_a_second_failover_the_correction_is_the_last_word(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: memory.own(3)}, topic="a.events")
    memory.save({0: stored(6, written_at_ms=NOW - 10)})
    memory.save({0: replace(memory.own(3), written_at_ms=NOW - 20)}, topic="a.events")
    memory.apply()
    checked = memory.check()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.MATCH, 7)
    assert checked.to_write == frozenset()


def test_a_row_that_mirrormaker_synced_is_judged_by_its_anchor(memory: Memory) -> None:
    """The destination's name, an offset that MirrorMaker translated, the source's metadata."""
    memory.deliver(range(10))
    memory.save({0: StoredOffset(1, anchor(6))}, topic="a.events")
    row = memory.row()
    assert (found(row), row.replay_exact) == ((Verdict.MOVED, 7), 0)
    memory.apply()
    assert found(memory.row()) == (Verdict.MATCH, 7)
    assert memory.check().to_write == frozenset()


def test_a_synced_row_gives_way_to_the_sources_own(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: StoredOffset(1)}, topic="a.events")
    memory.save({0: stored(4)})
    assert found(memory.row()) == (Verdict.MOVED, 5)


def test_the_destination_is_the_source(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: replace(stored(4), anchor=anchor(4, cluster="b"))})
    with pytest.raises(ConfigError, match=r"\[destination\] is the cluster that the offsets"):
        memory.check()


def test_with_the_identity_policy_the_row_itself_is_replaced(memory: Memory) -> None:
    memory.log.create("events", 1)
    memory.deliver(range(3, 10), topic="events")
    memory.save({0: stored(6)})
    identity = '[topics]\npolicy = "identity"'
    assert found(memory.row(identity)) == (Verdict.MOVED, 4)
    memory.apply(identity)
    (row,) = memory.rows()
    assert (row.key, row.stored.offset) == (TopicPartition("events", 0), 4)
    assert memory.check(identity).to_write == frozenset()


def test_a_topic_made_anew_is_searched_and_not_trusted(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: memory.own(8)}, topic="a.events")
    memory.log.create("a.events", 1, topic_id="another")
    memory.deliver(range(5, 10))
    assert found(memory.row()) == (Verdict.BOUNDED, 1), "record 6 has the anchor's time and may be new"
