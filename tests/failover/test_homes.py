"""The home of a job whose table leaves it out: looked up on the clusters, until its first location records it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from reconciler.config.settings import Cluster
from reconciler.core.errors import ConfigError, Unreachable
from reconciler.failover.topics import find_homes
from reconciler.state import locations
from reconciler.state.jobs import JobState
from reconciler.state.locations import Stamp
from reconciler.state.start import load
from reconciler.state.store import open_state
from tests.golden.corpus import HEAD, OFFSETS, deliver, job, stored
from tests.golden.world import Result, World

A, B = (Cluster(name, f"{name}:9092", {"bootstrap.servers": f"{name}:9092"}) for name in "ab")
CLUSTERS = {"a": A, "b": B}


class Topics:
    """The topics of clusters, by the name before the port. One that is None cannot be reached."""

    def __init__(self, **of: Sequence[str] | None) -> None:
        self.of = of
        self.asked: list[str] = []

    def __call__(self, client: Mapping[str, str]) -> Sequence[str]:
        name = client["bootstrap.servers"].partition(":")[0]
        self.asked.append(name)
        found = self.of[name]
        if found is None:
            raise Unreachable(f"{name} does not answer.")
        return found


def test_a_jobs_home_is_the_cluster_that_has_its_topics_under_their_own_names() -> None:
    topics = Topics(a=["events", "orders"], b=["a.events", "a.orders", "views"])
    jobs = {"clicks": ["events", "orders"], "views": ["views"]}
    assert find_homes(CLUSTERS, None, jobs, topics) == {"clicks": "a", "views": "b"}
    assert sorted(topics.asked) == ["a", "b"], "each once"


def test_topics_on_both_clusters_tell_no_home() -> None:
    topics = Topics(a=["events"], b=["events", "a.events"])
    with pytest.raises(ConfigError, match=r"\[jobs clicks\] home is missing, and .* events are on a and b.*Add home"):
        find_homes(CLUSTERS, None, {"clicks": ["events"]}, topics)


def test_topics_on_no_cluster_and_clusters_that_cannot_be_asked_tell_no_home() -> None:
    with pytest.raises(ConfigError, match="events, orders are not all on one of them"):
        find_homes(CLUSTERS, None, {"clicks": ["events", "orders"]}, Topics(a=["events"], b=["orders"]))
    with pytest.raises(Unreachable, match=r"Cluster b was asked which jobs are at home there.*Write home"):
        find_homes(CLUSTERS, None, {"clicks": ["events"]}, Topics(a=["events"], b=None))
    with pytest.raises(ConfigError, match=r"\[clusters.b\] has no bootstrap_servers.*write home"):
        find_homes({"a": A, "b": None}, None, {"clicks": ["events"]}, Topics(a=["events"]))


def test_a_first_location_counts_and_no_cluster_is_asked() -> None:
    store = open_state(address := f"memory:{uuid.uuid4().hex}")
    jobs = {"clicks": ["events"]}
    assert find_homes(CLUSTERS, address, jobs, Topics(a=["events"], b=[])) == {"clicks": "a"}, "the store is not made"
    store.create()
    state = JobState(store, "clicks")
    here = state.move_on(None, locations.first("a", Stamp("hook", lambda: 1)))
    state.move_on(here, locations.moving(here, "b", Stamp("ana", lambda: 2)))
    assert find_homes(CLUSTERS, address, jobs, Topics(a=None, b=["events"])) == {"clicks": "a"}


def test_a_job_without_a_home_is_started_moved_and_found_again_without_its_first_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    text = HEAD + '[state]\nstore = "files:state"\n' + job("clicks", ["events"], id="none")
    world.file("reconciler.toml", text.replace('home = "a"\n', ""))
    deliver(world, "events", range(20), log="source")
    config = ("-c", "reconciler.toml")
    assert world.run("init", *config).code == 0
    started = world.run("hook", *config, "--plans", "plans")
    assert started.code == 0, started.err
    assert 'job "clicks" starts on a' in started.err
    world.store(OFFSETS, "clicks", {("events", 0): stored(6, base=0, by="fingerprint", topic="events")})
    deliver(world, "a.events", range(2, 20))
    deliver(world, "events", range(3))  # the topic is on both clusters by now
    world.now_ms += 60_000
    assert world.run("move", *config, "--to", "b", "--yes").code == 0
    again = world.run("hook", *config, "--plans", "plans")
    assert again.code == 0, again.err
    assert list(load(text_of(world, again), "the start").topics) == ["a.events"]


def text_of(world: World, ended: Result) -> str:
    """The text of the start that a hook has handed over."""
    path = dict(line.split("=", 1) for line in ended.out.splitlines())["RECONCILER_START"]
    return Path(path.replace("<TMP>", str(world.folder))).read_text()
