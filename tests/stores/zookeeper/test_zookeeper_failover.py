"""Failovers of jobs that keep their offsets in ZooKeeper: run by the commands, and read back by a plain client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.lab.faults.go_between import MOMENTS, GoBetween, ZooKeeper
from tests.sizes import sampled
from tests.stores.bare_jobs import PATIENT, POLICIES, BareJob, exits, fail_over_and_back, survives_a_kill
from tests.stores.bare_store import bare_scheme
from tests.stores.zookeeper.fixtures import a_server
from tests.world import World, source_record

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("bare_scheme")]
__all__ = ["bare_scheme"]

LAYOUTS = ("consumers", "single")


class Place:
    """A job's offsets in ZooKeeper, as kazoo writes and reads them."""

    def __init__(self, client: Any, chroot: str, layout: str, group: str) -> None:
        self._client = client
        self._layout = layout
        self._folder = f"{chroot}/consumers/{group}/offsets" if layout == "consumers" else chroot

    def save(self, topic: str, offsets: dict[int, int]) -> None:
        """Write offsets as such jobs do."""
        for path, data in self.znodes(topic, offsets).items():
            self._client.ensure_path(path)
            self._client.set(path, data)

    def znodes(self, topic: str, offsets: dict[int, int]) -> dict[str, bytes]:
        if self._layout == "consumers":
            return {f"{self._folder}/{topic}/{part}": b"%d" % offset for part, offset in offsets.items()}
        return {f"{self._folder}/{topic}": ",".join(f"{part}:{at}" for part, at in offsets.items()).encode()}

    def look(self) -> dict[str, bytes]:
        """The bytes of all znodes with offsets."""
        found = {}
        for topic in self._client.get_children(self._folder):
            path = f"{self._folder}/{topic}"
            if self._layout == "consumers":
                found |= {f"{path}/{n}": self._client.get(f"{path}/{n}")[0] for n in self._client.get_children(path)}
            elif not topic.startswith("~"):
                found[path] = self._client.get(path)[0]
        return {path: data for path, data in found.items() if data}


def expected(job: BareJob, place: Place) -> dict[str, bytes]:
    """The corrected offsets in the job's own form; under the default policy the source's stay for failback."""
    kept = place.znodes(job.topic, job.stored) if job.policy == "default" else {}
    return kept | place.znodes(job.mirrored, job.right)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_job_that_writes_bare_offsets_fails_over_exactly_and_back(
    world: World, clusters, zookeeper, kazoo, chroot, layout: str, policy: str
) -> None:
    world.address = f"zookeeper://{zookeeper.hosts}{chroot}?layout={layout}&anchors=apart&saves=until&{PATIENT}"
    job, place = BareJob(world, clusters.source, policy), Place(kazoo, chroot, layout, world.group)
    place.save(job.topic, job.stored)
    config = job.config()
    job.track(config)
    fail_over_and_back(job, config, place.look, expected(job, place))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_job_with_anchors_beside_its_offsets_needs_no_other_store(
    world: World, clusters, zookeeper, kazoo, chroot, layout: str, policy: str
) -> None:
    world.address = f"zookeeper://{zookeeper.hosts}{chroot}?layout={layout}&{PATIENT}"
    job, place = BareJob(world, clusters.source, policy), Place(kazoo, chroot, layout, world.group)
    place.save(job.topic, job.stored)
    config = job.config(anchors=False)
    alone = exits(world.run("check", "-c", config), 4)
    assert "anchors=apart" in alone.out
    lines = job.lines()
    before = place.look()
    exits(world.run("anchors", "import", "-c", config, "--replace", lines), 0)
    assert place.look() == before
    fail_over_and_back(job, config, place.look, expected(job, place))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_bare_offsets_may_go_by_their_time_of_writing_also_after_a_rollback(
    world: World, clusters, zookeeper, kazoo, chroot, layout: str
) -> None:
    world.address = f"zookeeper://{zookeeper.hosts}{chroot}?layout={layout}&{PATIENT}"
    job, place = BareJob(world, clusters.source, "identity"), Place(kazoo, chroot, layout, world.group)
    place.save(job.topic, job.stored)
    (path, *_) = place.look()
    # Chosen so that the time between the third and the fourth record decides; their timestamps differ.
    disorder = kazoo.get(path)[1].mtime - source_record(0).timestamp_ms - 500
    extra = f'[search]\nmax_disorder = "{disorder}ms"\n[policy]\nno_anchor = "row-time"'
    config = job.config(anchors=False, extra=extra)
    first = world.checked(config)
    assert {part: row["verdict"] for part, row in first.items()} == {0: "bounded", 1: "bounded"}
    for part, row in first.items():
        assert world.offset_of(2, part, job.mirrored) < row["resume_offset"] <= world.offset_of(3, part, job.mirrored)
    world.plan(config)
    assert exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 0)
    assert {part: row["verdict"] for part, row in world.checked(config).items()} == {0: "match", 1: "match"}
    exits(world.run("rollback", world.plan_file, "-c", config, "--yes"), 0)
    assert place.look() == place.znodes(job.topic, job.stored)
    fields = ("verdict", "resume_offset", "replay", "stored_offset", "anchor")
    for part, row in world.checked(config).items():
        assert {name: row[name] for name in fields} == {name: first[part][name] for name in fields}


# ---------------------------------------------------------------- the server dies in the middle


@pytest.fixture(scope="module")
def mortal(request, tmp_path_factory) -> Iterator[Any]:
    """A server to kill."""
    yield from a_server(request, tmp_path_factory)


@pytest.fixture
def plainly(mortal) -> Iterator[Callable[[], Any]]:
    """kazoo's client of the mortal server, a new one after each restart."""
    from kazoo.client import KazooClient

    clients: list[Any] = []

    def connected() -> Any:
        if not clients or not clients[-1].connected:
            clients.append(KazooClient(mortal.hosts))
            clients[-1].start(timeout=60)
        return clients[-1]

    yield connected
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture(scope="module")
def between(mortal) -> Iterator[GoBetween]:
    with GoBetween(ZooKeeper, lambda: mortal.hosts, mortal.kill) as between:
        yield between


@pytest.mark.parametrize("moment", sampled(MOMENTS, keep=1))
def test_a_server_killed_in_the_middle_of_an_apply(
    world: World, clusters, mortal, between, plainly, chroot, moment: str
) -> None:
    """All rows are one transaction."""
    world.address = f"zookeeper://{between.address}{chroot}?layout=consumers&anchors=apart&{PATIENT}"
    job = BareJob(world, clusters.source)

    def place() -> Place:
        return Place(plainly(), chroot, "consumers", world.group)

    place().save(job.topic, job.stored)
    config = job.config()
    job.track(config)
    options = {"between": between, "at": (1, moment), "up": mortal.start, "hasty_s": 5}
    ended = survives_a_kill(world, config, lambda: place().look(), expected(job, place()), **options)
    assert ended.code == 7
