"""Checkpoints of Spark as folders, whatever their files hold: shown and read as a store, or refused with a sentence."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import strategies as st

from reconciler.core.errors import ExitCode
from reconciler.places.checkpoint.reading import MANIFEST, read_checkpoint
from reconciler.places.checkpoint.show import describe
from reconciler.places.registry import end_of_batch, open_store
from tests.failover.checkpoint.checkpoint_files import Files
from tests.hostile.fuzz import JUNK, attempt, documents, fuzz, sized, slips


def made(path: Path, *, stopped: bool) -> Path:
    """A checkpoint of two sources, and of a copy that was made of one."""
    files = Files(path)
    files.began({"orders": {0: 0, 1: 0}})
    files.put("sources/1/0", "v1\n7")
    files.batch(0, {"orders": {0: 6, 1: 7}}, '{"logOffset":0}')
    if stopped:
        files.planned(1, {"orders": {0: 9, 1: 9}}, '{"logOffset":1}')
    files.put(MANIFEST, json.dumps({"from": "/srv/clicks"}))
    return path


@sized
def test_any_file_of_a_checkpoint_is_understood_or_refused_with_a_sentence(runs: int, tmp_path: Path) -> None:
    originals = {
        is_stopped: made(tmp_path / f"original-{is_stopped}", stopped=is_stopped) for is_stopped in (False, True)
    }
    names = sorted(str(path.relative_to(originals[True])) for path in originals[True].rglob("[!.]*") if path.is_file())
    contents = {path.name: path.read_bytes() for path in originals[True].rglob("[!.]*") if path.is_file()}
    assert all(read_checkpoint(str(path)).positions for path in originals.values())

    def claim(drawn: tuple[bool, str, bytes | None]) -> None:
        is_stopped, name, data = drawn
        here = originals[is_stopped]
        file = here / name
        before = file.read_bytes() if file.exists() else None
        _put(file, data)
        try:
            judge(here)
        finally:
            _put(file, before)

    def judge(here: Path) -> None:
        shown = attempt(partial(describe, here), ExitCode.UNREACHABLE)
        rows = attempt(partial(_rows, f"checkpoint:{here}"), ExitCode.UNREACHABLE)
        attempt(partial(_rows, end_of_batch(f"checkpoint:{here}")), ExitCode.UNREACHABLE)
        assert (shown is None) == (rows is None)
        if shown is not None:
            json.dumps(shown.to_json()).encode()

    texts = [data for name, data in contents.items() if b"{" in data]
    values = [json.loads(text) for data in texts for text in data.decode().split("\n") if text.startswith("{")]
    lines = documents(values).map(lambda data: b"v1\n" + data)
    data = st.none() | slips([*texts, *JUNK]) | documents(values) | lines | lines.map(lambda data: b"\0" + data)
    other = ["offsets/2", "offsets/07", f"offsets/{'9' * 19}", "commits/5", "sources/2/0", "state/0/_metadata/v2/3"]
    fuzz(runs, st.tuples(st.booleans(), st.sampled_from([*names, *other]), data), claim)


def _put(file: Path, data: bytes | None) -> None:
    file.unlink(missing_ok=True)
    if data is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def _rows(address: str) -> list[object]:
    rows = open_store(address).read("clicks")
    assert all(row.malformed is None and row.stored.offset >= 0 for row in rows)
    return [*rows]


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("commits/0", "v" + "9" * 5_000),
        ("state/0/_metadata/metadata", f"v1\n{DEEP}"),
        (MANIFEST, DEEP),
        (MANIFEST, '{"from": "\\ud800"}'),
    ],
)
def test_a_file_that_only_says_more_about_a_checkpoint_keeps_nothing_from_being_shown(
    tmp_path: Path, name: str, content: str
) -> None:
    path = made(tmp_path / "checkpoint", stopped=True)
    (path / name).write_text(content)
    assert [each["start"] for each in describe(path).to_json()["sources"]] == [{"orders": {"0": 6, "1": 7}}, None]
