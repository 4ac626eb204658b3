"""Words people read in a failover: what check, plan, apply, rollback, show and hook say, and their exit codes."""

from __future__ import annotations

import json
import re

import pytest

from tests.golden import internals
from tests.golden.compare import Goldens
from tests.golden.corpus import BASE, HEAD, OFFSETS, Estate, deliver, job, stored
from tests.golden.world import World
from tests.starting import with_state

PLAN = "plan -c reconciler.toml --job clicks -o p.json"
APPLY = "apply p.json -c reconciler.toml"


pytestmark = pytest.mark.usefixtures("estate")


def test_check(world: World, goldens: Goldens) -> None:
    said = world.session(
        "plan -c reconciler.toml --job ready",
        "plan -c reconciler.toml --job clicks",
        "plan -c reconciler.toml",
        "plan -c reconciler.toml --accept behind --accept lost --set a.bare:0=3 --set a.events:1=9",
        "plan -c reconciler.toml --job clicks --job ready",
    )
    goldens.check("words/check.txt", said)


def test_check_on_a_narrow_and_on_a_wide_terminal(world: World, goldens: Goldens) -> None:
    world.columns(60)
    narrow = world.session("plan -c reconciler.toml")
    world.columns(200)
    goldens.check("words/check-widths.txt", narrow + "\n" + world.session("plan -c reconciler.toml"))


def test_a_job_of_which_the_store_has_no_row(world: World, goldens: Goldens) -> None:
    misspelt = job("clicks", ["events"]).replace('name = "clicks"', 'name = "clicks"\ngroup = "clikcs"')
    world.file("misspelt.toml", HEAD + misspelt)
    world.file("new.toml", HEAD + misspelt.replace('offsets = "', 'new = "earliest"\noffsets = "', 1))
    world.with_state("misspelt.toml")
    said = world.session(
        "plan -c misspelt.toml",
        "plan -c misspelt.toml -o p.json",
        "apply p.json -c misspelt.toml --yes",
        "plan -c misspelt.toml --accept new",
        "plan -c new.toml",
        "config check -c new.toml --offline",
    )
    for at, to in (("at home", None), ("moving", "b")):
        world.located("misspelt.toml", to=to)
        said += f"\n# {at}\n{world.session('hook -c misspelt.toml --plans plans')}"
    goldens.check("words/no-rows.txt", said)


def test_check_of_what_is_not_there(world: World, goldens: Goldens) -> None:
    said = world.session(
        "plan -c nowhere.toml",
        "plan -c reconciler.toml --job nobody",
        "plan -c reconciler.toml --set a.events:1",
        "plan -c reconciler.toml --set a.events:1=3 --set a.events:1=4",
        "plan -c reconciler.toml --set a.events:77=3",
        "plan -c reconciler.toml --set a.evnets:1=3",
        "plan -c reconciler.toml --set a.events:1=9999",
    )
    goldens.check("words/check-refused.txt", said)


def test_a_persons_word(estate: Estate, goldens: Goldens) -> None:
    """Words that fit two jobs, offsets that skip, and a time for a whole job, where two jobs read one topic."""
    world = estate.world
    world.store(OFFSETS, "views", {("events", partition): stored(1) for partition in range(3)})
    world.file("reconciler.toml", estate.head + estate.jobs + job("views", ["events"]))
    world.with_state()
    both = "-c reconciler.toml --job clicks --job views"
    said = world.session(
        f"plan {both} --set a.events:1=4 --set a.ties:0=1",
        f"plan {both} -o word.plan.json --set events:1=4 --accept skips",
        f"plan {both} --accept moved --log-format json",
        f"plan {both} --set-time 2023-11-14T22:13:25Z",
        "plan -c reconciler.toml --job views --set-time 2023-11-14T22:13:25Z",
        "plan -c reconciler.toml --job views --set-time yesterday",
        "plan -c reconciler.toml --job views --set-time 1700000005000 -o word.plan.json",
        "apply word.plan.json -c reconciler.toml --dry-run",
        "plan -c reconciler.toml --job views --set-time 1700000005000 -o word.plan.json --accept skips",
        "apply word.plan.json -c reconciler.toml --dry-run",
        "show word.plan.json --job views --job views",
    )
    world.located(to="b")
    said += "\n" + world.session(
        "hook -c reconciler.toml --job views --plans plans --set a.events:0=9",
        "hook -c reconciler.toml --job views --job clicks --plans plans",
    )
    goldens.check("words/decisions.txt", said)


