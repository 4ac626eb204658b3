"""Many jobs checked together: a failure of one costs the others nothing, and an outage is waited for once."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.config.file import Config, Job
from reconciler.core.errors import ConfigError, NotNow, Refused, Unreachable
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.outside import Outside
from reconciler.jobs.watch.checker import CLUSTER, STORE_REQUESTS, JobCheck, JobChecker
from reconciler.jobs.watch.figures import CheckFigures
from reconciler.kafka.mirror.records import Heartbeats
from reconciler.places.checkpoint import restart
from reconciler.places.memory import MemoryStore
from reconciler.ports import OffsetStore, Row, TopicPartition
from tests.in_memory import NOW, Memory, stored
from tests.kafka.mirror.written import text
from tests.memory_log import MemoryLog

EVERY_S, DEADLINE_S, TIMEOUT_S = 60.0, 30.0, 10.0


@dataclass
class World:
    """A log and stores that can be away; every call that fails for want of an answer takes ``TIMEOUT_S``."""

    memory: Memory
    now: float = 0.0
    away: bool = False
    leaderless: set[str] = field(default_factory=set)
    stores_away: set[str] = field(default_factory=set)
    stores_locked: set[str] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)
    checks: list[tuple[str, ...]] = field(default_factory=list)
    stopping: bool = False

    def config(self, *jobs: str) -> Config:
        return self.memory.config(f'[search]\ndeadline = "{DEADLINE_S:g}s"\n', "".join(jobs))

    def checker(self, config: Config, every_s: float = EVERY_S, *, once: bool = False) -> JobChecker:
        def checker(config: Config, jobs: Sequence[Job], outside: Outside) -> Checked:
            self.checks.append(tuple(job.name for job in jobs))
            return check(config, jobs, outside)

        outside = Outside(Sick(self), self.open_store, self.clock, lambda: NOW)
        return JobChecker(config, outside, checker, every_s=every_s, once=once, stopping=lambda: self.stopping)

    def clock(self) -> float:
        return self.now

    def no_answer(self, what: str) -> Unreachable:
        self.now += TIMEOUT_S
        self.calls[f"{what} without answer"] += 1
        return Unreachable(f"{what} gave no answer.")

    def open_store(self, address: str) -> OffsetStore:
        self.calls["opened"] += 1
        return SickStore(self, address)


class Sick(MemoryLog):
    """The world's log, when it answers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.__dict__.update(world.memory.log.__dict__)

    def _ask(self, topics: Iterable[str]) -> None:
        if self._world.away:
            raise self._world.no_answer("The cluster")
        if self._world.leaderless & set(topics):
            raise self._world.no_answer("The leader")

    def describe(self, topics: Iterable[str]) -> Any:
        self._ask(())
        return super().describe(topics)

    def log_starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._ask(tp.topic for tp in partitions)
        return super().log_starts(partitions)


class SickStore(MemoryStore):
    def __init__(self, world: World, address: str) -> None:
        super().__init__(world.memory.store.address.removeprefix("memory:"))
        self._world = world
        self._called = address

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        if self._called in self._world.stores_locked:
            raise NotNow("Another program holds the table.")
        if self._called in self._world.stores_away:
            raise self._world.no_answer(f"The store {self._called}")
        if group == "refused":
            raise Refused("The store says no.")
        return super().read(group, topics)

    def close(self) -> None:
        self._world.calls["closed"] += 1


def job(name: str, topic: str = "events", store: str = "memory:one", group: str = "readers") -> str:
    topics = topic.split('", "')
    ignored = json.dumps([each for number in range(10) if (each := f"e{number}") not in topics])
    return (
        f'[[jobs]]\nhome = "a"\nname = "{name}"\ngroup = "{group}"\ntopics = ["{topic}"]\noffsets = "{store}"\n'
        f"ignore_topics = {ignored}\n"
    )


