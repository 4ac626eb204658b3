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
    """The jobs stop in the middle of their work; the cluster and its mirror stay."""
    KILLED = "killed"
    """The cluster is killed with SIGKILL while the jobs run, and is back after they have moved."""


class Fault(StrEnum):
    """What goes wrong besides, on the way to the other cluster."""

    MIRROR_KILLED = "mirror killed"
    MIRROR_HALTED = "mirror halted"
    """It delivers nothing in the last seconds before the move."""
    DRIVER_KILLED = "driver killed"
    MOVE_KILLED = "move killed"
    HOOK_KILLED = "hook killed"
    CANCELLED = "cancelled"
    """The operator cancels the move after it was recorded, and asks for it again."""
    ROLLED_BACK = "rolled back"
    """A job's numbers are given back after its hook has written them, and it is moved again."""
    MOVED_TWICE = "moved twice"
    BROKER_RESTARTED = "broker restarted"
    """The destination, between the move and the hooks."""
    PARTITION_ADDED = "partition added"


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


def moves(seed: int, count: int, *, with_faults: bool = True) -> Iterator[Move]:
    """``count`` moves from ``a``, there and back in turn."""
    for number in range(1, count + 1):
        draw = random.Random(f"{seed}/{number}")
        faults = draw.sample(list(Fault), draw.choice((0, 1, 1, 2))) if with_faults else []
        yield Move(
            number,
            to="ba"[(number - 1) % 2],
            loss=draw.choice(list(Loss)),
            faults=tuple(sorted(faults)),
            records=draw.randrange(100, 800),
            delay=draw.random(),
            victim=draw.randrange(1000),
        )