def test_policies_change_what_may_start(estate: Estate, goldens: Goldens) -> None:
    sections = {
        "row-time": '[policy]\nno_anchor = "row-time"',
        "behind-stop": '[policy]\nbehind = "stop"\nmax_replay = 1\nnew = "latest"',
        "disorder": '[search]\nmax_disorder = "1h"\nscan_records = 2',
    }
    said = []
    for name, section in sections.items():
        estate.with_section(section, f"{name}.toml")
        said.append(f"# {section!r}\n{estate.world.session(f'plan -c {name}.toml')}")
    goldens.check("words/check-policies.txt", "\n".join(said))


# ---------------------------------------------------------------- plan, apply, rollback


def test_plan_apply_and_rollback(estate: Estate, goldens: Goldens) -> None:
    world = estate.world
    with_state(world.folder / "reconciler.toml")
    said = world.session(
        PLAN,
        f"{APPLY} --dry-run",
        APPLY,
        f"{APPLY} --yes",
        f"{APPLY} --yes",
        "plan -c reconciler.toml --to b --job clicks",
        "rollback -c reconciler.toml --job clicks",
        "rollback -c reconciler.toml --job clicks --yes",
        "rollback -c reconciler.toml --job clicks --yes",
    )
    goldens.check("words/plan-apply-rollback.txt", said)


def test_apply_refuses_a_job_that_needs_a_decision_and_writes_the_others(world: World, goldens: Goldens) -> None:
    world.with_state()
    said = world.session("plan -c reconciler.toml -o p.json", f"{APPLY} --dry-run", f"{APPLY} --yes")
    goldens.check("words/apply-refused.txt", said)


def test_a_plan_of_offsets_that_are_right(world: World, goldens: Goldens) -> None:
    world.with_state()
    goldens.check("words/plan-ready.txt", world.session(PLAN.replace("clicks", "ready"), f"{APPLY} --yes"))


def test_a_job_that_cannot_be_judged_hides_no_other(estate: Estate, goldens: Goldens) -> None:
    sick = job("misspelt", ["evnets"]) + job("broken", ["events"], "sqlite:///broken.db")
    world = estate.world
    world.columns(400)  # a sentence with the path of the folder is not folded
    world.file("broken.db", "no database")
    world.file("reconciler.toml", estate.head + estate.jobs + sick)
    world.file("sick.toml", estate.head + sick)
    world.with_state()
    world.with_state("sick.toml")
    said = world.session(
        "plan -c reconciler.toml --job misspelt",
        "plan -c reconciler.toml",
        "plan -c sick.toml",
        "plan -c sick.toml -o p.json",
        "plan -c reconciler.toml -o p.json",
        "show p.json",
        "show p.json --job broken",
        "show p.json --job ready",
        f"{APPLY} --dry-run",
    )
    world.file("partly.toml", estate.head + estate.jobs.partition('[[jobs]]\nhome = "a"\nname = "stuck"')[0] + sick)
    world.with_state("partly.toml")
    said += "\n" + world.session(
        "plan -c partly.toml",
        "plan -c partly.toml -o q.json",
        "apply q.json -c partly.toml --yes",
    )
    goldens.check("words/not-judged.txt", said)