@pytest.fixture
def world(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> World:
    """Topics e0 to e9, each with a job's stored offset. Pauses between retries are skipped over."""
    world = World(memory)
    for number in range(10):
        memory.log.create(f"a.e{number}", 1)
        memory.deliver(range(10), topic=f"a.e{number}")
        memory.save({0: stored(6)}, topic=f"e{number}")

    def sleep(seconds: float) -> None:
        world.now += math.ceil(seconds)  # whole seconds, so that sums are exact

    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=sleep))  # and no other thread's pauses
    between_batches = restart.checkpoint(None, None, None, committed=False, initial={})
    monkeypatch.setattr("reconciler.places.checkpoint.reading.read_checkpoint", lambda _: between_batches)
    return world


def ten(store: Callable[[int], str] = lambda _: "memory:one") -> list[str]:
    return [job(f"j{number}", f"e{number}", store(number)) for number in range(10)]


def good(results: Mapping[str, JobCheck]) -> list[str]:
    return [name for name, check in results.items() if isinstance(check.result, CheckFigures)]


def ends(results: Mapping[str, JobCheck]) -> dict[str, str]:
    return {name: type(check.result).__name__ for name, check in results.items()}


# ---------------------------------------------------------------- together


def test_jobs_are_checked_in_one_go_and_a_shared_store_is_opened_once(world: World) -> None:
    config = world.config(*ten())
    before = world.memory.store.read("readers")
    results = world.checker(config).check(config.jobs)
    assert len(good(results)) == 10
    assert world.memory.store.read("readers") == before
    assert [len(names) for names in world.checks] == [10]
    assert world.calls == {"opened": 1, "closed": 1}
    figures = results["j3"].result
    assert isinstance(figures, CheckFigures)
    assert figures.topics["a.e3"].verdicts == {Verdict.EXACT: 1}


@pytest.mark.parametrize(
    ("ahead_ms", "newest_ms"),
    [(366 * 86_400_000, NOW - 7_200_000), (600_001, NOW - 7_200_000), (600_000, NOW + 600_000)],
)
def test_the_newest_anchor_is_none_of_a_time_to_come(world: World, ahead_ms: int, newest_ms: int) -> None:
    """One with a wrong time would keep the age at 0 for a year. Clocks may be ten minutes ahead."""
    world.memory.save({0: stored(6, written_at_ms=NOW - 7_200_000)}, topic="e1")
    world.memory.save({0: stored(6, written_at_ms=NOW + ahead_ms)}, topic="e2")
    config = world.config(job("both", 'e1", "e2'))
    figures = world.checker(config).check(config.jobs)["both"].result
    assert isinstance(figures, CheckFigures)
    assert figures.anchored_ms == newest_ms


# ---------------------------------------------------------------- one is ill


def test_a_job_whose_topic_exists_nowhere_takes_no_other_with_it(world: World) -> None:
    config = world.config(*ten(), job("lost", "no-such-topic"))
    checker = world.checker(config)
    results = checker.check(config.jobs)
    assert len(good(results)) == 10
    assert isinstance(results["lost"].result, ConfigError)
    assert results["lost"].place == 'Job "lost"'
    world.checks.clear()
    again = checker.check(config.jobs)
    assert len(good(again)) == 10
    assert [len(names) for names in world.checks] == [10, 1]  # from now on it is checked apart
    world.memory.log.create("a.no-such-topic", 1)
    assert len(good(world.checker(config).check(config.jobs))) == 11


def test_a_store_that_says_no_to_one_job_takes_no_other_with_it(world: World) -> None:
    config = world.config(*ten(), job("refused", "e1", group="refused"))
    checker = world.checker(config)
    results = checker.check(config.jobs)
    assert (len(good(results)), ends(results)["refused"]) == (10, "Refused")
    assert results["refused"].place == 'The store of job "refused"'
    assert world.calls["opened"] == world.calls["closed"]
    assert world.calls["The store memory:one without answer"] == 0


