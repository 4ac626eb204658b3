"""Lives of a job that stores its own offsets, over several moves there and back, in memory.

The job and its operators do what the documents allow: batches that are killed between the sink and the store, moves by
``move`` and the hook, or by plan and apply, all with one configuration; moves that are cancelled; commands that are
killed at any write, and run again; plans that are rolled back, and made again; starts in between. Each start is judged:
no record that the job has not processed may lie in front of it, and no more may be read again than was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from reconciler.core.verdicts import Verdict
from reconciler.places import memory
from reconciler.plan.document import Plan, StartPolicy, parse_plan
from reconciler.plan.start import why_stopped
from reconciler.ports import OffsetStore, Row, TopicPartition
from reconciler.state.locations import Phase
from reconciler.state.start import START_VARIABLE, load
from tests.lives.clusters import OTHER
from tests.lives.interrupted import killed_at
from tests.lives.living import Living, Offsets
from tests.lives.queries.commands import Ended, in_memory, run
from tests.places.bare_memory import Killed

POLICY = StartPolicy()


class Stopped(Exception):
    """The product has said that it does not know, and why: the life ends."""


class Life(Living):
    """A life by its seed; ``story`` tells it."""

    def do(self, *words: object) -> Ended:
        """``reconciler WORDS``, with the life's one configuration."""

        def open_numbers(_: str, kafka_client: Mapping[str, str] | None = None) -> OffsetStore:
            return self.store.numbers()

        with (
            in_memory(self.clusters.logs, lambda: self.clusters.now_ms, self.folder),
            mock.patch.object(memory, "open_address", open_numbers),
        ):
            ended = run(*words, "-c", self.config)
        self.say(f"{' '.join(map(str, words))}: {ended.code}")
        assert ended.code != 1, self.story(ended.text)
        return ended

    def track(self) -> None:
        if not self.bare or (self.clusters.is_down and self.side == self.clusters.active):
            return
        ended = self.do("track", "--once")
        assert ended.code in (0, 4), self.story(ended.text)

    # ------------------------------------------------------------ starts

    def hook(self, *words: str) -> Ended:
        self.clusters.now_ms += 1  # two starts of one process have no plan of the same millisecond
        return self.do("hook", "--job", "q", "--plans", self.folder / "plans", *words)

    def kept_plans(self) -> list[Path]:
        """The plans that hooks have kept, oldest first."""
        return sorted((self.folder / "plans").glob("*.plan.json"))

    def newest_plan(self) -> Plan:
        return parse_plan(self.kept_plans()[-1].read_text())

    def to_accept(self, ended: Ended, plan: Plan) -> list[str]:
        """What a person accepts when a command has stopped: what is lost. For anything else the life ends."""
        stops = [row for row in plan.job().partitions if why_stopped(row, POLICY)]
        self.say(f"stops: {[(row.partition, row.finding.value, row.detail) for row in stops]}")
        assert stops, self.story(f"stopped without a reason\n{ended.text}")
        for row in stops:
            assert row.detail, self.story(f"stopped without a reason\n{ended.text}")
            assert row.finding is Verdict.LOST or row.no_rows or row.finding is Verdict.UNRESOLVED, self.story("?")
            self.tally[row.finding.value] += 1
        if any(row.finding is Verdict.UNRESOLVED for row in stops):
            raise Stopped
        return [word for verdict in {row.finding for row in stops} for word in ("--accept", verdict.value)]

    def started(self, ended: Ended) -> Offsets:
        """Where the hook starts the job."""
        assert ended.code == 0, self.story(ended.text)
        path = Path(ended.variables[START_VARIABLE])
        start = load(path.read_text(), str(path))
        assert set(start.topics) <= {self.topics[self.side]}, self.story(f"{start} is not for {self.side}")
        handed = {key.partition: at for key, at in start.offsets.items() if key.topic == self.topics[self.side]}
        logs = {number: self.clusters.at(self.side, number) for number in self.numbers}
        return {number: log.start if handed.get(number, -2) < 0 else handed[number] for number, log in logs.items()}

    def start_again(self) -> None:
        """A start where the job lives, at what it has stored. It changes only a number that may be another stay's."""
        if self.clusters.is_down and self.clusters.active == self.side:
            return
        before, ended, accepted = self.store.rows(), self.hook(), False
        location = self.state.location()
        if ended.code == 4 and location is not None and location.plan is None:
            assert not before, self.story(ended.text)  # nothing says that the job is new
            ended = self.hook("--accept", "new")
        elif ended.code == 4:
            accepted, ended = True, self.hook(*self.to_accept(ended, self.newest_plan()))
        handed = self.started(ended)
        now = {key: row.stored.offset for key, row in self.store.rows().items()}
        if now != {key: row.stored.offset for key, row in before.items()}:
            assert accepted or self.bare, self.story("changed")
            self.judge(handed, {row.partition: row for row in self.newest_plan().job().partitions}, self.side)
            self.last = None
            self.position, self.begun = handed, None
        else:
            self.judge(handed)
        if self.draw.random() < 0.5:
            self.position, self.begun = handed, None
        self.begin()

    # ------------------------------------------------------------ moves

    def move(self) -> None:
        """A move there or back, planned or not, by the hook or by plan and apply; or one that is taken back."""
        destination = OTHER[self.side]
        if self.clusters.is_down:
            self.clusters.come_back()
        planned = self.draw.random() < 0.5 or self.side != self.clusters.active
        if planned and (not self.clusters.stays or self.draw.random() < 0.8):
            self.mirror(whole=True)
        if self.bare and planned and self.draw.random() < 0.85:
            self.track()
        by = self.draw.choice([self.by_hook, self.by_operator])
        self.say(f"{by.__name__} to {destination}, {'planned' if planned else 'lost'}")
        plan = by(destination)
        if plan is None:
            return
        self.tally.update(row.finding.value for row in plan.job().partitions)
        left, self.side = self.side, destination
        self.last = self.store.rows()
        self.judge_move(plan, left)
        self.begin()
        self.clusters.follow(destination, is_lost=not planned)

    def judge_move(self, plan: Plan, left: str) -> None:
        location = self.state.location()
        assert location is not None
        assert (location.phase, location.cluster) == (Phase.LIVES, self.side), self.story(str(location))
        before, ended = self.store.rows(), self.hook()
        if ended.code == 4:
            ended = self.hook(*self.to_accept(ended, self.newest_plan()))
        handed = self.started(ended)
        assert self.store.rows() == before, self.story("the start after the move has changed rows")
        self.judge(handed, {row.partition: row for row in plan.job().partitions}, left)
        self.position, self.begun = handed, None

    def by_hook(self, destination: str) -> Plan | None:
        moved = self.do("move", "--to", destination, "--yes")
        if moved.code == 4:  # what must not start there needs a plan by hand
            return self.by_operator(destination)
        assert moved.code == 0, self.story(moved.text)
        if self.draw.random() < 0.2:
            cancelled = self.do("move", "--cancel")
            assert cancelled.code == 0, self.story(cancelled.text)
            self.tally["cancelled"] += 1
            return None
        before = set(self.kept_plans())
        for number in self.attempts():
            if number and self.draw.random() < 0.2 and self.is_cancelled():
                return None
            with self.perhaps_killed():
                ended = self.hook()
                assert ended.code == 0, self.story(ended.text)
                break
        first = next(path for path in self.kept_plans() if path not in before)  # it has shown what is read again
        return parse_plan(first.read_text())

    def is_cancelled(self) -> bool:
        """A move whose hook was killed is taken back: what was written is put back. False if it had ended."""
        here = self.state.location()
        assert here is not None
        if here.phase is Phase.LIVES:
            return False
        self.tally[f"cancelled while {here.phase.value}"] += 1
        for _ in self.attempts():
            with self.perhaps_killed():
                ended = self.do("move", "--cancel")
                assert ended.code == 0, self.story(ended.text)
                break
        here = self.state.location()
        assert here is not None
        assert (here.phase, here.cluster) == (Phase.LIVES, self.side), self.story(str(here))
        return True

    def by_operator(self, destination: str) -> Plan | None:
        before = self.store.rows()
        path = self.planned(destination)
        plan = parse_plan(path.read_text())
        self.applied(path)
        if self.draw.random() < 0.3:
            self.rolled_back()
            assert self._same(before), self.story(f"rolled back to {self.store.rows()}, not to {before}")
            location = self.state.location()
            assert location is not None
            assert (location.phase, location.cluster) == (Phase.LIVES, self.side), self.story(str(location))
            self.tally["rolled back"] += 1
            if self.draw.random() < 0.3:
                return None
            path = self.planned(destination)
            self.applied(path)
        return plan

    def _same(self, before: dict[TopicPartition, Row]) -> bool:
        """Of the side where the job is; without partitions of which nothing was processed.

        Under one name a bare number that is not recorded may be another cluster's: it is read as the last recorded
        one, which is what a rollback gives back.
        """
        places = set(self.clusters.keys(self.side))
        then, now = (
            {key: row.stored.offset for key, row in rows.items() if key in places and row.stored.offset}
            for rows in (before, self.store.rows())
        )
        if self.bare and self.one_name:
            return all(offset <= then.get(key, -1) for key, offset in now.items())
        return now == then

    def planned(self, destination: str) -> Path:
        """A plan, made twice. A person accepts what is lost."""
        words: list[str] = []
        for _ in range(2):
            self.plans += 1
            path, again = self.folder / f"{self.plans}.plan.json", self.folder / f"{self.plans}.again.json"
            ended, _ = (self.do("plan", "--to", destination, "-o", each, *words) for each in (path, again))
            assert ended.code in (0, 4), self.story(ended.text)
            assert path.read_text() == again.read_text(), self.story("two plans of the same inputs")
            if ended.code == 0:
                return path
            words = self.to_accept(ended, parse_plan(path.read_text()))
        raise AssertionError(self.story("what was accepted still stops the job"))

    def applied(self, path: Path) -> None:
        for _ in self.attempts():
            with self.perhaps_killed():
                ended = self.do("apply", path, "--yes")
                assert ended.code == 0, self.story(ended.text)
                return

    def rolled_back(self) -> None:
        for _ in self.attempts():
            with self.perhaps_killed():
                ended = self.do("rollback", "--job", "q", "--yes", "--accept", "skips")
                assert ended.code == 0, self.story(ended.text)
                return

    def roll_back_late(self) -> None:
        """A rollback once the job has stored batches: it is refused, or has nothing to give back."""
        before = self.store.rows()
        if self.last is None:
            return
        now, then = ({key: row.stored for key, row in rows.items()} for rows in (before, self.last))
        if all(now.get(key) == then.get(key) for key in self.clusters.keys(self.side)):
            return  # it has stored nothing since
        ended = self.do("rollback", "--job", "q", "--yes", "--accept", "skips")
        assert ended.code == 4 or "nothing to give back" in ended.out, self.story(ended.text)
        assert self.store.rows() == before, self.story("a late rollback has changed rows")
        self.tally["late rollbacks"] += 1

    def attempts(self) -> Iterator[int]:
        """Numbers of attempts, of which the last is not killed."""
        deaths = self.draw.choice([0, 0, 1, 1, 2, 3])
        for number in range(deaths + 1):
            self.step = self.draw.randrange(1, 18) if number < deaths else 10**9
            self.clusters.now_ms += self.draw.choice([1, 10, 1_000])
            yield number

    @contextmanager
    def perhaps_killed(self) -> Iterator[None]:
        try:
            with killed_at(self.step, after=self.draw.random() < 0.5):
                yield
        except Killed:
            self.say(f"killed at step {self.step}")

    # ------------------------------------------------------------ a life

    def live(self) -> None:
        acts: dict[Callable[[], None], float] = {
            self.clusters.produce: 4,
            self.mirror: 4,
            self.run: 4,
            self.track: self.draw.choice([0.5, 3, 5]) if self.bare else 0,
            self.clusters.restart_mirror: 0.4,
            self.retain: 0.5,
            self.start_again: 0.7,
            self.roll_back_late: 0.5,
            self.clusters.come_back: 0.5,
        }
        try:
            self.start_again()
            for _ in range(self.draw.randrange(2, 6)):
                for act in self.draw.choices([*acts], [*acts.values()], k=self.draw.randrange(3, 16)):
                    self.clusters.now_ms += 1_000
                    act()
                    self.say(act.__name__, stored=act == self.run)
                self.clusters.now_ms += 1_000
                self.move()
        except Stopped:
            self.tally["stopped"] += 1
