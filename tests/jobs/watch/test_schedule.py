"""When jobs are checked: spread evenly, each once an interval; a round that takes too long; stop and reload."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from reconciler.config.file import Job
from reconciler.config.identity import identity_from_spec
from reconciler.core.errors import ConfigError, ExitCode, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.jobs.outages import MOST_CAUSES
from reconciler.jobs.watch.checker import CLUSTER, JobCheck
from reconciler.jobs.watch.figures import CheckFigures, TopicFigures, Watched
from reconciler.jobs.watch.metrics import Figures
from reconciler.jobs.watch.schedule import LARGEST_BATCH, Requested, Setup, Watch, batches
from reconciler.kafka.mirror.skipped import Gaps
from reconciler.kafka.rate_limit import RateLimit

FINE = CheckFigures({"t": TopicFigures({Verdict.EXACT: 1})})


def jobs(count: int, name: str = "job") -> tuple[Job, ...]:
    identity = identity_from_spec()
    return tuple(Job(f"{name}-{number}", f"g{number}", ("t",), "memory:", identity) for number in range(count))


@dataclass
class World:
    """A clock, jobs whose checks take ``takes_s`` each, and what is asked of the watch by the time."""

    count: int = 5
    every_s: float = 10.0
    takes_s: float = 0.0
    now: float = 500.0
    stop_at: float = float("inf")
    reloads: list[float] = field(default_factory=list)
    fails: dict[str, Exception] = field(default_factory=dict)
    place: str = CLUSTER
    was_tried: bool = True
    checks: list[tuple[float, str]] = field(default_factory=list)
    closed: int = 0
    heartbeats_ms: Mapping[tuple[str, str], int] = field(default_factory=dict)
    gaps: Mapping[tuple[str, str, str], Gaps] = field(default_factory=dict)
    prepare: Callable[[], Setup] | None = None
    once: bool = False

    def __post_init__(self) -> None:
        self.figures = Figures(lambda: int(self.now * 1000))
        self.limit = RateLimit(50, lambda: self.now, lambda _: None)

    def check(self, chosen: Sequence[Job]) -> dict[str, JobCheck]:
        for job in chosen:
            self.checks.append((self.now, job.name))
            self.now += self.takes_s
        return {
            job.name: JobCheck(
                self.fails.get(job.name, FINE),
                self.takes_s,
                self.place or f"Job {job.name}",
                self.was_tried,
            )
            for job in chosen
        }

    def setup(self) -> Setup:
        watched = {job.name: Watched(job.topics, "a", "b") for job in jobs(self.count)}
        return Setup(jobs(self.count), watched, self, self.every_s, self.close, once=self.once)  # type: ignore[arg-type]

    def close(self) -> None:
        self.closed += 1

    def asks_reload(self) -> bool:
        if self.reloads and self.now >= self.reloads[0]:
            self.reloads.pop(0)
            return True
        return False

    def wait(self, seconds: float) -> None:
        nearest = min([self.now + seconds, *self.reloads, self.stop_at])
        self.now = max(nearest, self.now + 0.001)

    def watch(self) -> Watch:
        requested = Requested(lambda: self.now >= self.stop_at, self.asks_reload)
        return Watch(
            lambda: (self.prepare or self.setup)(),
            self.figures,
            self.limit,
            requested,
            clock=lambda: self.now,
            wait=self.wait,
        )

    def times_of(self, name: str) -> list[float]:
        return [at for at, job in self.checks if job == name]


# ---------------------------------------------------------------- spreading


@pytest.mark.parametrize("every_s", [0.1, 7.0, 60.0, 3_600.0])
@pytest.mark.parametrize("count", [1, 7, 200, 999])
def test_batches_hold_every_job_once_and_are_neither_large_nor_close(count: int, every_s: float) -> None:
    all_jobs = jobs(count)
    parts = batches(all_jobs, every_s)
    assert tuple(itertools.chain(*parts)) == all_jobs
    sizes = [len(part) for part in parts]
    assert 1 <= min(sizes) <= max(sizes) <= LARGEST_BATCH
    assert max(sizes) - min(sizes) <= 1
    assert every_s / len(parts) >= min(0.9, every_s) or max(sizes) >= LARGEST_BATCH / 2


def test_after_a_first_round_at_once_each_job_has_its_own_time_in_the_interval() -> None:
    world = World(count=5, every_s=10.0, stop_at=540.0)
    world.watch().run()
    assert [at for at, _ in world.checks[:5]] == [500.0] * 5
    later = world.checks[5:]
    assert [at for at, _ in later[:10]] == pytest.approx([502.0 + 2 * n for n in range(10)])
    for name in ("job-0", "job-3", "job-4"):
        gaps = [b - a for a, b in itertools.pairwise(world.times_of(name))]
        assert gaps[1:] == pytest.approx([10.0] * len(gaps[1:]))
        assert gaps[0] <= 10.0 + 1e-9


# ---------------------------------------------------------------- rounds that take too long


def test_a_round_that_takes_too_long_is_followed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "reconciler.jobs.watch")
    world = World(count=5, every_s=10.0, takes_s=3.0, stop_at=500.0 + 100)
    watch = world.watch()
    watch.run()
    assert [b - a for (a, _), (b, _) in itertools.pairwise(world.checks)] == pytest.approx([3.0] * 33)
    assert world.figures.process.rounds == 6
    world.takes_s, world.stop_at = 0.1, world.now + 60
    watch.run()
    gaps = [b - a for a, b in itertools.pairwise(world.times_of("job-2"))]
    assert gaps[-3:] == pytest.approx([10.0] * 3)
    assert caplog.records == []


def test_an_outage_is_not_said_to_be_a_matter_of_speed(caplog: pytest.LogCaptureFixture) -> None:
    world = World(count=5, every_s=10.0, takes_s=3.0, stop_at=600.0)
    world.fails = {f"job-{number}": Unreachable("The cluster is away.") for number in range(5)}
    world.watch().run()
    assert [record.getMessage() for record in caplog.records] == ["The cluster is away. Trying again every 10 s."]
    assert world.figures.process.rounds == 6


def test_one_long_wait_moves_the_rounds_and_is_not_made_up_for() -> None:
    world = World(count=5, every_s=10.0)
    watch = world.watch()
    world.stop_at = 525.0
    watch.run()
    world.now, world.stop_at = 700.0, 760.0  # the machine slept
    before = len(world.checks)
    watch.run()
    assert len(world.checks) - before <= 5 + 5 * 7


def test_the_figures_tell_rounds_and_their_length() -> None:
    world = World(count=5, every_s=10.0, takes_s=0.5, stop_at=532.0)
    world.watch().run()
    process = world.figures.process
    assert (process.rounds, process.interval_s) == (4, 10.0)
    assert process.round_s == pytest.approx(2.5)


# ---------------------------------------------------------------- troubles


def test_an_outage_is_said_once_and_its_end_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "reconciler.jobs.watch")
    world = World(count=5, every_s=10.0, stop_at=560.0)
    watch = world.watch()
    world.fails = {f"job-{number}": Unreachable("The cluster is away.") for number in range(5)}
    watch.run()
    world.fails, world.stop_at = {}, 600.0
    watch.run()
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "The cluster is away. Trying again every 10 s."
    assert len(said) == 2
    assert said[1].startswith("The watched cluster answers again after ")
    assert all(world.figures.job(f"job-{number}").up for number in range(5))


def test_a_stop_during_an_outage_is_not_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """The check that the signal cuts short reports no error, and proves nothing."""
    caplog.set_level(logging.INFO, "reconciler.jobs.watch")
    world = World(count=1, every_s=10.0, fails={"job-0": Unreachable("The cluster is away.")}, stop_at=560.0)
    watch, check = world.watch(), world.check
    watch.run()

    def stopped_within(chosen: Sequence[Job]) -> dict[str, JobCheck]:
        world.stop_at = world.now
        return check(chosen)

    world.fails, world.stop_at, world.check = {}, 600.0, stopped_within  # type: ignore[method-assign]
    watch.run()
    assert [record.getMessage() for record in caplog.records] == ["The cluster is away. Trying again every 10 s."]


def test_a_store_that_was_not_asked_is_not_reported_as_back(caplog: pytest.LogCaptureFixture) -> None:
    """A job's store is away, then the cluster as well: the store is unknown until the cluster is back."""
    caplog.set_level(logging.INFO, "reconciler.jobs.watch")
    world = World(count=2, every_s=10.0, place="", fails={"job-0": Unreachable("The store is away.")}, stop_at=530.0)
    watch = world.watch()
    watch.run()
    world.place, world.stop_at = CLUSTER, 560.0
    world.fails = {name: Unreachable("The cluster is away.") for name in ("job-0", "job-1")}
    watch.run()
    assert not [record for record in caplog.records if "answers again" in record.getMessage()]
    world.fails, world.stop_at = {}, 590.0
    watch.run()
    assert [record.getMessage().partition(" answers")[0] for record in caplog.records[2:]] == ["Job job-0", CLUSTER]


