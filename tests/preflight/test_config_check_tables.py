"""``config check`` on jobs with their own tables, and on the sinks that jobs name."""

from __future__ import annotations

from pathlib import Path

import pytest

from reconciler.config.file import Config, load_config
from reconciler.core.errors import ExitCode
from reconciler.places.registry import open_store
from reconciler.preflight.stores import Level, TrialResult, Trials, doubtful_number, job_sinks
from reconciler.preflight.words import explained
from tests.failover.sinks.world import Query, query

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


__all__ = ["query"]


def tried(query: Query, *sinks: str) -> list[TrialResult]:
    query.sinks, trials = sinks, Trials()
    job_sinks(query.config().jobs[0], trials)
    return trials.found


def test_a_sink_says_which_batch_it_took_last(query: Query) -> None:
    (found,) = tried(query, f"files:{query.output}")
    assert (found.level, found.message) == (Level.OK, f"sink files:{query.output}: the last batch that it took is 2")


def test_a_sink_without_a_batch_is_a_warning_and_one_that_cannot_be_read_a_failure(query: Query) -> None:
    (query.output / "_spark_metadata" / "2").write_text("v1\nnot JSON")
    nothing, broken = tried(query, f"files:{query.folder}/misspelt", f"files:{query.output}")
    assert (nothing.level, broken.level, broken.code) == (Level.WARN, Level.FAIL, ExitCode.UNREACHABLE)
    assert "correct the job's sink" in nothing.next_step


def test_no_sink_hides_another(query: Query) -> None:
    query.extra = '[policy]\npython = ["math"]'
    first, second = tried(query, "python:math:floor", f"files:{query.output}")
    assert (first.level, second.level) == (Level.FAIL, Level.OK)