def test_a_partition_without_leader_takes_its_own_job_out_and_is_waited_for_once(world: World) -> None:
    config = world.config(*ten())
    checker = world.checker(config)
    world.leaderless = {"a.e7"}
    results = checker.check(config.jobs)
    assert (len(good(results)), ends(results)["j7"]) == (9, "Unreachable")
    assert world.now <= DEADLINE_S + 3 * TIMEOUT_S
    for _ in range(3):
        before = world.now
        assert len(good(checker.check(config.jobs))) == 9
        assert world.now - before <= TIMEOUT_S
    world.leaderless = set()
    assert len(good(checker.check(config.jobs))) == 10


def test_jobs_that_fail_one_by_one_cost_one_deadline_together_and_take_turns(world: World) -> None:
    config = world.config(*ten())
    checker = world.checker(config)
    world.leaderless = {f"a.e{number}" for number in range(1, 10)}
    assert good(checker.check(config.jobs)) in ([], ["j0"])
    for _ in range(4):
        before = world.now
        checker.check(config.jobs)
        assert world.now - before <= DEADLINE_S + 3 * TIMEOUT_S
    world.leaderless = {"a.e1"}
    for _ in range(2):
        results = checker.check(config.jobs)
    assert len(good(results)) == 9


def test_a_job_that_was_not_tried_says_which_jobs_took_the_time(world: World) -> None:
    config = world.config(*ten())
    world.leaderless = {f"a.e{number}" for number in range(1, 6)}
    results = world.checker(config).check(config.jobs)
    tried = [name for name, check in results.items() if check.was_tried]
    assert tried == ["j0", "j1", "j2", "j3", "j4"]
    assert good(results) == ["j0"]
    assert {str(results[name].result) for name in tried[1:]} == {"The leader gave no answer."}
    for name in ("j5", "j6", "j7", "j8", "j9"):
        assert str(results[name].result) == (
            f'Job "{name}" was not checked in this round: the checks of job "j1" and 3 more failed, and took 40 s. '
            'Resolve what is reported of job "j1".'
        )
        assert results[name].place == f'Job "{name}"'


def test_a_job_that_is_well_has_its_turn_in_whatever_batch_it_is(world: World) -> None:
    """In each of two batches there is time for one failure a round; of the second, only the last job is well."""
    config = world.config(*ten()[:4])
    checker = world.checker(config, every_s=2 * TIMEOUT_S - 1)
    world.leaderless = {"a.e0", "a.e1", "a.e2"}
    seen: set[str] = set()
    for _ in range(4):
        for batch in (config.jobs[:2], config.jobs[2:]):
            seen.update(good(checker.check(batch)))
            world.now += EVERY_S
    assert seen == {"j3"}


# ---------------------------------------------------------------- once, without a next round


def test_jobs_that_fail_leave_no_other_out_if_there_is_no_next_round(world: World) -> None:
    config = world.config(*ten())
    world.leaderless = {f"a.e{number}" for number in range(1, 8)}
    results = world.checker(config, once=True).check(config.jobs)
    assert good(results) == ["j0", "j8", "j9"]
    assert all(check.was_tried for check in results.values())
    assert {str(results[f"j{number}"].result) for number in range(1, 8)} == {"The leader gave no answer."}


