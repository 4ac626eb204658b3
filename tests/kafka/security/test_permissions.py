"""The smallest set of ACLs for each command and store: read from the reference, and tried on a real authorizer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

from reconciler.config.file import load_config
from reconciler.config.streams import Stream
from reconciler.core.anchors import RECORD_TIME_ONLY, StoredOffset
from reconciler.core.errors import ReconcilerError, Refused
from reconciler.jobs.tracking.recorder import Position, StayRecorder
from reconciler.jobs.tracking.source import SourceLog
from reconciler.kafka.reader import KafkaLogReader
from reconciler.places.registry import open_store
from reconciler.ports import Change, TopicPartition
from reconciler.state import locations
from reconciler.state.jobs import JobState
from reconciler.state.locations import Stamp
from reconciler.state.store import open_state
from tests.kafka.security.secured import USER, Acl, Secured, client_table
from tests.places.bare_store import bare_scheme
from tests.sizes import sampled
from tests.starting import state_of, with_state
from tests.world import ROOT, CommandResult, World, source_record

__all__ = ["bare_scheme"]
pytestmark = pytest.mark.system

REFERENCE = ROOT / "docs" / "reference" / "kafka-permissions.md"


# ---------------------------------------------------------------- the reference's tables


def table(heading: str) -> Iterator[list[str]]:
    """The cells of the rows under a heading of the reference, without marks."""
    _, _, section = REFERENCE.read_text(encoding="utf-8").partition(f"## {heading}\n")
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    for line in lines[2:]:
        yield [cell.strip().replace("`", "") for cell in line.strip("|").split("|")]


def acl(operation: str, resource: str) -> Acl:
    kind, name = resource.split()
    return Acl(operation, kind, name)


def smallest_sets() -> dict[tuple[str, str], set[Acl]]:
    """By command and store. An empty cell repeats the one above it."""
    sets: dict[tuple[str, str], set[Acl]] = {}
    commands = store = ""
    for cells in table("The smallest set for each command"):
        commands, store = cells[0] or commands, cells[1] or store
        for command in commands.split(", "):
            found = sets.setdefault((command, store.rstrip(":")), set())
            if cells[2] != "none":
                found.add(acl(cells[2], cells[3]))
    return sets


SMALLEST = smallest_sets()


# ---------------------------------------------------------------- the commands


@dataclass(frozen=True, slots=True)
class Job:
    """A job on the secured broker, and the configuration of the user that is tried."""

    secured: Secured
    world: World
    config: Path

    def here(self, acls: Iterable[Acl]) -> set[Acl]:
        """The reference's ACLs with this job's names."""
        names = {"a.events": self.world.mirrored, "events": self.world.topic, "clicks": self.world.group}
        return {replace(acl, name=names[acl.name]) for acl in acls}

    def run(self, *arguments: object) -> CommandResult:
        return self.world.run(*arguments, "-c", self.config)


def plans(job: Job) -> CommandResult:
    return job.run("plan")


def hooks(job: Job) -> CommandResult:
    """The start of a job that is moving there, or has moved."""
    config = with_state(job.config, to="b")
    return job.world.run("hook", "--plans", job.world.folder / "plans", "-c", config)


def applies(job: Job) -> CommandResult:
    return job.run("apply", job.world.plan_file, "--yes")


def exports(job: Job) -> CommandResult:
    return job.run("anchors", "export")


def imports(job: Job) -> CommandResult:
    return job.run("anchors", "import", "--replace", job.world.folder / "anchors.jsonl")


def tracks(job: Job) -> CommandResult:
    """``track(query)`` without Spark: one look at where the query is, and its entry."""
    state = open_state(f"memory:{uuid4().hex}")
    state.create()
    own = JobState(state, job.world.group)
    own.move_on(None, locations.first("b", Stamp("hook", lambda: 1)))
    client = {"bootstrap.servers": job.secured.sasl, **job.secured.scram}
    log = SourceLog(lambda _: KafkaLogReader(client), lambda _: False, RECORD_TIME_ONLY)
    recorder = StayRecorder(own, 1, {job.world.mirrored: Stream(job.world.topic, "a")}, log, "driver")
    try:
        recorder.look({TopicPartition(job.world.mirrored, 0): Position(5)})
        assert recorder.append(1)
    except ReconcilerError as error:
        return CommandResult(int(error.exit_code), "", str(error))
    finally:
        recorder.close()
    return CommandResult(0, "", "")


# ---------------------------------------------------------------- what they are tried on


def a_plan(job: Job, *, new: str = "earliest", and_apply: bool = False) -> None:
    """Created by a user who may do everything."""
    config = job.world.config(job.world.job(new=new))
    job.world.plan(config)
    if and_apply:
        assert job.world.run("apply", job.world.plan_file, "-c", config, "--yes").code == 0


def an_applied_plan(job: Job) -> None:
    a_plan(job, and_apply=True)


def other_anchors(job: Job) -> None:
    """A file whose import changes the stored rows."""
    exported = job.world.run("anchors", "export", "-c", job.world.config()).out
    there = re.sub(r'"stored_offset": ?\d+', '"stored_offset": 7', exported)
    assert there != exported
    (job.world.folder / "anchors.jsonl").write_text(there)


@dataclass(frozen=True, slots=True)
class Use:
    """A command as the reference names it, how it is run, what must be there first, and its code when it works."""

    command: str
    run: Callable[[Job], CommandResult]
    first: Callable[[Job], object] = lambda job: None
    works: int = 0
    stored: bool = True
    """The job has stored offsets already."""


USES = [
    Use("plan", plans, works=3),
    Use("hook with nothing to correct", hooks, an_applied_plan),
    Use("apply", applies, a_plan),
    Use("hook that corrects", hooks),
    Use("anchors export", exports),
    Use("anchors import", imports, other_anchors),
    Use("track(query)", tracks),
]
STORES = ("sqlite", "kafka-group")
EVERY_RUN = [(use, "kafka-group") for use in USES if use.command in ("hook that corrects", "track(query)")]
"""A job's own start, and its own recording; the thorough run takes every command, with both stores."""


