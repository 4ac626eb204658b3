"""``check`` over a log and a store in memory: every verdict, and which stored row speaks for a partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from reconciler.cli.commands.plan import summary
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError, ReconcilerError, Refused
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.outside import ByHand
from reconciler.failover.writing.apply import prepare
from reconciler.kafka import engine
from reconciler.plan.document import StartPolicy
from reconciler.plan.start import why_stopped
from reconciler.ports import ClusterInfo, OffsetStore, TopicInfo, TopicPartition
from tests.in_memory import BASE, GROUP, Memory, anchor, content, found, stored, write_all

CALLED_NEW = f'''
[[jobs]]
home = "a"
name = "clicks"
group = "{GROUP}"
topics = ["events"]
offsets = "memory:"
new = "earliest"
'''

# ---------------------------------------------------------------- verdicts


def test_an_anchor_at_another_offset_is_moved(memory: Memory) -> None:
    memory.deliver(range(3, 10))
    memory.save({0: stored(6)})
    row = memory.row()
    assert found(row) == (Verdict.EXACT, 4)
    assert (row.matched_by, row.record_offset, row.replay_exact) == ("fingerprint", 3, 0)


class Described:
    """The log in memory, whose records another process may read. A description takes until the store is opened."""

    reads_apart = True

    def __init__(self, memory: Memory, error: ReconcilerError | None = None) -> None:
        self._memory = memory
        self._error = error
        self.opened = Event()
        self.expected: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory.outside.reader, name)

    def describe(self, topics: Iterable[str]) -> ClusterInfo:
        assert self.opened.wait(60)
        if self._error is not None:
            raise self._error
        return self._memory.outside.reader.describe(topics)

    def expect(self, topics: Mapping[str, TopicInfo]) -> None:
        self.expected.append(sorted(topics))

    def open_store(self, address: str) -> OffsetStore:
        self.opened.set()
        if self._error is not None:
            raise Refused("The store refuses.")
        return self._memory.outside.open_store(address)


def test_the_store_is_read_while_the_destination_is_described(memory: Memory) -> None:
    memory.deliver(range(3, 10))
    memory.save({0: stored(6)})
    log, config = Described(memory), memory.config()
    check(config, config.jobs, replace(memory.outside, reader=log, open_store=log.open_store))
    assert log.expected == [["a.events"]], "its records are about to be read"


def test_where_both_fail_the_destination_is_named(memory: Memory) -> None:
    log, config = Described(memory, Refused("The destination refuses.")), memory.config()
    with pytest.raises(Refused, match="The destination refuses"):
        check(config, config.jobs, replace(memory.outside, reader=log, open_store=log.open_store))


def test_a_partition_without_an_offset_starts_at_the_earliest_record(memory: Memory) -> None:
    memory.deliver(range(5))
    config = memory.config(jobs=CALLED_NEW)
    checked = check(config, config.jobs, memory.outside)
    (row,) = checked.plan.jobs[0].partitions
    assert (found(row), row.replay_exact) == ((Verdict.NEW, 0), 0)
    assert why_stopped(row, config.policy.start) is None
    assert checked.to_write == frozenset()
    memory.save({0: StoredOffset(-1)})
    assert found(memory.row()) == (Verdict.NEW, 0)


def test_a_partition_without_an_offset_starts_where_the_policy_says(memory: Memory) -> None:
    memory.deliver(range(5))
    assert found(memory.row('[policy]\nnew = "latest"')) == (Verdict.NEW, 5)
    assert len(memory.check('[policy]\nnew = "latest"').to_write) == 1
    assert found(memory.row('[policy]\nnew = "2023-11-14T22:13:22Z"')) == (Verdict.NEW, 2)
    memory.apply('[policy]\nnew = "latest"', ByHand(accepted=frozenset({Verdict.NEW})))
    memory.deliver(range(5, 8))
    assert found(memory.row('[policy]\nnew = "latest"')) == (Verdict.EXACT, 5)


def test_records_that_share_the_anchors_only_time_are_tied(memory: Memory) -> None:
    memory.deliver(range(10))
    only_time = Anchor(BASE + 7, content(7)[0], cluster_id="a")
    memory.save({0: StoredOffset(BASE + 8, only_time)})
    row = memory.row()
    assert found(row) == (Verdict.EARLY, 6)
    assert row.replay_at_most == 2
    assert why_stopped(row, memory.config().policy.start) is None


def test_an_anchor_older_than_its_offset_bounds_the_replay(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: StoredOffset(BASE + 9, anchor(5))})  # the anchor is three offsets older than the offset
    row = memory.row()
    assert found(row) == (Verdict.EARLY, 6)
    assert row.replay_at_most == 3
    policy = memory.config("[policy]\nmax_replay = 2").policy.start
    assert "more than max_replay = 2" in str(why_stopped(row, policy))


def test_without_an_anchor_the_rows_time_bounds_it_if_the_policy_allows(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: StoredOffset(BASE + 6, None, content(5)[0])})
    unresolved = memory.row()
    assert (found(unresolved), unresolved.by_row_time) == ((Verdict.UNRESOLVED, None), False)
    row = memory.row('[policy]\nno_anchor = "row-time"')
    assert (found(row), row.by_row_time) == ((Verdict.EARLY, 5), True)
    assert row.replay_exact is None


def test_a_mirror_that_is_behind_starts_waits_or_stops_by_policy(memory: Memory) -> None:
    memory.deliver(range(4))
    memory.save({0: stored(6)})
    row = memory.row()
    assert found(row) == (Verdict.BEHIND, 4)
    stops = {kind: why_stopped(row, memory.config(f'[policy]\nbehind = "{kind}"').policy.start) for kind in WAYS}
    assert {kind: why is None for kind, why in stops.items()} == {"start": True, "wait": False, "stop": False}


WAYS = ("start", "wait", "stop")


def test_records_that_retention_took_are_lost_until_a_person_accepts_it(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.log.partition("a.events", 0).delete_before(8)
    memory.save({0: stored(2)})
    row = memory.row()
    assert found(row) == (Verdict.LOST, 8)
    assert "--accept lost" in str(why_stopped(row, memory.config().policy.start))
    accepted = memory.row(by_hand=ByHand(accepted=frozenset({Verdict.LOST})))
    assert (found(accepted), accepted.set_by_hand) == ((Verdict.LOST, 8), True)
    assert why_stopped(accepted, memory.config().policy.start) is None


def test_a_stored_partition_that_the_destination_lacks_is_missing(wide: Memory) -> None:
    for partition in range(3):
        wide.deliver(range(5), partition)
    rows: dict[int, StoredOffset] = {partition: stored(2, partition) for partition in range(3)}
    wide.save({**rows, 7: StoredOffset(12)})  # bare: no time to remap by
    job = wide.job()
    assert [(row.partition, row.finding) for row in job.partitions][-1] == (7, Verdict.UNRESOLVED)
    assert job.finding is Verdict.UNRESOLVED


def test_a_topic_that_the_destination_lacks_is_missing(memory: Memory) -> None:
    memory.log.partitions.clear()
    memory.log.topic_ids.clear()
    memory.save({0: stored(2)})
    row = memory.row()
    assert (found(row), row.topic_id) == ((Verdict.UNRESOLVED, None), None)
    assert 'no topic "a.events"' in row.detail


@pytest.mark.parametrize("unread", [StoredOffset(-1), StoredOffset(0, Anchor(cluster_id="a"))])
def test_a_topic_of_which_nothing_was_read_is_missing_too(memory: Memory, unread: StoredOffset) -> None:
    memory.log.partitions.clear()
    memory.log.topic_ids.clear()
    memory.save({0: unread, 1: unread})
    assert [row.finding for row in memory.job().partitions] == [Verdict.UNRESOLVED] * 2


def test_a_topic_that_is_not_there_is_told_with_the_names_like_it(memory: Memory) -> None:
    memory.log.partitions.clear()
    memory.log.topic_ids.clear()
    outside, config = replace(memory.outside, topics=lambda: ["us-west.events", "audit"]), memory.config()
    with pytest.raises(ConfigError) as caught:
        check(config, config.jobs, outside)
    assert caught.value.message.endswith(
        'no topic "a.events", and the store holds no offset for "events"; the destination has "us-west.events".'
    )
    memory.save({0: stored(2)})
    (row,) = check(config, config.jobs, outside).plan.jobs[0].partitions
    assert row.detail == 'the destination has no topic "a.events"; it has "us-west.events"'


def test_names_that_cannot_be_listed_are_left_out(memory: Memory) -> None:
    def refused() -> list[str]:
        raise Refused("not for this user")

    memory.log.partitions.clear()
    memory.log.topic_ids.clear()
    memory.save({0: stored(2)})
    config = memory.config()
    (row,) = check(config, config.jobs, replace(memory.outside, topics=refused)).plan.jobs[0].partitions
    assert row.detail == 'the destination has no topic "a.events"'


def test_a_bare_offset_is_unresolved_until_a_person_sets_an_offset(memory: Memory) -> None:
    memory.deliver(range(5))
    memory.save({0: StoredOffset(BASE + 3)})
    assert found(memory.row()) == (Verdict.UNRESOLVED, None)
    assert found(memory.row(by_hand=ByHand(accepted=frozenset({Verdict.UNRESOLVED})))) == (Verdict.UNRESOLVED, None)
    chosen = memory.row(by_hand=ByHand({("a.events", 0): 3}))
    assert (found(chosen), chosen.set_by_hand, chosen.record_offset) == ((Verdict.UNRESOLVED, 3), True, 2)


# ---------------------------------------------------------------- partitions that do not correspond


def spread(memory: Memory, partitions: int) -> None:
    """Records of two source partitions, mixed over all partitions of the destination in time's order."""
    for number in range(12):
        for origin in (0, 1):
            memory.deliver(range(number, number + 1), (2 * number + origin) % partitions, origin=origin)


