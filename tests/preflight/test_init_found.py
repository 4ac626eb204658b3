"""What ``init`` proposes from topics, records, client settings and a store. Without servers."""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from reconciler.cli.commands import init
from reconciler.config.file import load_config
from reconciler.config.settings import MirrorSettings
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import ConfigError
from reconciler.core.question import TopicPolicy
from reconciler.kafka.mirror.topics import is_internal, is_source, mirrors, named
from reconciler.places.memory import MemoryStore
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition
from reconciler.preflight import survey
from reconciler.preflight.client_properties import (
    address_without_secret,
    client_without_secrets,
)
from reconciler.preflight.survey import MOST_GROUPS, jobs_in, propose, sample
from reconciler.preflight.text import Proposed, ProposedJob, config_text, quoted
from tests.failover.checkpoint.checkpoint_files import Files
from tests.golden.corpus import Estate
from tests.golden.world import World
from tests.memory_log import MemoryLog, MemoryRecord

# ---------------------------------------------------------------- topics

NOISE = ("__consumer_offsets", "mm2-configs.a.internal", "mm2-offsets.a.internal", "heartbeats", "_schemas-internal")


@pytest.mark.parametrize(
    ("topics", "alias", "policy", "separator", "mirrored"),
    [
        (("a.checkpoints.internal", "a.events", "local"), "a", TopicPolicy.DEFAULT, ".", ("a.events",)),
        (("a.heartbeats", "a.events", "a.more"), "a", TopicPolicy.DEFAULT, ".", ("a.events", "a.more")),
        (("dc-1.checkpoints.internal", "dc-1.events"), "dc-1", TopicPolicy.DEFAULT, ".", ("dc-1.events",)),
        (("a_checkpoints_internal", "a_events"), "a", TopicPolicy.DEFAULT, "_", ("a_events",)),
        # replication.policy.internal.topic.separator.enabled = false: only the topics have the other separator
        (("a.checkpoints.internal", "a_events"), "a", TopicPolicy.DEFAULT, "_", ("a_events",)),
        (("mm2-offset-syncs.a.internal", "a.events"), "a", TopicPolicy.DEFAULT, ".", ("a.events",)),
        (("a.checkpoints.internal", "events", "more"), "a", TopicPolicy.IDENTITY, ".", ("events", "more")),
        (("a.checkpoints.internal", "a.b.events"), "a", TopicPolicy.DEFAULT, ".", ("a.b.events",)),
    ],
)
def test_the_mirror_is_told_by_its_own_topics(
    topics: tuple[str, ...], alias: str, policy: str, separator: str, mirrored: tuple[str, ...]
) -> None:
    (found,) = mirrors((*topics, *NOISE))
    assert (found.alias, found.policy, found.separator, found.topics) == (alias, policy, separator, mirrored)
    assert found.seen == (topics[0],)


def test_of_several_sources_the_one_with_most_topics_comes_first() -> None:
    found = mirrors(("a.checkpoints.internal", "a.one", "z.checkpoints.internal", "z.one", "z.two"))
    assert [each.alias for each in found] == ["z", "a"]
    assert found[0].source_of("z.two") == "two"


def test_a_source_and_a_cluster_without_a_mirror_are_told_from_a_destination() -> None:
    source = ("mm2-offset-syncs.b.internal", "events", "__consumer_offsets")
    assert mirrors(source) == []
    assert is_source(source)
    assert mirrors(("events", *NOISE)) == []
    assert not is_source(("events", *NOISE))


WORKERS = ("mm2-configs.a.internal", "mm2-offsets.a.internal", "mm2-status.a.internal")


def test_an_empty_alias_and_separator_keep_the_names_and_the_workers_topics_tell_the_source() -> None:
    own = ("checkpointsinternal", "mm2-offset-syncsinternal", "heartbeats")
    (found,) = mirrors((*WORKERS, *own, "orders"))
    assert (found.alias, found.policy, found.topics) == ("a", TopicPolicy.IDENTITY, ("orders",))
    assert found.own == MirrorSettings("mm2-offset-syncsinternal", "checkpointsinternal")
    (found,) = mirrors(("checkpointsinternal", "orders"))
    assert (found.alias, found.topics, found.own.offset_syncs_topic) == (None, ("orders",), None)


def test_an_empty_separator_alone_puts_the_alias_in_front() -> None:
    (found,) = mirrors((*WORKERS, "acheckpointsinternal", "aheartbeats", "aorders", "orders"))
    assert (found.alias, found.policy, found.separator) == ("a", TopicPolicy.DEFAULT, "")
    assert (found.topics, found.source_of("aorders")) == (("aorders",), "orders")
    assert mirrors((*WORKERS, "audit")) == [], "nothing tells how its topics are called"


