"""``reconciler.translate``: a job's offsets on the other cluster, for a Python program."""

from __future__ import annotations

from pathlib import Path

import pytest

import reconciler
from reconciler import Found, translate
from reconciler.core.errors import ConfigError
from reconciler.ports import TopicPartition
from tests.failover.planned import planned
from tests.golden.corpus import OFFSETS, stored
from tests.golden.world import World

EVENTS = TopicPartition("a.events", 0)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A job that is at 706 on a, and is to resume at 6 on b."""
    return planned(tmp_path, monkeypatch)


def test_a_program_gets_what_a_plan_says_of_each_partition_by_its_name_there(world: World) -> None:
    found = translate("reconciler.toml", "clicks", to="b")
    assert found[EVENTS] == Found("exact", 6, 0, found[EVENTS].evidence, 706)
    assert "the anchor is at offset 5 here" in found[EVENTS].evidence


def test_it_gets_no_offset_of_a_partition_that_needs_a_decision(world: World) -> None:
    world.store(OFFSETS, "clicks", {("events", 0): stored(900)})
    world.file("reconciler.toml", (world.folder / "reconciler.toml").read_text() + '\n[policy]\nbehind = "stop"\n')
    held = translate("reconciler.toml", "clicks", to="b")[EVENTS]
    assert (held.finding, held.offset) == ("behind", None)
    assert "the mirror has not delivered the anchor" in (held.stopped or "")
    accepted = translate("reconciler.toml", "clicks", to="b", accept=frozenset({"behind"}))[EVENTS]
    assert accepted.offset is not None
    with pytest.raises(ConfigError, match="The findings are exact"):
        translate("reconciler.toml", "clicks", to="b", accept=frozenset({"late"}))


def test_the_package_has_no_other_public_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'translated'"):
        _ = reconciler.translated
