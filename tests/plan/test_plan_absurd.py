"""Plans whose checksum is right and whose content is not: anyone who can write the file can make its checksum fit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from reconciler.core.anchors import TopicPartition
from reconciler.core.errors import Changed, ExitCode
from reconciler.core.verdicts import Finding, Verdict
from reconciler.plan.document import JobPlan, PartitionPlan, Plan, digest, parse_plan

Content = dict[str, Any]


def content() -> Content:
    """A plan of two partitions, as JSON values."""
    moved = Finding(Verdict.EXACT, 17, 2, 2, "id", 16, "found")
    rows = [
        PartitionPlan.of(
            moved,
            source_topic="events",
            key=TopicPartition("a.events", number),
            topic_id="id-b",
            stored=None,
            probes=3,
            rounds=2,
        ).to_json()
        | {"stored_offset": 42, "anchor": anchor()}
        for number in (0, 1)
    ]
    job = JobPlan("clicks", "group", "sqlite:///offsets.db", ())
    plan = Plan("0.1.0", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", "a", "b", "A", "b:9092", "B", (job,)).to_json()
    plan["jobs"][0] |= {"finding": "exact", "partitions": rows}
    return plan


def anchor() -> Content:
    return {"offset": 41, "timestamp_ms": 1_700_000_000_000, "fingerprint": "0" * 32, "id_hash": "0" * 16}


def skips(at_least: object, at_most: object) -> Content:
    return {"at_least": at_least, "at_most": at_most, "accepted": True}


def summed(plan: Content) -> str:
    """The plan's text with the sum that fits it, as an attacker writes it."""
    return json.dumps({**plan, "sha256": digest(plan)})


def put(plan: Content, path: str, value: Any) -> None:
    holder: Any = plan
    *steps, last = path.split(".")
    for step in steps:
        holder = holder[int(step) if step.isdigit() else step]
    holder[int(last) if last.isdigit() else last] = value


def refused(text: str) -> str:
    with pytest.raises(Changed) as caught:
        parse_plan(text)
    assert caught.value.exit_code is ExitCode.CHANGED
    assert caught.value.hint is not None
    assert len(caught.value.message) < 400
    caught.value.message.encode()
    return caught.value.message


