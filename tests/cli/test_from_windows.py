"""Plans and anchor lines that an editor on Windows has saved: with a byte order mark, and CR before each line's end."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.cli.commands.anchors import _read_lines
from reconciler.cli.context import read_plan
from reconciler.core.errors import Changed
from reconciler.spark.audit.run import _plan_of as plan_of_audit
from tests.plan.test_plan import part, plan_of

MARK = b"\xef\xbb\xbf"
LINE = '{"format": "reconciler.anchors/1", "group": "g", "topic": "events", "partition": %d, "stored_offset": 7}\n'


@pytest.mark.parametrize("begin", [b"", MARK])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_plan_is_the_same(tmp_path: Path, begin: bytes, end: str) -> None:
    plan, path = plan_of(part()), tmp_path / "plan.json"
    path.write_bytes(begin + plan.to_text().replace("\n", end).encode())
    assert [read(path) for read in (read_plan, plan_of_audit)] == [plan] * 2


@pytest.mark.parametrize("begin", [b"", MARK])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_anchor_lines_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: bytes, end: str) -> None:
    path = tmp_path / "anchors.jsonl"
    path.write_bytes(begin + "".join(LINE % number for number in range(2)).replace("\n", end).encode())
    assert [line.key.partition for line in _read_lines(str(path))[0]] == [0, 1]
    with path.open(encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert [line.key.partition for line in _read_lines(None)[0]] == [0, 1]


def test_an_empty_plan_is_called_empty(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.touch()
    with pytest.raises(Changed, match=r"plan\.json: The file is not a plan: it is empty\."):
        read_plan(path)
