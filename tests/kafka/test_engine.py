"""The engine: rounds that do not grow with partitions, brokers that come and go, ranges that move."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from sys import getswitchinterval, setswitchinterval
from threading import Event, get_ident
from threading import enumerate as enumerate_threads
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset, fingerprint
from reconciler.core.errors import Refused, Unreachable
from reconciler.core.probes import Chunk, Edges, Read, Search, TimeLookup, ask_read
from reconciler.core.question import Limits, Question
from reconciler.core.reconcile import reconcile
from reconciler.core.verdicts import Finding, Verdict
from reconciler.kafka.engine import RESTARTS, EngineSettings, Inquiry, Progress, run
from reconciler.ports import TopicPartition
from tests.memory_log import MemoryLog, MemoryRecord
from tests.waiting import LIMIT_S


@dataclass
class Clock:
    """Seconds that pass only when a call is made."""

    now: float = 0.0
    step: float = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@dataclass
class Flaky:
    """A log whose calls fail: the first ``failures`` of each name, or all of them."""

    log: MemoryLog
    error: Exception
    failures: dict[str, int]
    before: Callable[[str], None] = lambda name: None
    calls: list[tuple[str, int]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        def call(asked: Sequence[Any]) -> Any:
            self.calls.append((name, len(asked)))
            self.before(name)
            if self.failures.get(name, 0):
                self.failures[name] -= 1
                raise self.error
            return getattr(self.log, name)(asked)

        return call


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Retries pause; a test does not. What they would have paused, in seconds."""
    paused: list[float] = []
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=paused.append))
    return paused


def partition(number: int = 0) -> TopicPartition:
    return TopicPartition("a.events", number)


def world(count: int, records: int = 50) -> tuple[MemoryLog, dict[int, Inquiry]]:
    """``count`` partitions whose anchor is record 20, behind 3 offsets of gap."""
    log = MemoryLog("b", {"a.events": count})
    inquiries = {}
    for number in range(count):
        place = log.partition("a.events", number)
        for _ in range(3):
            place.append_marker(500)
        for n in range(records):
            place.append(1_000 + n, b"k%d" % n, b"v%d of %d" % (n, number))
        digest = fingerprint(b"k20", b"v20 of %d" % number)
        stored = StoredOffset(921, Anchor(920, 1_020, None, digest, "a"))
        question = Question(stored, "b", None)
        inquiries[number] = Inquiry(partition(number), lambda question=question: reconcile(question))
    return log, inquiries


def test_every_partition_gets_its_own_answer() -> None:
    log, inquiries = world(7)
    log.partition("a.events", 3).append_marker(1)
    outcome = run(log, inquiries, clock=Clock())
    assert {found.finding.verdict for found in outcome.found.values()} == {Verdict.EXACT}
    assert {found.finding.resume_offset for found in outcome.found.values()} == {24}


def test_rounds_and_calls_do_not_grow_with_partitions() -> None:
    costs = []
    for count in (1, 40):
        log, inquiries = world(count)
        counting = Flaky(log, AssertionError(), {})
        outcome = run(counting, inquiries, clock=Clock())
        costs.append((outcome.rounds, [name for name, _ in counting.calls]))
        assert {asked for _, asked in counting.calls} == {count}
        assert {found.rounds for found in outcome.found.values()} == {outcome.rounds}
    assert costs[0] == costs[1]


def test_committed_reads_are_not_joined_with_others_of_their_partition() -> None:
    log, _ = world(1, records=0)
    place = log.partition("a.events", 0)
    place.append_batch([MemoryRecord(0, 1), MemoryRecord(0, 2)], producer="t", transactional=True)
    place.append_marker(3, producer="t", aborts=True)
    place.append(4)

    def search() -> Search[list[list[int]]]:
        answers = yield (Read(3, 9), Read(3, 9, committed=True))
        return [[record.offset for record in answer.records] for answer in answers if isinstance(answer, Chunk)]

    outcome = run(log, {0: Inquiry(partition(0), search)}, clock=Clock())
    assert outcome.found[0].finding == [[3, 4, 6], [6]]


def test_probes_are_counted_by_kind() -> None:
    log, inquiries = world(3)
    outcome = run(log, inquiries, clock=Clock())
    assert outcome.probes.keys() == {kind.__name__ for kind in (Edges, TimeLookup, Read)}
    assert sum(outcome.probes.values()) == sum(found.probes for found in outcome.found.values())