ROW = "jobs.0.partitions.0"
WRONG: list[tuple[str, Any]] = [
    *((f"{ROW}.resume_offset", value) for value in (-1, -2, 2**63, 10**400, "17", True, [], {}, None)),
    *((f"{ROW}.stored_offset", value) for value in ("42", False, -(2**63) - 1, 2**63, [42], None)),
    *((f"{ROW}.partition", value) for value in (-1, 2**31, "0", True, None, 1)),
    *((f"{ROW}.topic", value) for value in ("", None, 7, ["a.events"])),
    *((f"{ROW}.source_topic", value) for value in ("", None, 7)),
    *((f"{ROW}.topic_id", value) for value in (7, True, [], {})),
    *((f"{ROW}.position", value) for value in ("", "latest", None, 0)),
    *((f"{ROW}.skips", value) for value in (0, [], {}, "1", skips(1, 2) | {"more": 1}, {"at_least": 0, "at_most": 2})),
    *((f"{ROW}.skips", skips(*each)) for each in ((3, 2), (0, 0), (-1, 2), (0, None), (None, 2), (0, "2"))),
    (f"{ROW}.skips", skips(1, 2)),  # of an offset that was not set by hand
    *((f"{ROW}.finding", value) for value in ("", "fine", "EXACT", None, 3, ["exact"])),
    *((f"{ROW}.finding", value) for value in ("lost", "unresolved")),
    *((f"{ROW}.anchor", value) for value in ("", [], {}, 7, {**anchor(), "id": "raw"})),
    *((f"{ROW}.anchor.offset", value) for value in ("41", True, 2**63)),
    *((f"{ROW}.anchor.timestamp_ms", value) for value in ("now", 2**64)),
    *((f"{ROW}.anchor.fingerprint", value) for value in ("", "0" * 31, 0)),
    *((f"{ROW}.anchor.id_hash", value) for value in ("", "G" * 16, "0" * 15, 0)),
    *((f"{ROW}.replay", value) for value in (None, 0, {}, {"at_most": 2})),
    *((f"{ROW}.replay.at_most", value) for value in (-1, None, "2", True)),
    *((f"{ROW}.replay.exact", value) for value in (-1, 1, "2")),
    *((f"{ROW}.evidence", value) for value in (None, [], {"matched_by": None})),
    *((f"{ROW}.evidence.matched_by", value) for value in ("luck", "", 1)),
    *((f"{ROW}.evidence.record_offset", value) for value in (17, 18, -1, "16", True)),
    *((f"{ROW}.evidence.probes", value) for value in (-1, None, "3", True)),
    *((f"{ROW}.evidence.rounds", value) for value in (-1, 2**63)),
    *((f"{ROW}.detail", value) for value in (None, 7, [])),
    *((f"{ROW}.set_by_hand", value) for value in (None, 0, 1, "true")),
    *((f"{ROW}.{name}", True) for name in ("absent", "no_rows", "by_row_time")),
    (f"{ROW}.more", 1),
    (ROW, []),
    (ROW, None),
    ("jobs.0.partitions", {}),
    ("jobs.0.partitions", "rows"),
    *((f"jobs.0.{name}", value) for name in ("name", "group", "store") for value in ("", None, 7)),
    *(("jobs.0.finding", value) for value in ("early", "lost", "best", None)),
    ("jobs.0.more", 1),
    ("jobs.0", "clicks"),
    ("jobs", {"clicks": 1}),
    ("jobs", "clicks"),
    ("jobs", None),
    *(("created_at", value) for value in ("", None, 0, "now", "2026-01-01", "2026-01-01T00:00:00+00:00")),
    *(("created_at", f"2026-{value}Z") for value in ("13-01T00:00:00", "01-00T00:00:00", "01-01T24:00:00")),
    *(("expires_at", value) for value in ("zzzz", "9" * 30, "never", None, 2**40)),
    *(("expires_at", value) for value in ("2026-01-01T00:00:00Z", "2025-01-01T00:00:00Z")),
    ("expires_at", "٢٠٩٩-01-01T00:00:00Z"),
    ("expires_at", "2099-01-01T00:00:00Z\n"),
    *(("tool_version", value) for value in (None, 1, "")),
    *(("source", value) for value in (None, [], {"name": "a"}, {"name": "a", "cluster_id": "A", "more": 1})),
    *(("source.name", value) for value in (1, [], None, "")),
    *(("destination.cluster_id", value) for value in (None, "", 1)),
    ("destination.bootstrap_servers", None),
    ("signature", "valid"),
    *(("policy", value) for value in (None, {}, [], "start", {"behind": "start", "max_replay": 1_000_000})),
    *(("policy", {"behind": "wait", "max_replay": value}) for value in (-1, None, "7", 2**63, True)),
    *(("policy", {"behind": value, "max_replay": 7}) for value in (None, "", "never", 1)),
]  # fmt: skip


@pytest.mark.parametrize("more", [{}, {"policy": {"behind": "wait", "max_replay": 7}}])
def test_the_plan_that_is_made_absurd_below_is_a_plan(more: dict[str, Any]) -> None:
    text = summed({**content(), **more})
    assert parse_plan(text).to_json() == json.loads(text)


@pytest.mark.parametrize(("path", "value"), WRONG, ids=lambda part: ascii(part)[:60])
def test_an_absurd_plan_with_a_right_sum_is_refused(path: str, value: Any) -> None:
    plan = content()
    put(plan, path, value)
    refused(summed(plan))


def _paths(value: Any, path: str = "") -> list[str]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inside for found in _paths(item, f"{path}.{key}" if path else str(key)))]


@pytest.mark.parametrize(
    "path",
    [path for path in _paths(content()) if path and not path.split(".")[-1].isdigit()],
)
def test_a_plan_that_lacks_any_field_is_refused(path: str) -> None:
    plan: Any = content()
    holder, (*steps, last) = plan, path.split(".")
    for step in steps:
        holder = holder[int(step) if step.isdigit() else step]
    del holder[last]
    refused(json.dumps({**plan, "sha256": digest(plan)}) if path != "sha256" else json.dumps(plan))


