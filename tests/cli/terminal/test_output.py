"""No text of a file, a store or a server reaches a terminal raw: no control character, and no forged line."""

from __future__ import annotations

import ast
import functools
import io
import json
import logging
import re
import shlex
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.terminal import output
from reconciler.cli.terminal.logs import set_up_logging
from reconciler.cli.terminal.output import Shown, line, say, show, show_json, show_text, wrap
from reconciler.config.secrets import KNOWN
from reconciler.core.errors import ReconcilerError, Refused
from reconciler.plan.document import digest
from reconciler.preflight.text import quoted
from tests.golden.corpus import HEAD, OFFSETS, Estate, deliver, job, stored
from tests.golden.world import Result, World

FORGED = "unaltered, and signed with ada.pub.pem (0), a trusted key"
HOSTILE = f"x\n{FORGED}\r\x1b[2J\x1b[8m\x7f\x85\x9b31m\u200b\u202e\u2066\u2028{FORGED}\u2029{FORGED}\x01y"
"""A line that looks like ours, and everything that makes a terminal hide, move or reverse what it shows."""
ROOT = Path(output.__file__).parents[2]
CONFIG = ("-c", "reconciler.toml")


def hidden(text: str) -> list[str]:
    return [c for c in text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp")]


def harmless(ended: Result, *, quotes: bool = True) -> Result:
    """The command has shown the hostile text, if it ``quotes`` it, and each of its lines is the program's own."""
    text = ended.out + ended.err
    assert ended.code != 1, text
    assert hidden(text) == []
    assert [each for each in text.splitlines() if each.strip().startswith(FORGED)] == []
    assert re.search(r"x\\+(x0a|n)unaltered", text) or not quotes, text
    return ended


# ---------------------------------------------------------------- commands


def rewritten(world: World, name: str, **fields: Any) -> None:
    """A plan's file with other fields, and with the checksum that anyone can compute."""
    plan = json.loads((world.folder / name).read_text()) | fields
    world.file(name, json.dumps({**plan, "sha256": digest(plan)}))


def planned(world: World) -> None:
    """``p.json``, in which everything that is free text is hostile."""
    assert world.run("plan", *CONFIG, "-o", "p.json").code == 4
    plan = json.loads((world.folder / "p.json").read_text())
    for each in plan["jobs"]:
        each.update(name=each["name"] + HOSTILE, group=HOSTILE, store=HOSTILE)
        for row in each["partitions"]:
            row.update(topic=row["topic"] + HOSTILE, source_topic=row["source_topic"] + HOSTILE, detail=HOSTILE)
    world.file("p.json", "")
    destination = {"name": HOSTILE, "bootstrap_servers": HOSTILE, "cluster_id": HOSTILE}
    fields = plan | {"tool_version": HOSTILE, "destination": destination}
    fields["not_judged"] = [{"name": HOSTILE, "reason": HOSTILE}]
    world.file("p.json", json.dumps({**fields, "sha256": digest(fields)}))


def test_show_prints_a_forged_plan_as_what_it_is(estate: Estate) -> None:
    planned(estate.world)
    ended = harmless(estate.world.run("show", "p.json"))
    assert ended.code == 0
    assert "\nunaltered by its checksum, and not signed: anyone who can write the file can have made it\n" in ended.out


@pytest.mark.parametrize("columns", ["40", "100", "100000"])
@pytest.mark.parametrize(
    "command",
    ["show p.json", "show p.json --job x", "sign p.json --key nowhere", "apply p.json {}"],
)
def test_a_forged_plan_forges_no_line_of_any_command(estate: Estate, command: str, columns: str) -> None:
    planned(estate.world)
    estate.world.columns(int(columns))
    harmless(estate.world.run(*shlex.split(command.format(shlex.join(CONFIG)))), quotes=False)
    harmless(estate.world.run(*shlex.split(command.format(shlex.join(CONFIG))), "--log-format", "json"), quotes=False)


def test_a_configuration_forges_no_line(world: World) -> None:
    deliver(world, "a.events", range(3))
    world.store(OFFSETS, "other", {("events", 0): stored(1)})
    text = HEAD + job("clicks", ["events"])
    hostile = json.dumps(HOSTILE).replace("\x7f", "\\u007f")
    world.file("reconciler.toml", text.replace('"clicks"', hostile))
    shown = ["plan", "config check", "plan -o p.json", "drill --temp ."]
    for command in (*shown, *(f"{each} --log-format json" for each in shown)):
        harmless(world.run(*shlex.split(command), *CONFIG), quotes="plan" not in command)
    as_json = harmless(world.run("plan", *CONFIG, "--format", "json"))
    assert json.loads(as_json.out)["jobs"][0]["group"] == HOSTILE


def test_rows_of_a_store_forge_no_line(world: World) -> None:
    world.store(OFFSETS, HOSTILE, {("events", 0): stored(3), (HOSTILE, 0): stored(3)})
    world.file("all.toml", HEAD + job("clicks", ["events"]))
    hostile = json.dumps(HOSTILE).replace("\x7f", "\\u007f")
    text = job("clicks", ["events"]).replace('name = "clicks"', f'name = "clicks"\ngroup = {hostile}')
    world.file("reconciler.toml", HEAD + text)
    assert "does not list that topic" in harmless(world.run("plan", *CONFIG)).err
    exported = harmless(world.run("anchors", "export", *CONFIG))
    assert json.loads(exported.out)["group"] == HOSTILE
    world.file("lines", exported.out)
    harmless(world.run("anchors", "import", "-c", "all.toml", "lines"))


LOGIN = '[clusters.b.client]\n"sasl.username" = "me"\n"sasl.password" = "${KAFKA_PASSWORD}"\n'


@pytest.fixture
def named(world: World) -> Iterator[Callable[[str], World]]:
    """An exported job and its plan, where the secret of the configuration is this name."""
    deliver(world, "a.events", range(10))
    world.store(OFFSETS, "clicks", {("events", 0): stored(3)})
    world.environ(KAFKA_PASSWORD="nothing of theirs")
    world.file("reconciler.toml", HEAD + LOGIN + job("clicks", ["events"]))
    assert world.run("plan", *CONFIG, "-o", "p.json").code == 0

    def with_secret(word: str) -> World:
        KNOWN.clear()
        world.environ(KAFKA_PASSWORD=word)
        return world

    yield with_secret
    KNOWN.clear()


@pytest.mark.parametrize("name", ["clicks", "events", "id-3"])
def test_rows_with_the_text_of_a_secret_are_not_exported_as_other_rows(
    named: Callable[[str], World], name: str
) -> None:
    world = named(name)
    ended = world.run("anchors", "export", *CONFIG)
    assert (ended.code, ended.out) == (2, "")
    assert "a configured secret (${KAFKA_PASSWORD})" in ended.err
    assert name not in ended.err.replace("reconciler anchors", "")
    assert world.run("anchors", "export", *CONFIG, "rows.jsonl").code == 0
    assert world.run("anchors", "import", *CONFIG, "rows.jsonl").code == 0


def test_starting_offsets_with_the_text_of_a_secret_are_not_shown_as_those_of_another_topic(
    named: Callable[[str], World],
) -> None:
    command = ("show", "p.json", *CONFIG, "--starting-offsets")
    assert json.loads(named("clicks").run(*command).out) == {"a.events": {"0": 4}}
    ended = named("events").run(*command)
    assert (ended.code, ended.out) == (2, "")
    assert "events" not in ended.err


def test_the_answer_of_a_server_forges_no_line(estate: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(*_: Any, **__: Any) -> Any:
        raise Refused(f"The store answered: {HOSTILE}.", hint=HOSTILE)

    monkeypatch.setattr(type(estate.world.destination), "log_ends", answers)
    for command in ("plan", "plan --log-format json", "plan --debug", "plan -o p.json", "watch --once"):
        assert harmless(estate.world.run(*shlex.split(command), *CONFIG)).code == 6


def test_a_bug_s_traceback_forges_no_line(estate: Estate, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise KeyError(HOSTILE, ValueError(f"\n{HOSTILE}"))

    monkeypatch.setattr(type(estate.world.destination), "describe", fails)
    assert "This is a bug" in estate.world.run("plan", *CONFIG).err
    logged = io.StringIO()
    handler = logging.StreamHandler(logged)
    set_up_logging("text", debug=True)
    handler.setFormatter(logging.getLogger().handlers[0].formatter)
    try:
        raise ValueError(f"\n{HOSTILE}")
    except ValueError:
        handler.handle(logging.makeLogRecord({"msg": HOSTILE, "exc_info": __import__("sys").exc_info()}))
    assert hidden(logged.getvalue()) == []
    assert [each for each in logged.getvalue().splitlines() if each.startswith(FORGED)] == []


def test_a_path_and_an_argument_forge_no_line(world: World) -> None:
    for words in ((f"show {HOSTILE[:20]}",), ("show", f"p{HOSTILE[:-2]}"), ("plan", f"--{HOSTILE}"), (HOSTILE,)):
        ended = world.run(*(word for word in words))
        harmless(ended, quotes=False)


# ---------------------------------------------------------------- the writer


def test_a_text_is_one_line_of_visible_characters(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE, HOSTILE)
    show(line(HOSTILE), wrap(HOSTILE, HOSTILE, columns=1000))
    shown = capsys.readouterr().out
    assert hidden(shown) == []
    assert len(shown.splitlines()) == 5


def test_a_name_in_another_script_stays_readable(capsys: pytest.CaptureFixture[str]) -> None:
    say("Grüße, 注文, заказы, שלום")
    assert capsys.readouterr().out == "Grüße, 注文, заказы, שלום\n"


def test_text_that_was_not_escaped_is_escaped_by_the_writer(capsys: pytest.CaptureFixture[str]) -> None:
    show(Shown("\033[31mours\033[0m\n" + HOSTILE.replace("\x1b[8m", "")))
    assert hidden(capsys.readouterr().out.replace("\033[31m", "").replace("\033[0m", "")) == []


def test_json_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    show_json({HOSTILE: [HOSTILE, "\U000e0001é"]})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {HOSTILE: [HOSTILE, "\U000e0001é"]}
    assert hidden(shown) == []


def test_a_proposed_configuration_keeps_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    show_text(f"name = {quoted(HOSTILE)}\n")
    shown = capsys.readouterr().out
    assert tomllib.loads(shown)["name"] == HOSTILE
    assert hidden(shown) == []


def test_an_error_is_one_line_wherever_it_is_shown() -> None:
    error = ReconcilerError(HOSTILE, hint=HOSTILE)
    for text in (str(error), error.message, str(error.hint), *error.args):
        assert hidden(text) == []
        assert len(text.splitlines()) == 1


# ---------------------------------------------------------------- by construction


@functools.cache
def calls(path: Path) -> list[str]:
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]


def test_one_module_writes_to_the_terminal() -> None:
    """The linter refuses ``print``; this finds the other ways. Uncaught exceptions are written by ``logs``."""
    writers = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for called in calls(path)
        if called == "print" or called.endswith(("stdout.write", "stderr.write", "stdout.buffer.write"))
    }
    assert writers == {"cli/terminal/output.py", "cli/terminal/logs.py"}


def test_only_renderers_declare_text_as_escaped() -> None:
    users = {path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py") if "Shown" in calls(path)}
    rest = {each for each in users if not each.startswith("cli/terminal/")}
    assert rest == {"cli/commands/config.py"}, "make text with line, wrap, stack or render"


def test_every_message_is_json_where_that_is_asked_for(estate: Estate) -> None:
    """A collector of logs would drop a line that is not, or stop at it."""
    estate.world.located(to="b")
    for words in (
        "anchors export out.jsonl --job clicks",
        "anchors import out.jsonl",
        "plan --set a.events:0=4",
        "plan -o p.json --job clicks",
        "apply p.json --yes",
        "apply p.json",
        "hook --job ready --plans plans",
        "move --to b",
        "init --bootstrap-servers kafka-b:9092 --alias a --store sqlite:///offsets.db -o made.toml",
    ):
        ended = estate.world.run("--log-format", "json", *words.split())
        assert ended.err, words
        assert all(json.loads(each)["message"] for each in ended.err.splitlines()), (words, ended.err)