def test_a_plan_that_is_no_longer_true(world: World, goldens: Goldens) -> None:
    """It expired, it was altered, the job went on, the destination was cut, or the topic was recreated."""
    world.with_state()
    assert world.run(*PLAN.split()).code == 0
    text = world.read("p.json")
    said = []

    def after(what: str) -> None:
        said.append(f"# {what}\n{world.session(f'{APPLY} --yes')}")

    world.file("p.json", text.replace('"resume_offset": 4', '"resume_offset": 5'))
    after("altered")
    world.file("p.json", text)
    world.now_ms += 2 * 86_400_000
    after("expired")
    world.now_ms -= 2 * 86_400_000
    world.destination.partition("a.events", 0).delete_before(6)
    after("records deleted at the destination")
    world.store(OFFSETS, "clicks", {("events", 0): stored(8)})
    after("the job went on")
    world.destination.topic_ids["a.events"] = "another id"
    after("topic recreated")
    goldens.check("words/apply-changed.txt", "\n".join(said))


def test_a_plan_that_is_none(world: World, goldens: Goldens) -> None:
    world.file("text.json", "no plan\n")
    world.file("empty.json", "{}\n")
    world.file("newer.json", json.dumps({"format": "reconciler.plan/9"}))
    names = ("nowhere.json", "text.json", "empty.json", "newer.json")
    lines = [f"show {name}" for name in names]
    goldens.check("words/no-plan.txt", world.session(*lines, "apply text.json -c reconciler.toml"))


def test_a_rollback_that_is_refused(world: World, goldens: Goldens) -> None:
    world.located()
    back = "rollback -c reconciler.toml --job clicks --yes"
    said = [world.session(PLAN, back)]
    assert world.run(*f"{APPLY} --yes".split()).code == 0
    world.store(OFFSETS, "clicks", {("a.events", 0): stored(7)})
    said.append(f"# the job went on\n{world.session(back)}")
    goldens.check("words/rollback-refused.txt", "\n".join(said))