def made_ready(secured: Secured, world: World, use: Use, store: str) -> Job:
    world.deliver(16, burst=2)
    if store == "kafka-group":
        world.address = "kafka-group:"
    else:
        world.save({})
    if use.stored:
        # Record 4, of the same time, follows a gap: perhaps a first copy of the anchor was there.
        last = source_record(5).stored
        if store == "kafka-group":
            world.save({0: replace(last, offset=3)}, topic=world.mirrored)  # as a mirror writes it
        else:
            world.save({0: last})
    job = Job(secured, world, world.config(bootstrap=secured.sasl, extra=client_table(secured.scram)))
    use.first(job)
    return job


def weaker(acls: set[Acl]) -> Iterator[tuple[Acl, set[Acl]]]:
    """Each ACL that is taken away, or made a mere Describe, with what is left."""
    for gone in sorted(acls):
        left = acls - {gone}
        yield gone, left
        if gone.operation != "Describe":
            yield gone, left | {replace(gone, operation="Describe")}


@pytest.mark.parametrize(
    ("use", "store"),
    sampled([(use, store) for use in USES for store in STORES], 0, always=lambda case: case in EVERY_RUN),
    ids=lambda case: getattr(case, "command", case),
)
def test_a_command_works_with_the_smallest_set_and_not_with_less(
    secured: Secured, secured_world: World, use: Use, store: str
) -> None:
    job = made_ready(secured, secured_world, use, store)
    acls = job.here(SMALLEST[use.command, store])
    before = secured_world.rows()
    for gone, left in weaker(acls):
        secured.allow(USER, left)
        ended = use.run(job)
        assert ended.code == 6, f"{use.command} worked without {gone}: {ended.output}"
        said = ended.err.splitlines()[-1]
        assert gone.operation in said
        assert f"on {gone.resource} '{gone.name}'" in said.replace('"', "'")
        assert secured_world.rows() == before
    secured.allow(USER, acls)
    ended = use.run(job)
    assert ended.code == use.works, ended.output


def test_the_reference_speaks_of_every_use_and_of_no_other() -> None:
    assert set(SMALLEST) == {(use.command, store) for use in USES for store in STORES}


def test_without_describe_configs_a_gap_makes_an_answer_less_exact_and_never_wrong(
    secured: Secured, secured_world: World
) -> None:
    ((operation, resource, _),) = table("What more permission buys")
    job = made_ready(secured, secured_world, USES[0], "sqlite")
    right = job.world.offset_of(5) + 1
    found = []
    for acls in (SMALLEST["plan", "sqlite"], {*SMALLEST["plan", "sqlite"], acl(operation, resource)}):
        secured.allow(USER, job.here(acls))
        found.append(job.world.checked(job.config)[0])
    less, more = found
    assert (more["finding"], more["resume_offset"], more["replay"]) == ("exact", right, {"at_most": 0, "exact": 0})
    assert less["finding"] == "early"
    assert less["resume_offset"] <= right <= less["resume_offset"] + less["replay"]["at_most"]


# ---------------------------------------------------------------- the source, for track


