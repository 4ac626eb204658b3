"""``config check`` on jobs with their own tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.config.file import Config, load_config
from reconciler.preflight.stores import Level, Trials, doubtful_number

TABLE = "delta:/srv/clicks?layout=commit&number=next"


JOURNAL = "postgresql://h/db?table=journal&topic=topic&partition=partition&offset=last_processed_offset"


def job_at(tmp_path: Path, store: str) -> Config:
    path = tmp_path / "reconciler.toml"
    path.write_text(
        f'[clusters.a]\n[clusters.b]\nbootstrap_servers = "b:1"\n'
        f'[[jobs]]\nhome = "a"\nname = "j"\ngroup = "g"\ntopics = ["events"]\noffsets = "{store}"\n'
    )
    return load_config(path)


@pytest.mark.parametrize(
    ("store", "is_told"),
    [(JOURNAL, True), (f"{JOURNAL}&number=next", False), (f"{JOURNAL}&number=last", False), (TABLE, False)],
)
def test_a_name_that_says_something_else_than_the_address_is_told(tmp_path: Path, store: str, is_told: bool) -> None:
    trials = Trials()
    doubtful_number(job_at(tmp_path, store).jobs[0], trials)
    found = trials.found
    assert [each.level for each in found] == ([Level.WARN] if is_told else [])
    assert all('"last_processed_offset" suggests the last processed offset' in each.message for each in found)
    assert all("add &number=last to its store's address" in each.next_step for each in found)
