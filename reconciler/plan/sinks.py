"""A plan's rows about a job's sinks: which batch each has taken last, and whether it will take the query's next one.

Spark's sinks drop a batch that they believe to have, without an error. So a query may only start where its next batch
is new to each of its sinks, or is the very one that the sink has.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from reconciler.core.json_fields import Fields


class SinkOutcome(StrEnum):
    """The outcome of the query's next batch in a sink. ``STOPS`` holds those that forbid the start."""

    FITS = "fits"
    """It is new to the sink."""
    OPEN = "open"
    """It was begun before, and the sink lacks it: it is put out now."""
    TAKEN = "taken"
    """It was begun before, and the sink has it: it is repeated up to the same end, and the sink drops it."""
    UNKNOWN = "unknown"
    """The sink, or what is known of the query, does not tell."""
    UNSEEN = "unseen"
    """The sink lacks batches that the query has committed, or it is not known which query's it would have to have."""
    DOUBLES = "doubles"
    """The sink has the batch that was begun, and not all of its records can be left out of the next ones."""
    DROPS = "drops"
    """The sink has batches that the query has not begun: it would drop the query's own of these numbers."""


STOPS = frozenset({SinkOutcome.UNSEEN, SinkOutcome.DOUBLES, SinkOutcome.DROPS})
_ROW = frozenset(("sink", "app_id", "last_taken", "next_batch", "outcome", "detail"))


def why_sink_stops(row: SinkRow) -> str:
    """The sink and its finding, without the last full stop."""
    return f"its sink {row.sink}: {row.detail}"


@dataclass(frozen=True, slots=True)
class SinkRow:
    """One sink of a job.

    ``sink``: its address without secrets. ``app_id``: under which name it knows the query's batches, None if it knows
    numbers only. ``last_taken``: the last batch that it has; None for none. ``next_batch``: the one that a start runs;
    None if that is not known. ``detail``: a sentence without its full stop; for an outcome that stops, with the way
    out as a second one.
    """

    sink: str
    app_id: str | None
    last_taken: int | None
    next_batch: int | None
    outcome: SinkOutcome
    detail: str

    @property
    def stops(self) -> bool:
        return self.outcome in STOPS

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome.value}

    @classmethod
    def from_json(cls, value: object, where: str) -> SinkRow:
        fields = Fields(value, where, _ROW)
        return cls(
            fields.text("sink"),
            fields.text_or_null("app_id"),
            fields.number_or_null("last_taken"),
            fields.number_or_null("next_batch"),
            fields.member("outcome", SinkOutcome),
            fields.text("detail"),
        )
