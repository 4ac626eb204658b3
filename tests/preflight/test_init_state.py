"""``init -c FILE`` makes the state store that a configuration names: once, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.cli.main import main
from reconciler.state.store import open_state
from tests.config import configurations
from tests.starting import state_of

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(state: str) -> Path:
        path = tmp_path / "reconciler.toml"
        path.write_text(f"{state}{configurations.LEAST}")
        return path

    return to_file


def test_a_store_is_made_once_and_keeps_its_id_and_what_it_holds(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"sqlite:///{tmp_path}/state.db"
    path = write(f'[state]\nstore = "{address}"\n')
    configuration = path.read_bytes()
    said = []
    for _ in range(2):
        assert main(["init", "-c", str(path)]) == 0
        said.append(capsys.readouterr().out)
        state_of(path, "clicks", "a")
    assert said[0] == said[1]
    assert open_state(address).id[:8] in said[0]
    assert len(state_of(path, "clicks", "a").history()) == 1
    assert (path.read_bytes(), {each.name for each in tmp_path.iterdir()}) == (
        configuration,
        {"reconciler.toml", "state.db"},
    )


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("", 2, "[state] store is missing"),
        ('[state]\nstore = "redis://x"\n', 2, "There is no state store with the scheme 'redis'"),
        ('[state]\nstore = "sqlite:state.db"\n', 2, "it names no file"),
        ('[state]\nstore = "sqlite:////nowhere/state.db"\n', 6, "/nowhere"),
        ('[state]\nstore = "files:local:///dev/null/x"\n', 6, "/dev/null"),
    ],
)
def test_a_store_that_cannot_be_made_is_a_sentence(
    write: Write, capsys: pytest.CaptureFixture[str], state: str, code: int, said: str
) -> None:
    assert main(["init", "-c", str(write(state))]) == code
    assert said in capsys.readouterr().err
