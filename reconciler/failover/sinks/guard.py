"""Whether a query may start, by the numbers of its batches and of the sink's. Pure: nothing is opened here.

Theory of operation. A sink takes batch N of a name once; whatever comes under that number later is dropped. The query's
checkpoint says which batch it began last (B) and whether that is committed; the sink says which it took last (L).

- G1  L > B: the query has continued from another checkpoint. Its batches B+1 to L would be dropped: stop.
- G2  L = B, not committed: the sink has the batch. The start repeats it up to the same end, and the sink drops it.
      Records of it that come in a later batch would be there twice: stop, unless there are none.
- G3  L = B, not committed, and the sink's batch is empty, while the query's has records: the batch came from a copy
      that repeated it empty. The query's own would be dropped: stop.
- G4  L < B, not committed: the sink lacks the batch, and takes whatever is repeated under its number.
- G5  A new checkpoint counts as B = -1. It has a name of its own, unless the job gives its batches a fixed one, or the
      sink knows numbers only: then G1. Where it begins without a stored offset, it would write again what another
      query has written there: stop. At stored offsets, G9 counts for all that any query has written there.
- G6  Nothing taken, though the checkpoint has committed batches: the address is of another sink, or name. Stop, or say
      so where the sink forgets.
- G7  L = B, not committed, and the query's batch has no records, while the sink's has: the original has written what
      this copy left for its later batches. They would be there twice: stop.
- G8  L below the last committed batch, in a sink that takes every batch: it has lost some, or it is another one. Stop.
- G9  The start is before the last record that was processed: the records between are in the sink. Stop, unless the
      operator has accepted that. The same holds for a query without a batch there, if another query has one: the
      records may be that query's.
- G10 The sink was set back to before L, as by Delta's RESTORE, which keeps L itself: it lacks batches that it would
      drop. Stop. Where the sink's own log does not reach back to L, say so.
- G11 The checkpoint has begun batches, and has lost its query's id: a start gets a new one, under which the sink would
      take a batch again. Stop.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from reconciler.places.checkpoint.restart import Checkpoint, adds_nothing, has_records
from reconciler.plan.rows import SINK_STOPS, SinkOutcome, SinkRow


@dataclass(frozen=True, slots=True)
class Repeated:
    """The most processed records that a start would read again: ``of_batch`` in the batch that was begun, ``before``
    in those before it. ``accepting``: the options of ``plan`` and ``hook`` that accept the latter."""

    of_batch: int = 0
    before: int = 0
    accepting: str = ""


NOTHING_AGAIN = Repeated()
"""A start that moves no offset."""


@dataclass(frozen=True, slots=True)
class QueryState:
    """The batches of a query's checkpoint. ``begun``: the last batch that it began, -1 for none.

    ``has_records``: that batch has records, if it is not committed; ``is_empty``: it has certainly none, and writes
    none. ``again``: what a start there would write twice.
    """

    query_id: str | None
    begun: int
    committed: bool
    has_records: bool = False
    is_empty: bool = False
    again: Repeated = NOTHING_AGAIN

    @property
    def next_batch(self) -> int:
        return self.begun if self.repeats else self.begun + 1

    @property
    def repeats(self) -> bool:
        return self.begun >= 0 and not self.committed

    @property
    def last_committed(self) -> int:
        """-1 for none."""
        return self.begun - 1 if self.repeats else self.begun


NEW = QueryState(None, -1, committed=True)
"""A checkpoint that does not exist yet."""
FROM_THE_BEGINNING = (
    "another query has written to it, and a new checkpoint without a stored offset reads everything again: what is "
    "there already would be there twice. To continue, start on a copy of the last checkpoint; to start over, give the "
    "query another path; if that query is another job's, leave sink out of the configuration for this one start"
)


def query_state(found: Checkpoint, again: Repeated = NOTHING_AGAIN, *, stateful: bool = True) -> QueryState:
    """The batches of this checkpoint. ``stateful``: its query may write records in a batch that has none."""
    begun = -1 if found.last is None else found.last.batch
    moves = any(has_records(each) for each in found.positions)
    still = all(adds_nothing(found, each.name) for each in found.positions)
    return QueryState(
        found.query_id,
        begun,
        found.committed,
        has_records=moves,
        is_empty=still and not stateful,
        again=again,
    )


def ask(sink: Sink, at: QueryState) -> Taken | None:
    """The batches of this query that the sink has; None for a query that gets a new name when it starts."""
    app_id = sink.app_id or at.query_id
    return sink.last_taken(app_id) if app_id is not None or not sink.knows_queries else None


def lacks(sink: Sink, at: QueryState, taken: Taken | None) -> bool:
    """True if the sink lacks batches that the checkpoint has committed.

    Those of a running query are there by then: a sink that was asked before its checkpoint must be asked again.
    """
    return sink.takes_every_batch and taken is not None and taken.batch is not None and taken.batch < at.last_committed


def judge(sink: Sink, at: QueryState, taken: Taken | None, *, lacking: bool = False) -> SinkRow:
    """The outcome of the next batch; ``taken`` is the result of ``ask``, ``lacking`` that of ``lacks``."""
    outcome, detail = _judged(sink, at, taken, lacking=lacking)
    if taken is not None and taken.batch is not None and not taken.whole and outcome not in SINK_STOPS:
        outcome, detail = SinkOutcome.UNKNOWN, f"{detail}; its log does not show whether that was undone since"
    name = (sink.app_id or at.query_id) if sink.knows_queries else None
    return SinkRow(sink.shown, name, taken.batch if taken else None, at.next_batch, outcome, detail)


def judge_new_checkpoint(sink: Sink, again: Repeated, *, placed: bool) -> SinkRow:
    """The row of a query that begins with a new checkpoint; ``placed``: at offsets that were stored.

    The name of its batches is new, so the sink takes all of them. Records that it has already are then there twice.
    """
    row = judge(sink, NEW, ask(sink, NEW))
    doubles = again.before if placed else sink.app_id is None
    if row.stops or not doubles or not sink.knows_queries or not sink.has_queries():
        return row
    return replace(row, outcome=SinkOutcome.DOUBLES, detail=_again(again) if placed else FROM_THE_BEGINNING)


def _judged(sink: Sink, at: QueryState, taken: Taken | None, *, lacking: bool) -> tuple[SinkOutcome, str]:
    if taken is None:
        if at.begun >= 0 and at.query_id is None:
            return SinkOutcome.UNSEEN, _without_id(at)
        return SinkOutcome.FITS, "a new query gets a name of its own"
    if taken.batch is None:
        return _nothing(sink, at, taken)
    if taken.batch > at.begun:
        return SinkOutcome.DROPS, _drops(sink, at, taken.batch)
    if taken.undone:
        return SinkOutcome.UNSEEN, _undone(taken)
    if lacking:
        return SinkOutcome.UNSEEN, _lacks(at, taken.batch)
    if at.repeats and taken.batch == at.begun and (stop := _others_batch(at, taken)) is not None:
        return stop
    if at.again.before:
        return SinkOutcome.DOUBLES, _again(at.again)
    if not at.repeats:
        missing = "" if taken.batch == at.begun else f", of the checkpoint's committed {at.begun}"
        return SinkOutcome.FITS, f"it took batch {taken.batch} last{missing}"
    if taken.batch < at.begun:
        return SinkOutcome.OPEN, f"it took batch {taken.batch} last: batch {at.begun} is written when it is repeated"
    return _repeated(at)


def _nothing(sink: Sink, at: QueryState, taken: Taken) -> tuple[SinkOutcome, str]:
    if at.last_committed < 0:
        if at.again.before and sink.knows_queries and sink.has_queries():
            return SinkOutcome.DOUBLES, _again(at.again)
        return (SinkOutcome.OPEN if at.repeats else SinkOutcome.FITS), "it has no batch yet"
    if taken.undone:
        return SinkOutcome.UNSEEN, _undone(taken)
    if not taken.whole:
        if at.again.before:
            return SinkOutcome.DOUBLES, _again(at.again)
        return SinkOutcome.UNKNOWN, "it remembers no batch of this query: its history is not known further back"
    of = f"of {sink.app_id or at.query_id} " if sink.knows_queries else ""
    return (
        SinkOutcome.UNSEEN,
        f"it has no batch {of}at all, and the checkpoint has committed batch {at.last_committed}. It is another sink, "
        "or the job gives its batches another name: correct the job's sink",
    )


def _without_id(at: QueryState) -> str:
    return (
        "the checkpoint has lost its query's id, the file metadata: the query would get a new one, and the sink would "
        f"take batch {at.next_batch} even if it has it already. Restore the file, or write it again, as "
        '{"id":"ID"}, with the id in Spark\'s log or in the table'
    )


def _undone(taken: Taken) -> str:
    return (
        f"{taken.undone}: batches that the query has written are not in it, and would never come. Set it to a version "
        "that has them, or begin a new checkpoint behind the last batch that it has; if they are to stay out, leave "
        "sink out of the configuration for this one start"
    )


def _lacks(at: QueryState, last: int) -> str:
    return (
        f"it has no batch after {last}, and the checkpoint has committed batch {at.last_committed}: what is between  "
        "is not in it, and would never come. It is another sink, or a replica or a backup that is behind: correct the "
        "job's sink, or bring it up to date"
    )


def _again(again: Repeated) -> str:
    return (
        f"it would get at most {again.before:,} records again, which the query has written: the offset behind them is "
        f"not proven. Set it by hand with --set, or accept the repetition with {again.accepting} (plan, hook); track "
        "keeps newer anchors if it runs more often"
    )


def _drops(sink: Sink, at: QueryState, last: int) -> str:
    first = at.begun + 1
    lost = f"batch {last}" if first == last else f"batches {first} to {last}"
    if at.begun < 0:
        way_out = (
            f'it knows batches as "{sink.app_id}": let the job write under another name'
            if sink.app_id
            else "give the query another path"
        )
        return (
            f"it has batch {last} already, and a new checkpoint begins at batch 0: it would drop {lost} without an "
            f"error. To start over, {way_out}; to continue, start on a copy of the last checkpoint"
        )
    return (
        f"it has batch {last} already, and this checkpoint has begun none after {at.begun}: it would drop {lost} "
        "without an error. The query has continued from another checkpoint: start from that checkpoint or a copy"
    )


def _others_batch(at: QueryState, taken: Taken) -> tuple[SinkOutcome, str] | None:
    """The outcome if the sink's batch of this number is not this checkpoint's; else None."""
    if taken.is_empty and at.has_records:
        return (
            SinkOutcome.DROPS,
            f"its batch {at.begun} is empty, and this checkpoint's has records, which it would drop without an error. "
            "Perhaps a copy has repeated the batch empty: start from that copy, or from a copy of it. If no copy was "
            "ever started, the query itself left none of its records, as by a filter: leave sink out of the "
            "configuration for this one start",
        )
    if taken.has_records and at.is_empty:
        return (
            SinkOutcome.DOUBLES,
            f"its batch {at.begun} has records, and this checkpoint's has none, so they would be written again in "
            "later batches. Another checkpoint has run that batch, perhaps the original of this copy: start from "
            "that checkpoint, or from a new copy of it",
        )
    return None


def _repeated(at: QueryState) -> tuple[SinkOutcome, str]:
    if at.again.of_batch:
        return (
            SinkOutcome.DOUBLES,
            f"it has batch {at.begun}, whose end is not proven: at most {at.again.of_batch:,} of its records would be "
            "written again. Set the offset behind its last record by hand, with --set; or leave sink out of the "
            "configuration for this one start, and they come twice; an anchor for it is kept if track runs while the "
            "job does",
        )
    return SinkOutcome.TAKEN, f"it has batch {at.begun}, which is repeated up to the same end and dropped"


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
        """True if it keeps batches by name. The file sink keeps numbers only."""

    @property
    def takes_every_batch(self) -> bool:
        """True if it keeps the number of every batch, of an empty one too. A job's own function may leave some out."""

    def last_taken(self, app_id: str | None) -> Taken:
        """The last batch of this name, or of any name if the sink keeps no names."""

    def has_queries(self) -> bool:
        """True if it shows batches of any query; asked only if it ``knows_queries``."""