def test_a_write_whose_outcome_is_unknown_and_a_bug(
    world: World, goldens: Goldens, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.with_state()
    assert world.run(*PLAN.split()).code == 0
    with monkeypatch.context() as patch:
        internals.lose_answers_of_writes(patch)
        unknown = world.run(*f"{APPLY} --yes".split())
    assert unknown.code == 7
    internals.break_reads(monkeypatch)
    bug = world.run("plan", "-c", "reconciler.toml")
    assert bug.code == 1
    goldens.check("words/unknown-outcome-and-bug.txt", f"{unknown.transcript}\n{bug.transcript}")


# ---------------------------------------------------------------- show


def test_show(world: World, goldens: Goldens) -> None:
    assert world.run("plan", "-c", "reconciler.toml", "-o", "p.json").code == 4
    said = world.session(
        "show p.json",
        "show p.json --job clicks",
        "show p.json --job nobody",
        "show p.json --starting-offsets",
        "show p.json --starting-offsets --job clicks",
        "show p.json --starting-offsets --job stuck",
        "show p.json --html page.html",
    )
    goldens.check("words/show.txt", said)
    goldens.check("words/page.html", _without_assets(world.read("page.html")))


def _without_assets(html: str) -> str:
    """The page without the text of its style and script, and without their hashes."""
    html = re.sub(r"<(style|script)>.*?</\1>", r"<\1>…</\1>", html, flags=re.S)
    html = re.sub(r"'sha256-[^']+'", "'sha256-…'", html)
    return re.sub(r"\b[0-9a-f]{64}\b", "<HASH>", html)


# ---------------------------------------------------------------- hook


def test_hook(world: World, goldens: Goldens) -> None:
    world.located(to="b")
    said = world.session(
        "hook -c reconciler.toml --job ready --plans plans",
        "hook -c reconciler.toml --job clicks --plans plans",
        "hook -c reconciler.toml --job clicks --plans plans",
        "hook -c reconciler.toml --job stuck --plans plans",
        "hook -c reconciler.toml --job stuck --plans plans --log-format json",
        "hook -c reconciler.toml --plans plans",
        "hook -c reconciler.toml --job clicks --wait -1",
        "hook -c reconciler.toml --job clicks --plans plans -- no-such-command --flag",
        "hook -c reconciler.toml --job clicks --plans reconciler.toml/plans",
    )
    goldens.check("words/hook.txt", said)


def test_a_move_there_and_back(world: World, goldens: Goldens) -> None:
    hook = "hook -c reconciler.toml --job clicks --plans plans"
    for topic, partitions in {"events": 3, "ties": 1, "older": 1}.items():
        world.source.create(topic, partitions)
        for partition in range(partitions):
            deliver(world, topic, range(-BASE, 12), partition, log="source")
    world.file("reconciler.toml", '[state]\nstore = "sqlite:///state.db"\n' + world.read("reconciler.toml"))
    said = world.session(
        "status -c reconciler.toml",
        "init -c reconciler.toml",
        "init -c reconciler.toml",
        "status -c reconciler.toml",
        hook,
        "move -c reconciler.toml --to a --job clicks",
        "move -c reconciler.toml --to a --job clicks --yes",
        hook,
        f"{hook} --set a.events:0=9",
        "plan -c reconciler.toml --job clicks",
        "move -c reconciler.toml --to c",
        "move -c reconciler.toml --to b",
        "move -c reconciler.toml --to b --job stuck --accept lost --accept missing --set a.bare:0=3 --accept skips",
        "move -c reconciler.toml --to b --yes",
        "move -c reconciler.toml --to b --job clicks --yes",
        "move -c reconciler.toml --to a --job clicks --yes",
        "move -c reconciler.toml --cancel",
        "move -c reconciler.toml --to b --job clicks --yes --details",
        "status -c reconciler.toml",
        hook,
        hook,
        "move -c reconciler.toml --cancel",
        "move -c reconciler.toml --to b --job clicks --yes",
        "status -c reconciler.toml",
        "status -c reconciler.toml --job clicks --history",
    )
    world.now_ms += 3_600_000
    said += "\n" + world.session(
        "move -c reconciler.toml --to a --job clicks --yes",
        hook,
        hook,
        "status -c reconciler.toml --job clicks --history",
    )
    goldens.check("words/move.txt", said)
    shown = world.run("status", "-c", "reconciler.toml", "--job", "clicks", "--format", "json")
    goldens.check("formats/state/locations.json", shown.out)


def test_a_hook_waits_for_a_mirror_that_is_behind(estate: Estate, goldens: Goldens) -> None:
    estate.with_section('[policy]\nbehind = "wait"')
    estate.world.located(to="b")
    words = ("hook", "-c", "reconciler.toml", "--job", "stuck", "--plans", "plans")
    decided = ("--accept", "lost", "--accept", "unresolved", "--set", "a.bare:0=3", "--accept", "skips")
    goldens.check("words/hook-behind.txt", estate.world.run(*words, *decided).transcript)


def test_anchors_out_and_in(world: World, goldens: Goldens) -> None:
    exported = world.run("anchors", "export", "-c", "reconciler.toml", "--job", "ready")
    line = exported.out
    changed = line.replace('"stored_offset": 6', '"stored_offset": 5')
    foreign = line.replace('"ready"', '"nobody"')
    said = [exported.transcript, world.run("anchors", "export", "-c", "reconciler.toml", "out.jsonl").transcript]
    for what, text in (("the same", line), ("changed", changed), ("foreign", foreign), ("broken", "{nonsense")):
        found = world.run("anchors", "import", "-c", "reconciler.toml", stdin=text)
        said.append(f"# {what}\n{found.transcript}")
    said.append(world.run("anchors", "import", "-c", "reconciler.toml", "--replace", stdin=changed).transcript)
    said.append(world.run("anchors", "import", "-c", "reconciler.toml", "nowhere.jsonl").transcript)
    goldens.check("words/anchors.txt", "\n".join(said))


def test_the_source_in_the_place_of_the_destination(world: World, goldens: Goldens) -> None:
    """The configuration names the source as the destination by mistake."""
    world.destination.cluster_id = "cluster-a"
    for topic in [*world.destination.topic_ids]:
        world.destination.delete(topic)
    goldens.check("words/own-cluster.txt", world.session("plan -c reconciler.toml --job clicks"))
