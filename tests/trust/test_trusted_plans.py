"""Plans that must be signed, and the log of who applied what: by commands, on a real cluster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError, OutcomeUnknown, Unreachable
from reconciler.formats.plan import digest
from reconciler.stores.sqlite.store import SqliteStore
from reconciler.trust.audit_log import AuditLog, TornLine, verified
from tests.failover.killed import Driver
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
        path = self.folder / f"{name}.pem"
        if not path.exists():
            subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", path], check=True)
            public = self.folder / f"{name}.pub.pem"
            subprocess.run(["openssl", "pkey", "-in", path, "-pubout", "-out", public], check=True)
        return path

    def public(self, name: str) -> Path:
        return self.key(name).with_name(f"{name}.pub.pem")

    @property
    def log(self) -> Path:
        return self.folder / "audit.jsonl"

    def table(self, *trusted: str, required: bool = True, logged: bool = True, **more: Any) -> str:
        keys = [str(self.public(name)) for name in trusted]
        lines = ["[trust]", f"require_signature = {json.dumps(required)}", f"trusted_keys = {json.dumps(keys)}"]
        lines += [f"audit_log = {json.dumps(str(self.log))}"] if logged else []
        return "\n".join([*lines, *(f"{name} = {json.dumps(value)}" for name, value in more.items())])

    def records(self) -> list[dict[str, Any]]:
        return [dict(record) for record in verified(self.log) if not isinstance(record, TornLine)]

    def told(self) -> list[tuple[str, str, str | None]]:
        """What the log has: action, kind and outcome of each record."""
        return [(record["action"], record["kind"], record["outcome"]) for record in self.records()]


@pytest.fixture
def trust(tmp_path: Path) -> Trust:
    return Trust(tmp_path)


def right(world: World) -> dict[int, int]:
    return {0: world.offset_of(5) + 1, 1: world.offset_of(6, 1) + 1}


# ---------------------------------------------------------------- signatures


def test_a_plan_is_made_signed_by_another_applied_and_rolled_back(ready: World, trust: Trust) -> None:
    config = ready.config(extra=trust.table("ada"))
    ready.plan(config)
    before = ready.rows()
    apply = ("apply", ready.plan_file, "-c", config, "--yes")

    unsigned = ready.run(*apply)
    assert (unsigned.code, ready.rows()) == (5, before)
    assert "The plan is not signed: 0 of 1 required signatures present ([trust] require_signature)." in unsigned.err
    assert f"reconciler sign {ready.plan_file} --key FILE" in unsigned.err
    assert ready.run("verify", ready.plan_file, "-c", config).code == 5

    unasked = ready.run("sign", ready.plan_file, "--key", trust.key("ada"), "-c", config)
    assert (unasked.code, "2 moved" in unasked.out) == (2, True)
    signed = ready.run("sign", ready.plan_file, "--key", trust.key("ada"), "-c", config, "--yes")
    assert (signed.code, f"{ready.plan_file}.sig" in signed.out) == (0, True)
    verified_plan = ready.run("verify", ready.plan_file, "-c", config)
    assert (verified_plan.code, "by ada.pub.pem, key " in verified_plan.out) == (0, True)

    applied = ready.run(*apply)
    assert (applied.code, ready.offsets()) == (0, right(ready))
    assert "Signed by ada.pub.pem (" in applied.out
    again = ready.run(*apply)
    assert (again.code, "applied before" in again.out) == (0, True)
    back = ready.run("rollback", ready.plan_file, "-c", config, "--yes")
    assert (back.code, ready.offsets()) == (0, {})

    assert trust.told() == [
        ("apply", "refusal", "refused"),
        ("apply", "intention", None),
        ("apply", "result", "done"),
        ("apply", "result", "nothing"),
        ("rollback", "intention", None),
        ("rollback", "result", "done"),
    ]
    whole = ready.run("audit-log", "verify", "-c", config)
    assert (whole.code, "6 records, and each follows from the one before." in whole.out) == (0, True)
    shown = ready.run("audit-log", "show", trust.log)
    assert [line.split()[2:4] for line in shown.out.splitlines()[1:]] == [
        ["apply", "refused"],
        ["apply", "done"],
        ["apply", "nothing"],
        ["rollback", "done"],
    ]


def test_a_plan_that_was_altered_after_it_was_signed_is_never_applied(ready: World, trust: Trust) -> None:
    """With its sum made to fit, which is all that an unsigned plan has; and not where no signature is asked for."""
    config = ready.config(extra=trust.table("ada", required=False, logged=False))
    ended = ready.run("plan", "-c", config, "-o", ready.plan_file, "--sign", trust.key("ada"))
    assert ended.code == 0, ended.output
    plan = json.loads(ready.plan_file.read_text())
    row = plan["jobs"][0]["partitions"][0]
    row["set_by_hand"] = True
    ready.plan_file.write_text(json.dumps({**plan, "sha256": digest(plan)}))
    before = ready.rows()
    for command in ("apply", "rollback"):
        refused = ready.run(command, ready.plan_file, "-c", config, "--yes")
        assert (refused.code, "belong to another plan" in refused.err) == (5, True), refused.output
    signatures = ready.folder / f"{ready.plan_file.name}.sig"
    signatures.write_text(json.dumps({**json.loads(signatures.read_text()), "plan_sha256": digest(plan)}))
    refused = ready.run("apply", ready.plan_file, "-c", config, "--yes")
    assert (refused.code, "is not the one that was signed" in refused.err) == (5, True)
    assert ready.rows() == before
    # A new plan of the same name does not inherit the old one's signatures.
    ready.plan(config)
    assert not signatures.exists()
    assert ready.run("apply", ready.plan_file, "-c", config, "--yes").code == 0


def test_a_signature_by_openssl_is_accepted(ready: World, trust: Trust) -> None:
    config = ready.config(extra=trust.table("ada", logged=False))
    ready.plan(config)
    raw, key = ready.folder / "one.sig", trust.key("ada")
    sign = ["openssl", "pkeyutl", "-sign", "-inkey", key, "-rawin", "-in", ready.plan_file, "-out", raw]
    subprocess.run(sign, check=True)
    kept = ready.run("sign", ready.plan_file, "--signature", raw, "--public-key", trust.public("ada"), "--yes")
    assert kept.code == 0, kept.output
    assert ready.run("verify", ready.plan_file, "--trust", trust.public("ada")).code == 0
    assert ready.run("verify", ready.plan_file, "--trust", trust.public("ben")).code == 5
    assert ready.run("apply", ready.plan_file, "-c", config, "--yes").code == 0


# ---------------------------------------------------------------- the hook


def hook(world: World, config: Path, *more: object) -> tuple[object, ...]:
    return ("hook", "--to", "destination", "-c", config, "--plans", world.folder / "plans", *more)


def test_a_hook_leaves_its_plan_to_a_person_who_must_sign(ready: World, trust: Trust) -> None:
    config = ready.config(extra=trust.table("ada"))
    before = ready.rows()
    ended = ready.run(*hook(ready, config))
    assert (ended.code, ready.rows()) == (4, before)
    plan = Path(ended.err.split("reconciler sign ")[1].split()[0])
    assert f"reconciler apply {plan} -c {config}, and start again" in ended.err
    assert ready.run("sign", plan, "--key", trust.key("ada"), "--yes").code == 0
    assert ready.run("apply", plan, "-c", config, "--yes").code == 0
    started = ready.run(*hook(ready, config))
    assert (started.code, "every offset is right" in started.err) == (0, True), started.output
    assert trust.told() == [
        ("hook", "refusal", "refused"),
        ("apply", "intention", None),
        ("apply", "result", "done"),
    ]


def test_a_hook_with_a_key_signs_what_it_applies(ready: World, trust: Trust) -> None:
    config = ready.config(extra=trust.table("node7", signing_key=str(trust.key("node7"))))
    secret = "hidden-from-the-log"
    ended = run_process(*hook(ready, config, "--", "echo", secret))
    assert (ended.code, ended.out.strip(), ready.offsets()) == (0, secret, right(ready)), ended.output
    (plan,) = (ready.folder / "plans").glob("*.plan.json")
    assert ready.run("verify", plan, "-c", config).code == 0
    assert trust.told() == [("hook", "intention", None), ("hook", "result", "done")]
    intention, result = trust.records()
    assert result["of"] == intention["hash"]
    assert intention["command"][-3:] == ["--", "echo", "…"]
    assert secret not in trust.log.read_text()
    assert list(intention["plan"]["signed_by"].values()) == ["node7.pub.pem"]
    assert ready.run(*hook(ready, config)).code == 0
    assert len(trust.records()) == 2  # it wrote nothing
    assert ready.run("rollback", plan, "-c", config, "--yes").code == 0


def test_an_unusable_key_or_log_is_reported_before_the_job_needs_it(ready: World, trust: Trust) -> None:
    fine = ready.config()
    assert ready.run(*hook(ready, fine)).code == 0
    settings = {
        "signing_key": (trust.table("ada", logged=False, signing_key=str(trust.key("ben"))), "is none of trusted_keys"),
        "no file": (
            trust.table("ada", logged=False, signing_key="/nowhere/key.pem"),
            "/nowhere/key.pem cannot be read",
        ),
        "a public one": (
            trust.table("ada", logged=False, signing_key=str(trust.public("ada"))),
            "is a public key, but only a private one can sign",
        ),
        "log": (
            '[trust]\naudit_log = "/nowhere/at/all.jsonl"',
            "The audit log /nowhere/at/all.jsonl cannot be written",
        ),
    }
    for table, said in settings.values():
        ended = ready.run(*hook(ready, ready.config(extra=table)))
        assert (ended.code, said in ended.err) == (2, True), ended.output


def test_a_hook_of_a_job_that_is_right_loads_no_cryptography(ready: World, trust: Trust) -> None:
    config = ready.config(extra=trust.table("ada", logged=False))
    assert ready.run("hook", "--to", "destination", "-c", ready.config(), "--plans", ready.folder / "plans").code == 0
    ended = run_process(*hook(ready, config, "--", "true"), options=("-X", "importtime"))
    assert ended.code == 0, ended.output
    loaded = {line.rpartition("|")[2].strip() for line in ended.err.splitlines() if line.startswith("import time:")}
    assert "reconciler.hook.trust" in loaded
    needless = ("cryptography", "reconciler.trust.signing", "reconciler.trust.audit_trail")
    assert not {name for name in loaded if name.startswith(needless)}


# ---------------------------------------------------------------- the audit log


def test_the_log_records_the_offsets_before_and_after(ready: World, trust: Trust) -> None:
    earlier = StoredOffset(2, Anchor(1, cluster_id=ready.cluster.cluster_id), 1)
    ready.save({1: earlier}, topic=ready.mirrored)
    config = ready.config(extra=trust.table(required=False))
    plan = ready.plan(config)
    assert ready.run("--log-format", "text", "apply", ready.plan_file, "-c", config, "--yes").code == 0
    intention, result = trust.records()
    (job,) = intention["jobs"]
    after = right(ready)
    assert job == {
        "name": "clicks",
        "group": ready.group,
        "store": ready.address,
        "rows": [
            {"topic": ready.mirrored, "partition": 0, "before": None, "after": after[0]},
            {"topic": ready.mirrored, "partition": 1, "before": 2, "after": after[1]},
        ],
    }
    assert intention["plan"] == {"path": str(ready.plan_file), "sha256": plan["sha256"], "signed_by": {}}
    assert intention["command"] == ["--log-format", "text", "apply", str(ready.plan_file), "-c", str(config), "--yes"]
    assert intention["cluster_id"] == ready.cluster.cluster_id
    assert (result["outcome"], result["exit_code"], result["message"]) == ("done", 0, None)


def test_a_dry_run_is_not_logged(ready: World, trust: Trust) -> None:
    config = ready.config(extra=trust.table(required=False))
    ready.plan(config)
    assert ready.run("apply", ready.plan_file, "-c", config, "--dry-run").code == 0
    assert not trust.log.exists()


@pytest.mark.parametrize("log", ["/dev/full", "/nowhere/audit.jsonl", "{folder}"])
def test_a_change_that_cannot_be_logged_is_not_made(ready: World, log: str) -> None:
    table = f'[trust]\naudit_log = "{log.format(folder=ready.folder)}"'
    config = ready.config(extra=table)
    ready.plan(config)
    before = ready.rows()
    commands = [("apply", ready.plan_file, "-c", config, "--yes"), hook(ready, config)]
    lines = ready.folder / "lines.jsonl"
    assert ready.run("anchors", "export", "-c", config, lines).code == 0
    lines.write_text(lines.read_text().replace('"stored_offset": 5006', '"stored_offset": 5005'))
    commands.append(("anchors", "import", "-c", config, "--replace", lines))
    for command in commands:
        ended = ready.run(*command)
        assert (ended.code, "cannot be written" in ended.err) == (2, True), ended.output
        assert ready.rows() == before
        assert not (ready.folder / f"{ready.plan_file.name}.applied.json").exists()


def test_a_write_whose_result_cannot_be_logged_ends_with_7_and_the_next_run_logs_it(
    ready: World, trust: Trust, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ready.config(extra=trust.table(required=False))
    ready.plan(config)
    append = AuditLog.append

    def until_the_end(log: AuditLog, fields: Any, time: str) -> Any:
        if fields["kind"] == "result":
            raise ConfigError("The audit log is full.")
        return append(log, fields, time)

    monkeypatch.setattr(AuditLog, "append", until_the_end)
    ended = ready.run("apply", ready.plan_file, "-c", config, "--yes")
    monkeypatch.undo()
    assert (ended.code, "were written, but that cannot be logged" in ended.err) == (7, True), ended.output
    assert ready.offsets() == right(ready)
    told = ready.run("audit-log", "verify", trust.log)
    assert (told.code, "Record 1 is open: " in told.out) == (0, True)
    assert ready.run("apply", ready.plan_file, "-c", config, "--yes").code == 0
    assert trust.told()[-1] == ("apply", "result", "nothing")


@pytest.mark.parametrize(
    ("error", "code", "outcome"),
    [
        (OutcomeUnknown("The answer did not come."), 7, "unknown"),
        (Unreachable("The store is locked."), 6, "refused"),
        (RuntimeError("a bug"), 1, "unknown"),
        (KeyboardInterrupt(), 130, "unknown"),
    ],
    ids=lambda part: type(part).__name__ if isinstance(part, BaseException) else str(part),
)
def test_the_log_records_the_result_of_a_write(
    ready: World, trust: Trust, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, outcome: str
) -> None:
    config = ready.config(extra=trust.table(required=False))
    ready.plan(config)

    def write(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(SqliteStore, "write", write)
    ended = ready.run("apply", ready.plan_file, "-c", config, "--yes")
    assert ended.code == code, ended.output
    *_, result = trust.records()
    assert (result["kind"], result["outcome"]) == ("result", outcome)
    assert result["exit_code"] == (code if code in (6, 7) else None)


def test_an_apply_that_was_killed_leaves_an_open_intention(
    ready: World, trust: Trust, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Between the intention and the result; the same command again goes on, and says so."""
    config = ready.config(extra=trust.table(required=False))
    ready.plan(config)
    apply = ("apply", ready.plan_file, "-c", config, "--yes")
    with Driver(tmp_path_factory.mktemp("killed")) as driver:
        for _ in range(2):  # from the second time on, the snapshot is there: the steps are those of the runs below
            steps = driver.run(*apply).steps
            assert ready.run("rollback", ready.plan_file, "-c", config, "--yes").code == 0
            trust.log.unlink()
        first, last = steps.index("fsync"), len(steps) - 1 - steps[::-1].index("wait for the lock")
        before = len(ready.rows())
        for step in (first, steps.index("COMMIT"), last):
            killed = driver.run(*apply, kill_at=step + 1)
            assert killed.killed
            (record,) = trust.records()
            assert record["kind"] == "intention"
            assert len(ready.rows()) == before + (2 if step == last else 0)
            told = ready.run("audit-log", "verify", trust.log)
            assert "Its process was killed, or is still running." in told.out
            assert ready.run(*apply).code == 0
            assert trust.told()[-1] == ("apply", "result", "nothing" if step == last else "done")
            assert ready.run("rollback", ready.plan_file, "-c", config, "--yes").code == 0
            trust.log.unlink()