def test_topics_of_the_mirror_itself_belong_to_no_job() -> None:
    names = ("a.checkpoints.internal", "a.heartbeats", "mm2-status.a.internal", "a.events", *NOISE)
    assert [name for name in names if not is_internal(name)] == ["a.events"]
    assert named("a", TopicPolicy.DEFAULT, ".", names).topics == ("a.events",)
    assert named(None, TopicPolicy.IDENTITY, ".", ("events", *NOISE)).topics == ("events",)


# ---------------------------------------------------------------- records

BEGIN = 1_700_000_000_000


def seen(*records: MemoryRecord, topic: str = "a.events") -> dict[TopicPartition, Sequence[MemoryRecord]]:
    return {TopicPartition(topic, 0): records}


def record(
    number: int, key: bytes | None = b"k", value: bytes | None = b"v", /, stamp: int | None = None, **headers: bytes
) -> MemoryRecord:
    at = BEGIN + number if stamp is None else stamp
    return MemoryRecord(number, at, key, value, tuple((name.replace("_", "-"), text) for name, text in headers.items()))


def test_a_header_that_is_on_every_record_and_never_the_same_is_the_id() -> None:
    found = propose(seen(*(record(n, message_id=b"%d" % n, kind=b"click") for n in range(200))))
    assert found.id == "header:message-id"
    assert found.why[0] == "header message-id: present on 200 of 200 records looked at, all different"
    assert "header kind: present on 200 of 200 records looked at, 1 different" in found.why


def test_a_header_that_is_missing_once_is_no_id() -> None:
    found = propose(seen(record(0), *(record(n, message_id=b"%d" % n) for n in range(1, 200))))
    assert found.id == "none"
    assert "header message-id: present on 199 of 200 records looked at, 199 different" in found.why


def test_a_field_is_the_id_where_it_is_called_one() -> None:
    def body(number: int) -> bytes:
        return json.dumps({"meta": {"eventId": f"e{number}"}, "n": number, "ts": BEGIN + number, "user": 1}).encode()

    found = propose(seen(*(record(n, b"u", body(n)) for n in range(50))))
    assert found.id == "json:$.meta.eventId"


def test_an_id_is_found_behind_a_schema_registrys_frame_and_under_a_name_with_dots() -> None:
    def body(number: int) -> bytes:
        return b"\0\0\0\0\7" + json.dumps({"trace.id": f"e{number}", "n": 1}).encode()

    found = propose(seen(*(record(n, b"u", body(n)) for n in range(50))))
    assert (found.id, found.framed) == ("json:$['trace.id']", True)
    for shift in (0, 40):  # no schema has the id 0, and so many schemas are none
        numbers = propose(seen(*(record(n, b"u", (n << shift).to_bytes(8, "big")) for n in range(50))))
        assert not numbers.framed


def test_ids_that_init_cannot_see_are_mentioned() -> None:
    found = propose(seen(*(record(n, b"u", b"\0\0\0\0\7\4o%d" % (n % 10)) for n in range(50))))
    assert (found.id, found.framed) == ("none", True)
    assert any('like "avro:$.id" or "protobuf:$.1"' in each for each in found.why)


def test_values_and_keys_that_merely_differ_are_not_proposed() -> None:
    """A fingerprint of key and value tells as much, and stays right where they come to repeat."""
    found = propose(seen(*(record(n, b"%d" % n, json.dumps({"n": n}).encode()) for n in range(50))))
    assert found.id == "none"


def test_two_records_that_share_an_id_show_that_it_is_none() -> None:
    found = propose(seen(record(0, b"k", b"one", id=b"7"), record(1, b"k", b"two", id=b"7"), record(2, id=b"8")))
    assert found.id == "none"


def test_a_record_that_was_sent_twice_does_not_spoil_an_id() -> None:
    twice = [record(n, b"k", b"v%d" % n, stamp=BEGIN + n, id=b"%d" % n) for n in (0, 1, 0, 1, 2)]
    found = propose(seen(*twice))
    assert found.id == "header:id"


def test_ids_are_looked_for_in_every_topic_of_a_job() -> None:
    one = seen(*(record(n, id=b"%d" % n) for n in range(5)))
    both = {**one, **seen(*(record(n) for n in range(5)), topic="a.more")}
    assert propose(one).id == "header:id"
    assert propose(both).id == "none"
    same = {**one, **seen(*(record(n, id=b"%d" % n) for n in range(5)), topic="a.more")}
    assert propose(same).id == "header:id", "an id names a record within its topic"