def test_progress_is_reported_after_every_round() -> None:
    log, inquiries = world(4)
    told: list[Progress] = []
    outcome = run(log, inquiries, clock=Clock(), settings=EngineSettings(on_progress=told.append))
    assert [each.rounds for each in told] == list(range(1, outcome.rounds + 1))
    assert (told[-1].done, told[-1].partitions) == (4, 4)
    assert [each.done for each in told] == sorted(each.done for each in told)


def test_no_inquiries_take_no_round() -> None:
    assert run(MemoryLog(), {}, clock=Clock()).rounds == 0


# ---------------------------------------------------------------- brokers that are away


@pytest.mark.parametrize("call", ["log_starts", "log_ends", "offsets_for_times", "read"])
def test_a_call_is_repeated_until_the_broker_is_back(call: str, no_pauses: list[float]) -> None:
    log, inquiries = world(2)
    flaky = Flaky(log, Unreachable("away"), {call: 3})
    outcome = run(flaky, inquiries, clock=Clock(step=0.1), settings=EngineSettings(deadline_s=60))
    assert {found.finding.resume_offset for found in outcome.found.values()} == {24}
    assert len(no_pauses) == 3
    assert max(no_pauses) <= 2.0


def test_a_broker_that_stays_away_is_given_up_at_the_deadline(no_pauses: list[float]) -> None:
    log, inquiries = world(1)
    clock = Clock(step=1.0)
    flaky = Flaky(log, Unreachable("still away"), {"read": 10_000})
    with pytest.raises(Unreachable, match="still away"):
        run(flaky, inquiries, clock=clock, settings=EngineSettings(deadline_s=10))
    assert 10 <= clock.now < 15
    assert len(no_pauses) >= 5


def test_a_refusal_is_not_retried() -> None:
    log, inquiries = world(1)
    flaky = Flaky(log, Refused("not allowed"), {"log_ends": 10_000})
    with pytest.raises(Refused, match="not allowed"):
        run(flaky, inquiries, clock=Clock())
    assert [name for name, _ in flaky.calls].count("log_ends") == 1


# ---------------------------------------------------------------- ranges that move


def test_a_partition_whose_range_moved_starts_over_and_the_others_do_not() -> None:
    log, inquiries = world(2)
    place = log.partition("a.events", 0)

    def retention(name: str) -> None:
        if name == "read" and place.start == 0:
            place.delete_before(30)

    outcome = run(Flaky(log, AssertionError(), {}, retention), inquiries, clock=Clock())
    assert outcome.found[0].finding.verdict is Verdict.LOST
    assert outcome.found[0].finding.resume_offset == 30
    assert outcome.found[1].finding.verdict is Verdict.EXACT
    assert outcome.found[0].rounds > outcome.found[1].rounds


def test_a_log_that_keeps_moving_is_given_up_with_advice() -> None:
    log = MemoryLog("b", {"a.events": 1})
    place = log.partition("a.events", 0)
    began: list[int] = []

    def chase() -> Search[Finding]:
        began.append(place.start)
        chunk = yield from ask_read(place.start, 1)
        return Finding(Verdict.NEW, chunk.next_offset, 0, 0)

    def retention(_: str) -> None:
        place.append(1)
        place.delete_before(place.end)

    with pytest.raises(Unreachable, match=r"a\.events-0 moved 6 times.*retention\.ms"):
        run(Flaky(log, AssertionError(), {}, retention), {0: Inquiry(partition(), chase)}, clock=Clock())
    assert len(began) == RESTARTS + 1


def test_answers_come_back_in_the_order_of_the_questions() -> None:
    log, _ = world(2)

    def ask(number: int) -> Search[Finding]:
        answers = yield (Read(4 + number, 1), TimeLookup(1_010), Edges(), Read(9, 2), TimeLookup(9_999))
        first, lookup, edges, second, none = answers
        assert [record.offset for record in first.records] == [4 + number]
        assert (lookup, none) == (13, None)
        assert (edges.start, edges.end) == (0, 53)
        assert [record.offset for record in second.records] == [9, 10]
        return Finding(Verdict.NEW, number, 0, 0)

    inquiries: Mapping[int, Inquiry] = {n: Inquiry(partition(n), lambda n=n: ask(n)) for n in (0, 1)}
    outcome = run(log, inquiries, clock=Clock())
    assert {key: found.finding.resume_offset for key, found in outcome.found.items()} == {0: 0, 1: 1}
    assert outcome.probes == {"Edges": 2, "TimeLookup": 4, "Read": 4}


