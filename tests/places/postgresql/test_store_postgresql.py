"""Failovers of jobs that keep their offsets in PostgreSQL, through the commands; values checked with psycopg."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.places.bare_jobs import PATIENT, BareJob, exits
from tests.places.postgresql.fixtures import MAPPED, a_server
from tests.places.test_failover import Table
from tests.world import World

pytestmark = pytest.mark.system


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
    exits(world.run("plan", "-c", config, "--to", "b"), 0)


# ---------------------------------------------------------------- the server dies in the middle


@pytest.fixture
def mortal(request) -> Iterator[Any]:
    """A server to kill."""
    yield from a_server(request)


def test_a_server_killed_at_the_commit_of_an_apply(world: World, clusters, mortal, monkeypatch) -> None:
    """No row is wrong, whether they were committed is not known, and a second ``apply`` completes it."""
    world.address = f"{mortal.url()}?{MAPPED}&{PATIENT}"
    job = BareJob(world, clusters.source)
    place = Table(world.address, world.group, psycopg.connect(mortal.url(), autocommit=True), grouped=False)
    place.save(job.topic, job.stored)
    config = job.config()
    job.track(config)
    world.plan(config)
    before = place.look()
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
    place.psql = psycopg.connect(mortal.url(), autocommit=True)
    assert place.look() == before
    exits(world.run("apply", world.plan_file, "-c", config, "--yes"), 0)
    assert place.look() == before | place.rows(job.mirrored, job.right)
    exits(world.run("plan", "-c", config, "--to", "b"), 0)
    exits(world.run("rollback", "-c", config, "--job", "clicks", "--yes"), 0)
    assert world.offsets(job.topic) == job.stored