def test_a_partition_made_by_hand_for_one_that_was_never_mirrored_spares_the_others_a_replay(memory: Memory) -> None:
    """docs/how-to/add-partitions.md: the source had two partitions, the mirror made the first only."""
    memory.deliver(range(10))
    memory.save({0: stored(8), 1: stored(2, 1)})
    (row,) = memory.job().partitions
    assert row.finding is Verdict.EARLY
    assert row.resume_offset is not None
    assert row.resume_offset < 9
    memory.log.create("a.events", 2)
    memory.deliver(range(10))
    assert [found(row) for row in memory.job().partitions] == [(Verdict.EXACT, 9), (Verdict.BEHIND, 0)]


def test_a_gap_where_an_anchor_may_have_been_does_not_prove_that_records_were_spread(wide: Memory) -> None:
    """The second partition lacks what its job has not read, and that is not hidden by a resume point by time."""
    wide.log.create("a.events", 3, compacted=True)
    wide.deliver(range(12), 0)
    wide.deliver(range(9, 22), 1)
    wide.deliver(range(2), 2)
    wide.save({0: wide.own(4)}, topic="a.events")
    wide.save({0: stored(3), 1: stored(3, 1)})
    wide.log.partition("a.events", 1).compact([4])
    wide.log.partition("a.events", 1).delete_before(1)
    wide.log.partition("a.events", 0).delete_before(6)
    assert [row.finding for row in wide.job().partitions] == [Verdict.LOST, Verdict.LOST, Verdict.EARLY]


