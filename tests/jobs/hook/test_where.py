"""Where a hook starts a job: its location says it. And what a start where it has always lived is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.config.file import Config
from reconciler.core.anchors import StoredOffset, TopicPartition
from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.failover.outside import nothing_recorded
from reconciler.jobs.hook.where import Place, Side, held_by, offsets_as_stored, place_of, refuse_known
from reconciler.places.checkpoint.show import open_address as open_checkpoint
from reconciler.places.registry import open_store
from reconciler.state import locations
from reconciler.state.locations import Location, Stamp
from tests.in_memory import BASE, GROUP, Memory, stored

ADA = Stamp("ada@ops", lambda: 1)
AT_HOME = locations.first("a", ADA)
MOVING = locations.moving(AT_HOME, "b", ADA)
WRITING = locations.writing(MOVING, 1, ADA)
MOVED = locations.lives(WRITING, None, ADA)
BACK = locations.moving(MOVED, "a", ADA)
HOME_AGAIN = locations.lives(locations.writing(BACK, 2, ADA), None, ADA)


@pytest.mark.parametrize(
    ("location", "side", "cluster", "why"),
    [
        (None, Side.SOURCE, "a", "it is its first start, at home"),
        (AT_HOME, Side.SOURCE, "a", "it lives on a, and was never moved"),
        (locations.first("b", ADA), Side.SOURCE, "b", "it lives on b, and was never moved"),
        (MOVING, Side.DESTINATION, "b", "ada@ops moves it to b"),
        (WRITING, Side.DESTINATION, "b", "ada@ops moves it to b"),
        (locations.cancelled(MOVING, None, ADA), Side.SOURCE, "a", "it lives on a, and was never moved"),
        (MOVED, Side.DESTINATION, "b", "it lives on b"),
        (locations.moving(MOVED, "b", ADA), Side.DESTINATION, "b", "ada@ops moves it to b"),
        (BACK, Side.DESTINATION, "a", "ada@ops moves it to a"),
        (locations.cancelled(BACK, MOVED.plan, ADA), Side.DESTINATION, "b", "it lives on b"),
        (HOME_AGAIN, Side.DESTINATION, "a", "it lives on a"),
    ],
)
@pytest.mark.parametrize("more", ["", "[clusters.c]\nbootstrap_servers = 'c'\n"], ids=["two", "three clusters"])
def test_the_location_alone_says_where_a_job_starts(
    memory: Memory, location: Location | None, side: Side, cluster: str, why: str, more: str
) -> None:
    """A start where the job never left checks nothing (SOURCE); every other one is checked on its cluster."""
    config = memory.config(more)
    place = place_of(config, config.jobs[0], location)
    assert (place.side, place.cluster, place.why) == (side, cluster, why)
    assert place.is_moving is (location is not None and location.to is not None)
    assert place.job.moved is (side is not Side.SOURCE and (location is WRITING or cluster == location.cluster))


@pytest.mark.parametrize("phase", ["moving", "lives"])
def test_a_location_on_a_cluster_that_the_configuration_lacks_starts_nothing(memory: Memory, phase: str) -> None:
    """It was renamed there, or taken out."""
    there = {"moving": MOVING, "lives": AT_HOME}[phase]
    config = memory.config()
    with pytest.raises(ConfigError, match='has no cluster "old"'):
        place_of(config, config.jobs[0], replace(there, cluster="old"))


def test_a_query_starts_on_the_checkpoint_that_its_location_names(memory: Memory) -> None:
    job = '[[jobs]]\nhome = "a"\nname = "q"\ntopics = ["events"]\noffsets = "checkpoint:/base"\n'
    config = memory.config(jobs=job)
    moved = locations.lives(WRITING, "/base-2", ADA)
    for location in (moved, locations.moving(moved, "a", ADA)):
        assert place_of(config, config.jobs[0], location).job.store.startswith("checkpoint:/base-2")
    assert place_of(config, config.jobs[0], AT_HOME).job.store == config.jobs[0].store


# ---------------------------------------------------------------- a start where the job has always lived


def at_home(memory: Memory, extra: str = "", *, location: Location | None = AT_HOME) -> tuple[Config, Place]:
    config = memory.config(extra)
    config = replace(config, clusters={"a": config.destination, "b": config.destination})
    return config, place_of(config, config.jobs[0], location)


def as_stored(memory: Memory, extra: str = "", *, may_be_new: bool = False, topics: tuple[str, ...] = ("events",)):
    config, place = at_home(memory, extra)
    place = replace(place, job=replace(place.job, topics=topics))
    held = held_by(config, place.job, lambda _: memory.store)
    return offsets_as_stored(place, held, may_be_new=may_be_new)


def test_the_jobs_own_offsets_are_handed_over_as_they_are(wide: Memory) -> None:
    wide.save({0: stored(4), 1: StoredOffset(-1), 2: StoredOffset(BASE + 3)})
    wide.save({0: StoredOffset(4)}, topic="a.events")
    assert as_stored(wide) == {TopicPartition("events", 0): BASE + 5, TopicPartition("events", 2): BASE + 3}


@pytest.mark.parametrize(("new", "starts"), [("earliest", True), ("latest", False), ("2026-01-01T00:00:00Z", False)])
def test_a_topic_without_a_row_starts_only_where_nothing_is_skipped(memory: Memory, new: str, starts: bool) -> None:
    memory.save({0: stored(4)})
    policy, topics = f'[policy]\nnew = "{new}"\n', ("events", "orders")
    if not starts:
        with pytest.raises(NeedsPerson, match="has no stored offset of orders: the store has rows of events alone"):
            as_stored(memory, policy, topics=topics)
    assert [key.topic for key in as_stored(memory, policy, topics=topics, may_be_new=not starts)] == ["events"]


def test_without_its_clusters_address_a_job_does_not_start_there(memory: Memory) -> None:
    memory.save({0: stored(4)})
    config = memory.config()
    place = place_of(config, config.jobs[0], AT_HOME)
    with pytest.raises(ConfigError, match=r"lives on a, and \[clusters\.a\] bootstrap_servers is missing.*move --to"):
        offsets_as_stored(place, held_by(config, place.job, lambda _: memory.store), may_be_new=False)


# ---------------------------------------------------------------- places that hold nothing, or something unexpected


def table(folder: Path, *, empty: bool) -> str:
    address = f"sqlite:///{folder}/offsets.db"
    if empty:
        open_store(address).create()
    return address


PLACES: dict[str, tuple[Callable[[Path], str], str]] = {
    "no table": (lambda folder: table(folder, empty=False), "There is no offset store at"),
    "no row": (lambda folder: table(folder, empty=True), 'no rows of "events" for group "readers"'),
    "no checkpoint": (lambda folder: f"checkpoint:{folder}/none", "has no stored offset"),
    "a group without commits": (lambda _: "kafka-group:", 'no rows of "events" for group "readers"'),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_known_job_whose_place_holds_nothing_needs_a_decision(memory: Memory, place: str) -> None:
    """A misspelt group and a store at a wrong address look like this. Only a job that is called new starts."""
    address, said = PLACES[place]
    store = address(memory.folder)
    text = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "{store}"\n'
    config = replace(memory.config(jobs=text), clusters={"a": memory.config().destination, "b": None})
    here = place_of(config, config.jobs[0], AT_HOME)
    opener = open_checkpoint if store.startswith("checkpoint:") else open_store
    held = held_by(config, here.job, lambda _: memory.store if store == "kafka-group:" else opener(store))
    with pytest.raises(NeedsPerson, match=said):
        offsets_as_stored(here, held, may_be_new=False)
    assert offsets_as_stored(here, held, may_be_new=True) == {}
    refuse_known(nothing_recorded("clicks"), here.job, held)  # and a first start there is no question


@pytest.mark.parametrize("topic", ["events", "a.events"])
def test_at_a_first_start_numbers_under_any_name_need_a_word_on_whose_they_are(memory: Memory, topic: str) -> None:
    memory.save({0: stored(4)}, topic=topic)
    config, place = at_home(memory, location=None)
    with pytest.raises(NeedsPerson, match=f"its place holds offsets: {topic}-0") as stopped:
        refuse_known(nothing_recorded("clicks"), place.job, held_by(config, place.job, lambda _: memory.store))
    hint = str(stopped.value.hint)
    assert "reconciler move --to a --job clicks" in hint
    assert ("The rows of a.events show that it was moved before: mount or restore its state store." in hint) is (
        topic == "a.events"
    )
