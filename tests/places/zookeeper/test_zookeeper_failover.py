"""Failovers of jobs that keep their offsets in ZooKeeper: run by the commands, and read back by a plain client."""

from __future__ import annotations

from typing import Any

import pytest

from tests.places.bare_jobs import PATIENT, POLICIES, BareJob, fail_over_and_back
from tests.places.bare_store import bare_scheme
from tests.world import World

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
            else:
                found[path] = self._client.get(path)[0]
        return {path: data for path, data in found.items() if data}


def expected(job: BareJob, place: Place) -> dict[str, bytes]:
    """The corrected offsets in the job's own form; under the default policy the source's stay for failback."""
    kept = place.znodes(job.topic, job.stored) if job.policy == "default" else {}
    return kept | place.znodes(job.mirrored, job.right)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_job_fails_over_exactly_and_back(
    world: World, clusters, zookeeper, kazoo, chroot, layout: str, policy: str
) -> None:
    world.address = f"zookeeper://{zookeeper.hosts}{chroot}?layout={layout}&{PATIENT}"
    job, place = BareJob(world, clusters.source, policy), Place(kazoo, chroot, layout, world.group)
    place.save(job.topic, job.stored)
    config = job.config()
    job.track(config)
    fail_over_and_back(job, config, place.look, expected(job, place))