def test_a_new_cause_of_an_outage_is_said_and_a_known_one_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "reconciler.jobs.watch")
    world = World(count=2, every_s=10.0, place="")
    watch = world.watch()
    causes = [
        Unreachable("The store gave no answer in 10 s."),
        Unreachable("The store gave no answer in 12 s."),
        ConfigError("Neither the topic nor a row exists.", hint="Correct topics."),
        Unreachable("The store gave no answer in 10 s."),
    ]
    for number, cause in enumerate(causes):
        world.fails = {"job-1": cause}
        watch.run(rounds=2 * number + 2)
    world.fails = {}
    watch.run(rounds=12)
    said = [record.getMessage() for record in caplog.records]
    assert said[:2] == [
        "The store gave no answer in 10 s. Trying again every 10 s.",
        "Neither the topic nor a row exists. Correct topics. Trying again every 10 s.",
    ]
    assert [text.partition(" after")[0] for text in said[2:]] == ["Job job-1 answers again"]


def test_a_cause_that_is_another_one_at_each_try_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world = World(count=1, every_s=10.0, place="")
    watch = world.watch()
    for number, word in enumerate("abcdefghij"):
        world.fails = {"job-0": Unreachable(f"The store refused request {word}.")}
        watch.run(rounds=number + 1)
    assert len(caplog.records) == MOST_CAUSES


