"""Failovers of jobs that keep their offsets in PostgreSQL, through the commands; values checked with psycopg."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.lab.faults.go_between import BEFORE, UNANSWERED, GoBetween, PostgreSQL
from tests.sizes import sampled
from tests.stores.bare_jobs import PATIENT, POLICIES, BareJob, exits, fail_over_and_back, survives_a_kill
from tests.stores.bare_store import bare_scheme
from tests.stores.postgresql.fixtures import GROUPED, MAPPED, a_server
from tests.world import World

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("bare_scheme")]
__all__ = ["bare_scheme"]

TABLES = (
    "CREATE TABLE txn_offsets (topic varchar(255), part integer, off bigint, unique(topic, part))",
    "CREATE TABLE job_offsets (grp text, topic text, part integer, off bigint, owner text DEFAULT 'nobody')",
)


class Place:
    """A job's offsets in one of ``TABLES``, written and read with plain SQL."""

    def __init__(self, connection: Any, table: str, group: str) -> None:
        self._connection = connection
        self._table = table
        self._group = group
        for statement in TABLES:
            connection.execute(statement)

    def save(self, topic: str, offsets: dict[int, int]) -> None:
        for part, offset in offsets.items():
            if self._table == "txn_offsets":
                self._connection.execute("INSERT INTO txn_offsets VALUES (%s, %s, %s)", (topic, part, offset))
            else:
                for group in (self._group, "another"):
                    values = (group, topic, part, offset, f"owner of {part}")
                    self._connection.execute("INSERT INTO job_offsets VALUES (%s, %s, %s, %s, %s)", values)

    def row(self, topic: str, part: int, offset: int, *, made: bool, group: str | None = None) -> tuple[Any, ...]:
        """The expected row: ``made`` by the job, or by this product."""
        if self._table == "txn_offsets":
            return topic, part, offset
        return group or self._group, topic, part, offset, f"owner of {part}" if made else "nobody"

    def look(self) -> list[tuple[Any, ...]]:
        """All rows of the table."""
        return sorted(self._connection.execute(f"SELECT * FROM {self._table}").fetchall())


def expected(job: BareJob, place: Place, table: str) -> list[tuple[Any, ...]]:
    """The corrected offsets, under the default policy in separate rows. All other rows are unchanged."""
    default = job.policy == "default"
    rows = [place.row(job.mirrored, part, offset, made=not default) for part, offset in job.right.items()]
    if default:
        rows += [place.row(job.topic, part, offset, made=True) for part, offset in job.stored.items()]
    if table == "job_offsets":
        rows += [place.row(job.topic, n, offset, made=True, group="another") for n, offset in job.stored.items()]
    return sorted(rows)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("table", "columns"), [("txn_offsets", MAPPED), ("job_offsets", GROUPED)])
def test_a_job_with_its_own_table_fails_over_exactly_and_back(
    world: World, clusters, database, psql, table: str, columns: str, policy: str
) -> None:
    world.address = f"{database}&{columns}&{PATIENT}"
    job, place = BareJob(world, clusters.source, policy), Place(psql, table, world.group)
    place.save(job.topic, job.stored)
    config = job.config()
    job.track(config)
    fail_over_and_back(job, config, place.look, expected(job, place, table))


def test_a_job_that_adds_a_row_for_every_batch_is_handed_its_offsets(world: World, clusters, database, psql) -> None:
    psql.execute("CREATE TABLE every_batch (topic text, part integer, off bigint, at serial)")
    insert = "INSERT INTO every_batch (topic, part, off) VALUES (%s, %s, %s)"
    world.address = f"{database}&{MAPPED.replace('txn_offsets', 'every_batch')}&newest_by=at&{PATIENT}"
    job = BareJob(world, clusters.source)
    for part, offset in job.stored.items():
        psql.execute(insert, (job.topic, part, 1))
        psql.execute(insert, (job.topic, part, offset))
    config = job.config()
    job.track(config)
    world.plan(config)
    ended = exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 4)
    assert "which only the job writes. Start the job by reconciler hook" in ended.err
    shown = exits(world.run("show", world.plan_file, "--starting-offsets"), 0)
    assert json.loads(shown.out) == {job.mirrored: {str(part): offset for part, offset in job.right.items()}}
    ended = exits(world.run("hook", "-c", config, "--to", "destination"), 0)
    assert "2 offsets are handed to the job" in ended.err
    for part, offset in job.right.items():
        psql.execute(insert, (job.mirrored, part, offset))
    exits(world.run("check", "-c", config), 0)


