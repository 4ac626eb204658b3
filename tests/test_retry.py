"""The retry policy: when it calls again, how long it waits before, and which error it ends with."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from reconciler.core.errors import Refused, Unreachable
from reconciler.retry import LONGEST_PAUSE_S, SHORTEST_PAUSE_S, insist


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str | float]:
    """Calls by name and pauses by their seconds, in order."""
    happened: list[str | float] = []
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=happened.append))
    return happened


class Service:
    """Fails with each of ``errors`` in turn, then answers."""

    def __init__(self, errors: list[Exception], events: list[str | float]) -> None:
        self._errors: Iterator[Exception] = iter(errors)
        self._events = events

    def call(self) -> str:
        self._events.append("call")
        for error in self._errors:
            raise error
        return "answer"


def test_a_call_that_succeeds_is_made_once(events: list[str | float]) -> None:
    assert insist(Service([], events).call, left_s=lambda: 0) == "answer"
    assert events == ["call"]


def test_a_pause_precedes_every_repeated_call(events: list[str | float]) -> None:
    service = Service([Unreachable("away")] * 8, events)
    assert insist(service.call, left_s=lambda: 1) == "answer"
    assert events[0::2] == ["call"] * 9
    pauses = [pause for pause in events[1::2] if isinstance(pause, float)]
    longest = [min(LONGEST_PAUSE_S, SHORTEST_PAUSE_S * 2**number) for number in range(1, 9)]
    assert len(pauses) == 8
    assert all(SHORTEST_PAUSE_S <= pause <= most for pause, most in zip(pauses, longest, strict=True))
    assert longest[0] == 0.4
    assert longest[-1] == 2.0


def test_an_error_that_a_retry_cannot_help_ends_it(events: list[str | float]) -> None:
    with pytest.raises(Refused, match="no"):
        insist(Service([Unreachable("away"), Refused("no")], events).call, left_s=lambda: 1)
    assert events.count("call") == 2


def test_the_last_error_is_raised_when_it_gives_up(events: list[str | float]) -> None:
    left = iter([2.0, 1.0, 0.0])
    errors: list[Exception] = [Unreachable(f"away {number}") for number in range(9)]
    with pytest.raises(Unreachable, match="away 2"):
        insist(Service(errors, events).call, left_s=lambda: next(left))
    assert events.count("call") == 3


def test_the_caller_may_say_which_errors_a_retry_helps(events: list[str | float]) -> None:
    service = Service([KeyError("again")], events)
    assert insist(service.call, left_s=lambda: 1, helps=lambda error: isinstance(error, KeyError)) == "answer"
    with pytest.raises(KeyError):
        insist(Service([KeyError("again")], events).call, left_s=lambda: 1)