def test_a_job_that_was_remapped_goes_on_from_where_it_is(memory: Memory) -> None:
    """A hook before every start is always safe, also if the source had more partitions."""
    spread(memory, 1)
    memory.save({0: stored(3), 1: stored(5, 1)})
    memory.apply()
    (applied,) = [row for row in memory.rows() if row.key.topic == "a.events"]
    checked = memory.check()
    assert checked.to_write == frozenset()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.EXACT, applied.stored.offset)

    memory.save({0: replace(memory.own(20), written_at_ms=None)}, topic="a.events")
    checked = memory.check()
    assert checked.to_write == frozenset()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.EXACT, 20)


# ---------------------------------------------------------------- jobs, and which row speaks


TWO = "".join(
    f'[[jobs]]\nhome = "a"\nname = "{name}"\ngroup = "{name}-readers"\ntopics = ["events"]\noffsets = "memory:"\n'
    for name in ("fast", "slow")
)


def test_two_jobs_that_share_a_topic_have_their_own_offsets(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(8)}, group="fast-readers")
    memory.save({0: stored(2)}, group="slow-readers")
    config = memory.config(jobs=TWO)
    plan = check(config, config.jobs, memory.outside).plan
    assert {job.name: found(job.partitions[0]) for job in plan.jobs} == {
        "fast": (Verdict.EXACT, 9),
        "slow": (Verdict.EXACT, 3),
    }
    write_all(prepare(plan, config, memory.outside), plan, config, memory.outside)
    offsets = {
        g: [row.stored.offset for row in memory.store.read(g, ["a.events"])] for g in ("fast-readers", "slow-readers")
    }
    assert offsets == {"fast-readers": [9], "slow-readers": [3]}


