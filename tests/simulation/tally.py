"""Adding up trials, and the report of a campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, log2

from reconciler.core.verdicts import Verdict
from tests.simulation.trial import Trial

MOST_FAILURES = 50
COLUMNS = [verdict.value for verdict in Verdict if verdict is not Verdict.UNRESOLVED]  # a partition's, not a log's


def at_share(counts: Counter[int], share: float) -> int:
    """The smallest value that this share of all counted ones does not exceed."""
    left = ceil(share * counts.total())
    for value, count in sorted(counts.items()):
        left -= count
        if left <= 0:
            return value
    return 0


@dataclass(slots=True)
class Tally:
    """Sums of trials; two of them can be added."""

    trials: int = 0
    verdicts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By a kind of log ("" for all) and verdict."""
    probes: Counter[int] = field(default_factory=Counter)
    ordinary: Counter[int] = field(default_factory=Counter)
    over_limit: Counter[int] = field(default_factory=Counter)
    """Seeds whose search took more probes outside its scans than 2·log2(n) + 4."""
    by_length: dict[int, Counter[int]] = field(default_factory=dict)
    """Probes outside of scans, by log2 of the log's length."""
    broken: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            self.trials += 1
            for kind in ("", *trial.kinds):
                self.verdicts[kind, trial.verdict] += 1
            for sentence in trial.broken:
                self.broken[sentence.split()[0]] += 1
                self.failures.append((trial.seed, sentence))
            if not trial.cramped:
                self._count(trial)

    def _count(self, trial: Trial) -> None:
        self.probes[trial.meter.probes] += 1
        self.by_length.setdefault(ceil(log2(max(1, trial.length))), Counter())[trial.meter.searching] += 1
        if trial.ordinary:
            self.ordinary[trial.meter.probes] += 1
        if trial.meter.searching > trial.limit:
            self.over_limit[trial.seed] += 1

    def merge(self, other: Tally) -> None:
        self.trials += other.trials
        for mine, theirs in (
            (self.verdicts, other.verdicts),
            (self.probes, other.probes),
            (self.ordinary, other.ordinary),
            (self.over_limit, other.over_limit),
            (self.broken, other.broken),
        ):
            mine.update(theirs)  # type: ignore[arg-type]
        for length, counts in other.by_length.items():
            self.by_length.setdefault(length, Counter()).update(counts)
        self.failures = (self.failures + other.failures)[:MOST_FAILURES]

    @property
    def is_clean(self) -> bool:
        return not self.broken and not self.over_limit

    def text(self) -> str:
        """The report."""
        lines = [
            f"partitions searched  {self.trials:,}",
            f"skipped a record     {self.broken['skips']:,}",
            f"broke a bound        {self.broken['replays']:,}",
            f"other broken words   {self.broken.total() - self.broken['skips'] - self.broken['replays']:,}",
            "",
            *self._table(),
            "",
            *self._costs(),
        ]
        lines += [f"seed {seed}: {sentence}" for seed, sentence in sorted(self.failures)]
        return "\n".join(lines)

    def _table(self) -> list[str]:
        kinds = sorted({kind for kind, _ in self.verdicts})
        seen = [verdict for verdict in COLUMNS if self.verdicts["", verdict] or verdict == Verdict.UNRESOLVED.value]
        lines = [f"{'share of verdicts by kind of log, %':36}{'partitions':>11}" + "".join(f"{v:>11}" for v in seen)]
        for kind in kinds:
            total = sum(count for (name, _), count in self.verdicts.items() if name == kind)
            shares = "".join(f"{100 * self.verdicts[kind, verdict] / total:11.1f}" for verdict in seen)
            lines.append(f"{kind or 'all':36}{total:11,}{shares}")
        return lines

    def _costs(self) -> list[str]:
        def summary(name: str, counts: Counter[int]) -> str:
            figures = [at_share(counts, share) for share in (0.5, 0.99)]
            return f"{name:36}{counts.total():11,}{figures[0]:9}{figures[1]:9}{max(counts, default=0):9}"

        lines = [f"{'probes a partition':36}{'partitions':>11}{'median':>9}{'p99':>9}{'max':>9}"]
        lines += [summary("mirrored, in order, all known", self.ordinary), summary("all", self.probes)]
        lines += [
            f"{'outside of scans, by length n':36}{'partitions':>11}{'median':>9}{'p99':>9}{'max':>9}   2·log2(n)+4"
        ]
        for length, counts in sorted(self.by_length.items()):
            lines.append(f"{summary(f'n <= {2**length}', counts)}{2 * length + 4:14}")
        lines.append(f"over 2·log2(n) + 4, n >= 64: {self.over_limit.total()} {sorted(self.over_limit)[:5] or ''}")
        return lines