def at_the_source() -> dict[str, set[Acl]]:
    """By the job's store. An empty cell repeats the one above it."""
    sets: dict[str, set[Acl]] = {}
    store = ""
    for cells in table("At the source, for track"):
        store = cells[0] or store
        sets.setdefault(store.rstrip(":"), set()).add(acl(cells[1], cells[2]))
    return sets


@pytest.mark.usefixtures("bare_scheme")
@pytest.mark.parametrize("store", ["any other", "kafka-group"])
def test_tracking_works_with_the_smallest_set_at_the_source_and_not_with_less(
    secured: Secured, secured_world: World, store: str
) -> None:
    world = secured_world
    world.deliver(16, topic=world.topic)
    world.address = "kafka-group:" if store == "kafka-group" else f"bare:///{world.folder}/table.db"
    world.save({0: StoredOffset(world.offset_of(5, topic=world.topic) + 1)})
    login = client_table(secured.scram).replace("[clusters.b", "[clusters.a")
    source = f'bootstrap_servers = "{secured.sasl}"\n{login}'
    job = Job(secured, world, world.config(source=source, lives="a"))
    state = state_of(job.config, load_config(job.config).jobs[0].name, "a")
    acls = job.here(at_the_source()[store])
    for gone, left in weaker(acls):
        secured.allow(USER, left)
        ended = job.run("track", "--once")
        assert ended.code == 6, f"track worked without {gone}: {ended.output}"
        said = ended.err.splitlines()[-1]
        assert gone.operation in said
        assert state.newest(1) == []
    secured.allow(USER, acls)
    ended = job.run("track", "--once")
    assert ended.code == 0, ended.output
    (entry,) = state.newest(1)
    assert [known.record and known.record.id for known in entry.numbers.values()] == [source_record(5).id]


# ---------------------------------------------------------------- what a broker hides


def test_a_row_that_may_not_be_seen_is_not_taken_for_none(secured: Secured, secured_world: World) -> None:
    """A partition that seems never to have been read would start at its end here, and skip what is unread."""
    world = secured_world
    world.address = "kafka-group:"
    world.deliver(16)
    world.deliver(16, topic=world.topic)
    world.save({0: replace(source_record(5).stored, offset=3)}, topic=world.mirrored)  # as a mirror writes it
    table = client_table(secured.scram) + '\n[policy]\nnew = "latest"'
    config = world.config(bootstrap=secured.sasl, extra=table)
    seen = {Acl("Read", "topic", world.mirrored), Acl("Describe", "group", world.group)}
    secured.allow(USER, seen)
    ended = world.run("plan", "-c", config)
    assert ended.code == 6
    assert f"Describe on topic '{world.topic}'" in ended.err
    secured.allow(USER, {*seen, Acl("Describe", "topic", world.topic)})
    (row,) = world.checked(config).values()
    assert row["finding"] != "new"
    assert row["resume_offset"] <= world.offset_of(5) + 1


def test_a_topic_that_may_not_be_looked_up_may_exist_or_not_and_the_message_says_so(
    secured: Secured, secured_world: World
) -> None:
    world = secured_world
    world.save({})
    config = world.config(bootstrap=secured.sasl, extra=client_table(secured.scram))
    secured.allow(USER, set())
    hidden = world.run("plan", "-c", config)
    assert hidden.code == 6
    assert f'needs Describe on topic "{world.mirrored}" (Read for its records), if there is such a topic' in hidden.err
    secured.allow(USER, {Acl("Describe", "topic", world.mirrored)})
    absent = world.run("plan", "-c", config)
    assert absent.code == 2
    assert f'The destination has no topic "{world.mirrored}"' in absent.err


def test_a_commit_that_would_be_taken_in_part_is_not_sent(secured: Secured, secured_world: World) -> None:
    world = secured_world
    world.address = "kafka-group:"
    topics = [f"{world.topic}-{letter}" for letter in "xy"]
    for topic in topics:
        world.deliver(8, topic=f"a.{topic}")
        world.save({0: replace(source_record(4).stored, offset=3)}, topic=f"a.{topic}")
    before = world.rows()
    may = {Acl("Read", "group", world.group), Acl("Read", "topic", f"a.{topics[0]}")}
    secured.allow(USER, {*may, Acl("Describe", "topic", f"a.{topics[1]}")})
    login = {"bootstrap.servers": secured.sasl, **secured.scram}
    changes = [Change(row.key, row.version, replace(row.stored, offset=5)) for row in before]
    with (
        closing(open_store("kafka-group:", kafka_client=login)) as store,
        pytest.raises(Refused, match=f"Read on topic 'a.{topics[1]}'"),
    ):
        store.write(world.group, changes, reason="test", now_ms=1)
    assert world.rows() == before
