"""Where a job lives, as the state store records it. Pure.

Theory of operation. The newest entry of ``location/JOB`` counts, and nothing else says where a job lives: no clock, no
topic's name, no row.

    lives ── move ──> moving ── a plan is stored ──> writing ── the numbers are written ──> lives (the next stay)
              ▲          │                              │
              └─ cancel ─┘                              └─ cancel, rollback: a plan back, again writing ──> lives

- L1  An entry is appended under the number after the one that its writer read: of two operators, or two hooks, one
      gets exit code 5.
- L2  From ``writing`` until ``lives``, the job's stored numbers are the plan's. The place is compared with it.
- L3  Every change of numbers begins a stay: a move, a correction where the job lives, a rollback, and a cancel in
      ``writing``. A cancel in ``moving`` has changed none. Each plan has a stay of its own (``stay_of``): that of a
      cancelled plan is never lived in.
- L4  A rollback gives back the numbers of the stay before, and only while the newer stay has processed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from reconciler.core import json_fields
from reconciler.core.errors import Changed, ConfigError
from reconciler.core.json_fields import FieldError

FORMAT = "reconciler.location/1"


class Phase(Enum):
    LIVES = "lives"
    MOVING = "moving"
    WRITING = "writing"


@dataclass(frozen=True, slots=True)
class Location:
    """One entry. ``number`` is its number in the log, ``at_ms`` the writer's clock, for people only."""

    phase: Phase
    cluster: str
    """The cluster whose records the job reads; in ``moving`` and ``writing``, the one it leaves."""
    stay: int
    by: str
    at_ms: int
    why: str = ""
    to: str | None = None
    plan: int | None = None
    """The plan being written, or by which this stay began."""
    checkpoint: str | None = None
    """The checkpoint that a start uses."""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who writes entries, and why. ``now_ms``: epoch ms, for the time at which each is written."""

    by: str
    now_ms: Callable[[], int]
    why: str = ""

    @property
    def at_ms(self) -> int:
        return self.now_ms()


NOBODY = Stamp("", lambda: 0)
"""For a location that is not recorded."""


def first(cluster: str, stamp: Stamp = NOBODY, checkpoint: str | None = None) -> Location:
    """A job's first entry: it lives on ``cluster``."""
    return Location(Phase.LIVES, cluster, 1, stamp.by, stamp.at_ms, stamp.why, checkpoint=checkpoint)


def moving(here: Location, to: str, stamp: Stamp) -> Location:
    """The entry of ``move --to``. ``to`` may be where the job lives: its numbers are then searched for again.

    Raises ConfigError if the job is already moving there, Changed if it is moving elsewhere or being written.
    """
    if here.phase is Phase.WRITING:
        raise Changed(
            f"The job's numbers are being written for {here.to}, since {here.by} moved it.",
            hint="Start its hook, which finishes this; or take it back with move --cancel.",
        )
    if here.phase is Phase.MOVING:
        if here.to == to:
            raise ConfigError(f"The job is moving to {to} already.", hint="Its hook moves it at its next start.")
        raise Changed(f"The job is moving to {here.to}.", hint="Take that back first, with move --cancel.")
    return _stamped(replace(here, phase=Phase.MOVING, to=to), stamp)


def writing(here: Location, plan: int, stamp: Stamp) -> Location:
    """The entry before the first number is written (L2)."""
    if here.phase is Phase.LIVES:
        raise Changed("The job is no longer moving.", hint="See it with status --history.")
    return _stamped(replace(here, phase=Phase.WRITING, plan=plan), stamp)


def giving_back(here: Location, to: str, plan: int, checkpoint: str | None, stamp: Stamp) -> Location:
    """The entry of a rollback, or of a cancel in ``writing``: numbers are written, those of the stay before (L4).

    ``checkpoint``: the one that the job used in that stay.
    """
    if here.phase is Phase.MOVING:
        raise Changed("The job is moving.", hint="Take the move back first, with move --cancel.")
    return _stamped(replace(here, phase=Phase.WRITING, to=to, plan=plan, checkpoint=checkpoint), stamp)


def lives(here: Location, checkpoint: str | None, stamp: Stamp) -> Location:
    """The entry after the last number is written: the plan's stay (L3)."""
    if here.phase is not Phase.WRITING or here.to is None or here.plan is None:
        raise Changed("The job's numbers are no longer being written.", hint="See it with status --history.")
    stay = stay_of(here.plan)
    return _stamped(Location(Phase.LIVES, here.to, stay, "", 0, plan=here.plan, checkpoint=checkpoint), stamp)


def stay_of(plan: int | None) -> int:
    """The stay that a plan begins; 1 is that of a job's home, which no plan began."""
    return 1 if plan is None else plan + 1


def cancelled(here: Location, began: int | None, stamp: Stamp) -> Location:
    """The entry of a cancel in ``moving``: the job lives as before. ``began``: the plan by which its stay began."""
    if here.phase is not Phase.MOVING:
        raise Changed("The job is not moving.", hint="See it with status.")
    return _stamped(replace(here, phase=Phase.LIVES, to=None, plan=began), stamp)


def _stamped(location: Location, stamp: Stamp) -> Location:
    return replace(location, by=stamp.by, at_ms=stamp.at_ms, why=stamp.why, number=0)


def dump(location: Location) -> dict[str, Any]:
    """The entry's fields; those without a value are left out."""
    fields = {
        "format": FORMAT,
        "state": location.phase.value,
        "cluster": location.cluster,
        "stay": location.stay,
        "to": location.to,
        "plan": location.plan,
        "checkpoint": location.checkpoint,
        "by": location.by,
        "at_ms": location.at_ms,
        "why": location.why,
    }
    return {name: value for name, value in fields.items() if value is not None}


def load(number: int, fields: Mapping[str, Any]) -> Location:
    """Read an entry. Raises FieldError for what ``dump`` does not write."""
    json_fields.require_format(fields, FORMAT, _FIELDS)
    try:
        phase = Phase(json_fields.required_text(fields, "state"))
    except ValueError as err:
        raise FieldError("state", "is not lives, moving or writing") from err
    location = Location(
        phase,
        json_fields.required_text(fields, "cluster"),
        json_fields.required(json_fields.integer(fields, "stay", low=1), "stay"),
        json_fields.required_text(fields, "by"),
        json_fields.required(json_fields.integer(fields, "at_ms"), "at_ms"),
        json_fields.string(fields, "why") or "",
        to=json_fields.string(fields, "to"),
        plan=json_fields.integer(fields, "plan", low=1),
        checkpoint=json_fields.string(fields, "checkpoint"),
        number=number,
    )
    if (location.to is None) != (phase is Phase.LIVES) or (phase is Phase.WRITING and location.plan is None):
        raise FieldError("state", f"is {phase.value}, which the other fields contradict")
    return location


_FIELDS = frozenset(("format", "state", "cluster", "stay", "to", "plan", "checkpoint", "by", "at_ms", "why", "nonce"))
