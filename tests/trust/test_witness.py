"""What an audit log shows by itself, and what it shows with hashes that were kept elsewhere."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import Changed, ConfigError
from reconciler.core.visible import visible
from reconciler.fileio import open_regular
from reconciler.trust.audit_log import FIRST, AuditLog, hash_of
from reconciler.trust.witness import Witness, compare, heads_in, sentence
from tests.golden.corpus import HEAD, OFFSETS, deliver, job, stored
from tests.golden.world import World

CONFIG = ("-c", "reconciler.toml")
RUN = "plan apply again rollback"
LOG, HEADS = "audit.log", "elsewhere/heads"
Records = list[dict[str, Any]]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A plan that was applied twice and rolled back, with a log of it, and its messages in a file."""
    world = World(tmp_path, monkeypatch)
    deliver(world, "a.events", range(10))
    world.store(OFFSETS, "clicks", {("events", 0): stored(5)})
    configure(world)
    assert world.run("plan", *CONFIG, "-o", "p.json").code == 0
    said = [world.run(each, "p.json", *CONFIG, "--yes").err for each in ("apply", "apply", "rollback")]
    world.file("messages", "".join(said))
    return world


def configure(world: World, heads: str = "") -> None:
    (world.folder / "elsewhere").mkdir(exist_ok=True)
    text = f'[trust]\naudit_log = "{LOG}"\n' + (f'audit_heads = "{heads}"\n' if heads else "")
    world.file("reconciler.toml", HEAD + text + job("clicks", ["events"], id="none"))


def hashed_again(world: World, change: Callable[[Records], object]) -> None:
    """The log, changed by someone who knows the format: every record has a right number and a right hash again."""
    records: Records = [json.loads(line) for line in (world.folder / LOG).read_text().splitlines()]
    was = [record["hash"] for record in records]
    change(records)
    prev, now = FIRST, {}
    for number, record in enumerate(records, start=1):
        record |= {"line": number, "prev": prev, "of": now.get(record["of"])}
        prev = hash_of(record)
        now[record["hash"]] = prev
        record["hash"] = prev
    assert [record["hash"] for record in records] != was
    lines = (json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False) for record in records)
    (world.folder / LOG).write_text("".join(f"{line}\n" for line in lines))


FORGERIES: dict[str, Callable[[Records], object]] = {
    "another user": lambda records: records[0]["by"].update(user="mallory"),
    "another offset": lambda records: records[0]["jobs"][0]["rows"][0].update(after=9),
    "another outcome of the last record": lambda records: records[-1].update(outcome="refused"),
    "a record less": lambda records: records.pop(2),
    "the end cut off": lambda records: records.pop(),
    "a record more": lambda records: records.insert(0, dict(records[0], hash="0" * 64)),
    "all records of another time": lambda records: [record.update(time="2020") for record in records],
}


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_chain_that_was_made_again_is_whole_and_nothing_vouches_for_it(
    world: World, forge: Callable[[Records], object]
) -> None:
    if forge is not FORGERIES["the end cut off"]:
        hashed_again(world, forge)
    ended = world.run("audit-log", "verify", *CONFIG)
    assert ended.code == 0
    assert "Nothing kept elsewhere vouches for the records: anyone who can write the file" in ended.out


@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
@pytest.mark.parametrize("witness", ["the commands' messages", "messages as JSON", "audit_heads"])
def test_hashes_that_were_kept_elsewhere_reveal_a_forged_log(
    world: World, witness: str, forge: Callable[[Records], object]
) -> None:
    words = "--witness messages"
    if witness == "messages as JSON":
        text = (world.folder / "messages").read_text()
        world.file("messages", "".join(json.dumps({"message": line}) + "\n" for line in text.splitlines()))
    if witness == "audit_heads":
        (world.folder / LOG).unlink()
        configure(world, HEADS)
        for each in ("apply", "apply", "rollback"):
            assert world.run(each, "p.json", *CONFIG, "--yes").code == 0
        words = ""
    whole = world.run("audit-log", "verify", *CONFIG, *shlex.split(words))
    assert (whole.code, "vouches for the records up to 5." in whole.out) == (0, True), whole.err
    assert "anyone who can write the file" not in whole.out
    if forge is FORGERIES["the end cut off"]:
        lines = (world.folder / LOG).read_text().splitlines(keepends=True)
        (world.folder / LOG).write_text("".join(lines[:-1]))
    else:
        hashed_again(world, forge)
    ended = world.run("audit-log", "verify", *CONFIG, *shlex.split(words))
    assert (ended.code, "was rewritten, cut off or replaced" in ended.err) == (5, True), ended.out


