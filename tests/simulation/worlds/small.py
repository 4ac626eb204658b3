"""Running the search on every small history, and adding up the quality of the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from reconciler.core.verdicts import Finding
from tests.simulation.worlds.exhaustive import (
    KINDS,
    Asked,
    Kind,
    Space,
    answer,
    broken_promises,
    is_best,
    lies_of,
    questions,
    replayed,
)
from tests.simulation.worlds.histories import Done, Origin, Pattern, patterns

MOST_FAILURES = 20
SPACES = (Space(0, 0), Space(10, 10), Space(20, 20), Space(20, 0), Space(0, 10))
"""Times in order; off by one step at most; in any order. Then with less disorder stated than is true, and more."""
Task = tuple[Pattern, set[Origin], Space, Sequence[Kind]]


@dataclass(slots=True)
class SmallTally:
    """Sums over questions; two of them can be added."""

    questions: Counter[str] = field(default_factory=Counter)
    """By kind of anchor."""
    histories: int = 0
    best: Counter[str] = field(default_factory=Counter)
    """Answers that resume at the latest possible offset."""
    tight: Counter[str] = field(default_factory=Counter)
    """Answers whose bound is reached in some history."""
    broken: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def judge(self, asked: Asked, histories: set[Done], lies: Iterator[int | None] | None = None) -> None:
        finding, kind = answer(asked, lies), asked.kind.name
        self.questions[kind] += 1
        self.histories += len(histories)
        for sentence in broken_promises(asked, histories, finding):
            self.broken[sentence.split()[0]] += 1
            self.failures = [*self.failures, f"{sentence}\n  {describe(asked, histories, finding)}"][:MOST_FAILURES]
        if (resume := finding.resume_offset) is not None:
            most = max(replayed(asked, done, resume) for done in histories)
            self.best[kind] += is_best(asked, histories, resume)
            self.tight[kind] += most == finding.replay_at_most

    def merge(self, other: SmallTally) -> None:
        self.histories += other.histories
        self.failures = [*self.failures, *other.failures][:MOST_FAILURES]
        for mine, theirs in (
            (self.questions, other.questions),
            (self.best, other.best),
            (self.tight, other.tight),
            (self.broken, other.broken),
        ):
            mine.update(theirs)

    @property
    def is_clean(self) -> bool:
        return not self.broken

    def text(self) -> str:
        """The report."""
        lines = [
            f"questions            {self.questions.total():,}, each standing for all histories that look the same",
            f"answers held against {self.histories:,} histories",
            f"skipped a record     {self.broken['skips:']:,}",
            f"broke a bound        {self.broken['replays']:,}",
            f"gave up              {self.broken['gives']:,}",
            "",
            f"{'the anchor knows':44}{'questions':>12}{'best resume, %':>16}{'tight bound, %':>16}",
        ]
        for kind, count in self.questions.items():
            shares = f"{100 * self.best[kind] / count:16.1f}{100 * self.tight[kind] / count:16.1f}"
            lines.append(f"{kind:44}{count:12,}{shares}")
        return "\n".join([*lines, *self.failures])


def tasks(records: int, resends: int, *, local: int = 1, spaces: Sequence[Space] = SPACES) -> list[Task]:
    """All patterns of this size. Twins are for the anchors whose ids may be shared."""
    with_twins = patterns(records, resends, local=local, twins=True)
    without = patterns(records, resends, local=local)
    opaque = [kind for kind in KINDS if not kind.tells_copies]
    unique = [kind for kind in KINDS if kind.tells_copies]
    found: list[Task] = []
    for space in spaces:
        trusting = with_twins if space.is_told_true else without
        found += [(pattern, origins, space, opaque) for pattern, origins in trusting.items()]
        found += [(pattern, origins, space, unique) for pattern, origins in without.items()]
    return found


def judge(task: Task) -> SmallTally:
    tally = SmallTally()
    pattern, origins, space, kinds = task
    for look in questions(pattern, origins, space, kinds):
        for asked, histories in look.items():
            tally.judge(asked, histories)
    return tally


def judge_lies(task: Task) -> SmallTally:
    """Every question of a task, with every answer that a broker can give to its time lookups."""
    tally = SmallTally()
    pattern, origins, space, kinds = task
    for look in questions(pattern, origins, space, kinds):
        for asked, histories in look.items():
            for lies in lies_of(asked):
                tally.judge(asked, histories, lies)
    return tally


def describe(asked: Asked, histories: set[Done], finding: Finding) -> str:
    """Describe a question for a person."""
    log = " ".join(f"{label}@{asked.times[label]}" for label in asked.pattern.labels)
    done = " or ".join(f"{each.mask:0{len(asked.pattern.labels)}b}"[::-1] for each in sorted(histories))
    whole = "whole" if asked.pattern.whole else "its front deleted"
    anchor = f"anchor {asked.anchor}@{asked.anchor_time} by {asked.kind.name}, order {asked.order}, rank {asked.rank}"
    return f"log {log} ({whole}); {anchor}; told disorder {asked.disorder}; processed {done}\n  {finding}"
