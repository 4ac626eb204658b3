"""The hand-off of a start that the hook wrote: on either side, and where the query keeps its checkpoint."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.core.errors import ConfigError, NeedsPerson
from reconciler.core.policies import StartPlace
from reconciler.core.question import StartAt
from reconciler.formats.start import JobStart, Side, parse_start
from reconciler.kafka.memory import MemoryLog
from reconciler.spark import handoff
from reconciler.spark.handoff.locations import NOTE, location
from reconciler.spark.handoff.source import complete_from

AT_A = JobStart(
    tool_version="1",
    created_at="2026-01-31T06:00:00Z",
    job="clicks",
    group="clicks",
    side=Side.SOURCE,
    bootstrap_servers="kafka-a:9092",
    cluster_id="a",
    topics=("events",),
    offsets={"events": {"1": 7}},
    new=StartAt(),
    may_be_new=False,
    include_headers=True,
)
AT_B = replace(
    AT_A,
    side=Side.DESTINATION,
    bootstrap_servers="kafka-b:9092",
    cluster_id="b",
    topics=("a.events",),
    offsets={"a.events": {"0": 3, "1": 5}},
    correction="20260131T060000-000-7",
)


def environment(folder: Path, start: JobStart, **more: str) -> dict[str, str]:
    path = folder / "start.json"
    path.write_text(start.to_text())
    return {handoff.START_VARIABLE: str(path), **more}


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize(
    "start",
    [
        AT_A,
        AT_B,
        replace(AT_A, new=StartAt(StartPlace.TIME, 5), store="kafka-group:"),
        replace(AT_A, topic_ids={"events": ("x", "y")}),
    ],
)
def test_a_start_is_read_as_it_was_written(start: JobStart) -> None:
    assert parse_start(start.to_text(), "it") == start


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        AT_A.to_text().replace("kafka-a", "kafka-b"),
        AT_A.to_text().replace('"1": 7', '"1": -7'),
        AT_A.to_text().replace("reconciler.start/1", "reconciler.start/2"),
    ],
)
def test_a_start_that_was_altered_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"it is not what the hook wrote.*Start the job by `reconciler hook` again"):
        parse_start(text, "it")


# ---------------------------------------------------------------- options


def test_at_the_destination_the_job_gets_everything_it_needs(tmp_path: Path) -> None:
    start = handoff.from_environment(environ=environment(tmp_path, AT_B, RECONCILER_BOOTSTRAP_SERVERS="kafka-b:9092"))
    assert (start.side, start.bootstrap_servers) == (Side.DESTINATION, "kafka-b:9092")
    assert start.read_stream_options() == {
        "kafka.bootstrap.servers": "kafka-b:9092",
        "subscribe": "a.events",
        "startingOffsets": '{"a.events":{"0":3,"1":5}}',
        "failOnDataLoss": "true",
        "includeHeaders": "true",
    }


def test_another_job_is_not_handed_this_start(tmp_path: Path) -> None:
    environ = environment(tmp_path, AT_B)
    with pytest.raises(ConfigError, match="has started job clicks, not views"):
        handoff.from_environment("views", environ=environ)
    assert handoff.from_environment(["clicks"], environ=environ).job == "clicks"
    (tmp_path / "start.json").unlink()
    with pytest.raises(ConfigError, match=r"RECONCILER_START names .* which cannot be read"):
        handoff.from_environment(environ=environ)


def test_a_source_that_is_away_is_an_error_of_the_job(tmp_path: Path) -> None:
    start = handoff.from_environment(environ=environment(tmp_path, AT_A))
    asked = [start.read_stream_options, start.read_options, start.starting_offsets_json]
    assert [call.__name__ for call in asked if start.is_whole] == []


# ---------------------------------------------------------------- the source's partitions


@pytest.fixture
def source() -> MemoryLog:
    log = MemoryLog("a", {"events": 3})
    for second in range(5):
        log.partition("events", 0).append(1_000 * second, b"k", b"v")
    return log


def test_partitions_without_a_stored_offset_start_as_new_ones_do(source: MemoryLog) -> None:
    def completed(new: StartAt) -> dict[str, dict[str, int]]:
        return complete_from(replace(AT_A, new=new), source, {})

    assert completed(StartAt()) == {"events": {"0": -2, "1": 7, "2": -2}}
    assert completed(StartAt(StartPlace.LATEST)) == {"events": {"0": -1, "1": 7, "2": -1}}
    assert completed(StartAt(StartPlace.TIME, 3_000)) == {"events": {"0": 3, "1": 7, "2": 0}}
    assert completed(StartAt(StartPlace.TIME, 9_000)) == {"events": {"0": 5, "1": 7, "2": 0}}, "not at the latest"


def test_offsets_of_another_cluster_are_not_read_at_the_source(source: MemoryLog) -> None:
    with pytest.raises(NeedsPerson, match="is a, and the offsets that job clicks has stored are in the numbering of b"):
        complete_from(replace(AT_A, cluster_id="b"), source, {})
    with pytest.raises(ConfigError, match="has no topic clicks"):
        complete_from(replace(AT_A, topics=("clicks",)), source, {})


def test_offsets_of_a_topic_that_was_deleted_are_not_read_at_the_source(source: MemoryLog) -> None:
    """The new topic's numbers begin again: the old ones would skip its records, or lie behind its end."""
    older = replace(AT_A, topic_ids={"events": ("an older one",)})
    with pytest.raises(NeedsPerson, match=r"events was deleted and created again .* are of an older one"):
        complete_from(older, source, {})
    same = replace(AT_A, topic_ids={"events": (source.topic_ids["events"],)})
    assert complete_from(same, source, {}) == complete_from(AT_A, source, {})


