"""A plan and its signature to the byte: the plan's prose and with it the hashes are fixed."""

from __future__ import annotations

import pytest

from tests.golden.compare import ROOT, Goldens
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
    assert world.run("show", "kept.json").code == 0


def test_a_signature_to_the_byte(plan: World, goldens: Goldens) -> None:
    assert plan.run("sign", "p.json", "--key", write_key(plan.folder, "ada"), "--yes").code == 0
    goldens.check("formats/exact/plan.json.sig", plan.read("p.json.sig"))
