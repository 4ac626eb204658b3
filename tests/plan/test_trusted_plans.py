"""Plans that must be signed: by commands, on a real cluster."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.plan.document import digest
from tests.golden.keys import write_key
from tests.world import World, run_process, source_record

pytestmark = pytest.mark.system


@pytest.fixture
def ready(world: World) -> World:
    """Records 5 and 6 were processed last, and what comes behind them is there."""
    world.deliver(12, 12)
    world.processed(5, 6)
    return world


@dataclass(frozen=True)
class Trust:
    """Keys of Ada and of the hook, and ``[trust]`` tables."""

    folder: Path

    def key(self, name: str) -> Path:
        return self.folder / write_key(self.folder, name)

    def public(self, name: str) -> Path:
        return self.key(name).with_name(f"{name}.pub.pem")

    def table(self, *trusted: str, required: bool = True, **more: Any) -> str:
        keys = [str(self.public(name)) for name in trusted]
        lines = ["[trust]", f"require_signature = {json.dumps(required)}", f"trusted_keys = {json.dumps(keys)}"]
        return "\n".join([*lines, *(f"{name} = {json.dumps(value)}" for name, value in more.items())])


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path)


def right(world: World) -> dict[int, int]:
    return {0: world.offset_of(5) + 1, 1: world.offset_of(6, 1) + 1}


# ---------------------------------------------------------------- signatures


def test_a_plan_that_was_altered_after_it_was_signed_is_never_applied(ready: World, trust: Trust) -> None:
    """With its sum made to fit, which is all that an unsigned plan has; and not where no signature is asked for."""
    config = ready.config(extra=trust.table("ada", required=False))
    ready.plan(config)
    ended = ready.run("sign", ready.plan_file, "--key", trust.key("ada"), "--yes")
    assert ended.code == 0, ended.output
    plan = json.loads(ready.plan_file.read_text())
    row = plan["jobs"][0]["partitions"][0]
    row["set_by_hand"] = True
    ready.plan_file.write_text(json.dumps({**plan, "sha256": digest(plan)}))
    before = ready.rows()
    refused = ready.run("apply", ready.plan_file, "-c", config, "--yes")
    assert (refused.code, "belongs to another plan" in refused.err) == (5, True), refused.output
    signature = ready.folder / f"{ready.plan_file.name}.sig"
    signature.write_text(json.dumps({**json.loads(signature.read_text()), "plan_sha256": digest(plan)}))
    refused = ready.run("apply", ready.plan_file, "-c", config, "--yes")
    assert (refused.code, "is not the one that was signed" in refused.err) == (5, True)
    assert ready.rows() == before
    assert ready.run("show", ready.plan_file).code == 5
    # A new plan of the same name does not inherit the old one's signature.
    ready.plan(config)
    assert not signature.exists()
    assert ready.run("apply", ready.plan_file, "-c", config, "--yes").code == 0


# ---------------------------------------------------------------- the hook


def hook(world: World, config: Path, *more: object) -> tuple[object, ...]:
    return ("hook", "-c", config, "--plans", world.folder / "plans", *more)


def test_a_hook_leaves_its_plan_to_a_person_who_must_sign(ready: World, trust: Trust) -> None:
    config = ready.config(extra=trust.table("ada"), to="b")
    before = ready.rows()
    ended = ready.run(*hook(ready, config))
    assert (ended.code, ready.rows()) == (4, before)
    plan = Path(ended.err.split("reconciler sign ")[1].split()[0])
    assert f"reconciler apply {plan} -c {config}, and start again" in ended.err
    assert ready.run("sign", plan, "--key", trust.key("ada"), "--yes").code == 0
    assert ready.run("apply", plan, "-c", config, "--yes").code == 0
    started = ready.run(*hook(ready, config))
    assert (started.code, "every offset is right" in started.err) == (0, True), started.output


def test_a_hook_with_a_key_signs_what_it_applies(ready: World, trust: Trust) -> None:
    config = ready.config(extra=trust.table("node7", signing_key=str(trust.key("node7"))), to="b")
    ended = run_process(*hook(ready, config, "--", "echo", "started"))
    assert (ended.code, ended.out.strip(), ready.offsets()) == (0, "started", right(ready)), ended.output
    (plan,) = (ready.folder / "plans").glob("*.plan.json")
    shown = ready.run("show", plan, "-c", config)
    assert (shown.code, "signed with node7.pub.pem (" in shown.out) == (0, True)
    rows = ready.rows()
    assert ready.run(*hook(ready, config)).code == 0
    assert ready.rows() == rows
    assert ready.run("rollback", "-c", config, "--job", "clicks", "--yes").code == 0


def test_an_unusable_key_is_reported_before_the_job_needs_it(ready: World, trust: Trust) -> None:
    fine = ready.config(to="b")
    assert ready.run(*hook(ready, fine)).code == 0
    settings = {
        "signing_key": (trust.table("ada", signing_key=str(trust.key("ben"))), "is none of trusted_keys"),
        "no file": (
            trust.table("ada", signing_key="/nowhere/key.pem"),
            "/nowhere/key.pem cannot be read",
        ),
        "a public one": (
            trust.table("ada", signing_key=str(trust.public("ada"))),
            "is a public key, but only a private one can sign",
        ),
    }
    for table, said in settings.values():
        ended = ready.run(*hook(ready, ready.config(extra=table, to="b")))
        assert (ended.code, said in ended.err) == (2, True), ended.output


# ---------------------------------------------------------------- another store


def test_a_plan_for_another_store_is_not_applied(ready: World) -> None:
    ready.plan(ready.config())
    elsewhere = f"sqlite:///{ready.folder / 'elsewhere.db'}"
    ready.save({0: source_record(5).stored, 1: source_record(6, 1).stored}, address=elsewhere)
    before = ready.rows(elsewhere)
    other = ready.config(ready.job(store=elsewhere))
    refused = ready.run("apply", ready.plan_file, "-c", other, "--yes")
    assert (refused.code, f"is {elsewhere} in the configuration" in refused.err) == (5, True), refused.output
    assert ready.rows(elsewhere) == before
