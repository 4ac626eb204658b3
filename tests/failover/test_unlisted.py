"""Offsets of topics that the configuration does not list: a start would leave their records unread."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest

from reconciler.core.errors import NeedsPerson, NotCreated, Refused
from reconciler.core.verdicts import Verdict
from reconciler.failover.apart import check_each
from reconciler.failover.check import check
from reconciler.failover.unlisted import Unlisted, UnlistedTopics, find_unlisted
from reconciler.places.memory import MemoryStore
from reconciler.ports import Row
from tests.in_memory import GROUP, Memory, stored


def job(topics: str = '"events"', more: str = "", name: str = "clicks", group: str = GROUP) -> str:
    return (
        f'[[jobs]]\nhome = "a"\nname = "{name}"\ngroup = "{group}"\ntopics = [{topics}]\noffsets = "memory:"\n{more}\n'
    )


@pytest.fixture
def two(memory: Memory) -> Memory:
    """Records and rows of two topics for one group."""
    memory.log.create("a.night", 1)
    for topic in ("events", "night"):
        memory.deliver(range(10), topic=f"a.{topic}")
        memory.save({0: stored(6)}, topic=topic)
    return memory


def verdicts(memory: Memory, *jobs: str, extra: str = "") -> dict[str, list[Verdict]]:
    config = memory.config(extra, "".join(jobs))
    plan = check(config, config.jobs[:1], memory.outside).plan
    return {each.name: [row.finding for row in each.partitions] for each in plan.jobs}


def test_a_topic_that_no_job_lists_needs_a_decision(two: Memory) -> None:
    with pytest.raises(NeedsPerson) as refused:
        verdicts(two, job())
    assert f'has 1 offset of "night" for group "{GROUP}", and job "clicks" does not list' in refused.value.message
    assert "Add it to the topics of this job" in str(refused.value.hint)
    assert 'write ignore_topics = ["night"]' in str(refused.value.hint)


def test_it_is_named_as_at_the_source_where_only_the_mirrors_name_has_a_row(memory: Memory) -> None:
    memory.deliver(range(10))
    memory.save({0: stored(6)})
    memory.save({0: stored(6), 1: stored(6)}, topic="a.night")
    with pytest.raises(NeedsPerson, match='has 2 offsets of "night"'):
        verdicts(memory, job())


def test_it_does_not_hide_the_other_jobs_nor_they_hide_it(two: Memory) -> None:
    """Several jobs are checked on a copy of their stores' rows, which has the listed topics alone."""
    two.save({0: stored(6)}, group="others", topic="night")
    config = two.config(jobs=job() + job('"night"', name="other", group="others"))
    checked = check_each(config, config.jobs, two.outside)
    assert [(name, type(error)) for name, error in checked.failed.items()] == [("clicks", UnlistedTopics)]
    assert [each.name for each in checked.plan.jobs] == ["other"]


@pytest.mark.parametrize(
    "jobs",
    [
        [job('"events", "night"')],
        [job(), job('"night"', name="other")],
        [job(more='ignore_topics = ["night"]')],
    ],
    ids=["listed", "listed by another job of the group", "ignored"],
)
def test_a_listed_or_ignored_topic_needs_none(two: Memory, jobs: list[str]) -> None:
    assert {*verdicts(two, *jobs)["clicks"]} == {Verdict.EXACT}


def test_a_topic_that_only_a_job_of_another_group_lists_needs_one(two: Memory) -> None:
    with pytest.raises(NeedsPerson, match='1 offset of "night"'):
        verdicts(two, job(), job('"night"', name="other", group="others"))


def test_the_names_of_both_clusters_are_the_jobs_own(memory: Memory) -> None:
    memory.log.create("renamed", 1)
    memory.deliver(range(10), topic="renamed")
    memory.save({0: stored(6)})
    memory.save({0: stored(6)}, topic="renamed")
    assert verdicts(memory, job(), extra='[topics.names.b]\n"events@a" = "renamed"\n') == {"clicks": [Verdict.EXACT]}


def test_what_is_ignored_is_counted_and_said_once(two: Memory, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        verdicts(two, job(name="counted", more='ignore_topics = ["night"]'))
    assert caplog.messages == ['Job "counted" ignores 1 offset of "night" (ignore_topics).']


def test_a_job_that_is_called_new_has_no_offsets_of_other_topics(two: Memory) -> None:
    with pytest.raises(NeedsPerson, match='2 offsets of "events", "night"'):
        verdicts(two, job('"evnets"', more='new = "earliest"'))


class NamedTopicsOnly(MemoryStore):
    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        if topics is None:
            raise Refused("This user may not list the topics.")
        return super().read(group, topics)


def test_a_store_that_lists_no_topics_is_said_to_be_unknown(memory: Memory) -> None:
    config = memory.config()
    unknown = find_unlisted(config, config.jobs[0], NamedTopicsOnly("names"))
    assert (unknown.topics, unknown.unknown) == ({}, "This user may not list the topics.")


class Absent(MemoryStore):
    def read(self, group: str, topics: Iterable[str] | None = None) -> list[Row]:
        raise NotCreated("There is no such checkpoint.")


def test_a_store_that_is_not_there_yet_has_no_other_topics(memory: Memory) -> None:
    config = memory.config()
    assert find_unlisted(config, config.jobs[0], Absent("absent")) == Unlisted()