def test_a_noted_hash_vouches_for_the_records_up_to_it(world: World) -> None:
    noted = re.findall(r"hash (\w+)", (world.folder / "messages").read_text())
    last = world.run("audit-log", "verify", LOG, "--expect", noted[-1])
    assert (last.code, "anyone who can write the file" in last.out) == (0, False)
    early = world.run("audit-log", "verify", LOG, "--expect", noted[1])
    assert "vouches for the records after record 2: anyone" in early.out
    hashed_again(world, lambda records: records[0].update(time="2020"))
    for each in noted:
        assert world.run("audit-log", "verify", LOG, "--expect", each).code == 5


def test_a_log_and_its_heads_go_on_after_a_new_log(world: World) -> None:
    """The heads of the log that was moved away belong to that one."""
    configure(world, HEADS)
    assert world.run("apply", "p.json", *CONFIG, "--yes").code == 0
    assert world.run("audit-log", "verify", *CONFIG).code == 0
    (world.folder / LOG).rename(world.folder / "audit-1.log")
    assert world.run("apply", "p.json", *CONFIG, "--yes").code == 0
    assert world.run("audit-log", "verify", *CONFIG).code == 5
    assert world.run("audit-log", "verify", "audit-1.log", "--witness", HEADS).code == 5
    (world.folder / HEADS).write_text("")
    assert world.run("apply", "p.json", *CONFIG, "--yes").code == 0


def test_heads_that_cannot_be_kept_keep_everything_from_being_written(world: World) -> None:
    rows = world.tables("offsets.db")
    for heads in ("nowhere/heads", "elsewhere"):
        configure(world, heads)
        for command in ("apply p.json --yes", "hook --plans plans"):
            ended = world.run(*shlex.split(command), *CONFIG)
            assert (ended.code, "[trust] audit_heads" in ended.err) == (2, True), ended.err
        checked = world.run("config", "check", *CONFIG, "--offline")
        assert (checked.code, "file of its heads" in checked.out) == (2, True)
    assert world.tables("offsets.db") == rows


OTHER_FILES = {"a configuration": "[source]\n", "text": "hello", "bytes": "SQLite format 3\0\1\2", "JSON": '{"a": 1}\n'}


@pytest.mark.parametrize("content", OTHER_FILES.values(), ids=OTHER_FILES.keys())
def test_heads_are_not_appended_to_another_file(world: World, content: str) -> None:
    configure(world, HEADS)
    world.file(HEADS, content)
    rows = world.tables("offsets.db")
    for command in ("apply p.json --yes", "hook --plans plans", "config check --offline"):
        ended = world.run(*shlex.split(command), *CONFIG)
        assert (ended.code, "is not a file of an audit log's heads" in ended.err + ended.out) == (2, True), ended.err
    assert world.read(HEADS) == content
    assert world.tables("offsets.db") == rows


HEAD_OF_1 = sentence(Path(LOG), 1, "1" * 64)


@pytest.mark.parametrize(
    "end",
    [
        "",
        f"{HEAD_OF_1}\n",
        HEAD_OF_1,
        HEAD_OF_1[:30],
        f"{HEAD_OF_1[:4]}\n",
        "a",
        f"{HEAD_OF_1[:30]}\0\0\0\0",
        "\0" * 50,
    ],
)
def test_heads_go_on_after_a_line_that_was_cut_off(tmp_path: Path, end: str) -> None:
    path = tmp_path / "heads"
    path.write_text(end)
    Witness(path).check_existing()
    Witness(path).keep(sentence(Path(LOG), 2, "2" * 64))
    assert path.read_text().startswith(end)
    assert [each.line for each in heads_in(path)] == ([1, 2] if HEAD_OF_1 in end else [2])
    Witness(path).check()


def test_heads_that_may_only_be_appended_to_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "heads"
    path.write_text("what this user may not read")

    def opened(path: Path, flags: int = os.O_RDONLY) -> int:
        if not flags & os.O_WRONLY:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_regular(path, flags)

    monkeypatch.setattr("reconciler.trust.witness.open_regular", opened)
    Witness(path).keep(HEAD_OF_1)
    assert HEAD_OF_1 in path.read_text()


def test_looking_makes_no_file(tmp_path: Path) -> None:
    Witness(tmp_path / "heads").check_existing()
    AuditLog(tmp_path / "log").check_existing()
    assert not any(tmp_path.iterdir())