@pytest.fixture
def at_source(monkeypatch: pytest.MonkeyPatch) -> MemoryLog:
    """The cluster that a start at the source looks into."""
    log = MemoryLog("a", {"events": 2, "views": 2})
    monkeypatch.setattr("reconciler.spark.handoff.source.complete", lambda start, client: complete_from(start, log, {}))
    return log


def handed(folder: Path, start: JobStart) -> handoff.Handoff:
    environ = environment(folder, start, RECONCILER_BOOTSTRAP_SERVERS=start.bootstrap_servers)
    return handoff.from_environment(environ=environ)


VIEWS = replace(AT_A, job="views", group="views", topics=("views",), offsets={"views": {"0": 9}}, include_headers=False)


def test_jobs_joined_at_the_source_keep_the_topics_and_headers_of_both(at_source: MemoryLog, tmp_path: Path) -> None:
    clicks, views = handed(tmp_path, AT_A), handed(tmp_path, VIEWS)
    for options in (clicks.joined(views).read_stream_options(), views.joined(clicks).read_stream_options()):
        assert options["startingOffsets"] == '{"events":{"0":-2,"1":7},"views":{"0":9,"1":-2}}'
        assert options["includeHeaders"] == "true"
    with pytest.raises(ConfigError, match="both have a start for events"):
        clicks.joined(handed(tmp_path, replace(AT_A, job="other", offsets={})))


