"""The anchors that tracking keeps for bare offsets, over logs and stores in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.core.anchors import Anchor, Names, StoredOffset
from reconciler.core.errors import Away, ConfigError, NeedsPerson, OutcomeUnknown, Refused, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.ports import Change, OffsetStore, Row, TopicPartition, WriteResult
from reconciler.stores.memory import MemoryStore
from reconciler.stores.paired.steps import aside_of
from reconciler.stores.paired.store import PairedStore
from reconciler.stores.registry import open_store
from reconciler.tracking.asked import ANCHORS
from reconciler.tracking.track import SOURCE, Tracker
from tests.in_memory import BEGIN, GROUP, NOW, Memory, content, found
from tests.stores.paired.bare import BareStore
from tests.tracking.tracked import ANCHORED, EVENTS, Tracked, named


@pytest.fixture
def world(memory: Memory, request: pytest.FixtureRequest) -> Tracked:
    return Tracked(memory, BareStore(f"{request.node.nodeid}-bare"))


# ---------------------------------------------------------------- what is kept


def test_a_job_that_goes_on_is_followed(world: Tracked) -> None:
    world.make(range(10))
    tracker = world.tracker()
    for offset in (3, 3, 8):
        world.job_stores(offset)
        report = world.track(tracker)
        assert (report.exact, report.lagging, report.without) == (1, {}, {})
        kept = world.kept()
        assert kept is not None
        assert (kept.offset, kept.anchor) == (offset, named(offset - 1))


def test_a_jobs_own_offset_is_not_taken_for_an_anchor(memory: Memory) -> None:
    """The [anchors] store is the job's own, by two names of one host. In a compacted log an anchor may be made for an
    older offset: in the place of the job's row it would set the job back."""
    world = Tracked(memory, MemoryStore("tracked with itself"))
    world.anchors = world.store
    world.make(range(10))
    world.source.partition("events", 0).compact([6, 7])
    world.job_stores(8)
    report = world.track()
    assert world.rows()[0].stored == StoredOffset(8, written_at_ms=NOW)
    assert (report.saved, report.exact) == (0, 0)
    assert "the [anchors] store holds a job's own offset there" in report.without[EVENTS]


