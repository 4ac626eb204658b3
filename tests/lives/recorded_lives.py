"""Lives of a job that stores its own offsets, over several failovers and back, in memory.

The job and its operators do what the documents allow: batches that are killed between the sink and the store, moves by
a mark and the hook, or by plan and apply; commands that are killed at any write, and run again; plans that are rolled
back, and made again; starts in between, with either configuration. Each start is judged: no record that the job has
not processed may lie in front of it, and no more may be read again than was shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from reconciler.config.file import Config
from reconciler.core.errors import Changed, ConfigError, NeedsPerson
from reconciler.core.verdicts import Verdict
from reconciler.failover.check import Checked, check
from reconciler.failover.outside import ByHand
from reconciler.failover.writing.apply import prepare, refuse, write
from reconciler.failover.writing.rollback import prepare_rollback, write_rollback
from reconciler.formats.plan import Plan, parse_plan, why_stopped
from reconciler.formats.start import JobStart, Side, parse_start
from reconciler.hook.marks import Mark, Marks
from reconciler.hook.side import Chosen, choose
from reconciler.hook.start import Start
from reconciler.ports import Row, TopicPartition
from reconciler.spark.handoff.options import START_VARIABLE
from reconciler.tracking.track import SourceSide, Tracker
from tests.lives.clusters import OTHER
from tests.lives.interrupted import killed_at
from tests.lives.living import Living, Offsets
from tests.stores.paired.bare import Killed

MARK = Mark("2026-01-31T06:00:00Z", "me@here")


class Stopped(Exception):
    """The product has said that it does not know, and why: the life ends."""


class Life(Living):
    """A life by its seed; ``story`` tells it."""

    def track(self) -> None:
        if not self.bare or (self.clusters.is_down and self.side == self.clusters.produces):
            return
        config = self.config(OTHER[self.side])
        log = self.clusters.logs[self.side]
        here = SourceSide(log, self.store.numbers, self.store.open_anchors, lambda: 0.0, lambda: self.clusters.now_ms)
        tracker = Tracker(config, config.jobs, here)
        troubles = tracker.round().troubles
        assert not troubles, self.story(str(troubles))
        tracker.close()

    # ------------------------------------------------------------ starts

    def hook(self, destination: str) -> Start:
        config, plans = self.config(destination), self.folder / f"plans-{destination}"
        path = self.folder / f"to-{destination}.toml"
        return Start.of(config, config.jobs[0], plans=plans, clone_to=None, config_file=path)

    def chosen(self, destination: str) -> Chosen:
        start = self.hook(destination)
        mark = Marks(start.config).of("q")
        return choose(start.config, start.job, self.outside(destination), word=None, mark=mark)

    def checked(self, config: Config, destination: str) -> tuple[Checked, ByHand]:
        """A check, made twice. A person accepts what is lost; for anything else that stops the job the life ends."""
        outside, by_hand = self.outside(destination), ByHand()
        for _ in range(2):
            found, again = (check(config, config.jobs, outside, by_hand) for _ in range(2))
            assert found.plan.to_text() == again.plan.to_text(), self.story("two plans of the same inputs")
            assert parse_plan(found.plan.to_text()) == found.plan
            stops = [row for row in found.plan.job().partitions if why_stopped(row, config.policy.start)]
            assert len(stops) == len(found.stopped(config.policy.start))
            if not stops:
                return found, by_hand
            self.say(f"stops: {[(row.partition, row.verdict.value, row.detail) for row in stops]}")
            for row in stops:
                assert row.detail, self.story("stopped without a reason")
                assert row.verdict is Verdict.LOST or row.no_rows or row.verdict is Verdict.UNRESOLVED, self.story("?")
                self.tally[row.verdict.value] += 1
            if any(row.verdict is Verdict.UNRESOLVED for row in stops):
                raise Stopped
            by_hand = ByHand(accepted=frozenset({row.verdict for row in stops}))
        raise AssertionError(self.story("what was accepted still stops the job"))

    def starts(self, destination: str) -> Offsets:
        """A start by the configuration that leads to ``destination``: where it begins. It must change nothing."""
        before, accepted = self.store.rows(), False
        start, chosen = self.hook(destination), self.chosen(destination)
        expected = Side.DESTINATION if destination == self.side else Side.SOURCE
        assert chosen.side is expected, self.story(f"{chosen}, and the job lives at {self.side}")
        if chosen.side is Side.SOURCE:
            names = start.at_source(chosen, self.outside(destination), may_be_new=True)
        else:
            checked, by_hand = self.checked(start.config, destination)
            accepted = bool(by_hand.accepted) or (self.one_name and self.traceless)
            assert accepted or not checked.to_write, self.story(
                f"to write: {checked.to_write} {checked.plan.to_text()}"
            )
            assert by_hand.accepted or checked.right == len(checked.to_write), self.story("an offset has changed")
            names = start.correct(checked, self.outside(destination), lambda plan: None)
        assert accepted or self.store.rows() == before, self.story("a start has changed rows")
        if self.traceless and self.store.rows():
            self._see_trace()
        return self.offsets(names)

    def offsets(self, names: dict[str, str]) -> Offsets:
        path = Path(names[START_VARIABLE])
        start: JobStart = parse_start(path.read_text(), str(path))
        handed = {int(number): at for number, at in start.offsets.get(self.topics[self.side], {}).items()}
        logs = {number: self.clusters.at(self.side, number) for number in self.numbers}
        return {number: log.start if handed.get(number, -2) < 0 else handed[number] for number, log in logs.items()}

    def start_again(self) -> None:
        """Either configuration must start the job where it lives, at what it has stored."""
        destination = self.draw.choice("ab")
        if self.clusters.is_down and self.clusters.produces in (destination, self.side):
            return
        if self.traceless and destination != self.told_by:
            return
        try:
            handed = self.starts(destination)
        except NeedsPerson as error:
            self.say(f"needs a person: {error.message} {error.hint}")
            raise Stopped from error
        self.judge(handed)
        if self.draw.random() < 0.5:
            self.position, self.begun = handed, None
        self.begin()

    # ------------------------------------------------------------ moves

    def move(self) -> None:
        """A failover or failback, planned or not, by the hook or by plan and apply."""
        destination = OTHER[self.side]
        if self.clusters.is_down:
            self.clusters.come_back()
        planned = self.draw.random() < 0.5 or self.side != self.clusters.produces
        if planned and (not self.clusters.habits.stays or self.draw.random() < 0.8):
            self.mirror(everything=True)
        if self.bare and planned and self.draw.random() < 0.85:
            self.track()
        config, here = self.config(destination), self.clusters.logs[destination].cluster_id
        self.still = {key.partition for key, row in self.store.rows().items() if row.stored.cluster_id == here}
        self.still = self.still if self.one_name and not self.bare else set()
        self._end_failovers()
        marked = self.draw.random() < 0.5
        if marked:
            Marks(config).set("q", MARK)
        by = self.draw.choice([self.by_hook, self.by_hook, self.by_operator]) if marked else self.by_operator
        self.say(f"{by.__name__} to {destination}, {'planned' if planned else 'lost'}")
        plan, wrote = by(destination)
        if plan is None:  # it was rolled back
            self._end_failovers()
            if self.traceless and self.told_by == self.side:
                Marks(self.config(self.side)).set("q", MARK)
            return
        rows = {row.partition: row for row in plan.job().partitions}
        self.tally.update(row.verdict.value for row in rows.values())
        left, self.side = self.side, destination
        self.traceless, self.told_by = not wrote, destination
        if not wrote:
            Marks(config).set("q", MARK)
            assert self.one_name or not self.store.rows(), self.story("nothing was written")
        elif marked and self.draw.random() < 0.5:
            Marks(config).remove("q")  # it is lost
        handed = self.starts(destination)
        self.judge(handed, rows, left)
        self.position, self.begun = handed, None
        self.begin()
        if wrote:
            self._see_trace()
        if self.bare and not self.store.dated and not self.one_name:
            self.store.forget(self.topics[left])
        self.clusters.follow(destination, is_lost=not planned)

    def by_hook(self, destination: str) -> tuple[Plan | None, bool]:
        first: Plan | None = None
        wrote = False
        for _ in self.attempts():
            with self.perhaps_killed():
                start = self.hook(destination)
                assert self.chosen(destination).side is Side.DESTINATION
                checked, _ = self.checked(start.config, destination)
                first, wrote = first or checked.plan, wrote or bool(checked.to_write)
                start.correct(checked, self.outside(destination), lambda plan: None)
                return first, wrote
        raise AssertionError

    def by_operator(self, destination: str) -> tuple[Plan | None, bool]:
        before = self.store.rows()
        plan, path, wrote = self.planned(destination)
        try:
            self.applied(plan, path, destination)
        except Changed as error:
            # A bare number that counts the same record on both sides reads as before: then a new plan is needed.
            if not (self.bare and self.one_name):
                raise AssertionError(self.story("the plan cannot be applied again")) from error
            # What the first one has shown counts: from now on its correction is taken for the job's own offset.
            before = self.store.rows()
            again, path, wrote = self.planned(destination)
            self.applied(again, path, destination)
        config = self.config(destination)
        if self.draw.random() < 0.3:
            self.rolled_back(plan, path, destination)
            self.say("rolled back")
            assert self._same(before), self.story(f"rolled back to {self.store.rows()}, not to {before}")
            if self.draw.random() < 0.3:
                return None, False
            if self.draw.random() < 0.5:
                plan, path, wrote = self.planned(destination)
            self.applied(plan, path, destination)
        checked = check(config, config.jobs, self.outside(destination))
        assert not checked.to_write, self.story(f"to write after apply: {checked.plan.to_text()}")
        self.last = (plan, path, destination, self.store.rows())
        return plan, wrote

    def _same(self, before: dict[TopicPartition, Row]) -> bool:
        now = self.store.rows()
        timeless = partial(replace, written_at_ms=None) if self.bare else (lambda stored: stored)
        told = [{key: timeless(row.stored) for key, row in rows.items()} for rows in (before, now)]
        return told[0] == told[1]

    def planned(self, destination: str) -> tuple[Plan, Path, bool]:
        config = self.config(destination)
        checked, _ = self.checked(config, destination)
        self.plans += 1
        path = self.folder / f"{self.plans}.plan.json"
        path.write_text(checked.plan.to_text())
        return parse_plan(path.read_text()), path, bool(checked.to_write)

    def applied(self, plan: Plan, path: Path, destination: str) -> None:
        config, outside = self.config(destination), self.outside(destination)
        for _ in self.attempts():
            with self.perhaps_killed():
                changes = prepare(plan, config, outside)
                for change in changes:
                    refuse(change)
                write(changes, plan, path, outside)
                return

    def rolled_back(self, plan: Plan, path: Path, destination: str) -> None:
        config, outside = self.config(destination), self.outside(destination)
        if not path.with_name(f"{path.name}.applied.json").exists():
            return
        for _ in self.attempts():
            with self.perhaps_killed():
                jobs = prepare_rollback(plan, path, config, outside)
                write_rollback(jobs, plan, path, config, outside)
                return

    def roll_back_late(self) -> None:
        """A rollback once the job has stored batches: it is refused, or has nothing to put back."""
        before = self.store.rows()
        if self.last is None or self.last[2] != self.side:
            return
        plan, path, destination, left = self.last
        now, then = ({key: row.stored for key, row in rows.items()} for rows in (before, left))
        if all(now.get(key) == then.get(key) for key in self.clusters.places(self.side)):
            return  # a move away that was rolled back puts the very rows back, too
        config, outside = self.config(destination), self.outside(destination)
        try:
            jobs = prepare_rollback(plan, path, config, outside)
        except (Changed, ConfigError):
            pass
        else:
            assert not any(job.returns for job in jobs), self.story(f"would be put back: {jobs}")
        assert self.store.rows() == before, self.story("a late rollback has changed rows")
        self.tally["late rollbacks"] += 1

    def attempts(self) -> Iterator[int]:
        """Numbers of attempts, of which the last is not killed."""
        deaths = self.draw.choice([0, 0, 1, 1, 2, 3])
        for number in range(deaths + 1):
            self.step = self.draw.randrange(1, 14) if number < deaths else 10**9
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
            for _ in range(self.draw.randrange(2, 6)):
                for act in self.draw.choices([*acts], [*acts.values()], k=self.draw.randrange(3, 16)):
                    self.clusters.now_ms += 1_000
                    act()
                    self.say(act.__name__, stored=act == self.run)
                self.clusters.now_ms += 1_000
                self.move()
        except Stopped:
            self.tally["stopped"] += 1