def test_a_cluster_that_goes_away_while_jobs_are_tried_one_by_one_is_not_waited_for_by_each(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = world.config(*ten())
    world.leaderless, real = {"a.e0"}, Sick._ask

    def ask(self: Sick, topics: Iterable[str]) -> None:
        asked = set(topics)
        world.away = world.away or asked == {"a.e2"}
        real(self, asked)

    monkeypatch.setattr(Sick, "_ask", ask)
    results = world.checker(config, once=True).check(config.jobs)
    assert good(results) == ["j1"]
    assert results["j0"].place == 'Job "j0"'
    assert {results[f"j{number}"].place for number in range(2, 10)} == {CLUSTER}
    assert world.calls["The cluster without answer"] == 2


# ---------------------------------------------------------------- the cluster is away


def test_an_outage_of_the_cluster_is_waited_for_once_and_not_by_every_job(world: World) -> None:
    config = world.config(*ten())
    checker = world.checker(config)
    parts = [config.jobs[:5], config.jobs[5:]]
    assert len(good(checker.check(config.jobs))) == 10
    world.away = True
    results = checker.check(parts[0])
    assert {check.place for check in results.values()} == {CLUSTER}
    assert DEADLINE_S <= world.now <= DEADLINE_S + 3 * TIMEOUT_S
    before, asked = world.now, world.calls["The cluster without answer"]
    results = checker.check(parts[1])
    assert set(ends(results).values()) == {"Unreachable"}
    assert (world.now, world.calls["The cluster without answer"]) == (before, asked)


def test_an_outage_heals_within_two_rounds(world: World) -> None:
    config = world.config(*ten())
    checker = world.checker(config)
    world.away = True
    checker.check(config.jobs)
    world.now += EVERY_S
    before, opened = world.now, world.calls["opened"]
    checker.check(config.jobs)
    assert world.now - before <= TIMEOUT_S  # one question whether it is back, without patience
    assert world.calls["opened"] == opened, "no store is read while it is away"
    world.away = False
    world.now += EVERY_S
    assert len(good(checker.check(config.jobs))) == 10


def test_a_login_that_is_refused_is_not_tried_for_every_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    config = world.config(*ten())
    tried = []

    def refuse(self: Sick, topics: Iterable[str]) -> Any:
        tried.append(topics)
        raise Refused("The login was refused.")

    monkeypatch.setattr(Sick, "describe", refuse)
    checker = world.checker(config)
    for _ in range(3):
        results = checker.check(config.jobs)
        assert {check.place for check in results.values()} == {CLUSTER}
    assert len(tried) == 2


def test_a_stopping_watch_does_not_wait_for_a_cluster(world: World) -> None:
    config = world.config(*ten())
    checker = world.checker(config)
    world.away = world.stopping = True
    checker.check(config.jobs)
    assert world.now <= 4 * TIMEOUT_S


# ---------------------------------------------------------------- a store is away


def test_a_store_that_is_away_takes_its_own_jobs_out_and_is_waited_for_twice_a_round(world: World) -> None:
    config = world.config(*ten(lambda number: f"memory:{'even' if number % 2 == 0 else 'odd'}"))
    checker = world.checker(config)
    world.stores_away = {"memory:odd"}
    for _ in range(3):
        before = world.now
        results = checker.check(config.jobs)
        assert good(results) == [f"j{number}" for number in range(0, 10, 2)]
        assert {results[f"j{number}"].place for number in range(1, 10, 2)} == {'The store of job "j1" and 4 more'}
        assert world.now - before <= 2 * TIMEOUT_S
        world.now = before + EVERY_S
    world.stores_away = set()
    assert len(good(checker.check(config.jobs))) == 10


def table(number: int) -> str:
    return f"postgresql://db/results?table=offsets_{number}&topic=topic&partition=partition&offset=until"


def checkpoint(number: int) -> str:
    return f"checkpoint:webhdfs://nn:9870/checkpoints/j{number}"


def chroot(number: int) -> str:
    return f"zookeeper://zk1,zk2/j{number}?layout=single"


@pytest.mark.parametrize("store", [table, checkpoint, chroot])
def test_a_server_that_is_away_is_waited_for_twice_a_round_however_many_stores_it_has(
    world: World, store: Callable[[int], str]
) -> None:
    config = world.config(*ten(store), job("elsewhere", "e1"))
    checker = world.checker(config)
    world.stores_away = {store(number) for number in range(10)}
    for _ in range(3):
        before = world.now
        results = checker.check(config.jobs)
        assert good(results) == ["elsewhere"]
        assert {results[f"j{number}"].place for number in range(10)} == {'The store of job "j0" and 9 more'}
        assert world.now - before <= 2 * TIMEOUT_S
        world.now = before + EVERY_S
    world.stores_away = set()
    assert len(good(checker.check(config.jobs))) == 11


@pytest.mark.parametrize("store", [table, checkpoint, chroot])
def test_a_store_that_fails_by_itself_takes_no_other_of_its_server_with_it(
    world: World, store: Callable[[int], str]
) -> None:
    config = world.config(*ten(store))
    checker = world.checker(config)
    world.stores_away = {store(0)}
    for _ in range(4):
        assert good(checker.check(config.jobs)) == [f"j{number}" for number in range(1, 10)]
        world.now += EVERY_S


def test_a_server_that_answers_is_not_left_alone_because_of_what_is_locked(world: World) -> None:
    config = world.config(*ten(table))
    checker = world.checker(config)
    world.stores_locked = {table(number) for number in range(3)}
    for _ in range(3):
        results = checker.check(config.jobs)
        assert good(results) == [f"j{number}" for number in range(3, 10)]
        assert results["j1"].place == 'The store of job "j1"'
        world.now += EVERY_S


@pytest.mark.parametrize("store", [table, checkpoint, lambda number: f"sqlite:////srv/{number}.db"])
def test_a_stopping_watch_waits_for_no_further_store(world: World, store: Callable[[int], str]) -> None:
    config = world.config(*ten(store))
    checker = world.checker(config)
    world.stores_away = {store(number) for number in range(10)}

    def stop_at_once(what: str) -> Unreachable:
        world.stopping = True
        return World.no_answer(world, what)

    world.no_answer = stop_at_once  # type: ignore[method-assign]
    results = checker.check(config.jobs)
    assert world.now == TIMEOUT_S
    assert [name for name, check in results.items() if check.was_tried] == ["j0"]
    assert str(results["j9"].result) == 'Job "j9" was not checked, because watch is stopping.'


def test_heartbeats_are_read_while_every_store_is_away(world: World) -> None:
    """The mirror lives, and the watched cluster answers: heartbeats that grew old would page for nothing."""
    world.memory.log.create("a.heartbeats", 1)
    config = world.config(*ten())
    checker = world.checker(config)
    world.stores_away = {"memory:one"}
    for sent_ms in range(NOW - 300_000, NOW, 60_000):
        key, value = text("b") + text("a"), struct.pack(">hq", 0, sent_ms)
        world.memory.log.partition("a.heartbeats", 0).append(NOW, key, value)
        assert not good(checker.check(config.jobs))
        assert checker.heartbeats_ms == {("a", "b"): sent_ms}
        world.now += EVERY_S


def test_a_bug_in_following_the_mirror_does_not_end_the_watch(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    config = world.config(*ten())
    checker = world.checker(config)
    world.stores_away = {"memory:one"}
    with monkeypatch.context() as broken:
        broken.setattr(Heartbeats, "read", lambda *_: {}["a key"])
        assert len(checker.check(config.jobs)) == 10
    assert "This is a bug in reconciler: KeyError: 'a key'" in caplog.text
    assert "Traceback" in caplog.text
    world.stores_away, world.now = set(), world.now + EVERY_S
    assert len(good(checker.check(config.jobs))) == 10


def test_stores_on_the_watched_cluster_count_against_the_limit_and_keep_few_clients(world: World) -> None:
    tables = [job(f"j{n}", f"e{n % 10}", "kafka-group:", group=f"group {n}") for n in range(25)]
    config, taken, held = world.config(*tables), Counter[int](), []

    class Counted(SickStore):
        def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
            held[-1] += 1
            return super().read(group, topics)

    def opened(address: str) -> OffsetStore:
        held.append(0)
        return Counted(world, address)

    outside = Outside(Sick(world), opened, world.clock, lambda: NOW)
    checker = JobChecker(config, outside, check, every_s=EVERY_S, take=lambda count: taken.update([count]))
    assert len(good(checker.check(config.jobs))) == 25
    assert held == [10, 10, 5]
    assert taken == {STORE_REQUESTS: 25}
