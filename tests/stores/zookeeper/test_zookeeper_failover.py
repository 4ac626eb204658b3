"""Failovers of jobs that keep their offsets in ZooKeeper: run by the commands, and read back by a plain client."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reconciler.core.errors import ConfigError, Unreachable
from tests.lab.faults.go_between import BEFORE, MOMENTS, UNANSWERED, GoBetween, ZooKeeper
from tests.sizes import sampled
from tests.stores.bare_jobs import PATIENT, POLICIES, BareJob, exits, fail_over_and_back, survives_a_kill
from tests.stores.bare_store import bare_scheme
from tests.stores.servers import cannot
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


def test_a_job_that_continues_without_anchors_repeats_the_records_since(
    world: World, clusters, zookeeper, kazoo, chroot
) -> None:
    world.address = f"zookeeper://{zookeeper.hosts}{chroot}?layout=consumers&{PATIENT}"
    job, place = BareJob(world, clusters.source), Place(kazoo, chroot, "consumers", world.group)
    config = job.config(anchors=False)
    exits(world.run("anchors", "import", "-c", config, job.lines()), 0)
    place.save(job.topic, {0: job.stored[0] + 5})
    rows = world.checked(config)
    assert [rows[part]["verdict"] for part in (0, 1)] == ["bounded", "moved"]
    assert {part: row["resume_offset"] for part, row in rows.items()} == job.right
    assert 5 <= rows[0]["replay"]["at_most"] <= 10
    assert "older than the stored offset" in rows[0]["detail"]


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
    from tests.lab.servers.jars import zookeeper_jars
    from tests.lab.servers.zookeeper import ZooKeeperServer

    try:
        jars = zookeeper_jars()
    except (ConfigError, Unreachable) as error:
        cannot(request, str(error))
    with ZooKeeperServer(tmp_path_factory.mktemp("mortal"), jars) as server:
        yield server


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
@pytest.mark.parametrize("layout", ["consumers", pytest.param("single", marks=pytest.mark.thorough)])
def test_a_server_killed_in_the_middle_of_an_apply(
    world: World, clusters, mortal, between, plainly, chroot, layout: str, moment: str
) -> None:
    """All rows are one transaction."""
    world.address = f"zookeeper://{between.address}{chroot}?layout={layout}&anchors=apart&{PATIENT}"
    job, look, wanted = a_killed_job(world, clusters, plainly, chroot, layout)
    config = job.config()
    job.track(config)
    options = {"between": between, "at": (1, moment), "up": mortal.start, "hasty_s": 5}
    ended = survives_a_kill(world, config, look, wanted, **options)
    assert ended.code == 7


@pytest.mark.parametrize(
    ("at", "written"), sampled([((1, UNANSWERED), 1), ((2, BEFORE), 1), ((2, UNANSWERED), 2)], keep=1)
)
def test_an_apply_is_completed_after_its_server_was_killed_between_two_transactions(
    world: World, clusters, mortal, between, plainly, chroot, monkeypatch, at: tuple[int, str], written: int
) -> None:
    from reconciler.stores.zookeeper import writing

    monkeypatch.setattr(writing, "TRANSACTION_BYTES", 1)
    world.address = f"zookeeper://{between.address}{chroot}?layout=consumers&{PATIENT}"
    job, look, wanted = a_killed_job(world, clusters, plainly, chroot, "consumers")
    config = job.config(anchors=False)
    exits(world.run("anchors", "import", "-c", config, "--replace", job.lines()), 0)
    found = []

    def up() -> None:
        mortal.start()
        found.append(look())

    options = {"between": between, "at": at, "up": up, "run": world.run, "hasty_s": 5}
    ended = survives_a_kill(world, config, look, wanted, **options)
    assert ended.code == 7
    assert len(found[0]) == len(job.stored) + written


def a_killed_job(world: World, clusters, plainly, chroot: str, layout: str) -> tuple[BareJob, Callable[[], Any], Any]:
    """A job, a function that reads its znodes with a plain client, and their content in the end."""
    job = BareJob(world, clusters.source)

    def place() -> Place:
        return Place(plainly(), chroot, layout, world.group)

    place().save(job.topic, job.stored)
    return job, lambda: place().look(), expected(job, place())


def test_an_anchor_znode_is_json_that_names_the_record(world: World, clusters, zookeeper, kazoo, chroot) -> None:
    world.address = f"zookeeper://{zookeeper.hosts}{chroot}?layout=consumers&{PATIENT}"
    job = BareJob(world, clusters.source)
    config = job.config(anchors=False)
    exits(world.run("anchors", "import", "-c", config, job.lines()), 0)
    world.plan(config)
    exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 0)
    folder = f"{chroot}/consumers/{world.group}/anchors/{job.mirrored}"
    for part, offset in job.right.items():
        content = json.loads(kazoo.get(f"{folder}/{part}")[0])
        assert (content["s"], content["a"]["o"]) == (offset, offset - 1)
        assert content["a"]["c"] == world.cluster.cluster_id
