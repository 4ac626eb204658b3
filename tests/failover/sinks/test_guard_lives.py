"""Lives of a query, chosen by seeds, in a model of Spark's checkpoints and sinks: what the guard lets start, and not.

A checkpoint is its batches' ends; a sink takes a number of a name once. Whatever the guard lets start leaves each
record there once, and it never forbids the checkpoint that ran last, or a copy of it whose ends are proven.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from reconciler.failover.sinks import guard
from reconciler.failover.sinks.guard import (
    NOTHING_AGAIN,
    QueryState,
    Repeated,
    Taken,
    ask,
    judge,
    judge_new_checkpoint,
    lacks,
)
from reconciler.plan.rows import SINK_STOPS, SinkOutcome
from tests.sizes import sampled

EACH = 1_000
KINDS = [(knows, every, fixed) for knows in (False, True) for every in (True, False) for fixed in (False, True)]


@dataclass
class ModelSink:
    """``rows``: each record as often as it was put out. ``taken``: by name, the last batch and its records."""

    knows_queries: bool
    takes_every_batch: bool
    app_id: str | None
    shown: str = "model"
    taken: dict[str, tuple[int, int]] = field(default_factory=dict)
    rows: Counter[int] = field(default_factory=Counter)
    spans: dict[str, range] = field(default_factory=dict)

    def name(self, query_id: str | None) -> str:
        return (self.app_id or str(query_id)) if self.knows_queries else "any"

    def put(self, query_id: str, batch: int, records: range) -> None:
        last, _ = self.taken.get(self.name(query_id), (-1, 0))
        if batch <= last or (not records and not self.takes_every_batch):
            return
        self.taken[self.name(query_id)] = batch, len(records)
        self.spans[self.name(query_id)] = records
        self.rows.update(records)

    def last_taken(self, app_id: str | None) -> Taken:
        batch, records = self.taken.get(self.name(app_id), (None, 0))
        return Taken(batch, is_empty=batch is not None and not records, has_records=bool(records))

    def has_queries(self) -> bool:
        return bool(self.taken)


@dataclass
class ModelCheckpoint:
    """``ends``: by batch, where it ends; the last is begun, and perhaps not committed."""

    query_id: str
    first: int = 0
    ends: list[int] = field(default_factory=list)
    committed: bool = True

    def span(self, batch: int) -> range:
        return range(self.ends[batch - 1] if batch else self.first, self.ends[batch])

    @property
    def position(self) -> int:
        return self.ends[-1] if self.ends else self.first

    def query_state(self, again: Repeated = NOTHING_AGAIN) -> QueryState:
        begun = len(self.ends) - 1
        moves = begun >= 0 and bool(self.span(begun))
        return QueryState(
            self.query_id, begun, self.committed, has_records=moves, is_empty=begun >= 0 and not moves, again=again
        )

    def copy(self) -> ModelCheckpoint:
        return replace(self, ends=list(self.ends))


class QueryLife:
    def __init__(self, seed: int, kind: tuple[bool, bool, bool]) -> None:
        knows, every, fixed = kind
        self.rng = random.Random(f"{kind} {seed}")
        self.sink = ModelSink(knows, every, "job" if fixed and knows else None)
        self.newest = ModelCheckpoint("q0")
        self.others: list[ModelCheckpoint] = []
        self.outcomes: Counter[SinkOutcome] = Counter()
        self.told: list[str] = []

    def live(self) -> None:
        for _ in range(self.rng.randrange(2, 9)):
            self.rng.choice([self.restart, self.restart, self.move, self.move, self.old, self.anew, self.leave_copy])()
            self.check()

    def judged(self, at: QueryState) -> SinkOutcome:
        taken = ask(self.sink, at)
        row = judge(self.sink, at, taken, lacking=lacks(self.sink, at, taken))
        self.outcomes[row.outcome] += 1
        self.told.append(f"{at} {taken} {row.outcome}")
        return row.outcome

    def check(self) -> None:
        twice = [number for number, times in self.sink.rows.items() if times > 1]
        lacking = [number for number in self.done() if number not in self.sink.rows]
        assert not twice, (twice, self.told)
        assert not lacking, (lacking, self.told)

    def done(self) -> range:
        begun = self.newest
        return range(begun.position if begun.committed or not begun.ends else begun.span(len(begun.ends) - 1).start)

    # ------------------------------------------------------------ what happens

    @property
    def is_left_out(self) -> bool:
        """A sink that may leave out empty batches has none yet: it looks like another one."""
        return not self.sink.takes_every_batch and self.sink.name(self.newest.query_id) not in self.sink.taken

    def is_ambiguous(self, found: ModelCheckpoint) -> bool:
        """Another checkpoint has put out records of its own under the number that this one has begun, and no more: a
        limit that the reference names."""
        if found.committed or not found.ends:
            return False
        begun, name = len(found.ends) - 1, self.sink.name(found.query_id)
        span = found.span(begun)
        theirs = self.sink.spans.get(name)
        return self.sink.taken.get(name, (-1, 0))[0] == begun and bool(span and theirs) and span != theirs

    def restart(self) -> None:
        """The query that ran last, on its own checkpoint."""
        outcome = self.judged(self.newest.query_state())
        if outcome in SINK_STOPS:
            assert self.is_left_out, self.told
            return
        self.run(self.newest)

    def old(self) -> None:
        """Another checkpoint of before: an original, or a copy that was left. The reference tells not to start it where
        the sink leaves out empty batches."""
        if not self.others or not self.sink.takes_every_batch:
            return
        chosen = self.rng.choice(self.others)
        if self.is_ambiguous(chosen):
            return
        if self.judged(chosen.query_state()) not in SINK_STOPS:
            self.others.remove(chosen)
            self.others.append(self.newest)
            self.run(chosen)

    def move(self) -> None:
        """A start on a copy; what was proven of it differs."""
        made = self.copied(proven=self.rng.random() < 0.6, lag=self.rng.choice([0, 0, 0, 1, 3]))
        if made is not None:
            self.others.append(self.newest)
            self.run(made)

    def leave_copy(self) -> None:
        if (made := self.copied(proven=self.rng.random() < 0.5, lag=0)) is not None:
            self.others.append(made)

    def copied(self, *, proven: bool, lag: int) -> ModelCheckpoint | None:
        made = self.newest.copy()
        begun = made.span(len(made.ends) - 1) if made.ends and not made.committed else range(0)
        start = begun.start if not made.committed and made.ends else made.position
        lag = min(lag, start)
        again = Repeated(of_batch=0 if proven else len(begun), before=lag)
        outcome = self.judged(made.query_state(again))
        if outcome in SINK_STOPS:
            assert lag or not proven or self.is_left_out, self.told
            return None
        assert not lag or not self.sink.rows, self.told
        if not made.committed and made.ends and not proven and outcome is SinkOutcome.OPEN:
            made.ends[-1] = begun.start
        return made

    def anew(self) -> None:
        """A new checkpoint at the stored offset; those of before are not started any more."""
        if not self.newest.committed or not self.newest.ends:
            return
        row = judge_new_checkpoint(self.sink, NOTHING_AGAIN, placed=True)
        self.told.append(f"anew {row.outcome}")
        if row.outcome in SINK_STOPS:
            assert self.sink.app_id is not None or not self.sink.knows_queries, self.told
            return
        self.others = []
        self.newest = ModelCheckpoint(f"{self.newest.query_id}+", self.newest.position)
        self.run(self.newest)

    def run(self, found: ModelCheckpoint) -> None:
        """Some batches, and perhaps a kill in the last."""
        self.newest = found
        for _ in range(self.rng.randrange(1, 5)):
            if found.committed:
                found.ends.append(found.position + self.rng.randrange(1, 4))
                found.committed = False
            moment = self.rng.choice(["begun", "taken", "", "", "", ""])
            if moment == "begun":
                return
            number = len(found.ends) - 1
            self.sink.put(found.query_id, number, found.span(number))
            if moment == "taken":
                return
            found.committed = True


@pytest.mark.parametrize(("kind", "block"), sampled([(k, b) for k in KINDS for b in range(10)], 4))
def test_whatever_may_start_puts_out_each_record_once(kind: tuple[bool, bool, bool], block: int) -> None:
    seen: Counter[SinkOutcome] = Counter()
    for seed in range(block * EACH, (block + 1) * EACH):
        life = QueryLife(seed, kind)
        life.live()
        seen += life.outcomes
    assert {SinkOutcome.FITS, SinkOutcome.OPEN, SinkOutcome.TAKEN, SinkOutcome.DOUBLES} <= set(seen)


def test_a_guard_that_takes_a_batch_for_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_others_batch", lambda at, taken: None)
    with pytest.raises(AssertionError):
        test_whatever_may_start_puts_out_each_record_once((True, True, False), 0)
