"""Failovers of jobs that keep their offsets in PostgreSQL, through the commands; values checked with psycopg."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from reconciler.places.registry import open_store
from tests.places.bare_jobs import PATIENT, POLICIES, BareJob, exits, fail_over_and_back
from tests.places.bare_store import bare_scheme
from tests.places.postgresql.fixtures import GROUPED, MAPPED, a_server
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
        self.connection = connection
        self._table = table
        self._group = group
        for statement in TABLES:
            connection.execute(statement)

    def save(self, topic: str, offsets: dict[int, int]) -> None:
        for part, offset in offsets.items():
            if self._table == "txn_offsets":
                self.connection.execute("INSERT INTO txn_offsets VALUES (%s, %s, %s)", (topic, part, offset))
            else:
                for group in (self._group, "another"):
                    values = (group, topic, part, offset, f"owner of {part}")
                    self.connection.execute("INSERT INTO job_offsets VALUES (%s, %s, %s, %s, %s)", values)

    def row(self, topic: str, part: int, offset: int, *, made: bool, group: str | None = None) -> tuple[Any, ...]:
        """The expected row: ``made`` by the job, or by this product."""
        if self._table == "txn_offsets":
            return topic, part, offset
        return group or self._group, topic, part, offset, f"owner of {part}" if made else "nobody"

    def look(self) -> list[tuple[Any, ...]]:
        """All rows of the table."""
        return sorted(self.connection.execute(f"SELECT * FROM {self._table}").fetchall())


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
    ended = exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 0)
    assert "Start clicks by the hook: it begins at the plan's offsets" in ended.out
    shown = exits(world.run("show", world.plan_file, "--starting-offsets"), 0)
    assert json.loads(shown.out) == {job.mirrored: {str(part): offset for part, offset in job.right.items()}}
    started = exits(world.run("hook", "-c", config), 0)
    assert "every offset is right" in started.err
    for part, offset in job.right.items():
        psql.execute(insert, (job.mirrored, part, offset))
    exits(world.run("check", "-c", config, "--to", "b"), 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_in_this_products_own_tables_keeps_its_anchors_there(
    world: World, clusters, database, psql, policy: str
) -> None:
    world.address = f"{database}&{PATIENT}"
    job = BareJob(world, clusters.source, policy)
    config = job.config()
    ended = exits(world.run("check", "-c", config), 6)
    assert "There are no tables of an offset store" in ended.err
    with closing(open_store(world.address)) as store:
        store.create()
    job.save_anchored(config)

    def look() -> list[tuple[Any, ...]]:
        columns = "grp, topic, partition, stored_offset, anchor_offset, cluster_id, id"
        found = psql.execute(f"SELECT {columns} FROM reconciler_offsets").fetchall()
        return sorted(found)

    def anchored(part: int, offset: int) -> tuple[Any, ...]:
        record = (world.group, job.mirrored, part, offset, offset - 1, world.cluster.cluster_id)
        return (*record, b"%d/%d" % (part, (9, 3)[part]))

    before = look()
    assert [(row[1:4]) for row in before] == [(job.topic, part, offset) for part, offset in job.stored.items()]
    kept = before if policy == "default" else []
    wanted = sorted([*kept, *(anchored(part, offset) for part, offset in job.right.items())])
    fail_over_and_back(job, config, look, wanted)


# ---------------------------------------------------------------- the server dies in the middle


@pytest.fixture
def mortal(request) -> Iterator[Any]:
    """A server to kill."""
    yield from a_server(request)


def test_a_server_killed_at_the_commit_of_an_apply(world: World, clusters, mortal, monkeypatch) -> None:
    """No row is wrong, whether they were committed is not known, and a second ``apply`` completes it."""
    world.address = f"{mortal.url()}?{MAPPED}&{PATIENT}"
    job = BareJob(world, clusters.source)
    place = Place(psycopg.connect(mortal.url(), autocommit=True), "txn_offsets", world.group)
    place.save(job.topic, job.stored)
    config = job.config()
    job.track(config)
    world.plan(config)
    before, wanted = place.look(), expected(job, place, "txn_offsets")
    execute, commit = psycopg.Cursor.execute, psycopg.Connection.commit

    def kill_and_commit(connection: Any) -> None:
        mortal.kill()
        commit(connection)

    def execute_and_watch(cursor: Any, query: Any, *rest: Any, **more: Any) -> Any:
        if "FOR UPDATE" in str(query):
            during.setattr(psycopg.Connection, "commit", kill_and_commit)
        return execute(cursor, query, *rest, **more)

    with monkeypatch.context() as during:
        during.setattr(psycopg.Cursor, "execute", execute_and_watch)
        exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 7)
    mortal.start()
    place.connection = psycopg.connect(mortal.url(), autocommit=True)
    assert place.look() == before
    exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 0)
    assert place.look() == wanted
    exits(world.run("check", "-c", config, "--to", "b"), 0)
    exits(world.run("rollback", "-c", config, "--job", "clicks", "--yes"), 0)
    assert world.offsets(job.topic) == job.stored
