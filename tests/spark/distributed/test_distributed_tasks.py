"""A check's searches as tasks: grouped, pickled, run and combined, with the result of one local engine."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.config.identity import identity_from_spec
from reconciler.core.anchors import RECORD_TIME_ONLY, StoredOffset
from reconciler.core.errors import Changed, ConfigError, ExitCode, ReconcilerError, Refused, Unreachable
from reconciler.core.question import Question
from reconciler.core.reconcile import reconcile
from reconciler.failover.check import check
from reconciler.failover.outside import ByHand, Outside
from reconciler.kafka.engine import Inquiry, Progress
from reconciler.plan.document import Plan
from reconciler.ports import TopicPartition
from reconciler.spark.distributed import (
    Answer,
    CheckJob,
    Orders,
    TaskReport,
    classic_session,
    combine_answers,
    explain,
    group_by_leader,
    make_tasks,
    run_task,
)
from tests.in_memory import BEGIN, Memory, stored
from tests.memory_log import MemoryLog, MemoryRecord

ORDERS = Orders({"bootstrap.servers": "b", "sasl.password": "hunter2"}, timeout_s=1.0, deadline_s=0.0, memory=0)


def elsewhere(log: Any, per_task: int, answers: Callable[[list[Answer]], list[Answer]] = list) -> Any:
    """An engine as Spark's is: every task goes out as bytes, and every answer comes back as bytes."""

    def run(_: Any, inquiries: Mapping[Any, Inquiry[Any]], /, *, clock: Any, settings: Any = None) -> Any:
        there = pickle.dumps(ORDERS)
        asked = list(inquiries.values())
        leaders = {each.partition: each.partition.partition % 3 for each in asked}
        tasks = make_tasks(asked, leaders, per_task)
        back = [pickle.dumps(run_task(task, pickle.loads(there), lambda _: log)) for task in tasks]
        return combine_answers(list(inquiries), answers([pickle.loads(each) for each in back]))

    return run


@pytest.fixture
def dozen(memory: Memory) -> Memory:
    """Twelve partitions, eleven of them read."""
    memory.log.create("a.events", 12)
    for partition in range(12):
        memory.deliver(range(20 + partition), partition)
    memory.save({partition: stored(partition, partition) for partition in range(11)})
    return memory


def settled(plan: Plan) -> dict[str, Any]:
    """A plan without its times."""
    content = json.loads(plan.to_text())
    return {key: value for key, value in content.items() if key not in ("created_at", "expires_at", "sha256")}


def plans(memory: Memory, outside: Outside, extra: str = "", by_hand: ByHand | None = None) -> list[dict[str, Any]]:
    config = memory.config(extra)
    here = check(config, config.jobs, outside, by_hand)
    there = check(config, config.jobs, replace(outside, run=elsewhere(outside.reader, 2)), by_hand)
    assert here.to_write == there.to_write
    return [settled(here.plan), settled(there.plan)]


def test_the_plan_is_that_of_the_local_engine_with_its_evidence(dozen: Memory) -> None:
    here, there = plans(dozen, dozen.outside)
    assert there == here
    assert {row["finding"] for row in here["jobs"][0]["partitions"]} >= {"exact", "new"}
    assert all(row["evidence"]["probes"] for row in there["jobs"][0]["partitions"])


def test_remapped_partitions_and_offsets_set_by_hand_reach_the_tasks(dozen: Memory) -> None:
    dozen.save({partition: stored(5, partition) for partition in range(14)})  # two more than the destination has
    by_hand = ByHand({("a.events", 3): 7})
    here, there = plans(dozen, dozen.outside, "[search]\nmax_disorder = '3s'", by_hand)
    assert there == here
    rows = {row["partition"]: row for row in there["jobs"][0]["partitions"]}
    assert rows[0]["finding"] == "early"
    assert (rows[3]["set_by_hand"], rows[3]["resume_offset"]) == (True, 7)


# ---------------------------------------------------------------- identities


def record(**more: Any) -> MemoryRecord:
    return MemoryRecord(**{"offset": 3, "timestamp_ms": BEGIN, "key": b"k", "value": b'{"id": 17, "ts": 5}', **more})


@pytest.mark.parametrize(
    "id_spec",
    ["none", "key", "header:n", "json:$.id", "python:tests.spark.distributed.test_distributed_tasks:second_id"],
)
@pytest.mark.parametrize("time_spec", ["record", "json:$.ts", "header:n"])
def test_an_identity_is_the_same_at_the_other_end(id_spec: str, time_spec: str) -> None:
    here = identity_from_spec(time_spec, id_spec, id_order="increasing", unit="s")
    there = pickle.loads(pickle.dumps(here))
    found = record(headers=(("n", b"12"),))
    assert there.timestamp_of(found) == here.timestamp_of(found)
    assert (there.id_of and there.id_of(found)) == (here.id_of and here.id_of(found))
    assert (there.id_order, there.record_time) == (here.id_order, here.record_time)


def second_id(found: Any) -> bytes:
    return b"%d" % found.offset


# ---------------------------------------------------------------- errors


