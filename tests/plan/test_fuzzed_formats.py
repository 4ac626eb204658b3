"""Files of every format, whatever is in them: read exactly as they are, or refused with a sentence. Never a bug."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from typing import Any

import pytest

from reconciler.config.identity import IdentitySettings
from reconciler.config.streams import Stream
from reconciler.core.anchors import Malformed
from reconciler.core.errors import ConfigError, ExitCode, ReconcilerError
from reconciler.core.json_fields import FieldError
from reconciler.core.question import StartAt
from reconciler.places import range_manifests
from reconciler.places.checkpoint import log as checkpoint
from reconciler.places.checkpoint import restart
from reconciler.places.checkpoint.log import entry_with, initial_with, offsets_text
from reconciler.places.checkpoint.restart import readings
from reconciler.places.range_manifests import Manifest, TornManifest
from reconciler.plan.document import StartPolicy, digest, parse_plan, why_stopped
from reconciler.plan.start_offsets import planned_text
from reconciler.ports import TopicPartition
from reconciler.state import start
from reconciler.state.anchor_lines import dump_line, load_lines
from tests.fuzz import (
    AS_TYPED,
    GOLDENS,
    SCALARS,
    attempt,
    changed,
    documents,
    fuzz,
    lines,
    sized,
    slips,
    with_field,
)

CHANGED, USAGE = ExitCode.CHANGED, ExitCode.USAGE
PLANS = [json.loads(path.read_text()) for path in sorted((GOLDENS / "plan").glob("*.json"))]
ANCHORS = [json.loads(line) for line in (GOLDENS / "anchors/export.jsonl").read_text().splitlines()]


def summed_plan(plan: dict[str, Any]) -> dict[str, Any]:
    return with_field(plan, "sha256", digest(plan))


@sized
def test_any_plan_is_read_or_refused_with_a_sentence(runs: int) -> None:
    def claim(data: bytes) -> None:
        text = data.decode(errors="surrogateescape")
        plan = attempt(lambda: parse_plan(text), CHANGED)
        if plan is None:
            return
        assert json.dumps(plan.to_json(), sort_keys=True) == json.dumps(json.loads(text), sort_keys=True)
        assert parse_plan(plan.to_text()) == plan
        for job in plan.jobs:
            for row in job.partitions:
                why_stopped(row, StartPolicy())
            text = attempt(partial(planned_text, plan, [job.name]), USAGE, ExitCode.NEEDS_PERSON, longest=AS_TYPED)
            if text is not None:
                json.loads(text)

    fuzz(runs, documents(PLANS, summed_plan), claim)


@sized
def test_any_anchor_lines_are_read_or_refused_with_a_sentence(runs: int) -> None:
    def claim(data: bytes) -> None:
        text = data.decode(errors="replace")
        found = attempt(lambda: list(load_lines(text.splitlines(keepends=True))), USAGE)
        if found is not None:
            again = list(load_lines(map(dump_line, found)))
            # The time of writing stands only where no anchor tells the time.
            assert [(each.group, each.key, each.stored.offset, each.stored.anchor) for each in again] == [
                (each.group, each.key, each.stored.offset, each.stored.anchor) for each in found
            ]

    fuzz(runs, lines(ANCHORS), claim)


# ---------------------------------------------------------------- a start of the hook

START = json.loads(
    start.dump(
        start.Start(
            *("clicks", "a", "a:9092", 1, "memory:x", "id", {"events": Stream("events", "a")}),
            **{"offsets": {TopicPartition("events", 0): 7, TopicPartition("events", 12): 8}, "new": StartAt()},
            **{"identity": IdentitySettings(), "cluster_id": "A", "topic_ids": {"events": ("x",)}},
        )
    )
)


@sized
def test_any_start_is_read_or_refused_with_a_sentence(runs: int) -> None:
    def claim(data: bytes) -> None:
        text = data.decode(errors="surrogateescape")
        found = attempt(lambda: start.load(text, "a start"), USAGE)
        if found is None:
            return
        assert start.load(start.dump(found), "a start") == found
        assert json.loads(found.starting_offsets()) is not None
        assert all(key.topic.encode() and 0 <= key.partition < 2**31 for key in found.offsets)

    fuzz(runs, documents([START], lambda content: content), claim)


# ---------------------------------------------------------------- range manifests

RANGES = [
    {"format": "reconciler.ranges/1", "group": "clicks", "written_at_ms": 1767229200000},
    {"topic": "events", "partition": 0, "from": 4400, "until": 4514},
    {"manifest": "7.0123abcd", "written_at_ms": 1767229200000},
    {"topic": "events", "partition": 3, "until": 881, "anchor": {"offset": 880, "timestamp_ms": 5, "names": "last"}},
    {"topic": "events", "partition": 4, "deleted": True},
]


def summed_ranges(data: bytes) -> bytes:
    body = data if data.endswith(b"\n") else data + b"\n"
    end = {"end": body.count(b"\n"), "sha256": hashlib.sha256(body).hexdigest()}
    return body + json.dumps(end).encode() + b"\n"


def _manifest_again(found: Manifest) -> bytes:
    return range_manifests.dump(found.group, found.ranges, written_at_ms=found.written_at_ms, snapshot=found.snapshot)


def _ranges(found: Manifest) -> set[tuple[object, ...]]:
    """What the ranges say; of a malformed one its line, which is copied as it is."""
    return {
        (each.key, each.text, each.origin, None if isinstance(each.stored, Malformed) else each.stored)
        for each in found.ranges
    }


@sized
def test_any_range_manifest_is_read_or_refused_with_a_sentence(runs: int) -> None:
    def claim(data: bytes) -> None:
        for each in (data, summed_ranges(data)):
            found = attempt(partial(range_manifests.load, each), codec=(FieldError, TornManifest))
            if found is None:
                continue
            again = range_manifests.load(_manifest_again(found))
            assert _ranges(again) == _ranges(found)
            assert (again.group, again.snapshot) == (found.group, found.snapshot)

    fuzz(runs, lines(RANGES), claim)


# ---------------------------------------------------------------- a checkpoint of Spark

METADATA = {"batchWatermarkMs": 0, "batchTimestampMs": 1795301759566, "conf": {"spark.sql.shuffle.partitions": "1"}}
OFFSETS = {"orders": {"0": 6, "1": 7}, "pays": {"12": 4}}


@sized
def test_any_offset_log_is_read_or_refused_with_a_sentence(runs: int) -> None:
    def claim(data: bytes) -> None:
        for version in (b"v1\n", b"v2\n", b""):
            entry = attempt(lambda whole=version + data: checkpoint.parse_offsets(3, whole), codec=(FieldError,))
            if entry is None:
                continue
            kafka = {each.name: each.kafka for each in entry.sources if each.kafka}
            moved = {name: dict.fromkeys(of, 5) for name, of in kafka.items()}
            texts = {name: offsets_text(of) for name, of in moved.items()}
            edited = checkpoint.parse_offsets(3, entry_with(3, version + data, texts))
            assert {each.name: each.kafka for each in edited.sources if each.kafka} == moved
            for committed in (False, True):
                found = attempt(
                    lambda is_done=committed, last=entry: restart.checkpoint(
                        None, last, last, committed=is_done, initial={}
                    ),
                    codec=(FieldError,),
                )
                assert found is None or readings(found) is not None

    fuzz(runs, lines([METADATA, OFFSETS, {"logOffset": 0}]), claim)


@sized
def test_any_other_file_of_a_checkpoint_is_read_or_refused_with_a_sentence(runs: int) -> None:
    def claim(data: bytes) -> None:
        for read in (checkpoint.check_commit, checkpoint.parse_query_id, partial(checkpoint.parse_initial, "0")):
            for whole in (data, b"v1\n" + data):
                attempt(partial(read, whole), codec=(FieldError,))
        began = attempt(partial(checkpoint.parse_initial, "0", b"\0v1\n" + data), codec=(FieldError,))
        if began is not None and began.kafka and min(began.kafka.values()) >= 0:
            text = offsets_text(began.kafka)
            assert checkpoint.parse_initial("0", initial_with("0", b"\0v1\n" + data, text)).kafka == began.kafka

    fuzz(runs, documents([{"id": "86b8d69f"}, {"nextBatchWatermarkMs": 0}, OFFSETS]), claim)


# ---------------------------------------------------------------- all of them, as bytes


@sized
def test_any_bytes_are_no_file_of_any_format(runs: int) -> None:
    readers = {
        "plan": lambda text: parse_plan(text),
        "start": lambda text: start.load(text, "a start"),
        "lines": lambda text: list(load_lines(text.splitlines(keepends=True))),
    }

    def claim(data: bytes) -> None:
        for read in readers.values():
            attempt(partial(read, data.decode(errors="surrogateescape")), CHANGED, USAGE)

    fuzz(runs, slips([path.read_bytes() for path in sorted(GOLDENS.rglob("*.json*"))], most=5), claim)


@sized
def test_any_value_in_an_error_of_a_reader_is_told_in_a_few_words(runs: int) -> None:
    """What a file holds may be quoted, and never as a whole."""

    def claim(value: Any) -> None:
        for field in ("format", "plan_sha256", "sha256"):
            text = json.dumps({field: value, "rows": value, "jobs": value})
            with pytest.raises(ReconcilerError) as raised:
                parse_plan(text)
            assert len(raised.value.message) < 400

    fuzz(runs, changed([{"a": 1}]) | SCALARS, claim)


@pytest.mark.parametrize("partition", ["9" * 5_000, "٣", "07", str(2**31), "-1", ""])
def test_a_start_whose_partitions_have_no_number_is_refused(partition: str) -> None:
    altered = {**START, "offsets": {"events": {partition: 7}}}
    with pytest.raises(ConfigError, match="has a partition without an offset"):
        start.load(json.dumps(altered), "a start")


def test_a_start_of_a_topic_without_a_name_is_refused() -> None:
    altered = {**START, "offsets": {"": {"0": 7}}}
    with pytest.raises(ConfigError, match="has a topic without"):
        start.load(json.dumps(altered), "a start")


def test_a_start_of_half_a_character_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a start of a job"):
        start.load(json.dumps({**START, "offsets": {"\ud800": {"0": 7}}}), "a start")


def test_a_field_of_any_length_is_told_by_its_beginning() -> None:
    line = json.dumps({**ANCHORS[0], "x" * 1_000_000: 1})
    with pytest.raises(ConfigError, match=r"x{60} is not a field of this format") as refused:
        list(load_lines([line]))
    assert len(str(refused.value)) < 300