# ---------------------------------------------------------------- searches that share a partition


def many_jobs(seed: int) -> tuple[MemoryLog, dict[int, Inquiry]]:
    """Jobs at random places of two partitions with gaps, records delivered twice, and equal timestamps."""
    random = Random(seed)
    log = MemoryLog("b", {"a.events": 2})
    inquiries: dict[int, Inquiry] = {}
    for number in range(2):
        place, sent = log.partition("a.events", number), list(range(random.randint(5, 120)))
        again = random.randrange(len(sent))
        for n in [*sent[:again], *sent[max(0, again - random.randint(0, 20)) :]]:
            place.append(1_000 + n // 3, b"k%d" % n, b"v%d" % n)
            if random.random() < 0.2:
                place.append_marker(1_000 + n // 3)
        place.delete_before(random.choice([0, 0, place.end // 2]))
        for _ in range(6):
            n = random.randrange(len(sent) + 3)  # some were never delivered
            digest = fingerprint(b"k%d" % n, b"v%d" % n) if random.random() < 0.8 else None
            stored = StoredOffset(901 + n, Anchor(900 + n, 1_000 + n // 3, None, digest, "a"))
            limits = Limits(scan_records=random.choice([100_000, 20, 5]), tail_records=random.choice([100_000, 10]))
            start = partial(reconcile, Question(stored, "b", None, limits=limits))
            inquiries[len(inquiries)] = Inquiry(partition(number), start)
    return log, inquiries


def test_jobs_of_one_topic_find_together_what_each_finds_alone() -> None:
    for seed in range(150):
        log, inquiries = many_jobs(seed)
        together = run(log, inquiries, clock=Clock()).found
        alone = {key: run(log, {key: each}, clock=Clock()).found[key] for key, each in inquiries.items()}
        findings = [{key: each.finding for key, each in found.items()} for found in (together, alone)]
        assert findings[0] == findings[1], f"seed {seed}"


def test_many_jobs_at_one_place_ask_no_more_than_one_does() -> None:
    log, inquiries = world(3)
    costs = []
    for jobs in (1, 60):
        counting = Flaky(log, AssertionError(), {})
        wanted = {(job, key): each for job in range(jobs) for key, each in inquiries.items()}
        found = run(counting, wanted, clock=Clock()).found
        costs.append(counting.calls)
        assert {each.finding.resume_offset for each in found.values()} == {24}
    assert costs[0] == costs[1]


def test_partitions_are_asked_for_in_batches_and_none_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.kafka.engine.PARTITIONS_AT_ONCE", 3)
    log, inquiries = world(7)
    counting = Flaky(log, AssertionError(), {})
    wanted = {(job, key): each for job in range(2) for key, each in inquiries.items()}
    outcome = run(counting, wanted, clock=Clock())
    assert {each.finding.resume_offset for each in outcome.found.values()} == {24}
    assert [asked for name, asked in counting.calls if name == "log_starts"] == [3, 3, 1]
    assert max(asked for _, asked in counting.calls) == 3


@pytest.mark.parametrize(("limit", "most"), [("PARTITIONS_AT_ONCE", 6), ("SEARCHES_AT_ONCE", 4)])
def test_only_so_many_searches_run_at_a_time(monkeypatch: pytest.MonkeyPatch, limit: str, most: int) -> None:
    """Of three partitions' two jobs each, or of three searches and the rest of a partition."""
    monkeypatch.setattr(f"reconciler.kafka.engine.{limit}", 3)
    log, inquiries = world(9)
    running = Running()
    wanted = {
        (job, key): Inquiry(each.partition, partial(running.watch, each.start))
        for key, each in inquiries.items()
        for job in range(2)
    }
    assert len(run(log, wanted, clock=Clock()).found) == 18
    assert (running.most, running.now) == (most, 0)


def test_a_slow_search_holds_no_other_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.kafka.engine.PARTITIONS_AT_ONCE", 2)
    log, inquiries = world(9)

    def slow() -> Search[Finding]:
        for _ in range(20):
            yield from ask_read(0, 1)
        return Finding(Verdict.NEW, 0, 0, 0)

    inquiries[0] = Inquiry(partition(0), slow)
    assert run(log, inquiries, clock=Clock()).rounds == 20


def test_of_two_windows_only_one_is_asked_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.kafka.engine.BY_TURNS", 1)
    monkeypatch.setattr("reconciler.kafka.engine.PARTITIONS_AT_ONCE", 4)
    log, inquiries = world(9)
    threads = set()
    counting = Flaky(log, AssertionError(), {}, before=lambda _: threads.add(get_ident()))
    assert {each.finding.resume_offset for each in run(counting, inquiries, clock=Clock()).found.values()} == {24}
    assert [asked for name, asked in counting.calls if name == "read"] == [2, 2, 2, 2, 1]
    assert len(threads) == 1
    assert threads != {get_ident()}


@dataclass
class Running:
    """Counts the searches that have begun and not ended."""

    now: int = 0
    most: int = 0

    def watch(self, start: Callable[[], Search[Finding]]) -> Search[Finding]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return (yield from start())
        finally:
            self.now -= 1


@dataclass
class Apart(Flaky):
    """A log that is read apart: a look-up may run beside a read."""

    reads_apart: bool = True
    running: list[str] = field(default_factory=list)
    beside: set[tuple[str, ...]] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        plain = super().__getattr__(name)

        def call(asked: Sequence[Any]) -> Any:
            self.running.append(name)
            self.beside.add(tuple(sorted(self.running)))
            try:
                return plain(asked)
            finally:
                self.running.remove(name)

        return call


def test_offsets_are_looked_up_for_one_window_while_the_other_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the other to begin, which ends only if both are under way."""
    monkeypatch.setattr("reconciler.kafka.engine.BY_TURNS", 1)
    monkeypatch.setattr("reconciler.kafka.engine.PARTITIONS_AT_ONCE", 2)
    begun = {"read": Event(), "look": Event()}
    log, inquiries = world(2)

    def meet(name: str) -> None:
        if name == "read":
            begun["read"].set()
            assert begun["look"].wait(LIMIT_S)
        elif name == "offsets_for_times" and [each for each, _ in apart.calls].count(name) == 2:  # of the other window
            begun["look"].set()
            assert begun["read"].wait(LIMIT_S)

    apart = Apart(log, AssertionError(), {}, before=meet)
    assert {each.finding.resume_offset for each in run(apart, inquiries, clock=Clock()).found.values()} == {24}


@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_is_read_apart_meets_one_read_and_one_look_up_at_a_time(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    log, inquiries = many_jobs(seed)
    one = run(log, inquiries, clock=Clock())
    monkeypatch.setattr("reconciler.kafka.engine.BY_TURNS", 1)
    monkeypatch.setattr("reconciler.kafka.engine.PARTITIONS_AT_ONCE", 2)
    apart = Apart(log, AssertionError(), {})
    switching = getswitchinterval()
    setswitchinterval(1e-6)
    try:
        two = run(apart, inquiries, clock=Clock())
    finally:
        setswitchinterval(switching)
    assert (two.found, two.probes) == (one.found, one.probes)
    assert all(len(names) == 1 or (len(names) == 2 and names.count("read") == 1) for names in apart.beside)


@pytest.mark.parametrize("kind", [Flaky, Apart], ids=["one thread", "two threads"])
def test_what_fails_in_one_of_two_windows_fails_the_run_and_no_more_is_asked(
    monkeypatch: pytest.MonkeyPatch, kind: type[Flaky]
) -> None:
    monkeypatch.setattr("reconciler.kafka.engine.BY_TURNS", 1)
    monkeypatch.setattr("reconciler.kafka.engine.PARTITIONS_AT_ONCE", 2)
    log, inquiries = world(9)
    refusing = kind(log, Refused("It said no."), {"read": 1})
    with pytest.raises(Refused, match="It said no"):
        run(refusing, inquiries, clock=Clock())
    assert "asker" not in {thread.name for thread in enumerate_threads()}
    assert len([name for name, _ in refusing.calls if name == "read"]) <= 2
