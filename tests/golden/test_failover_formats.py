"""Plans, snapshots, stored rows and anchor lines of failovers: bytes that other programs read."""

from __future__ import annotations

from itertools import count

import pytest

from tests.golden.compare import Goldens
from tests.golden.corpus import HEAD, Estate, deliver, job, stored
from tests.golden.masks import descriptions, details, samples, without_digest, without_words
from tests.golden.world import World

CONFIG = ("-c", "reconciler.toml")


@pytest.fixture
def applied(estate: Estate) -> Estate:
    """The plan of ``clicks``, applied."""
    world = estate.world
    world.located()
    assert world.run("plan", *CONFIG, "--job", "clicks", "-o", "clicks.plan.json").code == 0
    assert world.run("apply", "clicks.plan.json", *CONFIG, "--yes").code == 0
    return estate


def test_check_prints_every_verdict_as_a_plan(estate: Estate, goldens: Goldens) -> None:
    found = estate.world.run("plan", *CONFIG, "--format", "json")
    assert found.code == 4
    goldens.check("formats/plan/check-every-verdict.json", without_words(found.out))
    goldens.check("words/details.txt", details(found.out))


def test_a_plan_lists_the_jobs_that_were_not_judged(world: World, goldens: Goldens) -> None:
    deliver(world, "a.events", range(10))
    world.store("sqlite:///offsets.db", "clicks", {("events", 0): stored(5)})
    world.file("reconciler.toml", HEAD + job("clicks", ["events"]) + job("misspelt", ["evnets"]))
    assert world.run("plan", *CONFIG, "-o", "p.json").code == 2
    goldens.check("formats/plan/not-judged.json", without_words(world.read("p.json")))


def test_a_plan_file_keeps_what_was_set_and_accepted_by_hand(estate: Estate, goldens: Goldens) -> None:
    world = estate.world
    by_hand = ("--set", "a.events:1=3", "--accept", "behind", "--accept", "lost")
    assert world.run("plan", *CONFIG, "-o", "p.json", *by_hand).code == 4
    goldens.check("formats/plan/set-by-hand.json", without_words(world.read("p.json")))
    goldens.check("words/details-set-by-hand.txt", details(world.read("p.json")))


def test_a_plan_file_of_a_job_that_may_start(applied: Estate, goldens: Goldens) -> None:
    goldens.check("formats/plan/clicks.json", without_words(applied.world.read("clicks.plan.json")))


def test_sqlite_holds_the_corrected_rows(applied: Estate, goldens: Goldens) -> None:
    goldens.check("formats/stores/sqlite.txt", applied.world.tables("offsets.db"))


def test_anchors_are_exported_as_lines(applied: Estate, goldens: Goldens) -> None:
    found = applied.world.run("anchors", "export", *CONFIG)
    assert found.code == 0
    goldens.check("formats/anchors/export.jsonl", found.out)


@pytest.mark.parametrize("job", ["ready", "clicks"])
def test_spark_reads_a_plans_starting_offsets(estate: Estate, goldens: Goldens, job: str) -> None:
    world = estate.world
    assert world.run("plan", *CONFIG, "--job", job, "-o", "p.json").code == 0
    found = world.run("show", "p.json", "--starting-offsets")
    assert found.code == 0
    goldens.check(f"formats/spark/starting-offsets-{job}.json", found.out)


# ---------------------------------------------------------------- what a started job finds


@pytest.fixture
def collected(estate: Estate) -> World:
    """The estate's world, where hooks leave figures in the folder ``node``."""
    (estate.world.folder / "node").mkdir()
    (estate.world.folder / "run").mkdir()
    estate.with_section('[metrics]\ntextfile = "node"')
    estate.world.located(to="b")
    return estate.world


def test_a_hook_leaves_plan_offsets_and_names(collected: World, goldens: Goldens) -> None:
    found = collected.run("hook", *CONFIG, "--job", "clicks", "--plans", "plans", "--env-file", "run/hook.env")
    assert found.code == 0
    goldens.check("formats/hook/stdout.env", without_digest(found.out))
    goldens.check("formats/hook/hook.env", without_digest(collected.read("run/hook.env")))
    goldens.check("formats/hook/plans.txt", without_words(collected.files("plans")))


@pytest.mark.parametrize(("job", "code"), [("clicks", 0), ("ready", 0), ("stuck", 4)])
def test_a_hook_leaves_its_figures(collected: World, goldens: Goldens, job: str, code: int) -> None:
    assert collected.run("hook", *CONFIG, "--job", job, "--plans", "plans").code == code
    goldens.check(f"formats/hook/textfile-{job}.txt", samples(collected.files("node")))
    if job == "clicks":
        goldens.check("words/metrics-of-a-hook.txt", descriptions(collected.files("node")))


def test_watch_serves_its_metrics(estate: Estate, goldens: Goldens) -> None:
    found = estate.world.run("watch", *CONFIG, "--once")
    assert found.code == 0
    goldens.check("formats/metrics/watch.txt", samples(found.out))
    goldens.check("words/metrics-of-watch.txt", descriptions(found.out))


# ---------------------------------------------------------------- folders of manifests


def test_a_folder_of_manifests_after_a_failover(
    world: World, goldens: Goldens, monkeypatch: pytest.MonkeyPatch
) -> None:
    nonces = count(1)
    monkeypatch.setattr("reconciler.places.files.secrets.token_hex", lambda size: f"{next(nonces):0{2 * size}x}")
    deliver(world, "a.events", range(10))
    world.store("files:offsets", "clicks", {("events", 0): stored(5)})
    world.file("reconciler.toml", HEAD + job("clicks", ["events"], "files:offsets"))
    world.located()
    assert world.run("plan", *CONFIG, "-o", "p.json").code == 0
    assert world.run("apply", "p.json", *CONFIG, "--yes").code == 0
    goldens.check("formats/stores/files.txt", world.files("offsets"))
