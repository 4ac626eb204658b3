"""Plans as files: what is written is read back, what was altered is refused, and what may start is a table."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.core.anchors import Anchor, StoredOffset, TopicPartition, fingerprint
from reconciler.core.errors import Changed, ConfigError, ExitCode, NeedsPerson
from reconciler.core.question import Behind
from reconciler.core.verdicts import STOPS, Finding, Position, Verdict
from reconciler.plan.document import ROWS_AT_ONCE as AT_ONCE
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, PlanAnchor, StartPolicy, parse_plan
from reconciler.plan.start import why_stopped

SECRET = b"customer-4711"
ANCHOR = Anchor(41, 1_700_000_000_000, SECRET, fingerprint(b"k", b"v"), "cluster-a", "topic-a")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
OFFSETS = st.integers(0, 2**63 - 1)


def part(
    verdict: Verdict = Verdict.EXACT,
    resume: int | None = 17,
    partition: int = 0,
    topic: str = "a.events",
    at_most: int | None = 0,
    **words: Any,
) -> PartitionPlan:
    finding = Finding(verdict, resume, at_most if resume is not None else None, detail="found")
    row = PartitionPlan.of(
        finding,
        source_topic="events",
        key=TopicPartition(topic, partition),
        topic_id="id-b",
        stored=StoredOffset(42, ANCHOR),
        probes=3,
        rounds=2,
    )
    return replace(row, **words)


def plan_of(*rows: PartitionPlan, name: str = "clicks") -> Plan:
    jobs = (JobPlan(name, "group", "sqlite:///offsets.db", rows),)
    return Plan(
        "0.1.0", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", "a", "b", "cluster-a", "b:9092", "cluster-b", jobs
    )


NAMES = TEXT.filter(bool)
FINGERPRINTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=32, max_size=32)
ID_HASHES = st.text("0123456789abcdef", min_size=16, max_size=16)


@st.composite
def partition_plans(draw: st.DrawFn) -> PartitionPlan:
    """Rows as searches and people make them."""
    resume, by_hand = draw(st.none() | OFFSETS), draw(st.booleans())
    verdicts = (
        sorted(STOPS) if resume is None else [verdict for verdict in Verdict if verdict is not Verdict.UNRESOLVED]
    )
    verdict, stored = draw(st.sampled_from(verdicts)), draw(st.none() | st.integers(-2, 2**63 - 1))
    at_most = draw(OFFSETS if resume is not None else st.none())
    return PartitionPlan(
        source_topic=draw(NAMES),
        topic=draw(NAMES),
        topic_id=draw(st.none() | TEXT),
        partition=draw(st.integers(0, 5000)),
        stored_offset=stored if by_hand or verdict is not Verdict.EXACT else resume,
        anchor=None
        if stored is None
        else draw(
            st.none()
            | st.builds(PlanAnchor, st.none() | OFFSETS, st.none() | OFFSETS, st.none() | FINGERPRINTS, ID_HASHES)
        ),
        finding=verdict,
        resume_offset=resume,
        replay_at_most=at_most,
        replay_exact=draw(st.sampled_from([None, at_most])),
        matched_by=draw(st.sampled_from([None, "id", "fingerprint", "timestamp"])),
        record_offset=draw(st.none() | st.integers(0, resume - 1)) if resume else None,
        probes=draw(st.integers(0, 999)),
        rounds=draw(st.integers(0, 999)),
        detail=draw(TEXT),
        position=draw(st.sampled_from(["next", "start", "end"])),
        set_by_hand=by_hand,
    )


ROWS = st.lists(
    partition_plans(),
    max_size=3,
    unique_by=(lambda row: (row.source_topic, row.partition), lambda row: (row.topic, row.partition)),
)


# ---------------------------------------------------------------- the file


@given(st.lists(ROWS, max_size=3), TEXT.filter(bool), TEXT)
def test_a_written_plan_reads_back_equal(jobs: list[list[PartitionPlan]], name: str, servers: str) -> None:
    made = tuple(JobPlan(f"job-{n}", "group", "memory:", tuple(rows)) for n, rows in enumerate(jobs))
    plan = replace(plan_of(), source_name=name, bootstrap_servers=servers, jobs=made)
    assert parse_plan(plan.to_text()) == plan
    assert json.loads(plan.to_text()) == plan.to_json()


@pytest.mark.parametrize("count", [0, 1, AT_ONCE, AT_ONCE + 1, 2 * AT_ONCE + 3])
def test_a_plan_is_written_a_few_rows_at_a_time(count: int) -> None:
    """Whatever its names hold: they may look like the place where the rows belong."""
    name = '"jobs": [], "partitions":[], "partitions": []'
    (job,) = plan_of(*(part(partition=number) for number in range(count)), name=name).jobs
    plan = replace(plan_of(), bootstrap_servers=name, jobs=(job, replace(job, name="other")))
    pieces = list(plan.texts())
    assert parse_plan("".join(pieces)) == plan
    assert plan.to_json() == json.loads("".join(pieces))
    assert max(piece.count('"record_offset"') for piece in pieces) == min(count, AT_ONCE)


def test_the_sum_covers_the_canonical_json_of_all_else() -> None:
    content = plan_of(part()).to_json()
    stated = content.pop("sha256")
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert stated == hashlib.sha256(text.encode()).hexdigest()


def test_each_partition_has_a_line_of_its_own() -> None:
    lines = plan_of(part(partition=0), part(partition=1)).to_text().splitlines()
    assert [json.loads(line.rstrip(","))["partition"] for line in lines if '"record_offset"' in line] == [0, 1]


def test_the_fields_are_those_of_the_format() -> None:
    content = plan_of(part()).to_json()
    assert list(content) == [
        "format", "tool_version", "created_at", "expires_at", "source", "destination", "jobs", "sha256",
    ]  # fmt: skip
    (job,) = content["jobs"]
    assert list(job) == ["name", "group", "store", "lives", "finding", "partitions"]
    (row,) = job["partitions"]
    assert list(row) == [
        "source_topic", "topic", "topic_id", "partition", "position", "stored_offset", "anchor", "finding",
        "resume_offset", "replay", "evidence", "detail", "set_by_hand", "skips",
    ]  # fmt: skip
    assert list(row["anchor"]) == ["offset", "timestamp_ms", "fingerprint", "id_hash"]
    assert list(row["evidence"]) == ["matched_by", "record_offset", "probes", "rounds"]


def test_a_row_that_its_own_time_places_says_so() -> None:
    row = replace(part(verdict=Verdict.EARLY), anchor=None, by_row_time=True)
    text = plan_of(row).to_text()
    assert json.loads(text)["jobs"][0]["partitions"][0]["by_row_time"] is True
    assert parse_plan(text).job().partitions == (row,)
    with pytest.raises(Changed, match="only a stored offset without anchor is placed by the time of its row"):
        parse_plan(plan_of(replace(row, anchor=part().anchor)).to_text())
    bare = replace(row, anchor=PlanAnchor.of(Anchor(cluster_id="a")))  # it names no record
    assert parse_plan(plan_of(bare).to_text()).job().partitions == (bare,)


def test_a_raw_id_never_appears() -> None:
    text = plan_of(part()).to_text()
    assert SECRET.decode() not in text
    assert hashlib.sha256(SECRET).hexdigest()[:16] in text


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _leaves(item, (*path, key))]
    if isinstance(value, list):
        return [leaf for key, item in enumerate(value) for leaf in _leaves(item, (*path, key))]
    return [path]


@pytest.mark.parametrize("path", _leaves(plan_of(part()).to_json()), ids=lambda path: ".".join(map(str, path)))
def test_a_plan_altered_anywhere_is_refused(path: tuple[Any, ...]) -> None:
    content = plan_of(part()).to_json()
    holder = content
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = "altered" if holder[path[-1]] != "altered" else None
    with pytest.raises(Changed) as refused:
        parse_plan(json.dumps(content))
    assert refused.value.exit_code is ExitCode.CHANGED


def test_a_plans_row_detects_a_changed_stored_offset() -> None:
    row = part()
    assert row.sees(StoredOffset(42, ANCHOR))
    assert not row.sees(StoredOffset(43, ANCHOR))
    assert not row.sees(StoredOffset(42, replace(ANCHOR, id=b"other")))
    assert not row.sees(StoredOffset(42))
    assert not row.sees(None)
    assert replace(row, stored_offset=None, anchor=None).sees(None)


def test_verdicts_are_the_worst_of_their_parts() -> None:
    assert plan_of().finding is Verdict.EXACT
    assert plan_of(part(Verdict.EXACT), part(Verdict.LOST), part(Verdict.EARLY)).finding is Verdict.LOST


def test_a_job_is_found_by_name_or_alone() -> None:
    one = plan_of(part())
    two = replace(one, jobs=(*one.jobs, replace(one.jobs[0], name="views")))
    assert one.job().name == "clicks"
    assert two.job("views").name == "views"
    for plan in (two, replace(one, jobs=())):
        with pytest.raises(NeedsPerson):
            plan.job()
    with pytest.raises(ConfigError, match='no job "views"'):
        one.job("views")


# ---------------------------------------------------------------- what may start


STARTS = [
    (part(Verdict.EXACT), StartPolicy(max_replay=0)),
    (part(Verdict.EXACT, at_most=5000), StartPolicy(max_replay=0)),
    (part(Verdict.NEW), StartPolicy()),
    (part(Verdict.EARLY, at_most=10), StartPolicy(max_replay=10)),
    (part(Verdict.BEHIND), StartPolicy()),
    (part(Verdict.LOST, set_by_hand=True), StartPolicy()),
    (part(Verdict.UNRESOLVED, set_by_hand=True), StartPolicy()),
    (part(Verdict.EARLY, at_most=11, set_by_hand=True), StartPolicy(max_replay=10)),
    (part(Verdict.BEHIND, set_by_hand=True), StartPolicy(behind=Behind.STOP)),
]
STOPPED = [
    (part(Verdict.EARLY, at_most=11), StartPolicy(max_replay=10), "max_replay"),
    (part(Verdict.EARLY, at_most=11), StartPolicy(max_replay=10), "--accept early"),
    (part(Verdict.BEHIND), StartPolicy(behind=Behind.STOP), "--accept behind"),
    (part(Verdict.BEHIND), StartPolicy(behind=Behind.WAIT), "--wait"),
    (part(Verdict.LOST), StartPolicy(), "--accept lost"),
    (replace(part(Verdict.UNRESOLVED, None), absent=True), StartPolicy(), "--accept unresolved"),
    (part(Verdict.UNRESOLVED, None), StartPolicy(), "--set"),
]


@pytest.mark.parametrize(("row", "policy"), STARTS)
def test_what_may_start(row: PartitionPlan, policy: StartPolicy) -> None:
    assert why_stopped(row, policy) is None


@pytest.mark.parametrize(("row", "policy", "advice"), STOPPED)
def test_a_row_that_may_not_start_gives_advice(row: PartitionPlan, policy: StartPolicy, advice: str) -> None:
    assert advice in (why_stopped(row, policy) or "")


@pytest.mark.parametrize(
    ("row", "policy"),
    [
        (part(Verdict.EARLY, at_most=11), StartPolicy(max_replay=10)),
        (part(Verdict.BEHIND), StartPolicy(behind=Behind.WAIT)),
    ],
)
def test_of_the_end_of_a_batch_no_verdict_is_to_be_accepted_that_decides_nothing(
    row: PartitionPlan, policy: StartPolicy
) -> None:
    assert f"or --accept {row.finding.value}" in (why_stopped(row, policy) or "")
    of_end = why_stopped(replace(row, position=Position.END), policy)
    assert of_end
    assert "--accept" not in of_end


def test_the_table_names_every_verdict() -> None:
    assert {row.finding for row, _ in STARTS} | {row.finding for row, _, _ in STOPPED} == set(Verdict)
