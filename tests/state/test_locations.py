"""Where a job lives: every order of an operator's and a hook's entries."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product

import pytest

from reconciler.core.errors import ReconcilerError
from reconciler.core.json_fields import FieldError
from reconciler.state import locations
from reconciler.state.locations import Location, Phase, Stamp

STAMP = Stamp("ana", lambda: 1_800_000_000_000, "drill")
ACTS: dict[str, Callable[[Location], Location]] = {
    "move to b": lambda here: locations.moving(here, "b", STAMP),
    "move to a": lambda here: locations.moving(here, "a", STAMP),
    "cancel": lambda here: locations.cancelled(here, 3, STAMP),
    "write": lambda here: locations.writing(here, 4, STAMP),
    "live": lambda here: locations.lives(here, "/base-2", STAMP),
    "give back": lambda here: locations.giving_back(here, "a", 4, "/base", STAMP),
}
ALLOWED = {
    Phase.LIVES: {"move to b", "move to a", "give back"},
    Phase.MOVING: {"cancel", "write"},
    Phase.WRITING: {"live", "write", "give back"},
}


@pytest.mark.parametrize("first", ACTS)
def test_every_order_of_acts_is_allowed_or_refused(first: str) -> None:
    for acts in product(ACTS, repeat=3):
        _act((first, *acts))


def _act(acts: tuple[str, ...]) -> None:
    here = locations.first("a", STAMP, "/base")
    for act in acts:
        if act in ALLOWED[here.phase]:
            then = ACTS[act](here)
            assert locations.load(9, {**json.loads(json.dumps(locations.dump(then))), "nonce": "n"}) == _at(9, then)
            assert then.stay == (5 if act == "live" else here.stay)
            assert then.cluster == (here.to if act == "live" else here.cluster)
            here = then
        else:
            with pytest.raises(ReconcilerError) as refused:
                ACTS[act](here)
            assert refused.value.hint


def _at(number: int, location: Location) -> Location:
    from dataclasses import replace

    return replace(location, number=number)


@pytest.mark.parametrize(
    "change",
    [{"state": "gone"}, {"stay": 0}, {"to": "b"}, {"by": ""}, {"at_ms": None}, {"more": 1}, {"format": "location/2"}],
    ids=str,
)
def test_what_was_not_written_by_this_product_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(FieldError):
        locations.load(1, {**locations.dump(locations.first("a", STAMP)), **change})
