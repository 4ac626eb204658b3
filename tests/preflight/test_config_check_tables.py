"""``config check`` on jobs that keep their offsets in their own tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.config.file import Config, load_config
from reconciler.places.registry import open_store
from reconciler.preflight.stores import Level, Trials, doubtful_number
from reconciler.preflight.words import explained

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


@pytest.mark.parametrize(
    ("store", "words"),
    [
        (JOURNAL, "A stored number is taken for the next offset to read."),
        (f"{JOURNAL}&number=last", "A stored number is taken for the last one processed: the job goes on at the next."),
        ("zookeeper://h/kafka?layout=single&number=last", "taken for the last one processed"),
        ("hbase://h/t?layout=cloudera&number=last", "taken for the last one processed"),
        ("delta:/t?layout=txn&app_id=x-{partition}&topic_name=t&partitions=1&number=last", "the last one processed"),
        (TABLE, "A stored number is taken for the next offset to read."),
    ],
)
def test_the_meaning_of_a_jobs_number_is_said_in_words(tmp_path: Path, store: str, words: str) -> None:
    config = job_at(tmp_path, store)
    opened = open_store(store)
    said = explained(config, config.jobs, {"j": opened.capabilities})
    opened.close()
    assert words in "\n".join(line for section in said for line in section.lines)
