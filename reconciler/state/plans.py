"""The numbers of a move as the state store keeps them: what each partition gets, and what it replaced. Pure.

Theory of operation. ``plan/JOB`` has a plan for every change of a job's numbers.

- P1  A plan is appended before anything else is written. Every later step names it, so a run that was killed is
      finished by the next one with the same numbers: nothing is planned again from half-written rows.
- P2  A plan has what it replaced, so ``give_back`` makes the plan that undoes it.
- P3  It has where the job was when it left (``left``). A later move back counts from there what was processed already,
      and what was never delivered to the other cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reconciler.core import json_fields
from reconciler.core.anchors import Anchor
from reconciler.core.json_fields import FieldError
from reconciler.ports import TopicPartition
from reconciler.state.journal import StreamPartition, dump_known, load_known
from reconciler.state.stored import Known, PlanRow, Stored, plan_back

FORMAT = "reconciler.numbers/1"
_BACK = "back of plan "


@dataclass(frozen=True, slots=True)
class Planned:
    """One partition of a plan, and the key under which its place has the number on the cluster it moves to."""

    key: TopicPartition
    row: PlanRow[Anchor]


@dataclass(frozen=True, slots=True)
class Numbers:
    """A plan's numbers. ``stay`` is the newest one when it was made; ``digest`` is its file's, if there is one."""

    leaves: str
    stay: int
    to: str
    rows: Mapping[StreamPartition, Planned]
    digest: str | None = None
    number: int = 0

    @property
    def is_back(self) -> bool:
        """True if it gives back what another plan replaced."""
        return self.digest is not None and self.digest.startswith(_BACK)


def give_back(
    plan: Numbers, stay: int, keys: Mapping[StreamPartition, TopicPartition], held: Mapping[TopicPartition, int]
) -> Numbers:
    """The plan that gives back what ``plan`` replaced: of a cancel, or a rollback (P2).

    ``keys``: the partitions' keys on the cluster that ``plan`` left. ``held``: what the place holds under them now. A
    late write of the plan that is undone leaves its number there: it counts as replaced, too.
    """
    written = {each.key: each.row for each in plan.rows.values()}
    rows = {}
    for at, each in plan.rows.items():
        key = keys[at]
        over = written.get(key)
        replaced = {held.get(key), *((over.number, *over.replaced) if over else (each.row.left.number,))}
        rows[at] = Planned(key, plan_back(each.row, replaced))
    return Numbers(plan.to, stay, plan.leaves, rows, f"{_BACK}{plan.number}")


def left_at(plans: Mapping[int, Numbers], cluster: str, at: StreamPartition) -> list[Stored[Anchor]]:
    """Where the job was each time it left ``cluster`` (P3)."""
    return [plan.rows[at].row.left for plan in plans.values() if plan.leaves == cluster and at in plan.rows]


def dump(plan: Numbers) -> dict[str, Any]:
    """The entry's fields."""
    fields: dict[str, Any] = {
        "format": FORMAT,
        "leaves": plan.leaves,
        "stay": plan.stay,
        "to": plan.to,
        "rows": [_dump_row(at, planned) for at, planned in sorted(plan.rows.items())],
    }
    if plan.digest is not None:
        fields["digest"] = plan.digest
    return fields


def load(number: int, fields: Mapping[str, Any]) -> Numbers:
    """Read an entry. Raises FieldError for what ``dump`` does not write."""
    json_fields.require_format(fields, FORMAT, _FIELDS)
    rows = fields.get("rows")
    if not isinstance(rows, list):
        raise FieldError("rows", "is not a list")
    return Numbers(
        json_fields.required_text(fields, "leaves"),
        json_fields.required(json_fields.integer(fields, "stay", low=0), "stay"),
        json_fields.required_text(fields, "to"),
        dict(map(_load_row, rows)),
        json_fields.string(fields, "digest"),
        number,
    )


def _dump_row(at: StreamPartition, planned: Planned) -> dict[str, Any]:
    row, left = planned.row, planned.row.left
    return {
        "topic": at.topic,
        "origin": at.origin,
        "partition": at.partition,
        "key": planned.key.topic,
        "resume": dump_known(row.first()),
        "replaced": sorted(row.replaced, key=lambda each: -1 if each is None else each),
        "left": dump_known(Known(left.number, left.record, left.again, left.older)),
    }


def _load_row(value: object) -> tuple[StreamPartition, Planned]:
    if not isinstance(value, dict):
        raise FieldError("rows", "has a row that is not an object")
    json_fields.no_unknown(value, _ROW)
    partition = json_fields.required(json_fields.integer(value, "partition", low=0), "partition")
    at = StreamPartition(
        json_fields.required_text(value, "topic"), json_fields.required_text(value, "origin"), partition
    )
    resume, left = load_known(value.get("resume")), load_known(value.get("left"))
    replaced = value.get("replaced")
    if not isinstance(replaced, list) or not all(each is None or type(each) is int for each in replaced):
        raise FieldError("replaced", "is not a list of numbers")
    row = PlanRow(
        resume.number,
        resume.record,
        resume.again,
        resume.older,
        frozenset(replaced),
        Stored(left.number, left.record, left.again, left.again + left.older),
    )
    return at, Planned(TopicPartition(json_fields.required_text(value, "key"), partition), row)


_FIELDS = frozenset(("format", "leaves", "stay", "to", "rows", "digest", "nonce"))
_ROW = frozenset(("topic", "origin", "partition", "key", "resume", "replaced", "left"))
