"""Arguments of the wrong kind: each function for jobs refuses them in a sentence, and writes nothing."""

from __future__ import annotations

import os
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


# ---------------------------------------------------------------- other arguments


@pytest.mark.parametrize("end", ["5", 15.5, 2**63, -2, None])
def test_an_end_is_an_offset(end: Any) -> None:
    said = refused(lambda: handoff.read_options(SMALL, ending_offsets={"a.events": {"0": end, "1": 20}}))
    assert "for a.events partition 0, which is not an offset" in said


@pytest.mark.parametrize("given", [{"bootstrap.servers": None}, {"bootstrap.servers": " "}, {"a": None}])
def test_an_option_has_a_value(given: Any) -> None:
    assert "kafka_client has no value" in refused(lambda: handoff.load(SMALL).also("events", kafka_client=given))
    extra = {f"kafka.{name}": value for name, value in given.items()}
    assert "extra has no value" in refused(lambda: handoff.read_stream_options(SMALL, extra=extra))


def test_a_word_or_an_expression_that_is_not_known_is_refused() -> None:
    start = handoff.load(SMALL)
    assert "new = 'first' is not known" in refused(lambda: start.also("events", new="first"))
    assert "is not a regular expression that Python reads" in refused(lambda: start.matching("a{99999999999}"))


# ---------------------------------------------------------------- a byte order mark


def test_a_plan_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    """As for the commands. A signature is made over the file's bytes, the mark among them."""
    path, key = tmp_path / "plan.json", make(tmp_path, "ada")
    path.write_bytes(BOM + LASTS.to_text().encode())
    assert handoff.starting_offsets(path) == handoff.starting_offsets(LASTS)
    signing.sign(path, path.read_bytes(), LASTS.sha256, signing.private_key(key.private))
    assert handoff.load(path, trusted_keys=[os.fspath(key.public)]).vouched
    path.write_text(LASTS.to_text())
    with pytest.raises(Changed, match="is not the one that was signed"):
        handoff.load(path, trusted_keys=[key.public])
