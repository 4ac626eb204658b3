"""In which direction a job is looked at, by where it lives; with two clusters, and with three."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.config.file import Config, load_config
from reconciler.core.anchors import Anchor
from reconciler.core.errors import ConfigError
from reconciler.failover.whereabouts import Direction, by_direction, direction_of, located
from reconciler.places.registry import checkpoint_path
from reconciler.ports import TopicPartition
from reconciler.state.journal import StreamPartition
from reconciler.state.locations import Location, Phase
from reconciler.state.plans import Numbers, Planned
from reconciler.state.stored import PlanRow, Stored

JOBS = "".join(
    f'[[jobs]]\nname = "{name}"\nhome = "a"\ntopics = ["events"]\noffsets = "checkpoint:/data/{name}"\n'
    for name in ("clicks", "views", "orders")
)


def lives(cluster: str, **more: object) -> Location:
    return Location(**{"phase": Phase.LIVES, "cluster": cluster, "stay": 2, "by": "ops", "at_ms": 1, **more})


def moving(cluster: str, to: str, phase: Phase = Phase.MOVING) -> Location:
    return lives(cluster, phase=phase, to=to, plan=1 if phase is Phase.WRITING else None)


def clusters(folder: Path, *names: str) -> Config:
    file = folder / "reconciler.toml"
    file.write_text("".join(f'[clusters.{name}]\nbootstrap_servers = "{name}:9092"\n' for name in names) + JOBS)
    return load_config(file, {})


@pytest.fixture
def two(tmp_path: Path) -> Config:
    return clusters(tmp_path, "a", "b")


@pytest.fixture
def three(tmp_path: Path) -> Config:
    return clusters(tmp_path, "a", "b", "c")


# ---------------------------------------------------------------- one job


WRITTEN = {"to b": moving("a", "b", Phase.WRITING), "back to a": moving("b", "a", Phase.WRITING)}


@pytest.mark.parametrize(
    ("location", "to", "expected"),
    [
        (None, None, Direction("a", "b")),
        (None, "b", Direction("a", "b")),
        (None, "a", Direction("b", "a", moved=True)),
        (lives("a"), None, Direction("a", "b")),
        (lives("b"), None, Direction("b", "a")),
        (lives("b"), "b", Direction("a", "b", moved=True)),
        (moving("a", "b"), None, Direction("a", "b")),
        (moving("a", "b"), "b", Direction("a", "b")),
        (moving("a", "b"), "a", Direction("b", "a", moved=True)),
        (WRITTEN["to b"], None, Direction("a", "b")),
        (WRITTEN["back to a"], None, Direction("b", "a")),
        (WRITTEN["back to a"], "b", Direction("a", "b", moved=True)),
        (moving("b", "b"), None, Direction("a", "b", moved=True)),
    ],
)
def test_of_two_clusters_a_job_is_looked_at_toward_where_it_moves_else_toward_the_other(
    two: Config, location: Location | None, to: str | None, expected: Direction
) -> None:
    """Where it lives, it is looked at as one that has moved there."""
    assert direction_of(two, two.jobs[0], location, to) == expected


def test_a_job_that_was_moved_is_looked_at_where_it_lives_if_the_other_cluster_has_no_address(two: Config) -> None:
    lost = replace(two, clusters={**two.clusters, "a": None})
    moved = replace(lives("b"), stay=2)
    assert direction_of(lost, two.jobs[0], moved) == Direction("a", "b", moved=True)
    assert direction_of(lost, two.jobs[0], moved, "a") == Direction("b", "a"), "which then says what is missing"
    assert direction_of(lost, two.jobs[0], replace(moved, stay=1)) == Direction("b", "a")


@pytest.mark.parametrize("location", [None, lives("a"), lives("b")])
def test_of_three_clusters_it_must_be_said_where_a_job_would_move(three: Config, location: Location | None) -> None:
    with pytest.raises(ConfigError, match="3 clusters") as asked:
        direction_of(three, three.jobs[0], location)
    others = "b, c" if location is None or location.cluster == "a" else "a, c"
    assert asked.value.hint == f"Say where: --to CLUSTER, one of {others}."


@pytest.mark.parametrize(
    ("location", "to", "expected"),
    [
        (lives("b"), "c", Direction("b", "c")),
        (moving("b", "c"), None, Direction("b", "c")),
        (moving("b", "c"), "a", Direction("b", "a")),
        (lives("c"), "c", Direction("a", "c", moved=True)),
    ],
)
def test_of_three_clusters_the_direction_is_from_where_it_lives(
    three: Config, location: Location, to: str | None, expected: Direction
) -> None:
    assert direction_of(three, three.jobs[0], location, to) == expected


# ---------------------------------------------------------------- several jobs


def test_jobs_that_go_one_way_are_in_one_configuration_with_their_topics_as_named_where_they_live(two: Config) -> None:
    found = located(two, two.jobs, {job.name: lives("b") for job in two.jobs})
    assert (found.here, found.there) == ("b", "a")
    assert [(job.topics, job.moved) for job in found.jobs] == [(("a.events",), False)] * 3


def test_jobs_that_go_different_ways_are_refused_by_name(two: Config) -> None:
    where = {"clicks": lives("a"), "views": lives("b"), "orders": None}
    with pytest.raises(ConfigError, match="clicks, orders from a to b; views from b to a") as refused:
        located(two, two.jobs, where)
    assert "--job" in str(refused.value.hint)
    assert "--to" in str(refused.value.hint)
    ways = {(each.here, each.there): names for each, names in by_direction(two, two.jobs, where)}
    assert ways == {("a", "b"): ["clicks", "orders"], ("b", "a"): ["views"]}
    assert located(two, two.chosen("views"), where).here == "b"


def test_toward_one_cluster_those_that_live_there_already_go_along(two: Config, three: Config) -> None:
    where = {"clicks": lives("a"), "views": lives("b"), "orders": None}
    found = located(two, two.jobs, where, "b")
    assert {job.name: job.moved for job in found.jobs} == {"clicks": False, "views": True, "orders": False}
    from_two = {"clicks": lives("a"), "views": lives("b"), "orders": lives("c")}
    ways = [((each.here, each.there), names) for each, names in by_direction(three, three.jobs, from_two, "c")]
    assert ways == [(("a", "c"), ["clicks", "orders"]), (("b", "c"), ["views"])]


def test_a_query_is_looked_at_in_the_copy_that_its_location_names(two: Config) -> None:
    where = {"clicks": lives("b", checkpoint="/data/clicks-2"), "views": lives("b")}
    found = located(two, two.chosen("clicks", "views"), where)
    paths = [checkpoint_path(job.store) for job in found.jobs]
    assert paths == ["/data/clicks-2", "/data/views", "/data/orders"]
    assert not found.chosen("orders")[0].moved, "nobody has asked for it"


def test_without_a_job_there_is_no_direction_to_look_in(two: Config) -> None:
    assert located(two, (), {}) is two


# ---------------------------------------------------------------- where jobs have been


def left(cluster: str, to: str, offset: int, again: int = 0, record: Anchor | None = None) -> Numbers:
    row = PlanRow(5, None, 0, 0, frozenset({None}), Stored(offset, record, again, again))
    return Numbers(cluster, 1, to, {StreamPartition("events", "a", 0): Planned(TopicPartition("any", 0), row)})


def test_a_job_that_comes_back_is_told_how_far_it_had_come_there_at_most(two: Config) -> None:
    """The furthest of all its stays there, and where it left last, under the name that the topic has there."""
    plans = {3: left("a", "b", 41), 1: left("a", "b", 40, again=3), 2: left("b", "a", 90)}
    toward = {
        cluster: located(two, two.chosen("clicks"), {"clicks": lives(here)}, cluster, {"clicks": plans})
        for here, cluster in (("b", "a"), ("a", "b"))
    }
    found = {
        cluster: {key: (left.offset, left.furthest) for key, left in config.jobs[0].left.items()}
        for cluster, config in toward.items()
    }
    assert found == {"a": {TopicPartition("events", 0): (41, 43)}, "b": {TopicPartition("a.events", 0): (90, 90)}}


@pytest.mark.parametrize(
    ("before", "now", "furthest"),
    [("id", "id", 50), ("id", None, 50), ("id", "another id", 41), (None, "another id", 50)],
)
def test_numbers_of_a_topic_that_was_made_anew_do_not_count(
    two: Config, before: str | None, now: str | None, furthest: int
) -> None:
    plans = {
        1: left("a", "b", 50, record=Anchor(49, cluster_id="a", topic_id=before)),
        2: left("a", "b", 41, record=Anchor(40, cluster_id="a", topic_id=now)),
    }
    config = located(two, two.chosen("clicks"), {"clicks": lives("b")}, "a", {"clicks": plans})
    assert [each.furthest for each in config.jobs[0].left.values()] == [furthest]


def test_what_it_has_read_elsewhere_since_is_counted_through_all_its_stays_there(two: Config) -> None:
    """It begins at 5 each time: 20 records, then 7 up to its number 12."""
    plans = {1: left("a", "b", 3), 2: left("a", "b", 40), 3: left("b", "b", 25)}
    config = located(two, two.chosen("clicks"), {"clicks": lives("b")}, "a", {"clicks": plans})
    (found,) = config.jobs[0].left.values()
    assert found.base is not None
    assert 12 - found.base == 20 + 7
