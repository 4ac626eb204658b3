"""A job that reads by a pattern: topics that appear are read and tracked without a change of the configuration."""

from __future__ import annotations

from argparse import Namespace
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from reconciler.cli.commands import track
from reconciler.cli.commands.track import Trackers
from reconciler.cli.commands.watch import FOLLOW_S, Process
from reconciler.jobs.watch.schedule import Requested
from reconciler.kafka.rate_limit import RateLimit
from reconciler.ports import TopicPartition
from reconciler.state.start import Start
from tests.cli.starts import started
from tests.golden.corpus import HEAD, OFFSETS, deliver, job, stored
from tests.golden.world import GONE, SOURCE, Result, World

STATE = '[state]\nstore = "files:state"\n'
CONFIG = ("-c", "reconciler.toml")


@dataclass
class Nights:
    """One job on ``night_*``, whose topics are at home on a."""

    world: World

    def __post_init__(self) -> None:
        self.configure()
        assert self.world.run("init", *CONFIG).code == 0
        for number in (1, 2):
            self.produce(number)
        deliver(self.world, "__consumer_offsets", range(1), log="source")
        deliver(self.world, "days_1", range(3), log="source")

    def configure(self, more: str = "", head: str = HEAD) -> None:
        text = job("nights", ["night_*"]).replace("[jobs.identity]", f"{more}\n[jobs.identity]")
        self.world.file("reconciler.toml", head + STATE + text)

    def lose_a(self) -> None:
        self.configure(head=HEAD.replace(SOURCE, GONE))

    def produce(self, night: int) -> None:
        deliver(self.world, f"night_{night}", range(5), log="source")

    def mirror(self, *nights: int) -> None:
        for night in nights:
            deliver(self.world, f"a.night_{night}", range(5))

    def store(self, *nights: int) -> None:
        rows = {(f"night_{night}", 0): stored(2, base=0, topic=f"night_{night}") for night in nights}
        self.world.store(OFFSETS, "nights", rows)

    def start(self, *words: str) -> Start:
        return started(self.world, *words)

    def move(self, to: str) -> Result:
        return self.world.run("move", *CONFIG, "--to", to, "--yes")


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    return Nights(World(tmp_path, monkeypatch))


def test_a_first_start_reads_the_topics_that_match(nights: Nights) -> None:
    assert {*nights.start("--accept", "new").topics} == {"night_1", "night_2"}


def test_a_topic_that_appears_is_read_from_the_next_start_on(nights: Nights) -> None:
    nights.start("--accept", "new")
    nights.store(1, 2)
    nights.produce(3)
    start = nights.start()
    assert {*start.topics} == {"night_1", "night_2", "night_3"}
    assert start.offsets[TopicPartition("night_1", 0)] == 3


def test_a_move_takes_the_topics_that_are_there_under_their_names(nights: Nights) -> None:
    nights.start("--accept", "new")
    nights.store(1, 2)
    nights.mirror(1, 2, 3)
    nights.lose_a()
    moved = nights.move("b")
    assert moved.code == 0, moved.out + moved.err
    start = nights.start()
    assert {*start.topics} == {"a.night_1", "a.night_2", "a.night_3"}
    assert (start.offsets[TopicPartition("a.night_1", 0)], start.offsets[TopicPartition("a.night_2", 0)]) == (3, 3)


def test_a_topic_with_a_number_that_is_not_there_is_missed(nights: Nights) -> None:
    nights.start("--accept", "new")
    nights.store(1, 2)
    nights.mirror(1)
    moved = nights.move("b")
    assert moved.code == 4
    assert "must not start on b" in moved.out
    checked = nights.world.run("plan", *CONFIG, "--to", "b")
    assert 'the destination has no topic "a.night_2"' in checked.out + checked.err


def test_a_pattern_that_matches_nothing_is_said(nights: Nights) -> None:
    nights.configure(head=HEAD)
    path = nights.world.folder / "reconciler.toml"
    path.write_text(path.read_text().replace("night_*", "evening_*"))
    ended = nights.world.run("hook", *CONFIG, "--plans", "plans")
    assert ended.code == 2
    assert 'No topic of a is one of job "nights": evening_*' in ended.err


def test_a_pattern_that_matches_nothing_hides_no_other_job(nights: Nights) -> None:
    path = nights.world.folder / "reconciler.toml"
    path.write_text(path.read_text() + job("evenings", ["evening_*"]))
    nights.store(1, 2)
    nights.mirror(1, 2)
    checked = nights.world.run("plan", *CONFIG)
    assert checked.code == 2
    assert "a.night_1-0" in checked.out
    assert 'No topic of b is one of job "evenings": evening_*' in checked.out + checked.err
    moved = nights.world.run("move", *CONFIG, "--to", "b", "--yes")
    assert (moved.code, "nights: starts exactly" in moved.out) == (2, True), moved.out
    assert "evenings: not checked. No topic of b" in moved.out
    assert nights.world.run("status", *CONFIG).code == 0


def test_an_ignored_topic_is_none_of_them(nights: Nights) -> None:
    nights.configure('ignore_topics = ["night_2"]')
    assert {*nights.start("--accept", "new").topics} == {"night_1"}


def test_a_cluster_that_does_not_answer_is_an_error_where_the_job_is_to_read(nights: Nights) -> None:
    nights.lose_a()
    path = nights.world.folder / "reconciler.toml"
    path.write_text(f'{path.read_text()}\n[search]\ndeadline = "500ms"\n')
    ended = nights.world.run("hook", *CONFIG, "--plans", "plans")
    assert ended.code == 6


@dataclass
class Signals:
    stopping: bool = False


def test_a_topic_that_appears_is_tracked_while_track_runs(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    nights.start("--accept", "new")
    nights.store(1, 2)
    monkeypatch.setattr(track, "FOLLOW_S", 0)
    options = Namespace(config=Path("reconciler.toml"), job=[], toward=None, once=False)
    with closing(Trackers(options, Signals())) as trackers:  # type: ignore[arg-type]
        assert tracked(trackers) == (2, 0)
        nights.produce(3)
        nights.store(1, 2, 3)
        assert tracked(trackers) == (3, 0)


def tracked(trackers: Trackers) -> tuple[int, int]:
    """The partitions with the exact anchor of their number, and those without."""
    (job,) = trackers.round().jobs
    return job.partitions, len(job.without)


def test_a_topic_that_appears_is_watched_from_the_next_minute_on(nights: Nights) -> None:
    nights.start("--accept", "new")
    nights.store(1, 2)
    nights.mirror(1, 2)
    process = Process(
        Namespace(config=Path("reconciler.toml"), job=[], toward=None, once=False, every=60, listen=None),
        RateLimit(100, sleep=lambda _: None, clock=lambda: 0.0),
        Requested(stop=lambda: False, reload=lambda: False),
        lambda _: None,
    )
    with closing(process.prepare()):
        process.followed_s = -FOLLOW_S
        assert not process.moved()
        nights.mirror(3)
        process.followed_s = -FOLLOW_S
        assert process.moved()


def test_its_home_is_looked_up_and_config_check_names_its_topics(nights: Nights) -> None:
    path = nights.world.folder / "reconciler.toml"
    path.write_text(path.read_text().replace('home = "a"\n', ""))
    checked = nights.world.run("config", "check", *CONFIG)
    assert "topic a.night_1: " in checked.out
