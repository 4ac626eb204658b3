"""``config check`` on jobs that keep their offsets in their own tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.config.file import load_config
from reconciler.preflight.results import Level
from reconciler.preflight.stores import unmovable

TABLE = "delta:/srv/clicks?layout=commit&number=next"


@pytest.mark.parametrize(
    ("policy", "store", "is_told"),
    [("default", TABLE, False), ("identity", TABLE, True), ("identity", "sqlite:////srv/offsets.db", False)],
)
def test_a_job_that_the_hook_could_not_move_is_told(tmp_path: Path, policy: str, store: str, is_told: bool) -> None:
    path = tmp_path / "reconciler.toml"
    path.write_text(
        f'[source]\nalias = "a"\n[destination]\nbootstrap_servers = "b:1"\n[topics]\npolicy = "{policy}"\n'
        f'[[jobs]]\nname = "j"\ngroup = "g"\ntopics = ["events"]\nstore = "{store}"\n'
    )
    config = load_config(path)
    found = list(unmovable(config, config.jobs[0]))
    assert [each.level for each in found] == ([Level.WARN] if is_told else [])
    assert all('Topic "events" has one name on both sides' in each.message for each in found)
