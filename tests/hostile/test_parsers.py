"""Whatever a file, variable, address or record holds, a parser reads it exactly or refuses it with a sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from reconciler.config.addresses import without_secrets
from reconciler.config.identity import UNITS_PER_MS, identity_from_spec
from reconciler.config.ownership import refuse_unlisted
from reconciler.config.secrets import holds_plain_secret, remember
from reconciler.core import anchor_fields
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ConfigError, ExitCode, ReconcilerError, Refused
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.failover.sinks.tables import IcebergSink
from reconciler.kafka.mirror.reading import OwnTopics, read_pairs
from reconciler.places.checkpoint import log as checkpoint
from reconciler.places.checkpoint import restart
from reconciler.places.checkpoint.restart import readings
from reconciler.plan.document import parse_plan
from tests.failover.checkpoint.checkpoint_files import QUERY
from tests.failover.sinks.tables.iceberg_table import Iceberg
from tests.hostile.fuzz import AS_TYPED, SCALARS, attempt, changed, documents, fuzz, lines, sized, slips, words
from tests.hostile.parsers import (
    ADDRESSES,
    ANCHORS,
    IDS,
    METADATA,
    MIRRORS,
    OFFSETS,
    PARSERS,
    START,
    TIMES,
    UNREACHABLE,
    USAGE,
    Made,
)
from tests.in_memory import BEGIN, GROUP, Memory, anchor, content
from tests.kafka.mirror.written import CHECKPOINTS, SYNCS
from tests.memory_log import MemoryLog, MemoryPartition


@sized
@pytest.mark.parametrize("name", PARSERS)
def test_any_input_is_read_or_refused_with_a_sentence(
    name: str, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    parser, was_read = PARSERS[name], []
    fuzz(runs, parser.inputs, lambda given: was_read.append(parser.judge(tmp_path, given)))
    assert any(was_read) or name == "signed plan with a sum that fits", "hardly an input is valid"
    assert name != "address" or list(tmp_path.iterdir()) == [], "an address alone creates nothing"


def altered(document: Mapping[str, Any], **fields: object) -> str:
    return json.dumps({**document, **fields})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        *(("start", altered(START, offsets={"events": {number: 7}}), "has a partition without an offset")
          for number in ("9" * 5_000, "٣", "07", str(2**31), "-1", "")),
        ("start", altered(START, offsets={"": {"0": 7}}), "has a topic without"),
        ("start", altered(START, offsets={"\ud800": {"0": 7}}), "is not a start of a job"),
        ("anchor lines", altered(ANCHORS[0], **{"x" * 1_000_000: 1}), r"x{60} is not a field of this format"),
        ("key", os.fsdecode(b"-----BEGIN PUBLIC KEY-----\xff"), None),
        ("address", "postgresql://\udcff@h/db", "is not valid Unicode"),
        *(("address", f"postgresql://{user}@h/db", "is wrong") for user in ("%ff", "%00")),
        *(("address", f"{scheme}:webhdfs://[2001:db8::1/offsets", r"host of a webhdfs:// URL cannot be read")
          for scheme in ("files", "checkpoint")),
        *(("address", address.format("9" * 5_000), "keep|prefix")
          for address in ("files:/srv/offsets?keep={}", "hbase://h/t?layout=cdap-logsaver&prefix={}")),
    ],
)  # fmt: skip
def test_what_once_was_a_bug_is_refused(name: str, text: str, said: str | None, tmp_path: Path) -> None:
    given = text if name == "address" else text.encode(errors="surrogateescape")
    if said is None:
        PARSERS[name].read(tmp_path, given)
        return
    with pytest.raises(ConfigError, match=said) as caught:
        PARSERS[name].read(tmp_path, given)
    assert name == "address" or len(str(caught.value)) < 300


@sized
def test_any_value_in_an_error_of_a_plans_reader_is_quoted_in_a_few_words(runs: int) -> None:
    def claim(value: Any) -> None:
        for field in ("format", "plan_sha256", "sha256"):
            with pytest.raises(ReconcilerError) as raised:
                parse_plan(json.dumps({field: value, "rows": value, "jobs": value}))
            assert len(raised.value.message) < 400

    fuzz(runs, changed([{"a": 1}]) | SCALARS, claim)


@sized
def test_any_offset_log_says_where_its_query_resumes(runs: int) -> None:
    def claim(data: bytes) -> None:
        entry = attempt(lambda: checkpoint.parse_offsets(3, b"v1\n" + data), codec=(checkpoint.FieldError,))
        for committed in (False, True) if entry else ():
            found = attempt(
                partial(restart.checkpoint, None, entry, entry, committed=committed, initial={}),
                codec=(checkpoint.FieldError,),
            )
            assert found is None or readings(found) is not None

    fuzz(runs, lines([METADATA, OFFSETS, {"logOffset": 0}]), claim)


# ---------------------------------------------------------------- addresses and their secrets


@sized
def test_no_address_shows_its_password(runs: int) -> None:
    def claim(address: str) -> None:
        is_known = address.startswith(("postgresql:/", "zookeeper:/"))
        if is_known and address.count("hunter2") == address.count("u:hunter2@") == 1:
            assert "hunter2" not in without_secrets(address)
        without_secrets(address)
        holds_plain_secret("jobs.store", address)
        remember("jobs.store", "file:/x", "xy")
        attempt(partial(refuse_unlisted, "[jobs] store", address, ()), USAGE, longest=AS_TYPED)

    fuzz(runs, words([*ADDRESSES, "postgresql://u:hunter2@h/db", "zookeeper://u:hunter2@h1,h2/a?layout=single"]), claim)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql:/u:hunter2@h/db", "postgresql:…"),
        ("postgresql:///u:hunter2@h/db", "postgresql://…"),
        ("postgresql://h/postgresql://u:hunter2@h/db", "postgresql://…"),
        ("postgresql://h/db?host=postgresql://u:hunter2@h/db", "postgresql://h/db?host=…"),
        ("zookeeper://h/a?zookeeper://u:hunter2@h/a?b=c", "zookeeper://h/a"),
    ],
)
def test_a_login_at_an_odd_place_of_an_address_is_not_shown(address: str, shown: str) -> None:
    assert without_secrets(address) == shown


# ---------------------------------------------------------------- records

PAYLOAD = {"id": 17, "ts": BEGIN, "meta": {"id": "x", "at": "2026-01-31T06:00:00+01:00"}, "items": [1.5, None]}
PAYLOADS = documents([PAYLOAD]) | slips([b"17", b"1.7e9", b"2026-01-31T06:00:00Z", b"null", b'"x"', b"\0\0\0\x05"])
HEADERS = st.lists(st.tuples(st.sampled_from(["id", "at", ""]), st.none() | PAYLOADS), max_size=3).map(tuple)
RECORDS = st.builds(Made, st.none() | PAYLOADS, st.none() | PAYLOADS, HEADERS)


@sized
def test_any_record_has_an_id_and_a_time_or_none(runs: int) -> None:
    identities = [identity_from_spec(time, id, unit=unit) for time in TIMES for id in IDS for unit in UNITS_PER_MS]

    def claim(drawn: tuple[int, Made]) -> None:
        identity, record = identities[drawn[0]], drawn[1]
        found = attempt(lambda: identity.anchor_of(record, cluster_id="b", topic_id="t"))
        assert found is not None
        assert found.id is None or isinstance(found.id, bytes)
        assert found.timestamp_ms is None or -(2**63) <= found.timestamp_ms < 2**63
        kept = anchor_fields.decode(anchor_fields.encode(StoredOffset(1, found))).anchor
        assert kept is not None
        assert kept == found or kept.id is None

    fuzz(runs, st.tuples(st.integers(0, len(identities) - 1), RECORDS), claim)


@sized
def test_among_any_records_the_anchor_is_found_and_nothing_is_skipped(memory: Memory, runs: int) -> None:
    """Before it, behind it and of the same time: payloads and headers of anything."""
    job = f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\ntopics = ["events"]\noffsets = "memory:"\n'
    ids = ("none", "json:$.id", "header:id")
    configs = [memory.config(jobs=f'{job}[jobs.identity]\nid = "{id}"') for id in ids]

    def claim(drawn: tuple[int, list[Made], list[Made]]) -> None:
        which, before, behind = drawn
        memory.log = MemoryLog("b", {"a.events": 1})
        log = memory.log.partition("a.events", 0)
        _append(log, before)
        memory.deliver(range(5))
        _append(log, behind)
        memory.save({0: StoredOffset(704, anchor(3))})
        (row,) = check(configs[which], configs[which].jobs, memory.outside).plan.jobs[0].partitions
        alike = any((each.key, each.value) == content(3)[1:] for each in (*before, *behind))
        assert alike or (row.finding, row.resume_offset) == (Verdict.EXACT, len(before) + 4)

    fuzz(runs, st.tuples(st.integers(0, 2), st.lists(RECORDS, max_size=3), st.lists(RECORDS, max_size=3)), claim)


def _append(log: MemoryPartition, records: list[Made]) -> None:
    for number, each in enumerate(records):
        log.append(BEGIN + 3_000 * number, each.key, each.value, each.headers)


@sized
def test_unreadable_records_of_a_mirror_are_counted(runs: int, tmp_path: Path) -> None:
    readers = {SYNCS: PARSERS["offset sync"], CHECKPOINTS: PARSERS["mirror's checkpoint"]}

    def claim(records: list[Made]) -> None:
        log, unreadable = MemoryLog("b", dict.fromkeys(readers, 1)), dict.fromkeys(readers, 0)
        for each in records:
            for topic, parser in readers.items():
                log.partition(topic, 0).append(1, each.key, each.value)
                found = attempt(partial(parser.read, tmp_path, each), codec=parser.codec)
                unreadable[topic] += found is None and each.value is not None
        known = read_pairs(log, OwnTopics((SYNCS,), (CHECKPOINTS,)), [])
        for topic, count in unreadable.items():
            assert (f'{count:,} records of "{topic}" are not of a known format' in known.note) == bool(count)

    fuzz(runs, st.lists(MIRRORS, max_size=3), claim)


# ---------------------------------------------------------------- an Iceberg table's metadata


@pytest.fixture
def table(tmp_path: Path) -> Iceberg:
    pytest.importorskip("pyiceberg")
    table = Iceberg(tmp_path)
    for epoch in range(3):
        table.batch(epoch, "another" if epoch else QUERY)
    return table


@sized
def test_any_metadata_of_an_iceberg_table_is_read_or_refused_with_a_sentence(
    table: Iceberg, tmp_path: Path, runs: int
) -> None:
    file = tmp_path / "metadata" / "v3.metadata.json"

    def claim(data: bytes) -> None:
        file.write_bytes(data)
        attempt(lambda: IcebergSink(str(tmp_path)).last_taken(QUERY), UNREACHABLE, USAGE, longest=100_000)

    fuzz(runs, documents([json.loads(file.read_text())]), claim)


def test_snapshots_that_are_each_others_parents_are_no_history(table: Iceberg, tmp_path: Path) -> None:
    file = tmp_path / "metadata" / "v3.metadata.json"
    metadata = json.loads(file.read_text())
    metadata["snapshots"][1]["parent-snapshot-id"] = 3
    file.write_text(json.dumps(metadata))
    with pytest.raises(Refused, match="its snapshots are each other's parents") as refused:
        IcebergSink(str(tmp_path)).last_taken("a third")
    assert refused.value.exit_code is ExitCode.UNREACHABLE
