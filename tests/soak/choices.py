"""What happens at each move, by the seed alone: a run can be repeated from its seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Loss(StrEnum):
    """How the cluster is left."""

    PLANNED = "planned"
    """Producers stop, everything is delivered and read, then the jobs move."""
    LEFT = "left"
    """The jobs stop in the middle of their work; the cluster stays. The mirror is stopped, or hooks wait for it."""
    KILLED = "killed"
    """The cluster is killed with SIGKILL while the jobs run, and is back after they have moved."""


class Fault(StrEnum):
    """What goes wrong besides, on the way to the other cluster."""

    MIRROR_KILLED = "mirror killed"
    MIRROR_HALTED = "mirror halted"
    """It delivers nothing in the last seconds before the move."""
    MIRROR_KILLED_TWICE = "mirror killed twice"
    """The second time while it sends again what it had sent before the first."""
    MIRROR_SET_FORWARD = "mirror set forward"
    """By its positions, past records that it has not sent."""
    LINK_CUT = "link cut"
    """The mirror's link is slow, then its connections break before its records are acknowledged: it sends again."""
    DRIVER_KILLED = "driver killed"
    TRACK_KILLED = "track killed"
    PARTITION_ADDED = "partition added"
    RETENTION = "retention"
    """It deletes all records of the destination, just before the last ones are produced."""
    COPY_RECREATED = "copy recreated"
    """The destination's copy of the topic is deleted, and mirrored again from the start."""
    LOG_CUT_BACK = "log cut back"
    """The destination loses the newest records of its copy; the topic keeps its id. No mirror sends them again."""
    FOREIGN_RECORDS = "foreign records"
    """Records of another program, without an id, are the last ones of each partition."""
    CLOCK_JUMPS = "clock jumps"
    """By almost an hour, forward or back, for producers, jobs and commands, until the jobs have moved."""
    STATE_AWAY = "state store away"
    """It is killed while the jobs run, until they stop; and again, while a move and a hook are tried."""
    MOVE_KILLED = "move killed"
    TWO_OPERATORS = "two operators"
    STATE_FROZEN = "state store frozen"
    """For some seconds of a hook."""
    CANCELLED_AMID = "cancelled amid"
    """A hook is killed, its move is cancelled, and the job is moved again."""
    CANCELLED = "cancelled"
    """The operator cancels the move after it was recorded, and asks for it again."""
    MOVED_TWICE = "moved twice"
    BROKER_RESTARTED = "broker restarted"
    """The destination, between the move and the hooks."""
    BROKER_FROZEN = "broker frozen"
    """The destination, for some seconds of a hook."""
    BROKER_LIES = "broker lies"
    """The destination's answers to time lookups are wrong, for the move and its hooks."""
    APPLY_KILLED = "apply killed"
    """A job's plan is applied; apply is killed, and sometimes run again, before the job's hook."""
    DISK_FULL = "disk full"
    """Where checkpoints and plans are, for a hook. Only root can make it."""
    HOOK_KILLED = "hook killed"
    TWO_HOOKS = "two hooks"
    """Of one job, at once."""
    ROLLED_BACK = "rolled back"
    """A job's numbers are given back after its hook has written them, and it is moved again."""


class Mirror(StrEnum):
    """How the mirrors of a run work."""

    USUAL = "usual"
    NO_SYNCS = "no offset syncs"
    EXACTLY_ONCE = "exactly once"


def mirror(seed: int) -> Mirror:
    return random.Random(f"{seed}/mirror").choice(list(Mirror))


@dataclass(frozen=True, slots=True)
class Move:
    """One move. ``delay``: where between 0 and 1 of its usual time a command is killed."""

    number: int
    to: str
    loss: Loss
    faults: tuple[Fault, ...]
    records: int
    """Produced on the cluster that is left, before it is left."""
    delay: float
    victim: int
    """Which job a fault of one job meets, modulo their number."""
    waits: bool
    """Whether the hooks wait for the mirror, which then goes on, where the cluster is left."""


def moves(seed: int, count: int, *, with_faults: bool = True) -> Iterator[Move]:
    """``count`` moves from ``a``, there and back in turn."""
    for number in range(1, count + 1):
        draw = random.Random(f"{seed}/{number}")
        faults = draw.sample(list(Fault), draw.choice((0, 1, 2, 2, 3))) if with_faults else []
        yield Move(
            number,
            to="ba"[(number - 1) % 2],
            loss=draw.choice(list(Loss)),
            faults=tuple(sorted(faults)),
            records=draw.randrange(100, 800),
            delay=draw.random(),
            victim=draw.randrange(1000),
            waits=draw.random() < 0.5,
        )
