"""What ``reconciler track`` logs about its rounds: changes, and everything again from time to time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reconciler.cli.commands.track import ALL_AGAIN_S, MOST_LINES, RoundProgress, _once
from reconciler.core.errors import ExitCode
from reconciler.failover.unlisted import Unlisted
from reconciler.jobs.tracking.journals import JobReport
from reconciler.jobs.tracking.track import Round
from reconciler.ports import TopicPartition
from reconciler.state.jobs import JobState
from reconciler.state.store import open_state
from tests.golden.corpus import HEAD, job, tracked
from tests.golden.world import World

CLICKS = JobReport("clicks", "kafka-group:", exact=3, saved=3)
ORDERS = JobReport("orders", "kafka-group:", exact=1)
WITHOUT = {TopicPartition("events", number): "retention has removed the records around it" for number in range(60)}


@dataclass
class Log:
    now: float = 0.0
    progress: RoundProgress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = RoundProgress(lambda: self.now)

    def after(self, seconds: float, *jobs: JobReport) -> list[str]:
        self.now += seconds
        return self.progress.lines(Round(jobs, {}))


@pytest.fixture
def log() -> Log:
    log = Log()
    assert log.after(0, CLICKS, ORDERS) == [
        "clicks: 3 exact, 0 lagging, 0 without a record, 3 saved",
        "orders: 1 exact, 0 lagging, 0 without a record, 0 saved",
    ]
    return log


def test_a_job_that_moves_on_with_its_anchors_is_not_told_again(log: Log) -> None:
    for saved in (0, 3, 1):
        assert log.after(10, replace(CLICKS, saved=saved), ORDERS) == []


def test_that_a_driver_records_its_job_is_told_once(log: Log) -> None:
    led = replace(CLICKS, driver="driver on host-1", saved=0)
    told = "clicks: 3 exact, 0 lagging, 0 without a record, its driver records it (driver on host-1)"
    assert log.after(10, led, ORDERS) == [told]
    assert log.after(10, replace(led, exact=2, lagging={TopicPartition("events", 0): ""}), ORDERS) == []


def test_a_job_whose_state_changes_is_told_alone_and_so_is_its_return(log: Log) -> None:
    lagging = replace(CLICKS, exact=2, lagging={TopicPartition("events", 0): ""}, saved=0)
    assert log.after(10, lagging, ORDERS) == ["clicks: 2 exact, 1 lagging, 0 without a record, 0 saved"]
    assert log.after(10, lagging, replace(ORDERS, known=False)) == ["orders: not known"]
    assert log.after(10, lagging, ORDERS) == ["orders: 1 exact, 0 lagging, 0 without a record, 0 saved"]
    assert log.after(10, CLICKS, ORDERS) == ["clicks: 3 exact, 0 lagging, 0 without a record, 3 saved"]


def test_a_topic_that_the_job_does_not_list_is_told_with_what_to_do(log: Log) -> None:
    lines = log.after(10, replace(CLICKS, unlisted=Unlisted({"night": 2})), ORDERS)
    assert lines[1].startswith(
        'Job "clicks" has 2 offsets of "night", which it does not list: they are not recorded. Add'
    )
    assert len(log.after(10, replace(CLICKS, unlisted=Unlisted({"night": 2})), ORDERS)) == 0


def test_a_round_with_a_topic_that_its_job_does_not_list_needs_a_decision(capsys: pytest.CaptureFixture[str]) -> None:
    class Once:
        left_out: Mapping[str, str] = {}

        def __init__(self, unlisted: Unlisted) -> None:
            self._job = replace(CLICKS, followed=True, unlisted=unlisted)

        def round(self) -> Round:
            return Round((self._job,), {})

    assert _once(Once(Unlisted({"night": 2}))) is ExitCode.NEEDS_PERSON  # type: ignore[arg-type]
    assert 'has 2 offsets of "night"' in capsys.readouterr().out
    assert _once(Once(Unlisted(ignored={"night": 2}))) is ExitCode.OK  # type: ignore[arg-type]
    assert 'Job "clicks" ignores 2 offsets of "night".' in capsys.readouterr().out


def test_the_reason_of_a_missing_anchor_is_told_and_of_many_a_few(log: Log) -> None:
    (one,) = (dict([item]) for item in list(WITHOUT.items())[:1])
    assert log.after(10, replace(CLICKS, without=one), ORDERS)[1:] == [
        "events-0 has no record: retention has removed the records around it."
    ]
    lines = log.after(10, replace(CLICKS, without=WITHOUT), ORDERS)
    assert len(lines) == 1 + MOST_LINES + 1
    assert lines[-1] == "… and 40 more."


def test_every_job_is_told_again_from_time_to_time(log: Log) -> None:
    assert log.after(ALL_AGAIN_S - 1, CLICKS, ORDERS) == []
    assert [line.partition(":")[0] for line in log.after(1, CLICKS, ORDERS)] == ["clicks", "orders"]
    assert log.after(ALL_AGAIN_S - 1, CLICKS, ORDERS) == []
    assert len(log.after(1, CLICKS, ORDERS)) == 2


def test_a_job_that_cannot_be_reached_does_not_hide_one_that_needs_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    tracked(world, committed=True)
    config = (tmp_path / "reconciler.toml").read_text() + job("gone", ["others"], "checkpoint:nowhere", id="none")
    world.file("reconciler.toml", config)
    world.source.partition("events", 0).delete_before(13)
    ended = world.run("track", "-c", "reconciler.toml", "--once")
    assert (ended.code, "events-0 has no record" in ended.out) == (ExitCode.NEEDS_PERSON, True)
    assert "nowhere" in ended.err


def test_a_round_is_appended_to_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, monkeypatch)
    tracked(world, committed=True)
    world.file("reconciler.toml", HEAD + job("counts", ["events"], "checkpoint:checkpoint", id="none"))
    world.located()
    found = world.run("track", "-c", "reconciler.toml", "--once")
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines()[1].split()[:6] == ["counts", "2", "2", "0", "0", "2"]
    (entry,) = JobState(open_state(f"sqlite:///{tmp_path}/state.db"), "counts").newest(1)
    assert (
        sorted(known.record.offset + 1 == known.number for known in entry.numbers.values() if known.record)
        == [True] * 2
    )
    assert world.run("track", "-c", "reconciler.toml", "--once").out.splitlines()[1].split()[5] == "0", "nothing is new"