def test_poisoned_records_stop_nothing() -> None:
    values = (
        None,
        b"",
        b"{",
        b'{"id": ' * 3_000,
        b"\xff\xfe",
        b"[1]",
        b'{"": 1, "a b": 2, "id": null}',
        b'{"id": 1e999}',
    )
    found = propose(seen(*(record(n, None, value) for n, value in enumerate(values))))
    assert found.id == "none"


def test_a_destination_that_stamps_records_itself_needs_another_time() -> None:
    def stamped(number: int, body: dict[str, object]) -> MemoryRecord:
        return MemoryRecord(number, BEGIN + 60_000 + number, b"k", json.dumps(body).encode(), (), append_time=True)

    nothing = propose(seen(*(stamped(n, {"id": n, "at": "noon"}) for n in range(9))))
    assert any("LogAppendTime" in why for why in nothing.why)


def test_the_newest_records_of_every_partition_are_looked_at() -> None:
    log = MemoryLog("b", {"a.events": 3})
    for partition, count in ((0, 500), (1, 3)):
        for number in range(count):
            log.partition("a.events", partition).append(BEGIN + number, b"k", b"v")
    found = sample(log, ["a.events", "not-there"], 200)
    offsets = {tp.partition: [each.offset for each in records] for tp, records in found.items()}
    assert offsets == {0: list(range(400, 500)), 1: [0, 1, 2]}


# ---------------------------------------------------------------- stores


def test_groups_with_offsets_of_mirrored_topics_are_jobs(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'offsets.db'}"
    store = open_store(address)
    mirror = named("a", TopicPolicy.DEFAULT, ".", ("a.events", "a.more", "local"))
    anchor = Anchor(4, BEGIN, b"id-4", cluster_id="x")
    rows = {
        "clicks": {("events", 0): StoredOffset(5, anchor), ("a.more", 0): StoredOffset(5)},
        "elsewhere": {("local", 0): StoredOffset(5)},
    }
    for group, each in rows.items():
        changes = [Change(TopicPartition(*key), None, stored) for key, stored in each.items()]
        store.write(group, changes, reason="test", now_ms=1)
    found = jobs_in(lambda: open_store(address), mirror, (), lambda: ())
    (job,) = found.jobs
    assert (job.group, job.topics, job.rows, job.without_anchor) == ("clicks", ("events", "more"), 2, 1)
    assert job.ids == {b"id-4"}


def test_a_topic_that_a_job_reads_and_that_is_not_mirrored_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A configuration without it lets the job start, and no check of that configuration can tell."""
    world = World(tmp_path, monkeypatch)
    Estate(world)
    store = ("--store", "sqlite:///offsets.db", "--group", "stuck")
    init = ("init", "--bootstrap-servers", "kafka-b:9092", "--alias", "a", *store)
    ended = world.run(*init, "-o", "made.toml")
    assert ended.code == 0
    said = "The group also has offsets of topics that are not mirrored here: gone. If the job reads them, add them to "
    assert f"stuck: {said}" in ended.err
    made = world.read("made.toml")
    assert 'topics = ["bare", "cut", "fewer", "short"]' in made
    assert "The group also has offsets of topics that are not mirrored here: gone." in made.replace("\n# ", " ")
    chosen = world.run(*init, "--topic", "bare", "-o", "bare.toml")
    assert (chosen.code, "not mirrored" in chosen.err + world.read("bare.toml")) == (0, False)


def test_a_named_group_without_such_offsets_is_no_job_and_the_store_s_own_names_are_told() -> None:
    store = MemoryStore("init-misspelt-group")
    store.write("billing", [Change(TopicPartition("events", 0), None, StoredOffset(1))], reason="test", now_ms=1)
    store.write("reports", [Change(TopicPartition("local", 0), None, StoredOffset(1))], reason="test", now_ms=1)
    mirror = named("a", TopicPolicy.DEFAULT, ".", ("a.events",))
    found = jobs_in(lambda: store, mirror, ("biling", "reports", "billing"), lambda: ())
    assert [job.group for job in found.jobs] == ["billing"]
    assert found.without_rows == {
        "biling": 'no rows of any mirrored topic for group "biling"; this store has "billing"',
        "reports": 'no rows of any mirrored topic for group "reports"; this group has rows of "local"',
    }


def test_a_store_without_groups_is_not_given_the_group_of_another_job(tmp_path: Path) -> None:
    """Its offsets are every group's: whichever group Kafka has first, it would be named."""
    Files(tmp_path).batch(0, {"events": {0: 5}})
    address = f"checkpoint:{tmp_path}"
    mirror = named("a", TopicPolicy.DEFAULT, ".", ("a.events",))
    with pytest.raises(ConfigError, match=r"has no groups, so it does not name its job.*--group NAME"):
        jobs_in(lambda: open_store(address), mirror, (), lambda: ["billing"])
    (job,) = jobs_in(lambda: open_store(address), mirror, ("clicks",), lambda: ["billing"]).jobs
    assert (job.group, job.topics) == ("clicks", ("events",))