def test_a_job_that_was_not_tried_has_no_new_cause(caplog: pytest.LogCaptureFixture) -> None:
    world = World(count=1, every_s=10.0, place="", fails={"job-0": Unreachable("No leader.")})
    watch = world.watch()
    watch.run(rounds=1)
    world.fails, world.was_tried = {"job-0": Unreachable("The checks of others took the time.")}, False
    watch.run(rounds=3)
    assert [record.getMessage() for record in caplog.records] == ["No leader. Trying again every 10 s."]
    assert list(watch.troubles) == ["Job job-0"]


def test_a_single_round_names_each_trouble_and_promises_no_other_try(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "reconciler.jobs.watch")
    world = World(count=9, place="", once=True)
    world.fails = {f"job-{number}": Unreachable(f"No leader {number}.") for number in range(8)}
    watch = world.watch()
    watch.run(rounds=1)
    assert [record.getMessage() for record in caplog.records] == [f"No leader {number}." for number in range(8)]
    assert len(watch.troubles) == 8


def test_a_bug_in_one_jobs_check_is_reported_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "reconciler.jobs.watch")
    bug = ValueError("no such thing")
    world = World(count=2, place="", once=True, fails={"job-1": bug})
    watch = world.watch()
    watch.run(rounds=1)
    assert [error.exit_code for error in watch.troubles.values()] == [ExitCode.BUG]
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [bug]
    assert world.figures.job("job-0").up


# ---------------------------------------------------------------- stop and reload


def test_a_check_that_was_cut_short_is_not_recorded() -> None:
    world = World(count=1, every_s=10.0, takes_s=5.0, stop_at=502.0)
    world.watch().run()
    assert world.checks == [(500.0, "job-0")]
    assert not world.figures.job("job-0").up
    assert world.figures.job("job-0").checks["ok"] == 0


@pytest.fixture
def reloaded() -> World:
    return World(count=3, every_s=10.0, stop_at=560.0, reloads=[525.0])


def test_a_reload_drops_jobs_that_are_gone_and_keeps_the_figures_of_the_others(reloaded: World) -> None:
    world = reloaded
    watch = world.watch()
    world.stop_at = 520.0
    watch.run()
    world.count, world.every_s, world.stop_at = 2, 5.0, 525.001
    before = world.figures.job("job-1")
    watch.run()
    assert world.figures.job("job-1").checks["ok"] >= before.checks["ok"] > 0
    with pytest.raises(KeyError):
        world.figures.job("job-2")
    assert world.closed == 1
    assert world.figures.process.interval_s == 5.0
    assert world.figures.process.reload_ok


def test_a_reload_drops_figures_of_topics_that_a_job_no_longer_reads(reloaded: World) -> None:
    """Whatever its checks say: an alert on a topic must resolve when the topic leaves the configuration."""
    world = reloaded
    watch = world.watch()
    world.stop_at = 520.0
    watch.run()
    assert list(found_topics(world, "job-0")) == list(found_topics(world, "job-1")) == ["t"]
    before = world.setup()
    job = before.jobs[0]
    world.prepare = lambda: replace(before, watched={**before.watched, job.name: Watched(("u",), "a", "b")})
    world.fails = {f"job-{number}": Unreachable("The store is away.") for number in range(3)}
    world.stop_at = 540.0
    watch.run()
    assert list(found_topics(world, "job-0")) == []
    assert list(found_topics(world, "job-1")) == ["t"]


def found_topics(world: World, job: str) -> Iterable[str]:
    """The topics of which the job's last whole check has figures."""
    found = world.figures.job(job).found
    assert found is not None
    return found.topics


def test_a_configuration_that_cannot_be_used_leaves_the_old_one_going(
    reloaded: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "reconciler.jobs.watch")
    world = reloaded
    watch = world.watch()

    def refuse() -> Setup:
        raise ConfigError("reconciler.toml is not TOML.")

    world.prepare = refuse
    watch.run()
    assert len(world.times_of("job-2")) >= 5
    assert not world.figures.process.reload_ok
    assert [record.getMessage() for record in caplog.records] == [
        "The configuration was not read again, and the previous one stays in use. reconciler.toml is not TOML."
    ]
    assert world.closed == 0
    world.prepare, world.reloads, world.stop_at = None, [561.0], 570.0
    watch.run()
    assert world.figures.process.reload_ok
    watch.close()
    assert world.closed == 2
