"""Identities of records: any setting is accepted or refused, and no record makes reading its id or time fail."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

from hypothesis import strategies as st

from reconciler.config.identity import UNITS_PER_MS, IdentitySettings, identity_from_settings, identity_from_spec
from reconciler.core import anchor_text
from reconciler.core.anchors import StoredOffset
from reconciler.core.errors import ExitCode
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import check
from reconciler.kafka.memory import MemoryLog, MemoryPartition
from tests.fuzz import AS_TYPED, ODD_TEXTS, attempt, documents, fuzz, sized, slips
from tests.in_memory import BEGIN, GROUP, Memory, anchor, content

USAGE = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class Made:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = 0
    timestamp_ms: int | None = 1
    append_time: bool = False


PAYLOAD = {
    "id": 17,
    "ts": 1_700_000_000_000,
    "meta": {"id": "x", "at": "2026-01-31T06:00:00+01:00"},
    "items": [1.5, None],
}
PAYLOADS = documents([PAYLOAD]) | slips([b"17", b"1.7e9", b"2026-01-31T06:00:00Z", b"null", b'"x"', b"\0\0\0\x05"])
HEADERS = st.lists(st.tuples(st.sampled_from(["id", "at", ""]), st.none() | PAYLOADS), max_size=3).map(tuple)
RECORDS = st.builds(Made, st.none() | PAYLOADS, st.none() | PAYLOADS, HEADERS)
SPECS = [
    "record",
    "none",
    "key",
    "header:id",
    "header:at",
    "json:$.id",
    "json:$.meta.at",
    "json:$.items[0]",
    "json:$.ts",
]
TIMES = [spec for spec in SPECS if spec not in ("none", "key")]
IDS = [spec for spec in SPECS if spec != "record"]


@sized
def test_any_setting_is_an_identity_or_is_refused_with_a_sentence(runs: int) -> None:
    texts = (
        st.sampled_from(IDS)
        | st.sampled_from(IDS)
        | slips([spec.encode() for spec in SPECS]).map(lambda data: data.decode(errors="replace"))
    )
    other = st.sampled_from(["opaque", "increasing", *UNITS_PER_MS]) | ODD_TEXTS

    def claim(settings: tuple[str, str, str, str]) -> None:
        identity = attempt(partial(identity_from_settings, IdentitySettings(*settings)), USAGE, longest=AS_TYPED)
        if identity is not None:
            identity.anchor_of(Made(json.dumps(PAYLOAD).encode()), cluster_id="b", topic_id="t")

    times, units = st.sampled_from(TIMES) | texts, st.sampled_from(list(UNITS_PER_MS)) | st.just("ms") | other
    fuzz(runs, st.tuples(times, texts, st.just("opaque") | st.just("increasing") | other, units), claim)


@sized
def test_any_record_has_an_id_and_a_time_or_none(runs: int) -> None:
    identities = [identity_from_spec(time, id, unit=unit) for time in TIMES for id in IDS for unit in UNITS_PER_MS]

    def claim(drawn: tuple[int, Made]) -> None:
        identity, record = identities[drawn[0]], drawn[1]
        found = attempt(lambda: identity.anchor_of(record, cluster_id="b", topic_id="t"))
        assert found is not None
        assert found.id is None or isinstance(found.id, bytes)
        assert found.timestamp_ms is None or -(2**63) <= found.timestamp_ms < 2**63
        kept = anchor_text.decode(anchor_text.encode(StoredOffset(1, found))).anchor
        assert kept is not None
        assert kept == found or kept.id is None

    fuzz(runs, st.tuples(st.integers(0, len(identities) - 1), RECORDS), claim)


@sized
def test_among_any_records_the_anchor_is_found_and_nothing_is_skipped(memory: Memory, runs: int) -> None:
    """Before it, behind it and of the same time: payloads and headers of anything."""
    job = (
        f'[[jobs]]\nhome = "a"\nname = "clicks"\ngroup = "{GROUP}"\n'
        f'topics = ["events"]\noffsets = "memory:"\n[jobs.identity]\n'
    )
    configs = [memory.config(jobs=f'{job}id = "{id}"') for id in ("none", "json:$.id", "header:id")]

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
