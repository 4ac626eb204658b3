"""The demo's stateful query: its anchors, its checkpoint's copy, and the alternatives without a copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.demo.counts import Comparison, compare, counts_in, plain_counts
from reconciler.demo.job import COUNTS, Query
from reconciler.demo.lab.traffic import Event
from reconciler.demo.stage import COUNTS_BACK, COUNTS_JOB, COUNTS_ON_A, COUNTS_ON_B, MIRRORED, TOPIC, Stage
from reconciler.plan.document import parse_plan
from reconciler.plan.start_offsets import planned_text


@dataclass(frozen=True, slots=True)
class StateProof:
    """The counts after the failover, and those of two alternatives: all three really ran."""

    cloned: Comparison
    renamed: Comparison
    new_checkpoint: Comparison


def configuration(stage: Stage) -> str:
    """The query's ``[[jobs]]`` table: its offsets are in its checkpoint, their anchors in the anchor store."""
    return f"""[[jobs]]
name = "{COUNTS_JOB}"
home = "a"
topics = ["{TOPIC}"]
offsets = "checkpoint:{on_a(stage).checkpoint}"
"""


def on_a(stage: Stage, options: dict[str, str] | None = None) -> Query:
    return Query(COUNTS, str(stage.path(COUNTS_ON_A)), options or {})


def on_b(stage: Stage, bootstrap: str, copy: str) -> Query:
    """The query on the copy of its checkpoint: only the servers and the topic differ."""
    return Query(COUNTS, str(stage.path(COUNTS_ON_B)), _restarted(bootstrap), copy=copy)


def back_on_a(stage: Stage, bootstrap: str, copy: str) -> Query:
    """The query on the copy of that copy."""
    return Query(COUNTS, str(stage.path(COUNTS_BACK)), {**_restarted(bootstrap), "subscribe": TOPIC}, copy=copy)


def with_new_checkpoint(stage: Stage) -> Query:
    """An alternative: the right offsets with a new checkpoint, so without the state."""
    plan = parse_plan(stage.plan(COUNTS_JOB).read_text())
    # The query died within a batch, so the plan has a start and an end, and a new query cannot use the end.
    options = {**_restarted(plan.bootstrap_servers), "startingOffsets": planned_text(plan.starts)}
    return Query(COUNTS, str(stage.path("counts-anew")), options)


def renamed(stage: Stage, bootstrap: str) -> Query:
    """An alternative: the old checkpoint with only the topic's name edited, as an operator would do by hand."""
    query = Query(COUNTS, str(stage.path("counts-renamed")), _restarted(bootstrap))
    shutil.copytree(on_a(stage).checkpoint, query.checkpoint)
    for below in ("offsets", "sources/0"):
        for file in query.checkpoint.joinpath(below).iterdir():
            if file.name.endswith(".crc"):
                file.unlink()  # the checksum of the unedited file
            else:
                file.write_text(file.read_text().replace(f'"{TOPIC}":', f'"{MIRRORED}":'))
    return query


def _restarted(bootstrap: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": MIRRORED, "startingOffsets": "earliest"}


def prove_back(stage: Stage, events: Iterable[Event]) -> Comparison:
    """The counts after both moves."""
    outputs = [stage.path(each) for each in (COUNTS_ON_A, COUNTS_ON_B, COUNTS_BACK)]
    return compare(counts_in(outputs), plain_counts(events))


def prove(stage: Stage, events: Iterable[Event]) -> StateProof:
    plain = plain_counts(events)

    def of(output: str) -> Comparison:
        return compare(counts_in([stage.path(COUNTS_ON_A), stage.path(output)]), plain)

    return StateProof(of(COUNTS_ON_B), of("counts-renamed"), of("counts-anew"))
