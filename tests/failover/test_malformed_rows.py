"""Rows that cannot be read: each is unresolved by its name, hides no other, and is never written over."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.main import main
from reconciler.core.errors import ExitCode, NeedsPerson
from reconciler.core.verdicts import Verdict
from reconciler.failover.apart import check_each
from reconciler.failover.check import Checked
from reconciler.failover.checkpoint.verify import verify
from reconciler.failover.outside import ByHand, Outside, WrongDecision
from reconciler.failover.writing.apply import prepare, refuse
from reconciler.places.memory import MemoryStore
from reconciler.places.registry import open_store
from reconciler.places.sql_rows import COLUMNS
from reconciler.plan.document import PartitionPlan
from reconciler.ports import Change, TopicPartition
from tests.in_memory import GROUP, NOW, Memory, read_back, stored, write_all
from tests.memory_log import MemoryLog

JOBS = "".join(
    f'[[jobs]]\nhome = "a"\nname = "{name}"\ngroup = "{group}"\ntopics = ["events"]\noffsets = "STORE"\n'
    for name, group in (("clicks", GROUP), ("other", "others"))
)
CELLS = (
    None,
    1.5,
    -1.5,
    float("inf"),
    "",
    "x",
    "1",
    b"",
    b"1",
    b"\xff" * 40,
    -1,
    -(2**63),
    2**63 - 1,
    "\ud800",
    "a\0b",
    "last",
    "NEXT",
    "x" * 70_000,
)


@dataclass
class Damaged:
    """Two jobs of three partitions each in one SQLite file, into whose cells anything can be written."""

    memory: Memory
    path: Path

    def __post_init__(self) -> None:
        for partition in range(3):
            self.memory.deliver(range(40), partition)
        self.save("events", {0: 10, 1: 20, 2: 30})

    @property
    def address(self) -> str:
        return f"sqlite:///{self.path}"

    def save(self, topic: str, rows: dict[int, int]) -> None:
        with closing(open_store(self.address)) as store:
            for group in (GROUP, "others"):
                changes = [Change(TopicPartition(topic, p), None, stored(n, p)) for p, n in rows.items()]
                store.write(group, changes, reason="test", now_ms=NOW)

    def damage(self, cell: str, value: Any, partition: int = 1, topic: str = "events") -> None:
        marks = "CAST(? AS TEXT)" if isinstance(value, str) else "?"
        raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute(
                f"UPDATE reconciler_offsets SET {cell} = {marks} WHERE grp = ? AND topic = ? AND partition = ?",
                (raw, GROUP, topic, partition),
            )

    @property
    def outside(self) -> Outside:
        return replace(self.memory.outside, open_store=open_store)

    def checked(self, by_hand: ByHand | None = None, jobs: str = "") -> Checked:
        config = self.memory.config("", JOBS.replace("STORE", self.address))
        chosen = [job for job in config.jobs if job.name in (jobs or "clicks other")]
        return read_back(check_each(config, chosen, self.outside, by_hand))

    def rows(self, by_hand: ByHand | None = None, job: str = "clicks") -> dict[int, PartitionPlan]:
        checked = self.checked(by_hand, job)
        (plan,) = (each for each in checked.plan.jobs if each.name == job)
        return {row.partition: row for row in plan.partitions}

    def apply(self, by_hand: ByHand) -> None:
        checked = self.checked(by_hand, "clicks")
        config = self.memory.config("", JOBS.replace("STORE", self.address))
        write_all(prepare(checked.plan, config, self.outside), checked.plan, config, self.outside)
        self.memory.moved = True


@pytest.fixture
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Damaged:
    log = MemoryLog("b", {"a.events": 3})
    return Damaged(Memory(log, MemoryStore(request.node.nodeid), tmp_path), tmp_path / "offsets.db")


@pytest.mark.parametrize(
    ("cell", "value", "problem"),
    [
        ("anchor_offset", 1.5, "the anchor's offset is 1.5, not a whole number"),
        ("anchor_offset", -1, "the anchor's offset is -1, which Kafka cannot have"),
        ("stored_offset", "soon", "the stored offset is 'soon', not a whole number"),
        ("stored_offset", None, "it has no offset"),
        ("timestamp_ms", b"\0" * 8, "the anchor's timestamp is 8 bytes, not a whole number"),
        ("written_at_ms", 0.5, "the time of writing is 0.5, not a whole number"),
        ("id", "an id", "the anchor's id is 'an id', not bytes"),
        ("fingerprint", "é" * 32, "a fingerprint is 32 hex digits"),
        ("cluster_id", b"b", "the cluster's id is 1 bytes, which no cluster gives"),
        ("topic_id", "\ud800", "the topic's id is "),
        ("names", "first", "'first' is not a valid Names"),
        ("names", None, "names does not say which record they name"),
        ("change", "x", "the number of its change is not a whole number"),
    ],
)
def test_a_malformed_row_is_unresolved_by_its_name_and_hides_no_other(damaged, cell, value, problem):
    damaged.damage(cell, value)
    checked = damaged.checked()
    clicks, other = checked.plan.jobs
    bad = clicks.partitions[1]
    assert (bad.finding, bad.resume_offset, bad.stored_offset) == (Verdict.UNRESOLVED, None, None)
    for part in (problem, GROUP, "'events-1'", str(damaged.path), "Correct or delete the row"):
        assert part in bad.detail
    assert [row.finding for row in clicks.partitions] == [Verdict.EXACT, Verdict.UNRESOLVED, Verdict.EXACT]
    assert {row.finding for row in other.partitions} == {Verdict.EXACT}
    assert not checked.failed


@pytest.mark.parametrize(("cell", "value"), [("partition", "one"), ("partition", 1.5), ("partition", -4)])
def test_where_a_partition_cannot_be_read_those_without_a_row_are_in_doubt(damaged, cell, value):
    damaged.damage(cell, value)
    verdicts = {number: row.finding for number, row in damaged.rows().items()}
    assert verdicts == {0: Verdict.EXACT, 1: Verdict.UNRESOLVED, 2: Verdict.EXACT}
    assert {row.finding for row in damaged.rows(job="other").values()} == {Verdict.EXACT}


@pytest.mark.parametrize("cell", ["topic", "grp"])
def test_a_name_stored_as_bytes_is_not_taken_for_no_row(damaged, cell):
    damaged.damage(cell, (GROUP if cell == "grp" else "events").encode())
    row = damaged.rows()[1]
    assert row.finding is Verdict.UNRESOLVED
    assert "stored as bytes, not as text" in row.detail


def test_no_cell_whatever_it_holds_is_a_bug_or_hides_another(damaged):
    kept = damaged.path.read_bytes()
    for cell in ("grp", "topic", "partition", "change", *COLUMNS):
        for value in CELLS:
            damaged.path.write_bytes(kept)
            try:
                damaged.damage(cell, value)
            except sqlite3.IntegrityError:
                continue  # the file's own rules refuse it
            checked = damaged.checked()
            *clicks_too, other = checked.plan.jobs
            assert {row.finding for row in other.partitions} == {Verdict.EXACT}, (cell, value)
            if checked.failed:
                assert cell in ("topic", "stay"), "a later stay than the job's stops it"
                words = "does not list that topic" if cell == "topic" else "stored in stay"
                assert words in str(checked.failed["clicks"])
                continue
            (clicks,) = clicks_too
            assert [clicks.partitions[n].finding for n in (0, 2)] == [Verdict.EXACT] * 2, (cell, value)


def test_a_persons_offset_goes_beside_a_malformed_row_and_never_over_it(damaged):
    damaged.damage("anchor_offset", 1.5)
    by_hand = ByHand(offsets={("events", 1): 5}, skips=True)
    assert damaged.rows(by_hand)[1].resume_offset == 5
    damaged.apply(by_hand)
    rows = damaged.rows()
    assert (rows[1].finding, rows[1].stored_offset) == (Verdict.EXACT, 5), "the job's own row speaks from now on"
    damaged.damage("anchor_offset", 1.5, topic="a.events")
    assert damaged.rows()[1].finding is Verdict.UNRESOLVED
    with pytest.raises(WrongDecision, match=r"cannot be read.*An offset set by hand would be written over it"):
        damaged.rows(by_hand)


@pytest.mark.parametrize(
    ("cell", "value", "named"), [("anchor_offset", 1.5, "'events-1'"), ("partition", "one", "'events'")]
)
def test_a_row_that_became_malformed_after_the_plan_stops_its_job_alone(damaged, cell, value, named):
    config = damaged.memory.config("", JOBS.replace("STORE", damaged.address))
    plan = damaged.checked().plan
    damaged.damage(cell, value)
    clicks, other = changes = prepare(plan, config, damaged.outside)
    with pytest.raises(
        NeedsPerson, match=rf"{named}.*cannot be read: .*Correct or delete the row\. Nothing was"
    ) as caught:
        refuse(clicks)
    assert caught.value.hint == "Make a new plan once that is done."
    assert len(other.intended) == 3
    before = damaged.path.read_bytes()
    write_all([clicks], plan, config, damaged.outside)
    assert damaged.path.read_bytes() == before
    write_all(changes, plan, config, damaged.outside)
    damaged.memory.moved = True
    assert {row.finding for row in damaged.rows(job="other").values()} == {Verdict.EXACT}


def test_a_copy_of_a_checkpoint_whose_anchor_became_malformed_is_refused(damaged):
    config = damaged.memory.config("", JOBS.replace("STORE", damaged.address))
    plan = damaged.checked(jobs="clicks").plan
    damaged.damage("anchor_offset", 1.5)
    with pytest.raises(NeedsPerson, match=r"'events-1'.*Nothing was written"):
        verify(plan, plan.jobs[0], config, damaged.outside)


def test_partitions_that_do_not_correspond_are_not_bounded_by_the_rows_that_can_be_read(damaged):
    damaged.memory.log.delete("a.events")
    damaged.memory.log.create("a.events", 2, "b/a.events")
    for partition in range(2):
        damaged.memory.deliver(range(40), partition)
    damaged.damage("timestamp_ms", 1.5, partition=0)
    assert {row.finding for row in damaged.rows().values()} <= {Verdict.UNRESOLVED, Verdict.UNRESOLVED}


@pytest.mark.parametrize("replace", [[], ["--replace"]])
def test_anchors_import_writes_over_no_row_that_cannot_be_read(
    damaged: Damaged, capsys: pytest.CaptureFixture[str], replace: list[str]
) -> None:
    """Nothing would keep what it was. Another job's rows are not written, either."""
    path, config = damaged.path.with_name("out.jsonl"), damaged.path.with_name("reconciler.toml")
    damaged.memory.config("", JOBS.replace("STORE", damaged.address))
    assert main(["anchors", "export", "-c", str(config), str(path)]) == ExitCode.OK
    with closing(sqlite3.connect(damaged.path)) as db, db:
        db.execute("DELETE FROM reconciler_offsets WHERE grp = 'others'")
    damaged.damage("stored_offset", "soon")
    capsys.readouterr()
    assert main(["anchors", "import", "-c", str(config), *replace, str(path)]) == ExitCode.NEEDS_PERSON
    said = capsys.readouterr().err
    for part in ("'events-1'", GROUP, "Nothing was written", "Correct or delete the row", "run this again"):
        assert part in said
    with closing(open_store(damaged.address)) as store:
        assert store.read("others") == []
        assert [row.malformed is None for row in store.read(GROUP)] == [True, False, True]
    damaged.damage("stored_offset", stored(20, 1).offset)
    assert main(["anchors", "import", "-c", str(config), *replace, str(path)]) == ExitCode.OK


def test_anchors_import_beside_a_row_whose_partition_cannot_be_read_is_refused(
    damaged: Damaged, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be the row of any partition that has none."""
    path, config = damaged.path.with_name("out.jsonl"), damaged.path.with_name("reconciler.toml")
    damaged.memory.config("", JOBS.replace("STORE", damaged.address))
    assert main(["anchors", "export", "-c", str(config), str(path)]) == ExitCode.OK
    damaged.damage("partition", "x")
    assert main(["anchors", "import", "-c", str(config), "--replace", str(path)]) == ExitCode.NEEDS_PERSON
    assert "Nothing was written" in capsys.readouterr().err
