"""Plans that are intact and do not apply here: another time, configuration, cluster, topic, partition, record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.clock import stamp
from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, ConfigError
from reconciler.core.verdicts import Verdict
from reconciler.failover.writing.apply import prepare
from reconciler.failover.writing.plan_checks import CLOCKS_DIFFER_MS, check_stores
from reconciler.plan.document import PartitionPlan, Plan, parse_plan
from tests.in_memory import BASE, GROUP, NOW, Memory, anchor, stored

MINUTE, DAY = 60_000, 86_400_000


@pytest.fixture
def planned(memory: Memory) -> Memory:
    """Records 0 to 9 are there, with a marker behind record 5, which was processed last."""
    memory.deliver(range(6))
    memory.log.partition("a.events", 0).append_marker(0)
    memory.deliver(range(6, 10))
    memory.save({0: stored(5)})
    return memory


def apply(memory: Memory, plan: Plan, extra: str = "", jobs: str = "") -> list[Any]:
    """The rows that applying would write; the plan goes through its file, as an attacker's would."""
    return prepare(parse_plan(plan.to_text()), memory.config(extra, jobs), memory.outside)


def with_row(plan: Plan, **changed: Any) -> Plan:
    (job,) = plan.jobs
    return replace(plan, jobs=(replace(job, partitions=(replace(job.partitions[0], **changed),)),))


def refused(memory: Memory, plan: Plan, **config: str) -> str:
    before = memory.rows()
    with pytest.raises(Changed) as caught:
        apply(memory, plan, **config)
    assert memory.rows() == before
    assert caught.value.hint is not None
    return caught.value.message


def test_the_plan_that_is_sent_elsewhere_below_may_be_applied(planned: Memory) -> None:
    (change,) = apply(planned, planned.check().plan)
    assert [item.new.offset for item in change.intended] == [6]


# ---------------------------------------------------------------- time


@pytest.mark.parametrize(
    ("made_ms", "good_until_ms", "said"),
    [
        (NOW - 2 * MINUTE, NOW - MINUTE, "The plan expired at"),
        (NOW - MINUTE, NOW, "The plan expired at"),
        (NOW - DAY, NOW + 9 * DAY, "longer ago than [policy] plan_expires allows"),
        (NOW - 900 * DAY, NOW + 900_000 * DAY, "longer ago than [policy] plan_expires allows"),
        (NOW + CLOCKS_DIFFER_MS + 1_000, NOW + DAY, "Find out which clock is wrong"),
        (NOW + 9_000 * DAY, NOW + 9_001 * DAY, "Find out which clock is wrong"),
    ],
)
def test_a_plan_of_another_time_is_refused(planned: Memory, made_ms: int, good_until_ms: int, said: str) -> None:
    """Whoever moves the end of a plan's time moves nothing: the policy of now counts too."""
    plan = replace(planned.check().plan, created_at=stamp(made_ms), expires_at=stamp(good_until_ms))
    with pytest.raises(Changed) as caught:
        apply(planned, plan)
    assert said in str(caught.value)


@pytest.mark.parametrize("made_ms", [NOW - DAY + 1_000, NOW, NOW + CLOCKS_DIFFER_MS])
def test_clocks_may_differ_by_minutes(planned: Memory, made_ms: int) -> None:
    plan = replace(planned.check().plan, created_at=stamp(made_ms), expires_at=stamp(NOW + DAY))
    assert apply(planned, plan)[0].intended


# ---------------------------------------------------------------- configuration


def job(name: str = "clicks", group: str = GROUP, topics: str = "events", store: str = "memory:") -> str:
    return f'[[jobs]]\nhome = "a"\nname = "{name}"\ngroup = "{group}"\ntopics = ["{topics}"]\noffsets = "{store}"\n'


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"jobs": job(group="another")}, 'has group "another" in the configuration'),
        ({"jobs": job(topics="another")}, 'the topic "events", which is not one of job "clicks"'),
        ({"extra": '[topics]\nseparator = "-"'}, 'is called "a-events" at the destination by the configuration'),
        ({"extra": '[topics]\npolicy = "identity"'}, 'is called "events" at the destination by the configuration'),
        ({"extra": '[topics.names.b]\n"events@a" = "b.events"'}, 'is called "b.events" at the destination'),
    ],
)
def test_a_plan_of_another_configuration_is_refused(planned: Memory, config: dict[str, str], said: str) -> None:
    """``rollback`` says the same, and a new plan would not help it."""
    assert said in refused(planned, planned.check().plan, **config)
    with pytest.raises(Changed) as caught:
        apply(planned, planned.check().plan, **config)
    assert str(caught.value.hint).startswith("Use the configuration that the plan was made with.")


def test_a_plan_for_a_job_that_the_configuration_does_not_have_is_refused(planned: Memory) -> None:
    plan = planned.check().plan
    with pytest.raises(
        ConfigError, match='job "clicks", which the configuration does not have: it has views'
    ) as caught:
        apply(planned, plan, jobs=job("views"))
    assert caught.value.hint == "Name the configuration that the plan was made with: -c FILE."


