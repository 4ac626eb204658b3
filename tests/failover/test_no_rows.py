"""A topic with records, of which the store holds no row at all: the wrong rows, or a new job? A person says which."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reconciler.config.file import Config
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import NotRead
from reconciler.core.probes import Chunk, Withheld
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.outside import ByHand
from reconciler.failover.writing.apply import prepare
from reconciler.jobs.watch.figures import figures_of
from reconciler.plan.document import parse_plan
from reconciler.plan.start import why_stopped
from reconciler.ports import ReadRequest
from tests.in_memory import GROUP, Memory, found, read_back, stored

ACCEPTED = ByHand(accepted=frozenset({Verdict.NEW}))


def job(group: str = GROUP, topics: str = '"events"', more: str = "") -> str:
    return (
        f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{group}"\ntopics = [{topics}]\noffsets = "memory:"\n{more}\n'
    )


def checked(memory: Memory, jobs: str, extra: str = "", by_hand: ByHand | None = None) -> tuple[Config, Checked]:
    config = memory.config(extra, jobs)
    return config, read_back(check(config, config.jobs, memory.outside, by_hand))


def stops(config: Config, made: Checked) -> list[bool]:
    return [why_stopped(row, config.policy.start) is not None for row in made.plan.jobs[0].partitions]


@pytest.fixture
def filled(wide: Memory) -> Memory:
    """Ten records in two partitions of three, and the rows of the group ``readers``."""
    wide.deliver(range(10), 0)
    wide.deliver(range(4), 2)
    wide.save({partition: stored(2, partition) for partition in range(3)})
    return wide


# ---------------------------------------------------------------- what stops


def test_a_misspelt_group_stops_and_the_detail_names_the_group_that_is_there(filled: Memory) -> None:
    config, made = checked(filled, job("raeders"))
    rows = made.plan.jobs[0].partitions
    assert [found(row) for row in rows] == [(Verdict.NEW, 0)] * 3
    assert stops(config, made) == [True] * 3
    assert [(row.replay_at_most, row.replay_exact) for row in rows] == [(10, None), (0, 0), (4, None)]
    assert rows[0].detail == (
        'no rows of "events" or "a.events" for group "raeders"; this store has "readers": '
        "would start at the earliest record"
    )
    why = str(why_stopped(rows[0], config.policy.start))
    assert "correct the job's group, topics or store" in why
    assert 'new = "earliest" in its [[jobs]] table' in why
    assert "--accept new" in why
    assert made.to_write == frozenset()


def test_a_misspelt_group_of_a_cluster_names_the_clusters_group(
    filled: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka cannot say which groups have rows, and names all groups that a user may describe."""
    monkeypatch.setattr(type(filled.store), "groups", lambda _: [])
    monkeypatch.setattr(type(filled.store), "group_names", lambda _: ["raeders", "readers", "x"], raising=False)
    _, made = checked(filled, job("raeders"))
    assert 'for group "raeders"; this store has "readers":' in made.plan.jobs[0].partitions[0].detail


@pytest.mark.parametrize(
    ("new", "words"),
    [
        (
            "latest",
            [": would start at the end: 10 records before it skipped, by policy", "at the end", ": 4 records before"],
        ),
        ("2023-11-14T22:13:22Z", [": 2 records before it skipped, by policy", "policy's time", ": 2 records before"]),
    ],
)
def test_what_a_policy_skips_is_counted_where_there_is_no_row(filled: Memory, new: str, words: list[str]) -> None:
    _, made = checked(filled, job("raeders"), extra=f'[policy]\nnew = "{new}"\n')
    for row, word in zip(made.plan.jobs[0].partitions, words, strict=True):
        assert word in row.detail
    assert "skipped" not in made.plan.jobs[0].partitions[1].detail


def test_a_misspelt_topic_is_told_by_the_rows_of_the_group(memory: Memory) -> None:
    memory.log.create("a.evnets", 1)
    memory.deliver(range(5), topic="a.evnets")
    memory.save({0: stored(2)})
    config, made = checked(memory, job(topics='"evnets"'))
    assert stops(config, made) == [True]
    detail = made.plan.jobs[0].partitions[0].detail
    assert 'no rows of "evnets" or "a.evnets" for group "readers"; this group has rows of "events"' in detail


def test_an_empty_store_is_called_empty(memory: Memory) -> None:
    memory.deliver(range(5))
    config, made = checked(memory, job())
    assert stops(config, made) == [True]
    assert 'for group "readers"; this store is empty: would start' in made.plan.jobs[0].partitions[0].detail


def test_a_store_with_many_groups_is_not_listed(memory: Memory) -> None:
    memory.deliver(range(5))
    for number in range(40):
        memory.save({0: stored(2)}, group=f"zz-{number}")
    _, made = checked(memory, job())
    assert "this store has 40 others, none with a name like it" in made.plan.jobs[0].partitions[0].detail


