"""The records that tracking finds before bare offsets, over logs and stores in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from reconciler.core.anchors import Names
from reconciler.core.errors import ConfigError, NeedsPerson, OutcomeUnknown, Refused, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.jobs.tracking import source
from reconciler.jobs.tracking.track import SOURCE, STATE, Tracker
from reconciler.ports import OffsetStore, TopicPartition
from tests.in_memory import BEGIN, GROUP, NOW, Memory, content, found
from tests.jobs.tracking.tracked import EVENTS, Tracked, named
from tests.places.bare_memory import BareStore


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that does not answer is asked again for 0.1 s, not for ten."""
    monkeypatch.setattr(source, "TIMEOUT_S", 0.1)


@pytest.fixture
def world(memory: Memory, request: pytest.FixtureRequest) -> Tracked:
    return Tracked(memory, BareStore(f"{request.node.nodeid}-bare"))


# ---------------------------------------------------------------- what is kept


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
    assert (kept.number, kept.record) == (7, named(3))


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
    assert found(row) == (Verdict.EARLY, 4)
    assert row.replay_at_most == 3


def test_nothing_processed_of_an_empty_log_has_no_record(world: Tracked) -> None:
    world.job_stores(0)
    assert world.track().exact == 1
    kept = world.kept()
    assert kept is not None
    assert (kept.number, kept.record) == (0, None)


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
    assert found(world.row(extra)) == (Verdict.EXACT, 0)


def test_nothing_processed_although_records_are_there_names_the_next_one(world: Tracked) -> None:
    world.make(range(5))
    world.job_stores(0)
    world.track()
    kept = world.kept()
    assert kept is not None
    assert kept.record == replace(named(0), names=Names.NEXT)
    world.deliver(range(5))
    assert found(world.row()) == (Verdict.EXACT, 0)


def test_retention_up_to_the_stored_offset_leaves_the_next_record_to_name(world: Tracked) -> None:
    world.make(range(10))
    world.source.partition("events", 0).delete_before(7)
    world.job_stores(7)
    assert world.track().exact == 1
    world.deliver(range(2, 10))
    row = world.row()
    assert found(row) == (Verdict.EXACT, 5)
    assert row.replay_exact == 0


def test_retention_does_not_take_away_what_was_kept_for_the_same_offset(world: Tracked) -> None:
    world.make(range(10))
    world.job_stores(7)
    world.track()
    world.source.partition("events", 0).delete_before(10)
    assert world.track().exact == 1
    kept = world.kept()
    assert kept is not None
    assert kept.record == named(6)


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
    assert found(row) == (Verdict.EARLY, 5)
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
    assert world.track().without == {TopicPartition("events", 4): "the cluster has no such partition"}


def test_a_sentinel_needs_no_anchor(world: Tracked) -> None:
    world.make(range(5))
    world.job_stores(-1)
    report = world.track()
    assert (report.exact, report.saved, world.kept()) == (1, 0, None)


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
    config = world.config("", TWO)
    side = world.side(config)

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
    alone = world.config("", TWO.partition('[[jobs]]\nhome = "a"\nname = "slow"')[0])
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


@pytest.mark.parametrize("call", ["read {}'s journal", "append to {}'s journal"])
@pytest.mark.parametrize("error", [NeedsPerson("An old copy."), OutcomeUnknown("No answer."), KeyError("a bug")])
def test_a_journal_that_fails_does_not_keep_the_others_from_being_tracked(
    world: Tracked, call: str, error: Exception
) -> None:
    tracker = three(world)
    world.trouble.comes(call.format("second"), *[error] * 9)
    for around in (tracker.round(), tracker.round()):
        (trouble,) = around.troubles
        assert trouble.endswith('job "second"')
        assert {job.job: (job.followed, job.exact) for job in around.jobs} == {
            name: (name != "second", int(name != "second")) for name in ALL
        }
    world.trouble.comes(call.format("second"))
    assert [job.exact for job in tracker.round().jobs] == [1, 1, 1]


@pytest.mark.parametrize("call", ["read first's journal", "append to first's journal"])
def test_a_state_store_that_is_away_is_not_waited_for_by_every_job(world: Tracked, call: str) -> None:
    tracker = three(world)
    world.trouble.comes(call, *[AWAY] * 9)
    around = tracker.round()
    assert around.troubles == {STATE: AWAY}
    assert len(world.trouble.waiting[call]) == 8
    assert [(job.known, job.followed) for job in around.jobs] == [(False, False)] * 3
    world.trouble.comes(call)
    assert [job.exact for job in tracker.round().jobs] == [1, 1, 1]


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
