"""Several jobs checked at once: a failing one is reported with its cause, and hides none of the others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from reconciler.config.file import Config
from reconciler.config.secrets import KNOWN
from reconciler.core.errors import (
    Away,
    Changed,
    ConfigError,
    ExitCode,
    NeedsPerson,
    ReconcilerError,
    Refused,
    Unreachable,
    worst,
)
from reconciler.core.verdicts import Verdict
from reconciler.failover.apart import check_each
from reconciler.failover.check import check
from reconciler.failover.outside import ByHand, Outside, WrongDecision
from reconciler.failover.writing.apply import prepare
from reconciler.places.memory import MemoryStore
from reconciler.plan.document import NotJudged, digest, parse_plan
from reconciler.ports import ClusterInfo, OffsetStore, Row
from tests.in_memory import Memory, found, stored
from tests.memory_log import MemoryLog

AWAY = Unreachable("The store gave no answer.", hint="Try again.")


class SickStore(MemoryStore):
    def __init__(self, name: str, fail: Callable[[], None]) -> None:
        super().__init__(name)
        self._fail = fail

    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        self._fail()
        return super().read(group, topics)


@dataclass
class Sick:
    """The memory's destination and store, and stores by address that fail with an error when they are read."""

    memory: Memory
    stores: dict[str, Exception] = field(default_factory=dict)
    topics: dict[str, ReconcilerError] = field(default_factory=dict)
    cluster: ReconcilerError | None = None
    reads: Counter[str] = field(default_factory=Counter)

    @property
    def outside(self) -> Outside:
        return replace(self.memory.outside, open_store=self.open_store, reader=SickLog(self))

    def open_store(self, address: str) -> OffsetStore:
        def fail() -> None:
            self.reads[address] += 1
            if address in self.stores:
                raise self.stores[address]

        return SickStore(self.memory.store.address.removeprefix("memory:"), fail)

    def config(self, *jobs: str) -> Config:
        """Nothing is tried again: the memory's clock stands still."""
        config = self.memory.config(jobs="".join(jobs))
        return replace(config, search=replace(config.search, deadline_s=0))


class SickLog(MemoryLog):
    """The memory's log, where the cluster and the topics answer."""

    def __init__(self, sick: Sick) -> None:
        self.__dict__.update(sick.memory.log.__dict__)
        self._sick = sick

    def describe(self, topics: Iterable[str]) -> ClusterInfo:
        asked = list(topics)
        for error in [self._sick.cluster, *(self._sick.topics.get(name) for name in asked)]:
            if error is not None:
                raise error
        return super().describe(asked)


def job(name: str, topic: str = "events", store: str = "memory:one", group: str = "readers") -> str:
    others = json.dumps([each for each in ("events", "more", "rest") if each != topic])
    return (
        f'[[jobs]]\nhome = "a"\nname = "{name}"\ngroup = "{group}"\ntopics = ["{topic}"]\noffsets = "{store}"\n'
        f"ignore_topics = {others}\n"
    )


@pytest.fixture
def sick(memory: Memory) -> Sick:
    memory.deliver(range(3, 10))
    memory.save({0: stored(6)})
    for topic in ("more", "rest"):
        memory.log.create(f"a.{topic}", 1)
        memory.deliver(range(3, 10), topic=f"a.{topic}")
        memory.save({0: stored(6)}, topic=topic)
    return Sick(memory)


def verdicts(plan: Any) -> dict[str, Any]:
    return {job.name: found(job.partitions[0]) for job in plan.jobs}


MOVED = (Verdict.EXACT, 4)


def test_jobs_that_are_well_have_the_plan_of_one_check(sick: Sick) -> None:
    config = sick.config(job("one"), job("two", "more"), job("three", "rest"))
    whole = check(config, config.jobs, sick.outside)
    each = check_each(config, config.jobs, sick.outside)
    assert each.plan.to_text() == whole.plan.to_text()
    assert (each.to_write, each.jobs, dict(each.failed)) == (whole.to_write, whole.jobs, {})
    assert "not_judged" not in each.plan.to_json()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_topic_that_is_nowhere_takes_its_job_out_alone(sick: Sick, place: int) -> None:
    jobs = [job("one"), job("two", "more")]
    jobs.insert(place, job("sick", "evnets"))
    config = sick.config(*jobs)
    checked = check_each(config, config.jobs, sick.outside)
    assert verdicts(checked.plan) == {"one": MOVED, "two": MOVED}
    (failed,) = checked.plan.not_judged
    with pytest.raises(ConfigError) as alone:
        check_each(config, config.chosen("sick"), sick.outside)
    assert failed == NotJudged("sick", str(alone.value))
    assert {name: error.exit_code for name, error in checked.failed.items()} == {"sick": ExitCode.USAGE}
    assert {name for name, _ in checked.to_write} == {"one", "two"}