# ---------------------------------------------------------------- the text


def _twice(text: str, key: str, again: str) -> str:
    return text.replace(f'"{key}": ', f'"{key}": {again}, "{key}": ', 1)


TEXTS: dict[str, Callable[[], str]] = {
    "a key twice": lambda: _twice(summed(content()), "expires_at", '"2099-01-01T00:00:00Z"'),
    "a row's key twice": lambda: _twice(summed(content()), "resume_offset", "999"),
    "NaN": lambda: summed(content()).replace('"probes": 3', '"probes": NaN', 1),
    "Infinity": lambda: summed(content()).replace('"probes": 3', '"probes": Infinity', 1),
    "a fraction": lambda: summed(content()).replace('"probes": 3', '"probes": 3.0', 1),
    "an exponent": lambda: summed(content()).replace('"probes": 3', '"probes": 3e0', 1),
    "a number without end": lambda: summed(content()).replace('"probes": 3', f'"probes": 3{"0" * 100_000}', 1),
    "a byte order mark": lambda: "\ufeff" + summed(content()),
    "more behind it": lambda: summed(content()) + "{}",
    "a comment": lambda: "// a plan\n" + summed(content()),
    "nested without end": lambda: summed(content()).replace('"found"', "[" * 100_000 + "]" * 100_000, 1),
    "objects nested without end": lambda: '{"format":' * 100_000,
    "a NUL": lambda: summed(content()) + "\0",
}


@pytest.mark.parametrize("make", TEXTS.values(), ids=TEXTS)
def test_json_that_programs_read_differently_is_refused(make: Callable[[], str]) -> None:
    refused(make())


@pytest.mark.parametrize("sha256", ["", None, 0, [], {}, True], ids=ascii)
def test_text_that_has_no_sum_is_not_saved_by_having_none(sha256: Any) -> None:
    """A lone surrogate cannot be encoded, so nothing can be summed."""
    plan = content()
    put(plan, f"{ROW}.detail", "\ud800")
    refused(json.dumps({**plan, "sha256": sha256}))


def test_the_sum_has_one_notation() -> None:
    plan = content()
    good = digest(plan)
    assert good != good.upper()
    for sha256 in (good.upper(), f" {good}", f"{good}\n", good[:-1], f"0x{good}", hashlib.sha512(b"").hexdigest()):
        refused(json.dumps({**plan, "sha256": sha256}))


def test_one_partition_or_job_twice_is_refused() -> None:
    plan = content()
    plan["jobs"][0]["partitions"][1] = {**plan["jobs"][0]["partitions"][0], "resume_offset": 99}
    assert "two rows for one partition" in refused(summed(plan))
    plan = content()
    plan["jobs"][0]["partitions"][1] |= {"partition": 0, "topic": "another"}
    assert "two rows for one partition" in refused(summed(plan))
    plan = content()
    plan["jobs"].append(plan["jobs"][0])
    assert "two jobs of one name" in refused(summed(plan))


@pytest.mark.parametrize("position", ["start", "end"])
@pytest.mark.parametrize("name", ["topic", "source_topic"])
def test_a_partition_has_a_next_offset_or_a_batchs_start_and_end(name: str, position: str) -> None:
    """Else two rows would say where it starts, and which of them counts would be chance."""
    plan = content()
    plan["jobs"][0]["partitions"][1] |= {"partition": 0, "position": position, name: "another", "resume_offset": 99}
    assert "two rows for one partition" in refused(summed(plan))
    plan["jobs"][0]["partitions"][0]["position"] = {"start": "end", "end": "start"}[position]
    plan["jobs"][0]["partitions"][1][name] = plan["jobs"][0]["partitions"][0][name]
    parse_plan(summed(plan))


def test_a_very_long_format_name_is_shortened_in_the_message() -> None:
    refused(json.dumps({"format": "x" * 1_000_000}))
    refused(json.dumps({"format": {"x": "y" * 1_000_000}}))
    refused(json.dumps({"format": "\ud800\x1b[2J"}))
