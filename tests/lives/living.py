"""What a life of a job that stores its own offsets consists of: the job, its clusters and store, and the oracle."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.core.verdicts import Verdict
from reconciler.plan.document import PartitionPlan
from reconciler.ports import Row, TopicPartition
from reconciler.state.jobs import JobState
from reconciler.state.store import open_state
from tests.lives.clusters import OTHER, Clusters, Habits, number_of
from tests.lives.recorded_job import GROUP, Stay, Store
from tests.memory_log import MemoryPartition

IDENTITIES = (
    {},
    {"id": "header:n"},
    {"id": "header:n", "unique_ids": "true"},
    {"id": "header:n", "id_order": "increasing"},
    {"timestamp": "json:$.t"},
    {"timestamp": "json:$.t", "id": "header:n"},
)
Offsets = dict[int, int]


@dataclass
class OfOneTopic(Clusters):
    """``stays``: the producers stay at ``a``, whose cluster comes back after a loss; else they follow the job."""

    stays: bool = False
    is_down: bool = False
    """The cluster that the mirror reads is away."""

    @property
    def partitions(self) -> range:
        return range(self.counts("a")[0])

    def at(self, side: str, partition: int) -> MemoryPartition:
        return self.log(side, (0, partition))

    def keys(self, side: str) -> list[TopicPartition]:
        return [TopicPartition(self.names[side][0], number) for number in self.partitions]

    def numbers(self, side: str, partition: int, start: int, end: int) -> Iterator[int]:
        """The numbers of the records that are between two offsets, copy by copy."""
        return (number_of(each) for each in self.at(side, partition).records if start <= each.offset < end)

    def ends(self) -> str:
        sides = {side: [self.at(side, number) for number in self.partitions] for side in OTHER}
        return " ".join(f"{side}{[f'{log.start}-{log.end}' for log in logs]}" for side, logs in sides.items())

    def produce(self) -> None:
        if not self.is_down:
            self._roll(self.active)
            super().produce()

    def mirror(self, *, whole: bool = False) -> None:
        if not self.is_down:
            self._roll(OTHER[self.active])
            super().mirror(whole=whole)

    def _roll(self, side: str) -> None:
        if self.draw.random() < 0.2:
            self.at(side, self.draw.choice(self.partitions)).roll()

    def follow(self, side: str, *, is_lost: bool) -> None:
        """The job has moved to ``side``. Producers follow, and the mirror turns round; or the lost cluster is away."""
        if self.stays:
            self.is_down = is_lost
            return
        self.active = side
        if is_lost:
            self.build(OTHER[side], self.counts(side))
        self.mirrored = {(0, n): 0 if is_lost else self.at(side, n).end for n in self.partitions}

    def come_back(self) -> None:
        self.is_down = False


@dataclass
class Living:
    """``topics``: the topic's name at each cluster. ``events`` is the story so far, for a message."""

    folder: Path
    draw: random.Random
    topics: dict[str, str]
    bare: bool = False
    side: str = "a"
    position: Offsets = field(default_factory=dict)
    begun: Offsets | None = None
    """The ends of a batch that is planned, and not committed."""
    processed: set[int] = field(default_factory=set)
    """Numbers of the records that have been in the sink."""
    given_up: set[int] = field(default_factory=set)
    """Records that were gone when a person accepted that."""
    covered: dict[int, set[int]] = field(default_factory=dict)
    """By partition, the records of whose processing the stored offsets tell."""
    last: dict[TopicPartition, Row] | None = None
    """The rows after the last move."""
    plans: int = 0
    events: list[str] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.identity = self.draw.choice(IDENTITIES)
        self.clusters = self._two_clusters()
        self.store = Store.of(self.folder, self.draw, bare=self.bare)
        self.position = dict.fromkeys(self.numbers, 0)
        self.covered = {number: set() for number in self.numbers}
        self.store.create()
        self._configure()
        self.events.append(f"{self.topics} {self.identity} {self.clusters.habits} {self.store}")
        self.begin()

    def _two_clusters(self) -> OfOneTopic:
        habits = Habits(
            disorder_ms=self.draw.choice([0, 0, 2_000, 20_000]),
            alike=self.draw.choice([0.0, 0.3]) if "timestamp" not in self.identity else 0.0,
            marks_ends=self.draw.random() < 0.3,
        )
        names = {side: [name] for side, name in self.topics.items()}
        return OfOneTopic(self.draw, names, habits, stays=self.draw.random() < 0.4)

    @property
    def numbers(self) -> range:
        return self.clusters.partitions

    @property
    def one_name(self) -> bool:
        return self.topics["a"] == self.topics["b"]

    # ------------------------------------------------------------ the job

    def begin(self) -> None:
        """A new process of the job, where it lives."""
        known = {name: text for name, text in self.identity.items() if name in ("id", "timestamp")}
        log, topic = self.clusters.logs[self.side], self.topics[self.side]
        self.stay = Stay(self.store, log, topic, known, lambda: self.clusters.now_ms)

    def run(self) -> None:
        """One batch, which may be killed before it has stored its offsets, or before Spark has committed it."""
        if self.clusters.is_down and self.side == self.clusters.active:
            return
        ends = self.begun or {number: self._some_end(number) for number in self.numbers}
        death = self.draw.choices(["", "sink", "store"], [8, 1, 1])[0]
        starts, read = dict(self.position), self._read(ends)
        for new in read.values():
            self.processed |= new
        self.begun = ends
        if death == "sink":
            self.begin()
            self.say("killed behind the sink")
            return
        self.stay.keep(starts, ends)
        for number, new in read.items():
            self.covered[number] |= new
        if death == "store":
            self.begin()
            self.say("killed behind the store")
            return
        self.begun, self.position = None, ends

    def _some_end(self, number: int) -> int:
        end, here = self.clusters.at(self.side, number).end, self.position[number]
        return max(here, min(end, here + self.draw.randrange(0, 9)))

    def _read(self, ends: Offsets) -> dict[int, set[int]]:
        return {n: set(self.clusters.numbers(self.side, n, self.position[n], end)) for n, end in ends.items()}

    # ------------------------------------------------------------ the clusters

    def mirror(self, *, whole: bool = False) -> None:
        """A record that is delivered where the job lives, behind its place, is read again there: nothing can tell."""
        before = {number: self.clusters.at(self.side, number).end for number in self.numbers}
        self.clusters.mirror(whole=whole)
        for number, end in before.items():
            new = set(self.clusters.numbers(self.side, number, end, 2**62))
            self.covered[number] -= new - self._in_front(self.side, number, self.position[number])

    def retain(self) -> None:
        """Retention at either cluster; where the job lives it does not overtake the job."""
        side, number = self.draw.choice("ab"), self.draw.choice(self.numbers)
        log, limit = self.clusters.at(side, number), 2**62
        if side == self.side:
            row = self.store.rows().get(TopicPartition(self.topics[side], number))
            limit = min(self.position[number], row.stored.offset if row else 0)
        log.delete_before(min(limit, self.draw.randint(log.start, log.end)))
        if self.draw.random() < 0.7:
            log.retire()

    def _in_front(self, side: str, number: int, offset: int) -> set[int]:
        return set(self.clusters.numbers(side, number, 0, offset))

    # ------------------------------------------------------------ the product

    @property
    def config(self) -> Path:
        """The one configuration of the whole life, for both directions."""
        return self.folder / "reconciler.toml"

    def _configure(self) -> None:
        names = f'[topics.names.b]\n"{self.topics["a"]}@a" = "{self.topics["b"]}"\n'
        topics = '[topics]\npolicy = "identity"\n' if self.one_name else names
        given = {"id_order": '"increasing"', "unique_ids": "true"}
        identity = "".join(f"{name} = {given.get(name, repr(text))}\n" for name, text in self.identity.items())
        self.config.write_text(
            f'[clusters.a]\nbootstrap_servers = "a:1"\n[clusters.b]\nbootstrap_servers = "b:1"\n{topics}'
            f'[search]\nmax_disorder = "{self.clusters.habits.disorder_ms // 1000}s"\n'
            f'[state]\nstore = "memory:{self.folder}"\n'
            f'[[jobs]]\nname = "q"\nhome = "a"\ngroup = "{GROUP}"\n'
            f'topics = ["{self.topics["a"]}"]\noffsets = "{self.store.address}"\n[jobs.identity]\n{identity}'
        )
        state = open_state(f"memory:{self.folder}")
        state.create()
        self.state = JobState(state, "q")

    # ------------------------------------------------------------ the oracle

    def judge(self, handed: Offsets, rows: dict[int, PartitionPlan] | None = None, left: str = "") -> None:
        """The start at ``handed``, where the job lives now; after a move ``rows`` are the plan's, by partition."""
        self.say(f"starts at {self.side} at {handed}", stored=True)
        for number, offset in handed.items():
            log = self.clusters.at(self.side, number)
            assert offset >= log.start or rows is None, self.story("in front of the log")
            front, behind = (
                self._in_front(self.side, number, offset),
                list(self.clusters.numbers(self.side, number, offset, 2**62)),
            )
            not_lost = {*behind} if {"unique_ids", "id_order"} & {*self.identity} else set()
            skipped = front - self.processed - self.given_up - not_lost
            assert not skipped, self.story(f"skipped in partition {number}: {sorted(skipped)}")
            if rows is not None:
                self._judge_row(number, rows[number], left, front, behind)
            here = {*front, *behind}
            apart = self.covered[number] - here if not self.one_name else set()
            if rows is not None:
                self.covered[number] = (self.covered[number] & front) | apart

    def _judge_row(self, number: int, row: PartitionPlan, left: str, front: set[int], behind: list[int]) -> None:
        again = [each for each in behind if each in self.covered[number]]
        shown = row.replay_at_most or 0
        if len(again) > shown and not self._was_in_resent(number, left):
            raise AssertionError(self.story(f"partition {number}: {shown} shown, and read again: {again}\n{row}"))
        if row.finding in (Verdict.LOST, Verdict.NEW):
            everything = set(range(self.clusters.produced))
            self.given_up |= everything - self.processed - {*behind}

    def _was_in_resent(self, number: int, left: str) -> bool:
        """Whether the job left its log within records that had been sent there again: numbers go back there."""
        read = list(self.clusters.numbers(left, number, 0, self.position[number]))
        return bool(read) and max(self.covered[number] | {*read}) > read[-1]

    # ------------------------------------------------------------ the story

    def say(self, event: str, *, stored: bool = False) -> None:
        log = self.clusters
        down = " (down)" if log.is_down else ""
        place = f"{self.side} {event}: at {[*self.position.values()]}, {log.ends()}"
        self.events.append(f"{place}, mirrored {[*log.mirrored.values()]}{down}{self._rows() if stored else ''}")

    def _rows(self) -> str:
        rows = {str(key): (row.stored.offset, row.stored.cluster_id) for key, row in self.store.rows().items()}
        return f", stored {rows}"

    def story(self, end: str) -> str:
        return "\n".join([*self.events, end])
