"""What the hook hands to a job's process, and when the job refuses to start."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.config.identity import IdentitySettings
from reconciler.config.streams import Stream
from reconciler.core.errors import Changed, ConfigError, NeedsPerson
from reconciler.core.question import StartAt, StartPlace
from reconciler.ports import TopicPartition
from reconciler.spark import job
from reconciler.spark.started import Job
from reconciler.spark.starting import logins
from reconciler.spark.tracking import State, Tracking
from reconciler.state import locations
from reconciler.state.jobs import JobState
from reconciler.state.locations import Stamp
from reconciler.state.start import Start, dump, load
from reconciler.state.store import open_state

ANA = Stamp("ana", lambda: 1_790_000_000_000, "a burns")
START = Start(
    job="clicks",
    cluster="b",
    bootstrap_servers="kafka-b:9092",
    stay=2,
    store="memory:x",
    store_id="id",
    topics={"a.events": Stream("events", "a"), "events": Stream("events", "b")},
    offsets={TopicPartition("a.events", 1): 7, TopicPartition("a.events", 0): 42, TopicPartition("events", 0): -2},
    identity=IdentitySettings(id="header:message-id", unique_ids=True),
    checkpoint="/checkpoints/clicks-2",
)


class Given:
    """A start in stay 1 on a, and the state store of its job."""

    def __init__(self, folder: Path) -> None:
        self.store = open_state(f"memory:{uuid.uuid4().hex}")
        self.store.create()
        self.state = JobState(self.store, "clicks")
        self.home = self.state.move_on(None, locations.first("a", Stamp("hook", lambda: 1), "/checkpoints/clicks"))
        known = {"cluster": "a", "stay": 1, "store": self.store.shown, "store_id": self.store.id}
        self.start = replace(START, **known, checkpoint="/checkpoints/clicks")  # type: ignore[arg-type]
        self._file = folder / "start.json"

    def environment(self, start: Start | None = None) -> dict[str, str]:
        self._file.write_text(dump(start or self.start))
        digest = hashlib.sha256(self._file.read_bytes()).hexdigest()
        return {"RECONCILER_START": str(self._file), "RECONCILER_START_SHA256": digest}


@pytest.fixture
def handed(tmp_path: Path) -> Given:
    return Given(tmp_path)


def test_a_job_is_what_the_hook_handed_over(handed: Given) -> None:
    clicks = job(environ=handed.environment())
    assert clicks.start == handed.start
    assert clicks.checkpoint == "/checkpoints/clicks"
    assert job(start=handed.start, environ={}).start == handed.start


def test_a_start_that_is_missing_or_altered_is_refused(handed: Given, tmp_path: Path) -> None:
    environment = handed.environment()
    for name in environment:
        with pytest.raises(ConfigError, match=f"{name} is not set"):
            job(environ={**environment, name: ""})
    with pytest.raises(ConfigError, match="cannot be read"):
        job(environ={**environment, "RECONCILER_START": str(tmp_path / "gone")})
    with pytest.raises(Changed, match="not what the hook wrote"):
        job(environ={**environment, "RECONCILER_START_SHA256": "0" * 64})


def test_a_start_that_only_its_file_vouches_for_is_refused(handed: Given) -> None:
    environment = handed.environment()
    del environment["RECONCILER_START_SHA256"]
    assert job(environ={**environment, "RECONCILER_BOOTSTRAP_SERVERS": "kafka-a:9092 kafka-b:9092"}).start.stay == 1
    for clusters in ("", "kafka-c:9092"):
        with pytest.raises(ConfigError, match="RECONCILER_"):
            job(environ={**environment, "RECONCILER_BOOTSTRAP_SERVERS": clusters})


def test_a_start_from_before_a_move_is_refused_with_who_moved_the_job(handed: Given) -> None:
    clicks = job(start=handed.start, environ={})
    moving = handed.state.move_on(handed.home, locations.moving(handed.home, "b", ANA))
    job(start=handed.start, environ={})  # it lives where it was until its numbers are written
    writing = handed.state.move_on(moving, locations.writing(moving, 1, ANA))
    with pytest.raises(Changed, match="is being moved to b, by ana"):
        job(start=handed.start, environ={})
    handed.state.move_on(writing, locations.lives(writing, "/checkpoints/clicks-2", ANA))
    with pytest.raises(Changed, match=r"it lives on b, stay 2, by ana at .* \(a burns\)"):
        clicks.read(None)  # type: ignore[arg-type]


def test_a_start_is_refused_by_another_state_store_and_by_an_old_copy(handed: Given) -> None:
    for start in (replace(handed.start, store_id="another"), replace(handed.start, stay=2)):
        with pytest.raises(NeedsPerson, match="another state store, or an old copy"):
            job(start=start, environ={})
    other = open_state(f"memory:{uuid.uuid4().hex}")
    other.create()
    with pytest.raises(NeedsPerson):
        job(start=replace(handed.start, store=other.shown, store_id=other.id), environ={})


def test_a_job_without_a_checkpoint_says_so(handed: Given) -> None:
    with pytest.raises(ConfigError, match="not in a checkpoint"):
        _ = Job(replace(handed.start, checkpoint=None), handed.state, {}).checkpoint


def test_a_job_whose_offsets_are_elsewhere_has_a_checkpoint_for_each_stay(handed: Given, tmp_path: Path) -> None:
    elsewhere = Job(replace(handed.start, checkpoint=None), handed.state, {})
    base = str(tmp_path / "c")
    assert elsewhere.checkpoint_at(base) == base
    assert elsewhere.transaction_id(base) == elsewhere.transaction_id(base)
    with pytest.raises(ConfigError, match="are in its checkpoint"):
        job(start=handed.start, environ={}).checkpoint_at(base)


def test_options_that_the_start_decides_are_refused(handed: Given) -> None:
    with pytest.raises(ConfigError, match="StartingOffsets, subscribe"):
        job(start=handed.start, environ={}).read(None, {"subscribe": "x", "StartingOffsets": "earliest"})  # type: ignore[arg-type]


def test_a_query_of_spark_connect_goes_on_unrecorded(handed: Given, caplog: pytest.LogCaptureFixture) -> None:
    tracking: Tracking = job(start=handed.start, environ={}).track(object())
    assert tracking.state is State.UNABLE
    assert "Spark Connect does not show its checkpoint" in caplog.text
    assert "reconciler track" in caplog.text
    assert handed.state.newest(1) == []


def test_a_job_of_more_partitions_than_a_driver_records_names_the_outside_tracker(handed: Given) -> None:
    many = {TopicPartition("a.events", number): 0 for number in range(10_001)}
    with pytest.raises(ConfigError, match=r"10,001 partitions.*reconciler track"):
        job(start=replace(handed.start, offsets=many), environ={}).track(object())


# ---------------------------------------------------------------- logins


CONFIG = """
[state]
store = "postgresql://me:${PASSWORD}@ops/state"
[clusters.a]
[clusters.b]
bootstrap_servers = "kafka-b:9092"
[clusters.b.client]
"sasl.username" = "me"
"sasl.password" = "${PASSWORD}"
[[jobs]]
name = "clicks"
group = "clicks"
topics = ["events"]
home = "a"
offsets = "memory:"
"""


def test_logins_come_from_the_configuration_that_the_start_names(tmp_path: Path) -> None:
    config = tmp_path / "reconciler.toml"
    config.write_text(CONFIG)
    start, environment = replace(START, store="postgresql://ops/state", config=str(config)), {"PASSWORD": "hunter22"}
    login = {"sasl.username": "me", "sasl.password": "hunter22"}
    assert logins(start, environment) == ("postgresql://me:hunter22@ops/state", login, ())
    elsewhere = replace(start, store="postgresql://elsewhere/state", cluster="a")
    assert logins(elsewhere, environment) == ("postgresql://elsewhere/state", {}, ())
    with pytest.raises(ConfigError, match="PASSWORD"):
        logins(start, {})


def test_a_registry_login_is_not_in_the_start_but_in_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "reconciler.toml"
    registry = '[registry]\nurl = "http://r"\n"basic.auth.user.info" = "me:${PASSWORD}"\n'
    config.write_text(f'{registry}{CONFIG}[jobs.identity]\nid = "avro:$.id"\n')
    properties = (("basic.auth.user.info", "me:hunter22"), ("url", "http://r"))
    assert logins(replace(START, config=str(config)), {"PASSWORD": "hunter22"})[2] == properties
    identity = IdentitySettings(id="avro:$.id", registry=properties)
    text = dump(replace(START, identity=identity))
    assert "hunter22" not in text
    assert load(text, "start.json").identity == replace(identity, registry=())


def test_a_configuration_that_is_on_another_machine_is_done_without(tmp_path: Path) -> None:
    assert logins(replace(START, config=str(tmp_path / "gone.toml")), {}) == ("memory:x", {}, ())


# ---------------------------------------------------------------- the file

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="@"), min_size=1, max_size=9)
OFFSETS = st.dictionaries(st.builds(TopicPartition, NAMES, st.integers(0, 9)), st.integers(-2, 2**63 - 1), max_size=9)


@given(
    NAMES, st.dictionaries(NAMES, st.builds(Stream, NAMES, NAMES)), OFFSETS, st.integers(1, 2**40), st.none() | NAMES
)
def test_a_start_is_read_as_it_was_written(
    name: str, topics: dict[str, Stream], offsets: dict[TopicPartition, int], stay: int, path: str | None
) -> None:
    start = replace(START, job=name, topics=topics, offsets=offsets, stay=stay, checkpoint=path, config=path)
    assert load(dump(start), "start.json") == start
    stored = replace(start, new=StartAt(StartPlace.TIME, stay), topic_ids={name: (name,)}, sinks=(name,))
    assert load(dump(stored), "start.json") == stored


def test_spark_gets_each_partition_of_each_topic() -> None:
    assert START.starting_offsets() == '{"a.events":{"0":42,"1":7},"events":{"0":-2}}'


@pytest.mark.parametrize(
    ("was", "becomes", "problem"),
    [
        ('"reconciler.start/1"', '"reconciler.start/2"', "format is not reconciler.start/1"),
        ('"stay": 2', '"stay": 0', "stay is not between"),
        ('"events@a"', '"events"', "is not TOPIC@CLUSTER"),
        ('"0": 42', '"00": 42', "a partition without an offset"),
        ('"0": 42', '"0": -3', "is not between"),
        ('"unique_ids": true', '"unique_ids": 1', "unique_ids is not true or false"),
        ('"job": "clicks"', '"jobs": "clicks"', "lacks the field job"),
        ("{", "[", "is not JSON"),
    ],
)
def test_a_text_that_is_no_start_is_named(was: str, becomes: str, problem: str) -> None:
    text = dump(START)
    assert was in text
    with pytest.raises(ConfigError, match=rf"start.json is not a start of a job: .*{problem}"):
        load(text.replace(was, becomes, 1), "start.json")
