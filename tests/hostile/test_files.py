"""Commands on randomly changed files: each ends with a sentence and a code of the contract, never as a bug."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from reconciler.config.table import UNITS
from reconciler.plan.document import digest
from tests.hostile.estate import CONFIG, Again
from tests.hostile.fuzz import (
    ODD_TEXTS,
    SCALARS,
    documents,
    fuzz,
    lines,
    sized_for_commands,
    slips,
    with_field,
)

SIGNATURE = "p.json.sig"
LOCATION, NUMBERS = f"state/location/ready/{2:020}.json", f"state/plan/clicks/{1:020}.json"
COMMANDS = {
    "p.json": """
        show p.json
        show p.json --starting-offsets --job clicks
        show p.json --html x.html
        show p.json CONFIG
        apply p.json CONFIG --yes
        apply p.json CONFIG --dry-run
        sign p.json --key ada.pem --yes
    """,
    SIGNATURE: """
        show p.json CONFIG
        apply p.json CONFIG --yes
        sign p.json --key ada.pem --yes
    """,
    "anchors.jsonl": """
        anchors import CONFIG anchors.jsonl
        anchors import CONFIG --replace anchors.jsonl
    """,
    LOCATION: """
        status CONFIG
        status CONFIG --history
        move CONFIG --cancel --job ready
        hook CONFIG --job ready -- true
    """,
    NUMBERS: """
        rollback CONFIG --job clicks --yes
        apply p.json CONFIG --yes
    """,
    "ada.pub.pem": """
        show p.json CONFIG
        apply p.json CONFIG --yes
    """,
}
"""The files, each with commands that read it."""
WITH_SETTINGS = """
    plan CONFIG
    config check CONFIG --offline
    config check CONFIG
    status CONFIG
    move CONFIG --to b --yes
    plan CONFIG -o new.json
    apply p.json CONFIG --yes
    hook CONFIG --job clicks
    anchors export CONFIG
    show p.json CONFIG
    track CONFIG --once
    watch CONFIG --once
"""


def one_of(commands: str) -> st.SearchStrategy[list[str]]:
    lines = [line.replace("CONFIG", "-c reconciler.toml").split() for line in commands.strip().split("\n")]
    return st.sampled_from(lines)


@pytest.fixture
def again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Again:
    return Again(tmp_path, monkeypatch)


def contents(folder: Path, name: str) -> st.SearchStrategy[bytes]:
    data = (folder / name).read_bytes()
    if name == "ada.pub.pem":
        return slips([data])
    if name == "anchors.jsonl":
        return lines([json.loads(line) for line in data.splitlines()])
    finish = (lambda plan: with_field(plan, "sha256", digest(plan))) if name == "p.json" else (lambda value: value)
    return documents([json.loads(data)], finish)


@sized_for_commands
def test_any_file_that_a_command_reads_ends_it_with_a_sentence(again: Again, runs: int) -> None:
    def claim(drawn: tuple[list[str], dict[str, bytes]]) -> None:
        again.run(*drawn)

    folder = again.world.folder
    files = [st.fixed_dictionaries({name: contents(folder, name)}) for name in COMMANDS]
    inputs = [st.tuples(one_of(COMMANDS[name]), file) for name, file in zip(COMMANDS, files, strict=True)]
    fuzz(runs, st.one_of(inputs), claim)


ANYTHING = [
    *(b"", b"\0", b"\xff\xfe{}", b"null", b"[" * 100_000, b'{"format":' * 100_000, b"x" * (4 << 20)),
    b'{"format": ' + b"9" * 1_000_000 + b"}",
]


@pytest.mark.parametrize("content", ANYTHING, ids=lambda content: repr(content[:12]))
def test_a_file_of_anything_is_refused_by_every_command_that_reads_it(again: Again, content: bytes) -> None:
    for words in ("show p.json", "show p.json --html x.html", "apply p.json -c reconciler.toml --yes"):
        assert again.run(words.split(), {"p.json": content}).code == 5
    refused = again.run(["status", *CONFIG], {"reconciler.toml": content or b"["})
    assert refused.code == 2


def test_half_a_plan_and_two_plans_are_none(again: Again) -> None:
    whole = (again.world.folder / "p.json").read_bytes()
    for content in (whole[: len(whole) // 2], whole + whole):
        assert again.run(["show", "p.json"], {"p.json": content}).code == 5


# ---------------------------------------------------------------- the configuration

EVERYTHING = """
[clusters.b.client]
"client.id" = "x"
[topics]
policy = "default"
separator = "."
[state]
store = "sqlite:///state.db"
[search]
max_disorder = "5s"
scan_records = 1000
deadline = "5s"
[policy]
new = "earliest"
behind = "start"
max_replay = 10
no_anchor = "mirror"
plan_expires = "1d"
python = []
[trust]
require_signature = false
signing_key = "ada.pem"
[watch]
listen = "127.0.0.1:0"
every = "60s"
requests_per_second = 5
[metrics]
textfile = "figures"
[mirror]
offset_syncs_topic = "syncs"
checkpoints_topic = "checkpoints"
"""
_DURATIONS = st.tuples(
    st.sampled_from(["0", "1", "9" * 18, "9" * 400, "-1", "1.5"]), st.sampled_from([*UNITS, "", "y"])
)
VALUES = (
    SCALARS.map(lambda value: value if isinstance(value, str) else json.dumps(value).lower().replace('"', ""))
    | _DURATIONS.map("".join)
    | st.sampled_from(["2026-01-31", "00:00:00", "0x_", "1e400", "inf", "nan", "[]", "{}", "[[1]]", "9" * 5_000])
)


def toml(text: str) -> str:
    """A basic string of TOML, which has no lone surrogates."""
    return json.dumps(text.encode("utf-8", "replace").decode()).replace("\x7f", "\\u007f")


@sized_for_commands
def test_any_value_of_any_setting_ends_a_command_with_a_sentence(again: Again, runs: int) -> None:
    """What a user may have written, and what the environment puts in its place."""
    whole = (again.world.folder / "reconciler.toml").read_text()
    rows = [*whole.splitlines(), *EVERYTHING.splitlines()]
    settings = [number for number, row in enumerate(rows) if " = " in row]

    def claim(drawn: tuple[list[str], int, str, str, str]) -> None:
        words, number, value, kind, secret = drawn
        key = rows[number].partition(" = ")[0]
        written = {"text": toml(value), "list": f"[{toml(value)}]", "raw": value, "variable": '"${ANY}"'}[kind]
        changed = [row if place != number else f"{key} = {written}" for place, row in enumerate(rows)]
        again.world.environ(ANY=secret)
        again.run(words, {"reconciler.toml": "\n".join(changed).encode("utf-8", "replace")})

    secrets = st.binary(max_size=9).map(lambda data: data.replace(b"\0", b"").decode(errors="surrogateescape"))
    kinds = st.sampled_from(["text", "text", "list", "raw", "variable"])
    drawn: Any = st.tuples(one_of(WITH_SETTINGS), st.sampled_from(settings), VALUES | ODD_TEXTS, kinds, secrets)
    fuzz(runs, drawn, claim)
