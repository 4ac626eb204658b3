"""Every history of a small world, or many at random; each broken invariant with the steps that lead to it."""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

from tests.simulation.moves.steps import Broken, Step, is_stuck, steps
from tests.simulation.moves.world import Left, State, World, beginning


class Searched(NamedTuple):
    """What a search has seen."""

    states: int
    broken: str
    """The invariant that does not hold, and how; "" if all hold."""
    whole: bool
    """True if every state within the allowance was seen."""


def search(world: World, left: Left, *, most: int = 200_000) -> Searched:
    """Breadth first, so that the history found is among the shortest."""
    first = beginning(world, left)
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    waiting = deque([first])
    while waiting and len(came_from) < most:
        state = waiting.popleft()
        try:
            following = _following(world, state)
        except Broken as broken:
            return Searched(len(came_from), f"{broken} after {_history(came_from, state)}", False)
        for name, then in following:
            if then not in came_from:
                came_from[then] = (state, name)
                waiting.append(then)
    return Searched(len(came_from), "", not waiting)


def walk(world: World, left: Left, seed: int, *, most: int = 200) -> Searched:
    """One random history."""
    chance = random.Random(seed)
    state = beginning(world, left)
    taken: list[str] = []
    for count in range(most):
        try:
            following = _following(world, state)
        except Broken as broken:
            return Searched(count, f"{broken} after {taken}", False)
        if not following:
            break
        name, state = chance.choice(following)
        taken.append(name)
    return Searched(len(taken), "", False)


def _following(world: World, state: State) -> list[Step]:
    if is_stuck(world, state):
        raise Broken("no hook starts the job")
    return list(steps(world, state))


def _history(came_from: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    names = []
    step = came_from[state]
    while step:
        state, name = step
        names.append(name)
        step = came_from[state]
    return names[::-1]
