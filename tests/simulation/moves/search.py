"""Every history of a small world, or many at random; each broken invariant with the steps that lead to it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tests.simulation.moves.steps import Action, Broken, actions, is_stuck, steps
from tests.simulation.moves.world import Left, State, Step, World, beginning


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


def walk(world: World, left: Left, seed: int, *, most: int = 200, seen: set[int] | None = None) -> Searched:
    """One random history: one who may act is chosen, then one of its steps. Somebody is stopped for a while.

    ``seen`` gets a hash of each state, without what may still happen and the backup.
    """
    chance = random.Random(seed).random
    stopped = STOPPED[int(chance() * len(STOPPED))]
    stops_at = int(chance() * 30)
    goes_on = stops_at + int(chance() * 40)
    state, started = beginning(world, left), None
    taken: list[str] = []
    try:
        while len(taken) < most:
            if seen is not None:
                seen.add(hash(state[:-2]))
            if not (state.hooks or state.drivers) and state.locations is not started:
                if is_stuck(world, state):
                    raise Broken("no hook starts the job")
                started = state.locations
            who = stopped if stops_at <= len(taken) < goes_on else ""
            following = _next(actions(world, state, who), chance) or (who and _next(actions(world, state), chance))
            if not following:
                break
            name, state = following[int(chance() * len(following))]
            taken.append(name)
    except Broken as broken:
        return Searched(len(taken), f"{broken} after {taken}", False)
    return Searched(len(taken), "", False)


STOPPED = ("hook", "hook", "driver", "tracker", "")
"""Of whom the one that has waited longest is stopped, as by a long pause of its machine."""


def _next(who: list[Action], chance: Callable[[], float]) -> list[Step]:
    """The steps of one who can act; empty if none can."""
    while who:
        at = int(chance() * len(who))
        if following := list(who[at]()):
            return following
        del who[at]
    return []


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