def test_a_store_that_lists_no_groups_is_asked_for_those_of_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "groups_of", lambda store: None)
    store = MemoryStore("init-lists-no-groups")
    store.write("clicks", [Change(TopicPartition("events", 0), None, StoredOffset(1))], reason="test", now_ms=1)
    mirror = named("a", TopicPolicy.DEFAULT, ".", ("a.events",))
    found = jobs_in(lambda: store, mirror, (), lambda: ["nobody", "clicks"])
    assert ([job.group for job in found.jobs], found.unasked) == (["clicks"], 0)
    many = [*(f"group-{n:03d}" for n in range(MOST_GROUPS + 2)), "clicks"]
    found = jobs_in(lambda: store, mirror, (), lambda: many)
    assert (found.jobs, found.unasked) == ((), 3), "a job may be among those that were not asked for"


# ---------------------------------------------------------------- secrets


def test_secrets_become_variables_and_references_stay() -> None:
    safe, needed = client_without_secrets(
        {"bootstrap.servers": "b:9092", "sasl.username": "me", "sasl.password": "hush", "ssl.key.password": "${MINE}"}
    )
    assert safe == {
        "bootstrap.servers": "b:9092",
        "sasl.username": "me",
        "sasl.password": "${RECONCILER_SASL_PASSWORD}",
        "ssl.key.password": "${MINE}",
    }
    assert needed == {"RECONCILER_SASL_PASSWORD": "hush"}


@pytest.mark.parametrize(
    ("address", "safe", "secret"),
    [
        ("sqlite:///o.db", "sqlite:///o.db", None),
        ("postgresql://me:hush@h/d", "postgresql://me:${V}@h/d", "hush"),
        ("postgresql://me:${MINE}@h/d", "postgresql://me:${MINE}@h/d", None),
        ("postgresql://h/d?user=me&password=hush", "postgresql://h/d?user=me&password=${V}", "hush"),
    ],
)
def test_a_stores_password_becomes_a_variable(address: str, safe: str, secret: str | None) -> None:
    assert address_without_secret(address, "V") == (safe, {"V": secret} if secret else {})


# ---------------------------------------------------------------- the file

HOSTILE = 'a"\\\n[policy]\nmax_replay = 0\n# \u2028\x7f\x1b'


def test_foreign_names_cannot_add_a_line_to_the_file(tmp_path: Path) -> None:
    """Group names are free text, and what was found stands in comments."""
    records = seen(*(MemoryRecord(n, BEGIN, b"k", b"v", ((f"id{HOSTILE}", b"%d" % n),)) for n in range(3)))
    job = ProposedJob(HOSTILE, [HOSTILE], "memory:x", propose(records), HOSTILE)
    mirror = named("a", TopicPolicy.DEFAULT, ".", ("a.events",))
    text = config_text(
        Proposed("0", "b", "b:9092", HOSTILE, {"client.id": HOSTILE}, None, mirror, [job], [HOSTILE], [HOSTILE])
    )
    content = tomllib.loads(text)
    assert content["policy"] == {}
    assert content["jobs"][0]["name"] == content["clusters"]["b"]["client"]["client.id"] == HOSTILE
    assert content["jobs"][0]["topics"] == [HOSTILE]
    path = tmp_path / "reconciler.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="which is not the name of a topic"):
        load_config(path, {})


@pytest.mark.parametrize("text", ["", "ä\x00\x7f\"'\\", "x.y", "a\nb\tc", "\u2028"])
def test_a_quoted_text_is_read_back_unchanged_as_a_value_and_as_a_key(text: str) -> None:
    assert tomllib.loads(f"{quoted(text)} = {quoted(text)}") == {text: text}


# ---------------------------------------------------------------- the meaning of numbers

JOURNAL = "postgresql://h/db?table=journal&topic=t&partition=p&offset="


def test_the_assumed_meaning_of_a_tables_numbers_is_said_with_the_parameter(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        init.warn_of_number(f"{JOURNAL}last_processed&number=last", "the table")
        assert not caplog.text
        init.warn_of_number(f"{JOURNAL}last_processed", "the table")
    assert 'numbers in the table are taken for the next offset to read ("last_processed" suggests' in caplog.text
    assert "add &number=last to the store's address" in caplog.text