def test_a_topic_of_the_job_cannot_be_added_at_the_source(
    at_source: MemoryLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stored offsets, which are looked up there, would be replaced by the start of a new topic."""
    monkeypatch.setattr("reconciler.spark.handoff.cluster.partitions_of", lambda *_: {"events": (0, 1), "views": (0,)})
    start = handed(tmp_path, replace(AT_A, offsets={}, may_be_new=True))
    with pytest.raises(ConfigError, match="has events already"):
        start.also("events", "views", new="latest")


def test_a_correction_of_either_of_two_joined_jobs_needs_another_checkpoint(tmp_path: Path) -> None:
    base, views = str(tmp_path / "c"), replace(AT_B, job="views", offsets={"a.views": {"0": 9}}, correction="20260130")
    assert handed(tmp_path, views).joined(handed(tmp_path, AT_B)).checkpoint(base) == base
    corrected = handed(tmp_path, replace(AT_B, correction="20260202"))
    assert handed(tmp_path, views).joined(corrected).checkpoint(base) == f"{base}-2"
    assert handed(tmp_path, views).joined(corrected).checkpoint(base) == f"{base}-2"


def test_a_store_that_lives_in_the_source_is_read_there(source: MemoryLog) -> None:
    from reconciler.core.anchors import Anchor, StoredOffset, TopicPartition
    from reconciler.ports import Change
    from reconciler.stores.registry import open_store

    here = replace(AT_A, store="memory:of-the-source", offsets={}, cluster_id=None)
    with pytest.raises(NeedsPerson, match="has no offset of group clicks at the source"):
        complete_from(here, source, {})
    row = StoredOffset(4, Anchor(3, 3_000, None, None, "a", None))
    change = Change(TopicPartition("events", 0), None, row)
    open_store("memory:of-the-source").write("clicks", [change], reason="test", now_ms=1)
    assert complete_from(here, source, {}) == {"events": {"0": 4, "1": -2, "2": -2}}
    open_store("memory:of-the-source").write(
        "views",
        [Change(TopicPartition("events", 0), None, StoredOffset(4, Anchor(3, 3_000, None, None, "a", "an older one")))],
        reason="test",
        now_ms=1,
    )
    with pytest.raises(NeedsPerson, match="events was deleted and created again"):
        complete_from(replace(here, group="views"), source, {})


# ---------------------------------------------------------------- checkpoints


@pytest.fixture
def base(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def test_a_stay_keeps_its_checkpoint_and_the_next_one_gets_another(base: str) -> None:
    first = replace(AT_A, cluster_id=None, offsets={})
    assert location(base, first) == base
    assert location(base, AT_A) == base, "its cluster's id is known only after its first batch"
    assert location(base, AT_B) == f"{base}-2"
    assert location(base, replace(AT_B, bootstrap_servers="kafka-b2:9092")) == f"{base}-2"
    back = replace(AT_A, correction="20260201T060000-000-7")
    assert location(base, back) == f"{base}-3", "the first one's offsets are of long ago"
    assert location(base, replace(back, correction="")) == f"{base}-3", "another machine's plans are elsewhere"
    assert location(base, replace(AT_B, correction="20260202T060000-000-7")) == f"{base}-4"


def test_a_broker_more_is_no_other_cluster_where_the_stay_began_without_an_id(base: str) -> None:
    """A job's first start knows no id. A new checkpoint would lose its state, and a sink would drop its batches."""
    assert location(base, replace(AT_A, cluster_id=None, offsets={})) == base
    assert location(base, replace(AT_A, bootstrap_servers="kafka-a2:9092, kafka-a:9092")) == base
    assert location(base, replace(AT_A, bootstrap_servers="kafka-c:9092")) == f"{base}-2"


def test_a_checkpoint_from_before_is_continued_at_the_source_only(base: str) -> None:
    (Path(base) / "offsets").mkdir(parents=True)
    assert location(base, AT_B) == f"{base}-2"


def test_a_jobs_old_checkpoint_at_the_source_is_its_own(base: str) -> None:
    (Path(base) / "offsets").mkdir(parents=True)
    Path(f"{base}-old").mkdir()
    assert location(base, AT_A) == base
    assert location(f"{base}/", AT_A) == base
    assert json.loads((Path(base) / NOTE).read_text())["cluster_id"] == "a"


def test_a_note_that_cannot_be_read_stops_the_query(base: str) -> None:
    location(base, AT_A)
    (Path(base) / NOTE).write_text("{")
    with pytest.raises(ConfigError, match="cannot be read"):
        location(base, AT_A)


def test_a_backup_is_not_taken_for_the_newest_checkpoint(base: str) -> None:
    location(base, AT_A)
    shutil.copytree(base, f"{base}-20261122")
    Path(f"{base}-20251122").mkdir()
    assert location(base, AT_A) == base
    assert location(base, AT_B) == f"{base}-2"
    shutil.rmtree(base)
    shutil.rmtree(f"{base}-2")
    assert location(base, AT_A) == base, "a backup alone is none, either"


def test_a_copy_with_the_next_number_is_refused(base: str) -> None:
    location(base, AT_A)
    shutil.copytree(base, f"{base}-2")
    with pytest.raises(ConfigError, match=r"checkpoint-2 beside .* is a copy: its note names the folder checkpoint"):
        location(base, AT_A)


def test_a_location_of_another_job_whose_name_ends_with_a_number_is_passed_over(base: str) -> None:
    another = replace(AT_A, job="checkpoint-2", group="checkpoint-2")
    assert location(base, AT_A) == base
    assert location(f"{base}-2", another) == f"{base}-2"
    assert location(base, AT_A) == base
    assert location(base, AT_B) == location(base, AT_B) == f"{base}-3"
    assert location(f"{base}-2", another) == f"{base}-2"
    shutil.rmtree(base)
    assert location(base, AT_B) == f"{base}-3"


def test_each_stay_gets_a_checkpoint_on_a_shared_file_system_too(base: str) -> None:
    shared = f"memory://{base}"
    assert [location(shared, start) for start in (AT_A, AT_A, AT_B, AT_B)] == [shared, shared, *[f"{shared}-2"] * 2]


def test_a_job_whose_store_is_its_checkpoint_gets_the_hooks_path(tmp_path: Path, base: str) -> None:
    environ = environment(tmp_path, AT_B, RECONCILER_CHECKPOINT="/data/counts-b")
    assert handoff.from_environment(environ=environ).checkpoint(base) == "/data/counts-b"
    assert handoff.from_environment(environ=environment(tmp_path, AT_A)).checkpoint(base) == base