def test_heads_that_can_no_longer_be_kept_stop_before_the_first_write(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(world, HEADS)
    rows = world.tables("offsets.db")

    def is_full(self: Witness, text: str) -> None:
        raise ConfigError("The disk is full.")

    monkeypatch.setattr(Witness, "keep", is_full)
    assert world.run("apply", "p.json", *CONFIG, "--yes").code == 2
    assert world.tables("offsets.db") == rows


# ---------------------------------------------------------------- the heads of several logs


@pytest.fixture
def collected(world: World) -> World:
    """The log's messages, and those about another one, as a log server has them."""
    other = "".join(f"{sentence(Path('/var/log/views.log'), n, f'{n}' * 64)}\n" for n in range(1, 9))
    absolute = (world.folder / "messages").read_text().replace(f"audit log {LOG}", "audit log /var/log/clicks.log")
    assert absolute.count("/var/log/clicks.log") == 5
    world.file("several", (world.folder / "messages").read_text() + other)
    world.file("moved", absolute + other)
    world.file("strange", other + other.replace("views", "visits"))
    return world


def test_heads_of_other_logs_say_nothing_about_this_one(collected: World) -> None:
    ended = collected.run("audit-log", "verify", *CONFIG, "--witness", "several")
    assert ended.code == 0, ended.err
    assert (
        "several vouches for the records up to 5.\n"
        "It also has heads of 1 other audit log, which say nothing about this one: /var/log/views.log.\n"
    ) in ended.out


@pytest.mark.parametrize("name", ["several", "moved"])
@pytest.mark.parametrize("forge", FORGERIES.values(), ids=FORGERIES.keys())
def test_among_heads_of_several_logs_those_of_this_one_reveal_a_forgery(
    collected: World, name: str, forge: Callable[[Records], object]
) -> None:
    """Under another path than it had, a log of which no record is left is not known again: that is said, too."""
    before = (collected.folder / LOG).read_text().splitlines(keepends=True)
    if forge is FORGERIES["the end cut off"]:
        (collected.folder / LOG).write_text("".join(before[:-1]))
    else:
        hashed_again(collected, forge)
    is_known = name == "several" or (collected.folder / LOG).read_text().startswith(before[0])
    ended = collected.run("audit-log", "verify", *CONFIG, "--witness", name)
    expected = "was rewritten, cut off or replaced" if is_known else "heads of 2 audit logs, and none of"
    assert (ended.code, expected in ended.err) == (5 if is_known else 2, True), ended.out


@pytest.mark.parametrize("way", ["copied.log", "as JSON"])
def test_a_copy_and_a_log_that_was_moved_have_the_heads_of_their_earlier_name(collected: World, way: str) -> None:
    path = "copied.log"
    (collected.folder / LOG).rename(collected.folder / path)
    if way == "as JSON":
        text = (collected.folder / "moved").read_text()
        collected.file("moved", " ".join(json.dumps({"message": line}) for line in text.splitlines()))
    ended = collected.run("audit-log", "verify", path, "--witness", "moved")
    assert (ended.code, "vouches for the records up to 5." in ended.out) == (0, True), ended.err
    with (collected.folder / "moved").open("a") as file:
        file.write(f"{sentence(Path('/var/log/clicks.log'), 6, '6' * 64)}\n")
    ended = collected.run("audit-log", "verify", path, "--witness", "moved")
    assert (ended.code, "(of the audit log /var/log/clicks.log)" in ended.err) == (5, True), ended.out


def test_heads_of_other_logs_alone_vouch_for_nothing(collected: World) -> None:
    ended = collected.run("audit-log", "verify", *CONFIG, "--witness", "strange")
    assert ended.code == 2, ended.out
    assert f"has heads of 2 audit logs, and none of {LOG}: /var/log/views.log, /var/log/visits.log" in ended.err


def test_heads_that_were_noted_without_a_path_are_of_this_log(collected: World) -> None:
    for number, code in ((5, 0), (6, 5)):
        (noted,) = re.findall(rf"record {min(number, 5)}, hash \w+", (collected.folder / "messages").read_text())
        collected.file("noted", noted.replace("record 5", f"record {number}") + "\n" + collected.read("strange"))
        ended = collected.run("audit-log", "verify", *CONFIG, "--witness", "noted")
        assert ended.code == code, ended.err


@pytest.mark.parametrize("name", ["a b", "é", "a\nb", "audit log x", "tab\t", 'quote"'])
def test_a_path_is_known_again_however_a_message_has_it(tmp_path: Path, name: str) -> None:
    log, path = tmp_path / name, tmp_path / "heads"
    other = sentence(Path("/var/log/views.log"), 1, "2" * 64)
    for text in (
        visible(sentence(log, 1, "1" * 64)),
        json.dumps({"message": visible(sentence(log, 1, "1" * 64))}),
        json.dumps({"message": sentence(log, 1, "1" * 64)}, ensure_ascii=False),
    ):
        path.write_text(f"{text}\n{other}\n")
        assert compare(log, {1: "1" * 64}, path).last == 1
        with pytest.raises(Changed):
            compare(log, {1: "3" * 64}, path)


@pytest.mark.parametrize("other", ["audit.log", "./logs/audit.log", "/srv/b/audit.log"])
@pytest.mark.parametrize("kept", [2, 3])
def test_an_end_whose_heads_have_another_spelling_of_the_path_is_missed(tmp_path: Path, other: str, kept: int) -> None:
    """The last command named its log otherwise; its record was cut off, or made again as another one."""
    log, path = tmp_path / "audit.log", tmp_path / "heads"
    lines = [sentence(log, 1, "1" * 64), sentence(log, 2, "2" * 64), sentence(Path(other), 3, "3" * 64)]
    path.write_text("".join(f"{line}\n" for line in lines))
    whole = {1: "1" * 64, 2: "2" * 64, 3: "3" * 64}
    assert compare(log, whole, path).last == 3
    with pytest.raises(Changed, match="may be this log under another name: then its end was rewritten or cut off"):
        compare(log, {line: whole[line] if line < 3 else "4" * 64 for line in range(1, kept + 1)}, path)


def test_a_log_of_the_same_file_name_with_other_records_is_another_machines(tmp_path: Path) -> None:
    log, path = tmp_path / "audit.log", tmp_path / "heads"
    heads = [sentence(log, 1, "1" * 64), sentence(log, 2, "2" * 64)]
    heads += [sentence(Path("/srv/b/audit.log"), line, f"{line}" * 64) for line in (2, 3, 4)]
    heads[2] = sentence(Path("/srv/b/audit.log"), 2, "9" * 64)
    path.write_text("".join(f"{line}\n" for line in heads))
    found = compare(log, {1: "1" * 64, 2: "2" * 64}, path)
    assert (found.last, found.others) == (2, ("/srv/b/audit.log",))


def test_a_file_without_heads_vouches_for_nothing(world: World) -> None:
    world.file("empty", "record 1, hash 00\n")
    for path in ("empty", "nowhere", "elsewhere"):
        assert world.run("audit-log", "verify", LOG, "--witness", path).code == 2


def test_heads_without_a_log_are_the_configurations_fault(world: World) -> None:
    world.file("reconciler.toml", HEAD + f'[trust]\naudit_heads = "{HEADS}"\n' + job("clicks", ["events"]))
    ended = world.run("check", *CONFIG)
    assert (ended.code, "audit_heads" in ended.err) == (2, True)


def test_a_head_is_kept_in_the_words_in_which_it_is_logged(tmp_path: Path) -> None:
    path = tmp_path / "heads"
    for number in (1, 2):
        Witness(path).keep(sentence(Path("a\nb"), number, f"{number}" * 64))
    assert len(path.read_text().splitlines()) == 2
    assert [(each.line, each.hash, each.log) for each in heads_in(path)] == [
        (1, "1" * 64, r"a\nb"),
        (2, "2" * 64, r"a\nb"),
    ]
    assert path.stat().st_mode & 0o777 == 0o600


# ---------------------------------------------------------------- a file without a record


@pytest.mark.parametrize("content", ["hello", "SQLite format 3\0", "[trust]\naudit_log = 1"])
def test_a_file_that_is_no_log_is_not_called_whole(world: World, content: str) -> None:
    world.file(LOG, content)
    for way in ("show", "verify"):
        ended = world.run("audit-log", way, LOG)
        assert (ended.code, f"{LOG} is not an audit log." in ended.err) == (2, True), ended.out


@pytest.mark.parametrize("content", ["", "\0" * 50, "{", '{"action":"app'])
def test_a_log_without_a_record_is_not_called_whole(world: World, content: str) -> None:
    world.file(LOG, content)
    ended = world.run("audit-log", "verify", LOG)
    assert (ended.code, ended.out) == (5, ""), ended.err
    assert f"The audit log {LOG} holds no record" in ended.err
    assert ("only the beginning of one" in ended.err) == bool(content)


def test_a_log_that_was_emptied_lacks_the_records_that_its_heads_name(world: World) -> None:
    configure(world, HEADS)
    (world.folder / LOG).unlink()
    assert world.run("apply", "p.json", *CONFIG, "--yes").code == 0
    world.file(LOG, "")
    ended = world.run("audit-log", "verify", *CONFIG)
    assert (ended.code, f"Record 1 of the audit log {LOG} is missing" in ended.err) == (5, True), ended.out


def test_records_of_the_right_hash_and_the_wrong_kind_are_no_bug(world: World) -> None:
    for jobs in ([5], [{"name": 5, "rows": []}], [{"name": "clicks"}], [{"name": "clicks", "rows": 5}]):
        hashed_again(world, lambda records, jobs=jobs: records[0].update(jobs=jobs, time=str(jobs)))
        for way in ("show", "verify"):
            assert world.run("audit-log", way, LOG).code == 5
