"""A plan, its signatures and an audit log to the byte: their prose and with it their hashes are fixed."""

from __future__ import annotations

import pytest

from tests.golden.compare import ROOT, Goldens
from tests.golden.corpus import HEAD, OFFSETS, deliver, job, stored
from tests.golden.internals import exact_plan
from tests.golden.keys import write_key
from tests.golden.world import World


@pytest.fixture
def plan(world: World) -> World:
    world.file("p.json", exact_plan())
    return world


def test_a_plan_to_the_byte(plan: World, goldens: Goldens) -> None:
    goldens.check("formats/exact/plan.json", plan.read("p.json"))


def test_a_plan_that_was_kept_is_read_and_its_hash_fits(world: World) -> None:
    kept = ROOT / "formats/exact/plan.json"
    world.file("kept.json", kept.read_text(encoding="utf-8"))
    assert world.run("verify", "kept.json").code == 0


def test_two_signatures_to_the_byte(plan: World, goldens: Goldens) -> None:
    for name in ("ada", "ben"):
        assert plan.run("sign", "p.json", "--key", write_key(plan.folder, name), "--yes").code == 0
    goldens.check("formats/exact/plan.json.sig", plan.read("p.json.sig"))


def test_an_audit_log_to_the_byte(world: World, goldens: Goldens) -> None:
    deliver(world, "a.events", range(10))
    world.store(OFFSETS, "clicks", {("events", 0): stored(5)})
    trust = '[trust]\naudit_log = "audit.log"\n'
    world.file("reconciler.toml", HEAD + trust + job("clicks", ["events"]))
    lines = world.run("anchors", "export", "-c", "reconciler.toml").out
    changed = lines.replace('"stored_offset": 706', '"stored_offset": 705')
    assert changed != lines
    words = ("anchors", "import", "-c", "reconciler.toml", "--replace")
    assert [world.run(*words, stdin=text).code for text in (changed, lines)] == [0, 0]
    goldens.check("formats/exact/audit.log", world.read("audit.log"))
    assert world.run("audit-log", "verify", "audit.log").code == 0