def test_a_job_in_the_anchor_store_itself_is_not_tracked_under_another_address(
    world: Tracked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    jobs = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "sqlite:///offsets.db"\n'
    config = world.config(f'[anchors]\nstore = "sqlite:///{tmp_path}/offsets.db"\n', jobs)
    with pytest.raises(ConfigError, match=r"clicks: its rows are in the \[anchors\] store itself"):
        Tracker(config, config.jobs, replace(world.side(), open_store=open_store))


def test_a_job_without_any_row_is_named_unless_it_is_called_new(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(7, group="raeders")
    assert world.track().no_rows == 'no rows of "events" for group "readers"; this store has "raeders"'
    jobs = (
        f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\n'
        f'topics = ["events"]\noffsets = "memory:"\nnew = "earliest"\n'
    )
    assert world.track(world.tracker(jobs=jobs)).no_rows == ""
    world.job_stores(7)
    assert world.track().no_rows == ""


def test_a_topic_that_the_job_does_not_list_is_counted_and_looked_for_again_after_a_minute(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(7)
    tracker = world.tracker()
    assert world.track(tracker).unlisted.topics == {}
    world.job_stores(3, topic="night")
    assert world.track(tracker).unlisted.topics == {}
    world.seconds += 60
    report = world.track(tracker)
    assert (report.exact, report.unlisted.topics) == (1, {"night": 1})
    jobs = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "memory:"\n'
    ignoring = world.track(world.tracker(jobs=f'{jobs}ignore_topics = ["night"]\n')).unlisted
    assert (ignoring.topics, ignoring.ignored) == ({}, {"night": 1})


def test_a_gap_that_a_transaction_marker_left_makes_the_pair_no_less_exact(world: Tracked) -> None:
    world.make(range(4))
    for _ in range(3):
        world.source.partition("events", 0).append_marker(BEGIN)
    world.job_stores(7)
    assert world.track().exact == 1
    kept = world.kept()
    assert kept is not None
    assert (kept.offset, kept.anchor) == (7, named(3))


def test_a_gap_that_compaction_left_counts_as_lag_for_the_destination_may_hold_what_was_there(world: Tracked) -> None:
    world.make(range(10))
    world.log.create("a.events", 1)
    world.deliver(range(10))
    part = world.source.partition("events", 0)
    part.compacted = True
    part.records = [record for record in part.records if record.offset not in (4, 5, 6)]
    world.job_stores(7)
    report = world.track()
    assert list(report.lagging) == [EVENTS]
    assert world.track().saved == 0
    row = world.row()
    assert found(row) == (Verdict.BOUNDED, 4)
    assert row.replay_at_most == 3


def test_nothing_processed_of_an_empty_log_keeps_the_numbering_alone(world: Tracked) -> None:
    world.job_stores(0)
    assert world.track().exact == 1
    kept = world.kept()
    assert kept is not None
    assert (kept.offset, kept.anchor) == (0, Anchor(cluster_id="a", topic_id="a/events"))
    assert kept.anchor is not None
    assert kept.anchor.is_bare


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_job_that_had_processed_nothing_starts_at_the_earliest_record_whatever_new_partitions_do(
    world: Tracked, policy: str
) -> None:
    world.job_stores(0)
    world.track()
    world.deliver(range(5))
    extra = f'[policy]\nnew = "{policy}"\n'
    assert found(world.row(extra)) == (Verdict.NEW, 0)
    world.apply(extra)
    assert [row.stored.offset for row in world.store.read(GROUP, ["a.events"])] == [0]
    assert found(world.row(extra)) == (Verdict.MATCH, 0)


def test_nothing_processed_although_records_are_there_names_the_next_one(world: Tracked) -> None:
    world.make(range(5))
    world.job_stores(0)
    world.track()
    kept = world.kept()
    assert kept is not None
    assert kept.anchor == replace(named(0), names=Names.NEXT)
    world.deliver(range(5))
    assert found(world.row()) == (Verdict.MATCH, 0)


def test_retention_up_to_the_stored_offset_leaves_the_next_record_to_name(world: Tracked) -> None:
    world.make(range(10))
    world.source.partition("events", 0).delete_before(7)
    world.job_stores(7)
    assert world.track().exact == 1
    world.deliver(range(2, 10))
    row = world.row()
    assert found(row) == (Verdict.MOVED, 5)
    assert row.replay_exact == 0


def test_retention_does_not_take_away_what_was_kept_for_the_same_offset(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(7)
    world.track()
    world.source.partition("events", 0).delete_before(10)
    assert world.track().exact == 1
    kept = world.kept()
    assert kept is not None
    assert kept.anchor == named(6)


def test_retention_past_the_stored_offset_names_no_record_behind_it(world: Tracked) -> None:
    """Records between the two may be on the destination still, and were not processed."""
    world.make(range(10))
    world.source.partition("events", 0).delete_before(8)
    world.job_stores(6)
    report = world.track()
    assert "retention has removed the records around it" in report.without[EVENTS]
    assert world.kept() is None


def test_retention_past_a_job_that_went_on_leaves_it_the_older_anchor(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(5)
    world.track()
    world.job_stores(7)
    world.source.partition("events", 0).delete_before(9)
    report = world.track()
    assert "retention has removed" in report.lagging[EVENTS]
    assert report.age_ms == NOW - content(4)[0]
    world.deliver(range(10))
    row = world.row()
    assert found(row) == (Verdict.BOUNDED, 5)
    assert row.replay_at_most == 2


def test_in_a_compacted_log_the_next_record_is_named_only_if_it_is_at_the_stored_offset(world: Tracked) -> None:
    world.make(range(10))
    part = world.source.partition("events", 0)
    part.compacted = True
    part.delete_before(5)
    part.records = [record for record in part.records if record.offset > 6]
    world.job_stores(5)
    assert "no record is left" in world.track().without[EVENTS]
    world.job_stores(7)
    assert world.track().exact == 1


def test_a_stored_offset_behind_the_logs_end_is_said_and_not_looked_up(world: Tracked) -> None:
    world.make(range(5))
    world.job_stores(9)
    report = world.track()
    assert report.without == {EVENTS: "the source's log ends at 5, before the stored offset"}


def test_a_partition_that_the_source_does_not_have_is_said(world: Tracked) -> None:
    world.job_stores(9, 4)
    assert world.track().without == {TopicPartition("events", 4): "the source has no such partition"}


def test_a_sentinel_needs_no_anchor(world: Tracked) -> None:
    world.make(range(5))
    world.job_stores(-1)
    report = world.track()
    assert (report.exact, report.saved, world.kept()) == (1, 0, None)


def test_after_a_topic_is_recreated_a_number_that_has_not_moved_keeps_the_anchor_that_tells_whose_it_is(
    world: Tracked,
) -> None:
    world.make(range(10))
    world.deliver(range(10))
    world.job_stores(7)
    world.track()
    kept = world.kept()
    world.source.create("events", 1, topic_id="another")
    world.make(range(20, 40))
    world.deliver(range(20, 40))
    assert world.track().saved == 0
    assert (world.kept(), found(world.job().partitions[0])) == (kept, (Verdict.MATCH, 7)), "nothing is skipped"
    world.job_stores(8)
    assert world.track().saved == 1
    kept = world.kept()
    assert kept is not None
    assert kept.anchor == replace(named(27, offset=7), topic_id="another")


# ---------------------------------------------------------------- others who write


def test_of_two_trackers_one_gives_way_and_is_right_the_next_time(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(5)
    first, second = world.tracker(), world.tracker()
    world.track(first)
    slow = world.anchors.read

    def faster(group: str, topics: Iterable[str] | None = None) -> list[Row]:
        rows = slow(group, topics)
        world.anchors.read = slow  # type: ignore[method-assign]
        world.track(first)
        return rows

    world.job_stores(8)
    world.anchors.read = faster  # type: ignore[method-assign]
    report = world.track(second)
    assert report.saved == 0
    assert list(report.lagging) == [EVENTS]
    assert world.track(second).exact == 1


def test_an_offset_that_was_handed_over_under_the_same_name_is_left_alone(world: Tracked) -> None:
    """With the identity policy the row holds the destination's number now; the source has a record there too."""
    world.make(range(10))
    world.job_stores(7)
    world.track()
    handed = StoredOffset(4, Anchor(3, 5, None, None, "b", "b/events"))
    store = PairedStore(world.store, world.anchors)
    (row,) = store.read(GROUP)
    store.write(GROUP, [Change(EVENTS, row.version, handed)], reason="apply", now_ms=NOW)
    report = world.track()
    assert (report.elsewhere, report.saved, report.without, report.exact) == ((EVENTS,), 0, {}, 0)
    kept = world.kept()
    assert kept is not None
    assert kept.anchor == handed.anchor


def test_an_offset_that_is_just_being_handed_over_is_left_alone(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(7)
    world.track()
    laid = StoredOffset(4, Anchor(3, 5, None, None, "b", "b/events"))
    world.anchors.write(GROUP, [Change(aside_of(EVENTS), None, laid)], reason="apply", now_ms=NOW)
    world.job_stores(4)
    assert world.track().elsewhere == (EVENTS,)


def test_what_a_killed_write_in_the_sources_numbers_left_is_removed_once_the_job_has_gone_on(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(7)
    world.track()
    laid = StoredOffset(4, named(3))
    world.anchors.write(GROUP, [Change(aside_of(EVENTS), None, laid)], reason="apply", now_ms=NOW)
    assert world.track().exact == 1
    assert len(world.anchors.read(GROUP)) == 2
    world.job_stores(8)
    assert world.track().exact == 1
    assert [row.key for row in world.anchors.read(GROUP)] == [EVENTS]


# ---------------------------------------------------------------- outages


AWAY = Unreachable("It is away.")


def test_a_source_that_is_away_for_a_moment_is_asked_again(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(7)
    world.trouble.comes("describe", AWAY, AWAY)
    world.trouble.comes("log", AWAY)
    assert world.track().exact == 1


def test_a_source_that_stays_away_is_reported_with_what_is_known_without_it(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(5)
    tracker = world.tracker()
    world.track(tracker)
    world.job_stores(8)
    world.step = 15
    world.trouble.comes("describe", *[AWAY] * 50)
    around = world.look(tracker)
    assert around.troubles == {SOURCE: AWAY}
    assert list(around.jobs[0].lagging) == [EVENTS]
    world.trouble.comes("describe")
    assert world.track(tracker).exact == 1


@pytest.mark.parametrize("what", ["read memory:", f"read {ANCHORS}"])
def test_a_store_that_is_away_is_asked_again_over_a_new_connection(world: Tracked, what: str) -> None:
    world.make(range(10))
    world.job_stores(7)
    tracker = world.tracker()
    world.closed.clear()
    world.trouble.comes(what, AWAY)
    assert world.track(tracker).exact == 1
    assert world.closed == [what.removeprefix("read ")]


def test_anchors_that_could_not_be_saved_are_saved_the_next_time(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(7)
    tracker = world.tracker()
    world.trouble.comes(f"write {ANCHORS}", OutcomeUnknown("The answer got lost."))
    around = world.look(tracker)
    (error,) = around.troubles.values()
    assert isinstance(error, OutcomeUnknown)
    assert around.jobs[0].exact == 0
    assert world.track(tracker).exact == 1


TWO = "".join(
    f'[[jobs]]\nhome = "a"\nname = "{name}"\ntopics = ["events"]\noffsets = "memory:{name}"\n'
    for name in ("fast", "slow")
)


@pytest.mark.parametrize(
    "error", [AWAY, Refused("It said no."), ConfigError("Not so."), NeedsPerson("Decide."), KeyError("a bug")]
)
def test_a_job_whose_store_fails_does_not_keep_the_others_waiting(world: Tracked, error: Exception) -> None:
    world.make(range(10))
    for group in ("fast", "slow"):
        world.job_stores(7, group=group)
    tracker = world.tracker(jobs=TWO)
    world.step = 15
    world.trouble.comes("read memory:fast", *[error] * 50)
    around = world.look(tracker)
    assert [place[-10:] for place in around.troubles] == ['job "fast"']
    assert [(job.job, job.known, job.exact) for job in around.jobs] == [("fast", False, 0), ("slow", True, 1)]
    assert [job.followed for job in around.jobs] == [False, True]


def test_a_job_whose_store_cannot_be_opened_is_in_every_rounds_troubles(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(7, group="slow")
    config, side = world.config(ANCHORED, TWO), world.side()

    def opened(address: str) -> OffsetStore:
        if address == "memory:fast":
            raise ConfigError("Its package is not installed.")
        return side.open_store(address)

    tracker = Tracker(config, config.jobs, replace(side, open_store=opened))
    for around in (tracker.round(), tracker.round()):
        assert {place: str(error) for place, error in around.troubles.items()} == {
            'job "fast"': "Its package is not installed."
        }
        assert [(job.job, job.known, job.exact) for job in around.jobs] == [("fast", False, 0), ("slow", True, 1)]
    alone = world.config(ANCHORED, TWO.partition('[[jobs]]\nhome = "a"\nname = "slow"')[0])
    with pytest.raises(ConfigError, match="Its package is not installed"):
        Tracker(alone, alone.jobs, replace(side, open_store=opened))


def test_topics_that_one_job_may_not_see_do_not_keep_the_others_from_being_tracked(world: Tracked) -> None:
    world.make(range(10))
    for group in ("fast", "slow"):
        world.job_stores(7, group=group)
    world.trouble.comes("describe", Refused("Not allowed.", hint="Correct it."))
    around = world.look(world.tracker(jobs=TWO))
    assert [(place, str(error)) for place, error in around.troubles.items()] == [
        (f'{SOURCE}, for job "fast"', "Not allowed. Correct it.")
    ]
    assert [job.exact for job in around.jobs] == [0, 1]


THREE = "".join(
    f'[[jobs]]\nhome = "a"\nname = "{name}"\ntopics = ["{name}"]\noffsets = "memory:"\n'
    for name in ("first", "second", "third")
)
ALL = ("first", "second", "third")


def three(world: Tracked) -> Tracker:
    """A tracker of three jobs, each with its own group and topic. A second try is behind the deadline."""
    for name in ALL:
        world.source.create(name, 1)
        for number in range(10):
            world.source.partition(name, 0).append(*content(number))
        world.job_stores(7, topic=name, group=name)
    tracker = world.tracker(jobs=THREE)
    world.step = 15
    return tracker


class SickAnchors(MemoryStore):
    """An anchor store that fails for some groups; ``asked`` counts the calls for each."""

    def __init__(self, name: str, call: str, error: Exception, groups: Iterable[str]) -> None:
        super().__init__(name)
        self._call, self._error, self._groups = call, error, set(groups)
        self.asked: Counter[str] = Counter()

    def _at(self, call: str, group: str) -> None:
        self.asked[group] += 1
        if call == self._call and group in self._groups:
            raise self._error

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        self._at("read", group)
        return super().read(group, topics)

    def write(self, group: str, changes: Sequence[Change], *, reason: str, now_ms: int) -> WriteResult:
        self._at("write", group)
        return super().write(group, changes, reason=reason, now_ms=now_ms)


@pytest.mark.parametrize("sick", ALL)
def test_a_partition_without_leader_does_not_keep_the_others_from_being_tracked(
    world: Tracked, monkeypatch: pytest.MonkeyPatch, sick: str
) -> None:
    tracker, real = three(world), world.source.log_ends

    def ends(partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        if any(key.topic == sick for key in partitions):
            raise Unreachable("Leader not available.")
        return real(partitions)

    monkeypatch.setattr(world.source, "log_ends", ends)
    for around in (tracker.round(), tracker.round()):
        assert {place: str(error) for place, error in around.troubles.items()} == {
            f'{SOURCE}, for job "{sick}"': "Leader not available."
        }
        assert {job.job: (job.followed, job.exact) for job in around.jobs} == {
            name: (name != sick, int(name != sick)) for name in ALL
        }
    monkeypatch.undo()
    assert [job.exact for job in tracker.round().jobs] == [1, 1, 1]


def test_a_source_that_goes_away_is_waited_for_by_one_job_alone(
    world: Tracked, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker, gone = three(world), Unreachable("No broker answers.")
    asked: list[str] = []

    def ends(partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        asked.extend(key.topic for key in partitions)
        world.trouble.comes("describe", *[gone] * 50)
        raise AWAY

    monkeypatch.setattr(world.source, "log_ends", ends)
    around = tracker.round()
    assert around.troubles == {SOURCE: gone}
    assert set(asked) == {"first"}
    assert len(world.trouble.waiting["describe"]) == 49
    assert [(job.known, job.followed) for job in around.jobs] == [(True, False)] * 3


@pytest.mark.parametrize("sick", ALL)
@pytest.mark.parametrize("call", ["read", "write"])
@pytest.mark.parametrize("error", [AWAY, Refused("A damaged manifest."), OutcomeUnknown("No answer.")])
def test_a_group_whose_anchors_fail_does_not_keep_the_others_from_being_tracked(
    world: Tracked, request: pytest.FixtureRequest, sick: str, call: str, error: Exception
) -> None:
    world.anchors = SickAnchors(f"{request.node.nodeid}-sick", call, error, [sick])
    tracker = three(world)
    for around in (tracker.round(), tracker.round()):
        assert list(around.troubles) == [f'{ANCHORS}, for job "{sick}"']
        assert {job.job: (job.followed, job.exact) for job in around.jobs} == {
            name: (name != sick, int(name != sick)) for name in ALL
        }


@pytest.mark.parametrize("call", ["read", "write"])
@pytest.mark.parametrize(("error", "before_it_counts_as_away"), [(AWAY, 1), (Away("Nothing answers there."), 0)])
def test_an_anchor_store_that_is_away_is_not_waited_for_by_every_job(
    world: Tracked, request: pytest.FixtureRequest, call: str, error: Exception, before_it_counts_as_away: int
) -> None:
    world.anchors = anchors = SickAnchors(f"{request.node.nodeid}-away", call, error, ALL)
    around = three(world).round()
    own = [f'{ANCHORS}, for job "{name}"' for name in ALL[:before_it_counts_as_away]]
    assert list(around.troubles) == [*own, ANCHORS]
    assert set(anchors.asked) == set(ALL[: before_it_counts_as_away + 1])
    assert not any(job.followed for job in around.jobs)


def test_one_who_wants_to_stop_does_not_wait_for_an_outage_to_end(world: Tracked) -> None:
    world.job_stores(7)
    tracker = world.tracker()

    def stop(what: str) -> None:
        world.stopping = True
        raise AWAY

    world.trouble.at = stop  # type: ignore[method-assign]
    around = world.look(tracker)
    assert len(around.troubles) == 1
    assert world.seconds < 20
    assert world.look(tracker).jobs == ()


# ---------------------------------------------------------------- configuration


IDENTITY = '[topics]\npolicy = "identity"\n'


def test_bare_rows_of_a_store_that_keeps_anchors_are_tracked(memory: Memory, request: pytest.FixtureRequest) -> None:
    world = Tracked(memory, MemoryStore(f"{request.node.nodeid}-own"), partitions=2)
    for partition in range(2):
        world.make(range(10), partition)
    world.save({1: StoredOffset(5, named(4))})
    world.job_stores(7)
    report = world.track()
    assert (report.own, report.exact, report.saved, report.without) == (1, 1, 1, {})
    kept = world.kept()
    assert kept is not None
    assert (kept.offset, kept.anchor) == (7, named(6))
    assert world.kept(1) is None


def test_a_job_whose_rows_all_have_anchors_needs_neither_the_source_nor_the_store_of_anchors(
    memory: Memory, request: pytest.FixtureRequest
) -> None:
    world = Tracked(memory, MemoryStore(f"{request.node.nodeid}-own"))
    world.save({0: StoredOffset(5, named(4))})
    world.trouble.comes("describe", AWAY)
    world.trouble.comes(f"read {ANCHORS}", AWAY)
    report = world.track()
    assert (report.own, report.partitions, report.saved) == (1, 1, 0)


def test_a_job_that_is_left_out_is_named_with_the_reason(world: Tracked) -> None:
    stores: Mapping[str, OffsetStore] = {"memory:fast": MemoryStore("kept"), "memory:slow": world.store}
    config = world.config(ANCHORED + IDENTITY, TWO)
    side = replace(world.side(), open_store=lambda address: stores[address])
    tracker = Tracker(config, config.jobs, side)
    assert list(tracker.left_out) == ["fast"]
    assert "one name on both sides" in tracker.left_out["fast"]


def test_there_must_be_a_place_for_anchors_and_one_that_can_keep_them(world: Tracked) -> None:
    config = world.config()
    with pytest.raises(ConfigError, match=r"\[anchors\] store is missing"):
        Tracker(config, config.jobs, world.side())
    world.anchors = BareStore("unable")
    with pytest.raises(ConfigError, match="cannot keep the anchors"):
        world.tracker()


def test_two_jobs_whose_anchors_could_not_be_told_apart_are_refused(world: Tracked) -> None:
    with pytest.raises(ConfigError, match='"fast" and "slow" have one group and the topic "events"'):
        world.tracker(jobs=TWO.replace('name = "slow"', 'name = "slow"\ngroup = "fast"'))
