"""Arguments of the wrong kind: each function for jobs refuses them in a sentence, and writes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import Changed, ConfigError
from reconciler.spark import handoff
from reconciler.spark.handoff.arguments import checkpoint_base
from reconciler.spark.handoff.locations import NOTE
from reconciler.trust import signing
from tests.spark.handoff.test_handoff import SMALL
from tests.spark.handoff.test_proof import LASTS, START
from tests.trust.test_signing import make

BOM = b"\xef\xbb\xbf"
STARTED = replace(handoff.load(SMALL), start=START)


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value)


# ---------------------------------------------------------------- checkpoints


def test_a_checkpoints_location_may_be_a_path(tmp_path: Path) -> None:
    base = tmp_path / "clicks"
    assert STARTED.checkpoint(base) == str(base)
    assert STARTED.transaction_id(base) == STARTED.transaction_id(str(base))
    assert (base / NOTE).exists()


@pytest.mark.parametrize(
    "base",
    ["", "/", "//", ".", "..", "a/..", "a/.", "s3://", "s3://bucket", "s3://bucket/", "file:///", "file:/", "file:"],
)
def test_a_checkpoint_needs_a_folder_of_its_own(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its note would stand in the file system's root, or in another one than the query's."""

    def opened(url: str) -> None:
        pytest.fail(f"{url} was opened")

    monkeypatch.setattr("reconciler.spark.handoff.locations.open_folder", opened)
    assert "checkpoint" in refused(lambda: STARTED.checkpoint(base))
    assert "checkpoint" in refused(lambda: STARTED.transaction_id(base))


def test_a_place_that_may_be_on_another_machine_is_not_taken_for_a_folder_here() -> None:
    assert "Write hdfs://HOST/PATH" in refused(lambda: STARTED.checkpoint("hdfs:/checkpoints/clicks"))


@pytest.mark.parametrize("base", ["~/clicks", "~", "~ada/clicks", "~clicks", "file:~/clicks", Path("~/clicks")])
def test_a_home_folder_is_not_taken_for_one_that_spark_finds(
    base: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would write to a folder named "~" in its working directory, and the note would stand in the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for call in (STARTED.checkpoint, STARTED.transaction_id):
        assert "Spark does not know ~" in refused(lambda call=call: call(base))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("base", "parent"),
    [
        ("./~/clicks", "./~"),
        ("/data/~/clicks", "/data/~"),
        ("s3://~/clicks", "s3://~/"),
        ("clicks", "."),
        ("/clicks", "/"),
        ("/data/clicks/", "/data"),
        ("file:clicks", "file:"),
        ("file:///clicks", "file:///"),
        ("file:///data/clicks", "file:///data"),
        ("file:/clicks", "file:/"),
        ("hdfs:///clicks", "hdfs:///"),
        ("s3://bucket/data/clicks//", "s3://bucket/data"),
    ],
)
def test_a_note_stands_beside_the_query(base: str, parent: str) -> None:
    assert checkpoint_base(base) == (base.rstrip("/"), parent, "clicks")


# ---------------------------------------------------------------- ends of a batch read


@pytest.mark.parametrize("end", ["5", "", 15.5, 15.0, float("nan"), 10**20, 2**63, -2, True, None, [15]])
def test_an_end_is_an_offset(end: Any) -> None:
    said = refused(lambda: handoff.read_options(SMALL, ending_offsets={"a.events": {"0": end, "1": 20}}))
    assert "for a.events partition 0, which is not an offset" in said


# ---------------------------------------------------------------- options


SERVERS = "kafka.bootstrap.servers"


@pytest.mark.parametrize(
    "extra",
    [
        *({SERVERS: None}, {SERVERS: ""}, {SERVERS.upper(): " "}, {SERVERS: 9092}),
        *({"a": None}, {"a": ["b"]}, {1: "a"}, {None: "a"}, "abc", [("a", "b")], 5),
    ],
)
def test_options_of_the_source_are_texts_by_name(extra: Any) -> None:
    assert "extra" in refused(lambda: handoff.read_stream_options(SMALL, extra=extra))
    assert "extra" in refused(lambda: handoff.read_options(SMALL, extra=extra))


@pytest.mark.parametrize("client", [{"bootstrap.servers": None}, {"bootstrap.servers": ""}, {1: "a"}, "a=hush", 5])
def test_a_client_is_settings_by_name(client: Any) -> None:
    for call in (
        lambda: handoff.load(SMALL).also("events", kafka_client=client),
        lambda: handoff.load(SMALL).matching(".*", kafka_client=client),
        lambda: replace(STARTED, is_whole=False, vouched=False).whole(client),
    ):
        said = refused(call)
        assert "kafka_client" in said
        assert "hush" not in said


# ---------------------------------------------------------------- plans, jobs, topics


@pytest.mark.parametrize("plan", [None, 5, b"p", "", [], "a\0b"])
def test_a_plan_is_a_path(plan: Any) -> None:
    assert "A plan must be a path" in refused(lambda: handoff.load(plan))


def test_other_arguments_are_of_their_kind() -> None:
    wrong: Any = 5
    start = handoff.load(SMALL)
    for call, words in (
        (lambda: start.also(wrong), "A topic must be named by a text"),
        (lambda: start.also(["events"]), "A topic must be named by a text"),
        (lambda: start.also("events", new=wrong), "new = 5 is not known"),
        (lambda: start.also("events", new=[]), "new = a list is not known"),
        (lambda: start.matching(".*", new=wrong), "new = 5 is not known"),
        (lambda: start.matching(wrong), "The pattern must be a text"),
        (lambda: start.matching(re.compile("a")), "The pattern must be a text"),
        (lambda: start.matching("a{99999999999}"), "is not a regular expression that Python reads"),
        (lambda: start.joined(wrong), "joined() takes another hand-off"),
        (lambda: handoff.from_environment(environ=wrong), "environ must be variables by name"),
    ):
        assert words in refused(call)


# ---------------------------------------------------------------- a byte order mark


def test_a_plan_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As for the commands. A signature is made over the file's bytes, the mark among them."""
    path, key = tmp_path / "plan.json", make(tmp_path, "ada")
    path.write_bytes(BOM + LASTS.to_text().encode())
    assert handoff.starting_offsets(path) == handoff.starting_offsets(LASTS)
    signing.sign(path, path.read_bytes(), LASTS.sha256, signing.private_key(key.private, None))
    assert handoff.load(path, trusted_keys=[os.fspath(key.public)]).vouched
    path.write_text(LASTS.to_text())
    with pytest.raises(Changed, match="is not the one that was signed"):
        handoff.load(path, trusted_keys=[key.public])