def test_of_two_topics_the_one_without_a_row_stops(memory: Memory) -> None:
    memory.log.create("a.taps", 1)
    memory.deliver(range(10))
    memory.deliver(range(10), topic="a.taps")
    memory.save({0: stored(6)})
    config, made = checked(memory, job(topics='"events", "taps"'))
    assert stops(config, made) == [False, True]


def test_a_policy_for_new_partitions_says_nothing_of_the_job(memory: Memory) -> None:
    """At the end, every record would be skipped."""
    memory.deliver(range(5))
    config, made = checked(memory, job(), '[policy]\nnew = "latest"')
    assert stops(config, made) == [True]
    assert found(made.plan.jobs[0].partitions[0]) == (Verdict.NEW, 5)


def test_apply_refuses_and_a_plans_file_says_why(filled: Memory) -> None:
    config, made = checked(filled, job("raeders"), '[policy]\nnew = "latest"')
    (changes,) = prepare(made.plan, config, filled.outside)
    assert (len(changes.refused), changes.intended) == (3, ())
    plan = parse_plan(made.plan.to_text())
    assert plan == made.plan
    assert [row["no_rows"] for row in plan.to_json()["jobs"][0]["partitions"]] == [True] * 3


def test_a_partition_whose_records_cannot_be_read_is_unresolved_and_the_plan_can_be_read(
    filled: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = filled.log.read

    def withheld(requests: Sequence[ReadRequest]) -> list[Chunk]:
        chunks = zip(requests, read(requests), strict=True)
        bad = Withheld(NotRead("a.events-2 could not be read from offset 3.", hint="Raise memory_mib."))
        return [bad if each.partition.partition == 2 else chunk for each, chunk in chunks]

    monkeypatch.setattr(filled.log, "read", withheld)
    config, made = checked(filled, job("raeders"), '[policy]\nnew = "latest"')
    rows = made.plan.jobs[0].partitions
    assert [(row.finding, row.no_rows) for row in rows] == [
        (Verdict.NEW, True), (Verdict.NEW, True), (Verdict.UNRESOLVED, False)
    ]  # fmt: skip
    assert rows[2].detail == "a.events-2 could not be read from offset 3. Raise memory_mib"
    assert stops(config, made) == [True] * 3
    assert parse_plan(made.plan.to_text()) == made.plan


def test_the_watcher_counts_them(filled: Memory) -> None:
    config, made = checked(filled, job("raeders"))
    seen = figures_of(made.plan.jobs[0], made.jobs[0], config.policy.start)
    topic = seen.topics["a.events"]
    assert (topic.blocked, topic.replay, seen.outcome) == (3, 14, "person")


# ---------------------------------------------------------------- what starts as before


@pytest.mark.parametrize("topic", ["events", "a.events"])
def test_one_row_is_enough_and_a_sentinel_is_a_row(filled: Memory, topic: str) -> None:
    filled.save({1: StoredOffset(-1)}, topic=topic, group="raeders")
    filled.moved = topic == "a.events"
    config, made = checked(filled, job("raeders"))
    assert stops(config, made) == [False] * 3
    assert all("no_rows" not in row for row in made.plan.to_json()["jobs"][0]["partitions"])
    assert all("no rows" not in row.detail for row in made.plan.jobs[0].partitions)


def test_a_topic_without_records_starts(wide: Memory) -> None:
    config, made = checked(wide, job())
    assert stops(config, made) == [False] * 3
    assert [row.replay_exact for row in made.plan.jobs[0].partitions] == [0] * 3


# ---------------------------------------------------------------- a person says that the job is new


@pytest.mark.parametrize(("new", "offset"), [("earliest", 0), ("latest", 10), ("2023-11-14T22:13:22Z", 2)])
def test_the_jobs_own_new_lets_it_start_there_whatever_the_policy_says(filled: Memory, new: str, offset: int) -> None:
    config, made = checked(filled, job("fresh", more=f'new = "{new}"'), '[policy]\nnew = "latest"')
    row = made.plan.jobs[0].partitions[0]
    assert stops(config, made) == [False] * 3
    assert (found(row), row.no_rows, row.replay_exact) == ((Verdict.NEW, offset), False, 0)
    assert len(made.to_write) == (0 if new == "earliest" else 3)
    (changes,) = prepare(made.plan, config, filled.outside)
    assert len(changes.intended) == 3, "a move gives every partition its number"


def test_accepting_new_lets_a_job_without_rows_start_and_shows_what_it_will_read(filled: Memory) -> None:
    config, made = checked(filled, job("fresh"), by_hand=ACCEPTED)
    row = made.plan.jobs[0].partitions[0]
    assert stops(config, made) == [False] * 3
    assert (row.set_by_hand, row.replay_at_most) == (True, 10)
    assert row.detail.startswith('accepted by hand: no rows of "events"')


def test_after_new_was_accepted_and_written_the_next_check_finds_rows(memory: Memory) -> None:
    memory.deliver(range(5))
    memory.apply(by_hand=ACCEPTED)
    config, made = checked(memory, job())
    assert stops(config, made) == [False]
    assert made.to_write == frozenset()