@pytest.mark.parametrize(
    "error", [AWAY, Refused("The store refused the login."), ConfigError("Row 3 is malformed."), ValueError("a bug")]
)
def test_a_store_that_fails_takes_its_job_out_alone(sick: Sick, error: Exception) -> None:
    sick.stores["memory:two"] = error
    config = sick.config(job("one"), job("two", "more", "memory:two"), job("three", "rest"))
    checked = check_each(config, config.jobs, sick.outside)
    assert verdicts(checked.plan) == {"one": MOVED, "three": MOVED}
    (failed,) = checked.plan.not_judged
    assert str(error) in failed.reason
    known = isinstance(error, ReconcilerError)
    assert checked.failed["two"].exit_code is (error.exit_code if known else ExitCode.BUG)


def test_a_topic_that_may_not_be_described_takes_its_job_out_alone(sick: Sick) -> None:
    sick.topics["a.more"] = Refused('Describe on topic "a.more" is not allowed.')
    config = sick.config(job("one"), job("two", "more"), job("three", "rest"), job("four", "evnets"))
    checked = check_each(config, config.jobs, sick.outside)
    assert verdicts(checked.plan) == {"one": MOVED, "three": MOVED}
    assert [failed.name for failed in checked.plan.not_judged] == ["two", "four"]
    assert worst(error.exit_code for error in checked.failed.values()) is ExitCode.USAGE


def test_a_store_that_is_away_is_waited_for_twice_however_many_jobs_share_it(sick: Sick) -> None:
    sick.stores["memory:away"] = AWAY
    ten = [job(f"j{number}", store="memory:away", group=f"g{number}") for number in range(10)]
    config = sick.config(*ten, job("well"))
    checked = check_each(config, config.jobs, sick.outside)
    assert sick.reads["memory:away"] == 2
    assert {failed.reason for failed in checked.plan.not_judged} == {str(AWAY)}
    assert (len(checked.plan.not_judged), verdicts(checked.plan)) == (10, {"well": MOVED})


def test_a_job_without_rows_has_no_other_job_read_twice(sick: Sick) -> None:
    wells, empty = [job("one"), job("two", "more"), job("three", "rest")], job("empty", "rest", group="nobody")

    def reads(*jobs: str) -> int:
        before, config = sick.reads["memory:one"], sick.config(*jobs)
        check_each(config, config.jobs, sick.outside)
        return sick.reads["memory:one"] - before

    more = [reads(*wells[:count], empty) - reads(*wells[:count]) for count in (2, 3)]
    assert more[0] == more[1], "what its store holds instead is asked for, and nothing else"


def test_a_store_of_which_nothing_answers_is_waited_for_once(sick: Sick) -> None:
    sick.stores["memory:two"] = Away("Nothing answers there.", hint="Start it.")
    jobs = [job(f"away {number}", store="memory:two", group=f"g{number}") for number in range(5)]
    checked = check_each((config := sick.config(job("well"), *jobs)), config.jobs, sick.outside)
    assert verdicts(checked.plan) == {"well": MOVED}
    assert len(checked.failed) == 5
    assert sick.reads["memory:two"] == 1


@pytest.mark.parametrize(("error", "waits"), [(AWAY, 2), (Away("Nothing answers there.", hint="Start it."), 1)])
def test_a_server_that_fails_is_waited_for_no_longer_however_many_stores_it_has(
    sick: Sick, error: Exception, waits: int
) -> None:
    tables = [f"postgresql://db/results?table=t{n}&topic=t&partition=p&offset=o" for n in range(10)]
    sick.stores.update(dict.fromkeys(tables, error))
    config = sick.config(*(job(f"j{n}", store=table) for n, table in enumerate(tables)), job("well"))
    checked = check_each(config, config.jobs, sick.outside)
    assert sum(sick.reads[table] for table in tables) == waits
    assert {failed.reason for failed in checked.plan.not_judged} == {str(error)}
    assert (len(checked.plan.not_judged), verdicts(checked.plan)) == (10, {"well": MOVED})


def test_a_cluster_that_is_away_ends_the_check(sick: Sick) -> None:
    sick.cluster = Unreachable("The cluster gave no answer.")
    config = sick.config(job("one"), job("two", "more"))
    with pytest.raises(Unreachable, match=r"The cluster gave no answer"):
        check_each(config, config.jobs, sick.outside)
    assert not sick.reads


def test_a_cluster_that_goes_away_between_ends_the_check(sick: Sick) -> None:
    class Going(SickLog):
        def describe(self, topics: Iterable[str]) -> ClusterInfo:
            if list(topics):
                self._sick.cluster = AWAY
            return super().describe(topics)

    config = sick.config(job("one"), job("two", "more"))
    with pytest.raises(Unreachable):
        check_each(config, config.jobs, replace(sick.outside, reader=Going(sick)))


def test_a_decision_on_a_job_that_is_well_stands_beside_a_sick_one(sick: Sick) -> None:
    sick.stores["memory:two"] = AWAY
    config = sick.config(job("one"), job("two", "more", "memory:two"), job("three", "evnets"))
    checked = check_each(config, config.jobs, sick.outside, ByHand({("a.events", 0): 3}))
    assert verdicts(checked.plan) == {"one": (Verdict.EXACT, 3)}
    assert checked.plan.jobs[0].partitions[0].set_by_hand
    assert len(checked.plan.not_judged) == 2