def test_a_job_that_updates_at_the_last_moment_rolls_back_the_whole_apply(
    world: World, clusters, database, psql, monkeypatch
) -> None:
    world.address = f"{database}&{MAPPED}&{PATIENT}"
    job, place = BareJob(world, clusters.source, "identity"), Place(psql, "txn_offsets", world.group)
    place.save(job.topic, job.stored)
    config = job.config()
    job.track(config)
    world.plan(config)
    real = psycopg.Cursor.execute

    def execute(cursor: Any, query: Any, *rest: Any, **more: Any) -> Any:
        if "FOR UPDATE" in str(query):
            monkeypatch.undo()
            psql.execute("UPDATE txn_offsets SET off = off + 1 WHERE part = 1")
        return real(cursor, query, *rest, **more)

    monkeypatch.setattr(psycopg.Cursor, "execute", execute)
    ended = exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 5)
    assert "changed while it was being written" in ended.err
    assert "Nothing was written." in ended.err
    assert place.look() == sorted((job.topic, part, offset + part) for part, offset in job.stored.items())


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_in_this_products_own_tables_keeps_its_anchors_there(
    world: World, clusters, database, psql, policy: str
) -> None:
    world.address = f"{database}&{PATIENT}"
    job = BareJob(world, clusters.source, policy)
    config = job.config(anchors=False)
    ended = exits(world.run("check", "-c", config), 6)
    assert "There are no tables of an offset store" in ended.err
    exits(world.run("anchors", "import", "-c", config, "/dev/null"), 0)
    exits(world.run("anchors", "import", "-c", config, job.lines()), 0)

    def look() -> list[tuple[Any, ...]]:
        columns = "grp, topic, partition, stored_offset, anchor_offset, cluster_id, id, written_at_ms"
        found = psql.execute(f"SELECT {columns} FROM reconciler_offsets").fetchall()
        # When apply wrote them is not known beforehand.
        return sorted(row[:-1] if row[5] == world.cluster.cluster_id else row for row in found)

    def anchored(part: int, offset: int) -> tuple[Any, ...]:
        record = (world.group, job.mirrored, part, offset, offset - 1, world.cluster.cluster_id)
        return (*record, b"%d/%d" % (part, (9, 3)[part]))

    before = look()
    assert [(row[1:4]) for row in before] == [(job.topic, part, offset) for part, offset in job.stored.items()]
    kept = before if policy == "default" else []
    wanted = sorted([*kept, *(anchored(part, offset) for part, offset in job.right.items())])
    fail_over_and_back(job, config, look, wanted)
    reasons = psql.execute("SELECT reason FROM reconciler_history ORDER BY change").fetchall()
    assert [reason for (reason,) in reasons] == [*["import"] * 2, *["apply"] * 2, *["rollback"] * 2, *["apply"] * 2]


# ---------------------------------------------------------------- the server dies in the middle


@pytest.fixture(scope="module")
def mortal(request) -> Iterator[Any]:
    """A server to kill."""
    yield from a_server(request)


@pytest.fixture(scope="module")
def between(mortal) -> Iterator[GoBetween]:
    with GoBetween(PostgreSQL, lambda: mortal.host, mortal.kill) as between:
        yield between


@pytest.fixture
def own_schema(mortal) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The name of a schema, and psycopg's connection to it, a new one for each life of the server."""
    name, connections = f"st_{uuid.uuid4().hex[:12]}", []

    def plainly() -> Any:
        life = mortal.process.pid
        if not connections or connections[-1][0] != life:
            address = f"{mortal.url()}?options=-csearch_path%3D{name}"
            connections.append((life, psycopg.connect(address, autocommit=True)))
        return connections[-1][1]

    plainly().execute(f"CREATE SCHEMA {name}")
    yield name, plainly
    for _, connection in connections:
        connection.close()


@pytest.mark.parametrize(
    ("at", "code"),
    sampled([((1, UNANSWERED), 6), (("commit 1", BEFORE), 7), (("commit 1", UNANSWERED), 7)], keep=1),
)
def test_a_server_killed_during_an_apply(
    world: World, clusters, mortal, between, own_schema, at: tuple[int | str, str], code: int
) -> None:
    name, plainly = own_schema
    plain = f"sslmode=disable&gssencmode=disable&{PATIENT}"
    door = mortal.url().replace(mortal.host, between.address)
    world.address = f"{door}?options=-csearch_path%3D{name}&{plain}&{MAPPED}"
    job, place = BareJob(world, clusters.source), Place(plainly(), "txn_offsets", world.group)
    place.save(job.topic, job.stored)
    config = job.config()
    job.track(config)

    def look() -> list[tuple[Any, ...]]:
        return sorted(plainly().execute("SELECT * FROM txn_offsets").fetchall())

    wanted = expected(job, place, "txn_offsets")
    ended = survives_a_kill(world, config, look, wanted, between=between, at=at, up=mortal.start)
    assert ended.code == code, ended.output
