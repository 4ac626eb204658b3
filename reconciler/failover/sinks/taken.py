"""The interface of a sink: it answers which batch it took last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Taken:
    """The last batch that a sink has; ``batch`` None: it has none.

    ``is_empty``: it certainly got no records in it; ``has_records``: it certainly did. ``whole`` False: the sink
    forgets, and what became of it longer ago is not known. ``undone``: how the sink was set back to before that batch,
    as a clause; empty if it was not.
    """

    batch: int | None
    is_empty: bool = False
    has_records: bool = False
    whole: bool = True
    undone: str = ""


class Sink(Protocol):
    """A place to which a query writes, as far as it remembers batches. Raises Unreachable and Refused as stores do."""

    @property
    def shown(self) -> str:
        """The address for messages and plans, without secrets."""

    @property
    def app_id(self) -> str | None:
        """The name under which the job writes its batches, whichever query it is. None: each query has its own."""

    @property
    def knows_queries(self) -> bool:
        """Whether it tells the batches of one name from those of another. The file sink knows numbers only."""

    @property
    def takes_every_batch(self) -> bool:
        """Whether it keeps the number of every batch, of an empty one too. A job's own function may leave some out."""

    def last_taken(self, app_id: str | None) -> Taken:
        """The last batch of this name, or of any where the sink does not tell names apart."""

    def has_queries(self) -> bool:
        """Whether batches of any query are in it, as far as it tells; asked only where it ``knows_queries``."""
