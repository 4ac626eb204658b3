"""``show --starting-offsets`` gives no offsets at which the job must not start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reconciler.core.errors import ExitCode, NeedsPerson
from reconciler.plan.document import parse_plan
from reconciler.plan.start import planned_text
from tests.golden.corpus import Estate
from tests.golden.world import World

SHOW = ("show", "p.json", "--starting-offsets", "--job")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """``clicks`` has a partition that is bounded: three records would be read again."""
    world = World(tmp_path, monkeypatch)
    Estate(world).with_section("[policy]\nmax_replay = 2", "strict.toml")
    assert world.run("plan", "-c", "reconciler.toml", "--job", "clicks", "-o", "p.json").code == 0
    return world


def test_the_policy_of_a_configuration_forbids_offsets_as_it_forbids_the_start(world: World) -> None:
    given = world.run(*SHOW, "clicks")
    assert (given.code, sorted(json.loads(given.out))) == (0, ["a.events", "a.older", "a.ties"])
    assert world.run("plan", "-c", "strict.toml", "--job", "clicks").code == ExitCode.NEEDS_PERSON
    refused = world.run(*SHOW, "clicks", "-c", "strict.toml")
    assert (refused.code, refused.out) == (ExitCode.NEEDS_PERSON, "")
    assert "more than max_replay = 2" in refused.err
    hint = "The [policy] is the configuration's; the one that the plan was made with lets it start."
    assert hint in " ".join(refused.err.split())


def test_a_plan_brings_the_policy_that_it_was_made_with(world: World) -> None:
    planned = world.run("plan", "-c", "strict.toml", "--job", "clicks", "-o", "p.json")
    assert (planned.code, "Must not start: clicks." in planned.out) == (ExitCode.NEEDS_PERSON, True)
    assert "must not start" in world.run("show", "p.json").out
    refused = world.run(*SHOW, "clicks")
    assert (refused.code, refused.out) == (ExitCode.NEEDS_PERSON, "")
    with pytest.raises(NeedsPerson, match=r"a.older-0 \(early\)"):
        planned_text(parse_plan((world.folder / "p.json").read_text()))


def test_a_looser_policy_of_a_configuration_allows_what_the_plans_own_forbids(world: World) -> None:
    world.run("plan", "-c", "strict.toml", "--job", "clicks", "-o", "p.json")
    assert world.run("show", "p.json", "-c", "reconciler.toml").out.count("must not start") == 0
    given = world.run(*SHOW, "clicks", "-c", "reconciler.toml")
    assert (given.code, sorted(json.loads(given.out))) == (0, ["a.events", "a.older", "a.ties"])
