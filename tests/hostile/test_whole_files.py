"""Files that commands read, with hostile content: a sentence and an exit code, never a bug (1)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.cli import main as command_line
from reconciler.places.registry import open_store
from reconciler.plan.document import digest

CONFIG = """
[clusters.a]
[clusters.b]
bootstrap_servers = "127.0.0.1:1"
[search]
deadline = "1s"
[[jobs]]
home = "a"
name = "clicks"
group = "readers"
topics = ["events"]
offsets = "sqlite:///FOLDER/offsets.db"
"""
PLAN = {
    "format": "reconciler.plan/1",
    "tool_version": "0",
    "created_at": "2026-01-01T00:00:00Z",
    "expires_at": "2999-01-01T00:00:00Z",
    "source": {"name": "a", "cluster_id": None},
    "destination": {"name": "b", "bootstrap_servers": "127.0.0.1:1", "cluster_id": "b"},
    "jobs": [],
}


def plan() -> bytes:
    return json.dumps({**PLAN, "sha256": digest(PLAN)}).encode()


def noise(seed: int) -> bytes:
    chance = random.Random(seed)
    return bytes(chance.randrange(256) for _ in range(chance.randrange(400)))


def slips(seed: int) -> bytes:
    """A good plan with a few bytes changed."""
    chance, data = random.Random(seed), bytearray(plan())
    for _ in range(3):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


CONTENTS: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "a NUL": lambda: b"\0",
    "no UTF-8": lambda: b"\xff\xfe{}",
    "null": lambda: b"null",
    "lists without end": lambda: b"[" * 100_000,
    "objects without end": lambda: b'{"format":' * 100_000,
    "an endless number": lambda: b'{"format": ' + b"9" * 1_000_000 + b"}",
    "an endless line": lambda: b"x" * (4 << 20),
    "half a plan": lambda: plan()[: len(plan()) // 2],
    "a plan and more": lambda: plan() + plan(),
    **{f"noise {seed}": (lambda seed=seed: noise(seed)) for seed in range(4)},
    **{f"slips {seed}": (lambda seed=seed: slips(seed)) for seed in range(6)},
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "reconciler.toml").write_text(CONFIG.replace("FOLDER", str(tmp_path)))
    store = open_store(f"sqlite:///{tmp_path / 'offsets.db'}")
    store.create()
    store.close()
    yield tmp_path
    assert not (tmp_path / "plan.json.applied.json").exists()


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("command", ["show", "show --html", "apply"])
def test_a_plan_file_of_anything_is_refused(folder: Path, command: str, content: Callable[[], bytes]) -> None:
    path, config = folder / "plan.json", folder / "reconciler.toml"
    path.write_bytes(content())
    more = {
        "show --html": [str(folder / "page.html")],
        "apply": ["-c", str(config), "--yes"],
    }.get(command, [])
    name, *options = command.split()
    assert command_line.main([name, str(path), *options, *more]) in (2, 5)


def test_a_plan_that_is_not_text_is_said_to_be_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "plan.json"
    path.write_bytes(CONTENTS["no UTF-8"]())
    assert command_line.main(["show", str(path)]) == 5
    assert f"{path}: The file is not a plan: it is not text." in capsys.readouterr().err


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_configuration_of_anything_is_refused(folder: Path, content: Callable[[], bytes]) -> None:
    path = folder / "other.toml"
    path.write_bytes(content())
    assert command_line.main(["plan", "-c", str(path)]) == 2


# ---------------------------------------------------------------- names that are paths


@pytest.mark.parametrize(
    "group", ["..", ".", "../../escaped", "/etc/escaped", "a/../b", "~", "a\\b", "x" * 4000, ".hidden"]
)
def test_a_groups_name_is_no_path_for_its_manifests(folder: Path, group: str) -> None:
    from reconciler.core.anchors import StoredOffset
    from reconciler.ports import Change, TopicPartition

    base = folder / "deep" / "manifests"
    base.parent.mkdir()
    before = set(folder.rglob("*"))
    store = open_store(f"files:{base}")
    store.create()
    change = Change(TopicPartition("../../topic", 0), None, StoredOffset(7))
    assert not store.write(group, [change], reason="test", now_ms=1).conflicts
    assert [row.stored.offset for row in store.read(group)] == [7]
    assert store.read("another") == []
    made = set(folder.rglob("*")) - before - {base}
    assert made
    assert all(base in path.parents for path in made)
    (below,) = base.iterdir()
    assert below.is_dir()