def test_a_plan_for_another_store_is_refused(planned: Memory) -> None:
    plan = planned.check().plan
    check_stores(plan, planned.config(), planned.outside)
    elsewhere = replace(plan, jobs=(replace(plan.jobs[0], store="sqlite:///elsewhere.db"),))
    with pytest.raises(Changed, match=r"and sqlite:///elsewhere\.db in the plan"):
        check_stores(elsewhere, planned.config(), planned.outside)


def test_a_store_that_is_only_waited_for_longer_is_the_same_one(planned: Memory) -> None:
    plan = planned.check().plan
    at = plan.jobs[0].store
    for address in (f"{at}?timeout=5", f"{at}?layout=cloudera&timeout=5", f"{at}?timeout=5&layout=cloudera"):
        now = f"{at}?layout=cloudera" if "layout" in address else at
        opened = SimpleNamespace(address=now, close=lambda: None)
        outside = replace(planned.outside, open_store=lambda _, opened=opened: opened)
        check_stores(replace(plan, jobs=(replace(plan.jobs[0], store=address),)), planned.config(), outside)


# ---------------------------------------------------------------- rows that changed since


def delete(memory: Memory) -> None:
    memory.store._shared.rows[GROUP].clear()


LATER = StoredOffset(4, Anchor(3, cluster_id="b"), NOW)
CHANGES: dict[str, tuple[Callable[[Memory], None], str]] = {
    "went on": (lambda memory: memory.save({0: stored(6)}), "had offset 706, and has offset 707 now"),
    "went back": (lambda memory: memory.save({0: stored(3)}), "had offset 706, and has offset 704 now"),
    "deleted": (delete, "had offset 706, and has no row now"),
    "a partition that the destination lacks": (
        lambda memory: memory.save({3: stored(3, 3)}),
        "-3, which is not in the",
    ),
    "another anchor": (
        lambda memory: memory.save({0: replace(stored(5), anchor=replace(anchor(5), fingerprint="0" * 32))}),
        "(or another anchor)",
    ),
    "no anchor": (lambda memory: memory.save({0: StoredOffset(BASE + 6)}), "(or another anchor)"),
}


@pytest.mark.parametrize(("change", "said"), CHANGES.values(), ids=CHANGES)
def test_a_plan_for_rows_that_have_changed_since_is_refused(
    planned: Memory, change: Callable[[Memory], None], said: str
) -> None:
    plan = planned.check().plan
    change(planned)
    assert said in refused(planned, plan)


# ---------------------------------------------------------------- cluster, topics, records


ROWS: dict[str, tuple[Callable[[PartitionPlan], dict[str, Any]], str]] = {
    "another topic": (lambda row: {"topic": "orders"}, 'is called "a.events" at the destination'),
    "another source topic": (lambda row: {"source_topic": "orders"}, "is not one of job"),
    "no topic id": (lambda row: {"topic_id": None}, "its id was None, now b/a.events"),
    "another topic's id": (lambda row: {"topic_id": "b/orders"}, "was deleted or recreated since"),
    "a partition that is not there": (lambda row: {"partition": 7}, "The destination has no a.events-7"),
    "an offset behind the log's end": (lambda row: {"resume_offset": 12}, "does not hold the planned offset 12"),
    "an offset that nothing proves": (
        lambda row: {"resume_offset": 9},
        "a record is at 7, between the one that the plan rests on and the planned offset 9",
    ),
    "an offset and no record": (lambda row: {"record_offset": None}, "a record is at 0, between"),
    "an offset in front of which another record lies": (
        lambda row: {"resume_offset": 9, "record_offset": 8},
        "another record is at 8 now",
    ),
    "a record that is not there": (lambda row: {"resume_offset": 7, "record_offset": 6}, "the record at 6 is gone"),
}


@pytest.mark.parametrize(("change", "said"), ROWS.values(), ids=ROWS)
def test_a_row_that_the_destination_does_not_bear_out_is_refused(
    planned: Memory, change: Callable[[PartitionPlan], dict[str, Any]], said: str
) -> None:
    plan = planned.check().plan
    assert said in refused(planned, with_row(plan, **change(plan.jobs[0].partitions[0])))


@pytest.mark.parametrize("by_hand", [False, True])
def test_no_verdict_lets_records_be_skipped_that_the_plan_does_not_rest_on(planned: Memory, by_hand: bool) -> None:
    plan = planned.check().plan
    for verdict in (Verdict.EARLY, Verdict.EARLY, Verdict.EARLY, Verdict.BEHIND, Verdict.EXACT):
        skipping = with_row(plan, finding=verdict, resume_offset=10, set_by_hand=by_hand)
        assert "a record is at 7" in refused(planned, skipping)


def test_a_gap_in_front_of_the_offset_is_no_record(planned: Memory) -> None:
    (change,) = apply(planned, with_row(planned.check().plan, finding=Verdict.EARLY, resume_offset=7))
    assert [item.new.offset for item in change.intended] == [7]


def test_a_plan_for_another_cluster_is_refused(planned: Memory) -> None:
    assert "is for cluster c, but" in refused(planned, replace(planned.check().plan, cluster_id="c"))