@pytest.mark.parametrize(
    "by_hand", [ByHand({("a.more", 0): 5}), ByHand({("more", 0): 5}), ByHand(accepted=frozenset({Verdict.BEHIND}))]
)
@pytest.mark.parametrize("cause", ["store", "topic"])
def test_a_decision_that_may_be_about_the_sick_job_is_refused(sick: Sick, by_hand: ByHand, cause: str) -> None:
    """It must not go to the other jobs that read the topic, only because one of them cannot be asked."""
    if cause == "store":
        sick.stores["memory:two"] = AWAY
    else:
        sick.topics["a.more"] = Refused("Describe is not allowed.")
    config = sick.config(job("one"), job("two", "more", "memory:two"))
    with pytest.raises(WrongDecision, match=r'may be about job "two", which cannot be judged: .*\. Name the job'):
        check_each(config, config.jobs, sick.outside, by_hand)


def test_a_decision_that_fits_two_jobs_reaches_neither_beside_a_sick_one(sick: Sick) -> None:
    """Checked one by one, each of the two would be the only one that it fits."""
    sick.topics["a.rest"] = Refused("Describe is not allowed.")
    config = sick.config(job("one"), job("two", group="others"), job("three", "rest"), job("four", "more"))
    with pytest.raises(WrongDecision, match=r"fits 2 of the chosen jobs: one, two"):
        check_each(config, config.jobs, sick.outside, ByHand({("a.events", 0): 3}))


@pytest.mark.parametrize("place", [("a.events", 7), ("a.nowhere", 0)])
def test_a_decision_that_fits_no_partition_ends_the_check(sick: Sick, place: tuple[str, int]) -> None:
    config = sick.config(job("one"), job("two", "more"))
    with pytest.raises(WrongDecision, match=r"no such partition"):
        check_each(config, config.jobs, sick.outside, ByHand({place: 5}))


# ---------------------------------------------------------------- the plan


def partial_plan(sick: Sick) -> Any:
    config = sick.config(job("one"), job("sick", "evnets"))
    return config, check_each(config, config.jobs, sick.outside).plan


def test_a_plan_file_lists_the_jobs_that_were_not_judged(sick: Sick) -> None:
    _, plan = partial_plan(sick)
    content = json.loads(plan.to_text())
    (listed,) = content["not_judged"]
    assert listed["name"] == "sick"
    assert 'no topic "a.evnets"' in listed["reason"]
    assert parse_plan(plan.to_text()) == plan


def test_a_list_of_none_is_not_as_this_product_writes_plans(sick: Sick) -> None:
    _, plan = partial_plan(sick)
    content = {**plan.to_json(), "not_judged": []}
    content["sha256"] = digest(content)
    with pytest.raises(Changed, match=r"not_judged is empty"):
        parse_plan(json.dumps(content))


def test_apply_leaves_the_jobs_alone_that_were_not_judged(sick: Sick) -> None:
    config, plan = partial_plan(sick)
    assert [change.job.name for change in prepare(plan, config, sick.memory.outside)] == ["one"]


def test_a_plan_whose_other_jobs_were_not_judged_has_no_only_job(sick: Sick) -> None:
    """A job that names no plan of its own must not get another one's offsets."""
    _, plan = partial_plan(sick)
    assert plan.job("one").name == "one"
    with pytest.raises(NeedsPerson, match=r"Which job\? The plan holds: one \(not judged: sick\)"):
        plan.job()
    with pytest.raises(NeedsPerson, match=r'Job "sick" could not be judged when the plan was made: The destination'):
        plan.job("sick")
    with pytest.raises(ConfigError, match=r'The plan has no job "won"\.') as caught:
        plan.job("won")
    assert caught.value.hint == "It has: one (not judged: sick)."


def test_a_reason_holds_no_secret(sick: Sick) -> None:
    sick.stores["memory:two"] = Refused("The store refused ada:pa55word-of-ada.")
    config = sick.config(job("one"), job("two", "more", "memory:two"))
    KNOWN.add("pa55word-of-ada", "${PASSWORD}")
    try:
        plan = check_each(config, config.jobs, sick.outside).plan
    finally:
        KNOWN.clear()
    assert plan.not_judged[0].reason == "The store refused ada:${PASSWORD}."


# ---------------------------------------------------------------- exit codes


def test_the_worst_exit_code_is_one_that_a_retry_alone_does_not_mend() -> None:
    order = [ExitCode.OK, 3, 5, 6, 4, 2, 7, ExitCode.BUG]
    for number, code in enumerate(order):
        assert worst(ExitCode(each) for each in order[: number + 1]) == code
    assert set(order) == set(ExitCode)
    assert worst([]) is ExitCode.OK