def test_a_row_that_mirrormaker_synced_is_judged_by_its_anchor(memory: Memory) -> None:
    """The destination's name, an offset that MirrorMaker translated, the source's metadata."""
    memory.deliver(range(10))
    memory.place = "kafka-group:"
    memory.save({0: StoredOffset(1, anchor(6))}, topic="a.events")
    row = memory.row()
    assert (found(row), row.replay_exact) == ((Verdict.EXACT, 7), 0)
    memory.apply()
    assert found(memory.row()) == (Verdict.EXACT, 7)
    assert memory.check().to_write == frozenset()


@pytest.mark.parametrize("topic_id", ["a/events", "b/events", None])
def test_a_row_of_the_sources_name_is_the_sources_though_both_clusters_report_one_id(
    memory: Memory, topic_id: str | None
) -> None:
    """Also where the destination is a clone of the source, with its topic ids; and where the anchor has none."""
    memory.log.create("events", 1)
    memory.deliver(range(3, 10))
    memory.save({0: replace(stored(4), anchor=replace(anchor(4, cluster="b"), topic_id=topic_id))})
    assert found(memory.row()) == (Verdict.EXACT, 2)
    memory.apply()
    assert memory.row().finding is Verdict.EXACT


def test_a_destination_that_reports_the_anchors_cluster_id_and_lacks_the_topic_may_be_the_source(
    memory: Memory,
) -> None:
    memory.log.delete("a.events")
    memory.save({0: replace(stored(4), anchor=anchor(4, cluster="b"))})
    with pytest.raises(ConfigError, match=r'has no topic "a\.events", and has the cluster id b'):
        memory.check()


def test_with_the_identity_policy_the_row_itself_is_replaced(memory: Memory) -> None:
    memory.log.create("events", 1)
    memory.deliver(range(3, 10), topic="events")
    memory.save({0: stored(6)})
    identity = '[topics]\npolicy = "identity"'
    assert found(memory.row(identity)) == (Verdict.EXACT, 4)
    memory.apply(identity)
    (row,) = memory.rows()
    assert (row.key, row.stored.offset) == (TopicPartition("events", 0), 4)
    assert memory.check(identity).to_write == frozenset()


# ---------------------------------------------------------------- where searches run


def test_every_search_runs_on_the_callers_engine(wide: Memory) -> None:
    """Those too that look for an anchor in partitions of other numbers."""
    spread(wide, 3)
    asked: list[int] = []
    probes: list[Mapping[str, int]] = []

    def run(reader: Any, inquiries: Mapping[Any, Any], /, **more: Any) -> Any:
        outcome = engine.run(reader, inquiries, **more)
        asked.append(len(inquiries))
        probes.append(outcome.probes)
        return outcome

    wide.save({0: stored(8), 1: stored(9, 1)})
    config = wide.config()
    (job,) = check(config, config.jobs, replace(wide.outside, run=run)).plan.jobs
    assert {row.finding for row in job.partitions} == {Verdict.EARLY}
    own, elsewhere, *later = asked
    assert (own, elsewhere) == (3, 2), "one anchor is not in its partition, and is looked for in the two others"
    assert probes[1]["Read"] > 0
    assert later, "by time, and what a person set"


def test_a_row_whose_number_stays_is_not_said_to_need_correcting(memory: Memory) -> None:
    """It gets the destination's name: under the source's it would be taken for the source's number."""
    memory.deliver(range(10))
    memory.save({0: replace(stored(6), offset=7, anchor=replace(anchor(6), offset=6))})
    checked = memory.check()
    assert found(checked.plan.jobs[0].partitions[0]) == (Verdict.EXACT, 7)
    said, _ = summary(checked, StartPolicy(), ByHand())
    assert said.startswith("1 offset is right, and counts as the source's until that is done (exit code 3")