def one_task(identity: Any = RECORD_TIME_ONLY) -> bytes:
    question = Question(StoredOffset(-1), "b", None, identity)
    asked = [Inquiry(TopicPartition("a.events", 0), partial(reconcile, question))]
    (task,) = make_tasks(asked, {}, 10)
    return task


class Failing:
    """A log that raises."""

    def __init__(self, error: Exception) -> None:
        self.error, self.closed = error, False

    def log_starts(self, _: Any) -> Any:
        raise self.error

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unreachable("Away.", hint="Wait."), ExitCode.UNREACHABLE),
        (Refused("No.", hint="Ask."), ExitCode.UNREACHABLE),
        (Changed("Another.", hint="Again."), ExitCode.CHANGED),
        (ConfigError("Wrong.", hint="Right."), ExitCode.USAGE),
    ],
)
def test_a_tasks_error_is_raised_as_by_the_local_engine(error: ReconcilerError, code: ExitCode) -> None:
    log = Failing(error)
    answer = pickle.loads(pickle.dumps(run_task(one_task(), ORDERS, lambda _: log)))
    with pytest.raises(type(error)) as raised:
        combine_answers(["only"], [answer])
    assert type(raised.value) is type(error)
    assert (str(raised.value), raised.value.hint, raised.value.exit_code) == (str(error), error.hint, code)
    assert log.closed


def test_a_bug_in_a_task_is_a_bug_here_with_its_traceback() -> None:
    answer = run_task(one_task(), ORDERS, lambda _: Failing(ZeroDivisionError("by nought")))
    with pytest.raises(RuntimeError, match=r"(?s)Spark task.*log_starts.*by nought"):
        combine_answers(["only"], [pickle.loads(pickle.dumps(answer))])


def test_executors_with_another_version_are_refused() -> None:
    answer = run_task(one_task(), replace(ORDERS, version="0.0.7"), lambda _: MemoryLog("b"))
    with pytest.raises(ConfigError, match=r"executors have reconciler .*, this program is 0\.0\.7"):
        combine_answers(["only"], [answer])


def test_executors_without_kafkas_client_name_the_package_to_install() -> None:
    def open_reader(_: Orders) -> Any:
        raise ModuleNotFoundError("No module named 'confluent_kafka'", name="confluent_kafka")

    with pytest.raises(ConfigError, match=r'lack the Python module "confluent-kafka"\. Install'):
        combine_answers(["only"], [run_task(one_task(), ORDERS, open_reader)])


def test_passwords_are_neither_in_tasks_nor_in_the_repr_of_orders() -> None:
    assert b"hunter2" not in one_task()
    assert "hunter2" not in repr(ORDERS)


def test_a_task_without_an_answer_gives_no_plan(dozen: Memory) -> None:
    config = dozen.config()
    with pytest.raises(KeyError):
        check(config, config.jobs, replace(dozen.outside, run=elsewhere(dozen.log, 2, lambda answers: answers[1:])))


# ---------------------------------------------------------------- groups


@given(st.lists(st.integers(0, 4) | st.none(), max_size=60), st.integers(1, 9))
def test_groups_have_one_leader_a_bound_and_everything_once(leaders: list[int | None], most: int) -> None:
    groups = group_by_leader(range(len(leaders)), lambda number: leaders[number], most)
    assert sorted(number for group in groups for number in group) == list(range(len(leaders)))
    assert all(len({leaders[number] for number in group}) == 1 and 0 < len(group) <= most for group in groups)
    by_leader: dict[int | None, list[int]] = {}
    for group in groups:
        by_leader.setdefault(leaders[group[0]], []).append(len(group))
    assert all(max(sizes) - min(sizes) <= 1 for sizes in by_leader.values())


# ---------------------------------------------------------------- what Spark says


def test_a_spark_connect_session_is_refused_before_anything_is_sent() -> None:
    class SparkSession:
        __module__ = "pyspark.sql.connect.session"

    with pytest.raises(ConfigError, match=r"Spark Connect.*classic SparkSession"):
        classic_session(SparkSession())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "kind", "told"),
    [
        ("Job aborted due to stage failure: Task 3 failed 4 times.\n\tat x\n", Unreachable, "Task 3 failed 4 times. "),
        ("\nJob aborted\nModuleNotFoundError: No module named 'reconciler'\n", ConfigError, '"reconciler"'),
        ("", Unreachable, "stopped the searches: Exception."),
    ],
)
def test_sparks_error_becomes_one_sentence(said: str, kind: type[ReconcilerError], told: str) -> None:
    error = explain(Exception(said))
    assert type(error) is kind
    assert told in str(error)
    assert "\n" not in str(error)


def job_of(on_progress: Callable[[Progress], None]) -> CheckJob:
    class Session:
        sparkContext = None

    return CheckJob(Session(), on_progress, 12)  # type: ignore[arg-type]


class Reports:
    """An accumulator with the tasks' reports so far."""

    def __init__(self, *reports: TaskReport) -> None:
        self.value = reports


def test_the_first_task_that_fails_ends_the_run_while_others_still_wait() -> None:
    waiting: Future[list[Answer]] = Future()
    job = job_of(lambda _: waiting.set_result([]))
    with pytest.raises(Refused, match="No"):
        job._awaited(waiting, Reports(TaskReport(5, 2), TaskReport(0, 0, Answer(error=Refused("No.")))))