def test_two_concurrent_writers_make_one_chain(
    ready: World, trust: Trust, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = ready.config(extra=trust.table(required=False))
    ready.plan(config)
    apply = ("apply", ready.plan_file, "-c", config, "--yes")
    with Driver(tmp_path_factory.mktemp("together")) as driver:
        outcomes = driver.together(apply, apply, apply)
    assert {outcome.code for outcome in outcomes} <= {0, 5}
    assert ready.offsets() == right(ready)
    told = [outcome for _, kind, outcome in trust.told() if kind != "intention"]
    assert (len(told), told.count("done")) == (3, 1)


def test_a_log_that_was_altered_stops_apply_and_verify_names_the_place(ready: World, trust: Trust) -> None:
    config = ready.config(extra=trust.table(required=False))
    ready.plan(config)
    apply, back = ((command, ready.plan_file, "-c", config, "--yes") for command in ("apply", "rollback"))
    for command in (apply, back, apply):
        assert ready.run(*command).code == 0
    head = trust.records()[-1]["hash"]
    whole = trust.log.read_text()
    assert ready.run("audit-log", "verify", trust.log, "--expect", head).code == 0

    lines = whole.splitlines(keepends=True)
    trust.log.write_text("".join(lines[:-1]))
    shorter = ready.run("audit-log", "verify", trust.log)
    assert (shorter.code, "5 records, and each follows from the one before." in shorter.out) == (0, True)
    assert ready.run("audit-log", "verify", trust.log, "--expect", head).code == 5

    trust.log.write_text("".join([*lines[:2], *lines[3:]]))
    for way in ("verify", "show"):
        broken = ready.run("audit-log", way, trust.log)
        assert (broken.code, "The line after record 2" in broken.err) == (5, True), broken.output

    trust.log.write_text(whole.replace('"outcome":"done"', '"outcome":"none"'))
    before = ready.rows()
    refused = ready.run(*back)
    assert (refused.code, "The last line of the audit log" in refused.err) == (5, True), refused.output
    assert ready.rows() == before


def test_an_import_is_logged(ready: World, trust: Trust) -> None:
    config = ready.config(extra=trust.table(required=False))
    lines = ready.folder / "lines.jsonl"
    assert ready.run("anchors", "export", "-c", config, lines).code == 0
    assert ready.run("anchors", "import", "-c", config, lines).code == 0
    assert trust.log.read_text() == ""  # all of it was there
    ready.save({0: source_record(7).stored})
    assert ready.run("anchors", "import", "-c", config, lines).code == 5
    assert ready.run("anchors", "import", "-c", config, lines, "--replace").code == 0
    refusal, intention, result = trust.records()
    assert (refusal["action"], refusal["outcome"], result["outcome"]) == ("import", "refused", "done")
    (row,) = intention["jobs"][0]["rows"]
    assert row == {"topic": ready.topic, "partition": 0, "before": 5008, "after": 5006}


# ---------------------------------------------------------------- absurd plans, on a real cluster


ROW = Callable[[dict[str, Any]], Any]
ABSURD: dict[str, ROW] = {
    "an offset as text": lambda row: row.update(resume_offset="5"),
    "a negative offset": lambda row: row.update(resume_offset=-1),
    "an offset beyond all": lambda row: row.update(resume_offset=2**62),
    "an offset that skips records": lambda row: row.update(resume_offset=row["resume_offset"] + 3),
    "an offset that nothing was read for": lambda row: row["evidence"].update(record_offset=None),
    "a partition that is not there": lambda row: row.update(partition=4_000),
    "a partition that no topic has": lambda row: row.update(partition=2**31),
    "another topic": lambda row: row.update(topic="__consumer_offsets"),
    "another source topic": lambda row: row.update(source_topic="orders"),
    "no topic id": lambda row: row.update(topic_id=None),
    "another topic's id": lambda row: row.update(topic_id="AAAAAAAAAAAAAAAAAAAAAA"),
    "another stored offset": lambda row: row.update(stored_offset=1),
    "no stored offset": lambda row: row.update(stored_offset=None, anchor=None),
    "a match": lambda row: row.update(verdict="match"),
}


def test_a_plan_with_a_right_sum_and_absurd_content_is_never_applied(ready: World) -> None:
    config = ready.config()
    plan = ready.plan(config)
    before = ready.rows()
    text = json.dumps(plan)
    for name, change in ABSURD.items():
        altered = json.loads(text)
        change(altered["jobs"][0]["partitions"][0])
        altered["jobs"][0]["verdict"] = "moved"
        ready.plan_file.write_text(json.dumps({**altered, "sha256": digest(altered)}))
        ended = ready.run("apply", ready.plan_file, "-c", config, "--yes")
        assert (ended.code, ready.rows()) == (5, before), (name, ended.output)
    ready.plan_file.write_text(text)
    assert ready.run("apply", ready.plan_file, "-c", config, "--yes").code == 0


def test_a_plan_for_another_store_is_neither_applied_nor_rolled_back(ready: World) -> None:
    ready.plan(ready.config())
    elsewhere = f"sqlite:///{ready.folder / 'elsewhere.db'}"
    ready.save({0: source_record(5).stored, 1: source_record(6, 1).stored}, address=elsewhere)
    before = ready.rows(elsewhere)
    other = ready.config(ready.job(store=elsewhere))
    refused = ready.run("apply", ready.plan_file, "-c", other, "--yes")
    assert (refused.code, f"is {elsewhere} in the configuration" in refused.err) == (5, True), refused.output
    assert ready.run("apply", ready.plan_file, "-c", ready.config(), "--yes").code == 0
    refused = ready.run("rollback", ready.plan_file, "-c", other, "--yes")
    assert (refused.code, f"is {elsewhere} in the configuration" in refused.err) == (5, True), refused.output
    assert ready.rows(elsewhere) == before
