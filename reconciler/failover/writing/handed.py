"""Corrections that the job itself stores: their anchors are kept before it starts, and its own store is not changed.

A job that keeps its offsets in a table's transactions stores new ones with its next transaction, under the
destination's topic name. From then on its rows pair with the anchors that were kept here, so they show whose numbering
they are in (``stores.paired.HandedPair``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

from reconciler import written
from reconciler.core.errors import Changed, ConfigError
from reconciler.failover.outside import Outside
from reconciler.failover.writing.apply import JobChanges, name_of
from reconciler.failover.writing.plan_checks import AGAIN
from reconciler.failover.writing.snapshots import keep_snapshot
from reconciler.fileio import locked
from reconciler.formats.plan import Plan
from reconciler.ports import HandsOver


def hand_over(
    changes: Sequence[JobChanges],
    plan: Plan,
    plan_path: Path,
    outside: Outside,
    *,
    on_writing: Callable[[], None] = lambda: None,
) -> None:
    """Keep the anchors of the prepared offsets. With those that are kept already nothing happens.

    ``on_writing`` is called once, right before the first write, also if there is none.

    The snapshot beside the plan, kept first, marks that the job's next start is a new stay, where a Spark query needs a
    new checkpoint. Raises ConfigError without an [anchors] store, and where topics have one name on both sides; Changed
    if another process wrote the anchors meanwhile.
    """
    begin = cache(on_writing)
    for change in (each for each in changes if each.intended):
        job = change.job
        one_name = next((item.row.topic for item in change.intended if item.row.topic == item.row.source_topic), None)
        if one_name is not None:
            raise ConfigError(
                f'Topic "{one_name}" of job "{job.name}" has one name on both sides, and only the job writes its '
                "offsets: they would not tell whose numbers they are.",
                hint="Let the job keep its offsets at the destination in another place (property, app id, table), "
                "start it by the plan (reconciler show PLAN --starting-offsets), and name that place from then on.",
            )
        with closing(outside.open_store(job.store)) as store, locked(plan_path):
            if not isinstance(store, HandsOver):
                raise ConfigError(
                    f'The store of job "{job.name}" is only read, and nothing keeps the anchors of corrected offsets.',
                    hint='Add an [anchors] store, for example store = "sqlite:////srv/anchors.db".',
                )
            rows = store.unkept(job.group, [item.change for item in change.intended])
            if not rows:
                continue
            keep_snapshot([change], plan, plan_path)
            begin()
            with written.writing(name_of(job, len(rows))):
                result = store.hand_over(job.group, rows, reason="hook", now_ms=outside.now_ms())
            if result.conflicts:
                raise Changed(
                    f'The anchors of job "{job.name}" changed while they were being kept: {result.conflicts[0]}.',
                    hint=AGAIN,
                )
    begin()
