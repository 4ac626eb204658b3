"""The story of a soak: records, faults, a move, the hooks, and the count, move after move."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.plan.document import parse_plan
from reconciler.state.start import PLAN_VARIABLE
from tests.soak.choices import Fault, Loss, Move
from tests.soak.estate import OTHER, Estate, SoakFailed
from tests.soak.jobs import ALL, GROUP, IN_SPARK, Jobs

DRAINED_S = 180.0
USUAL_MOVE_S, USUAL_HOOK_S = 2.0, 3.0


@dataclass
class Soak:
    estate: Estate
    jobs: Jobs
    seen: dict[str, int] = field(default_factory=lambda: dict.fromkeys(ALL, 0))
    """By job, how many records it had processed more than once at the last count."""

    shown: dict[str, int] = field(default_factory=dict)
    """By job, how many records its last plan says come again at most."""

    def begin(self) -> None:
        """Both clusters, the mirrors, the state store, and all jobs at home."""
        self.estate.start()
        self.jobs.prepare()
        self.estate.configure(self.jobs.places())
        self.estate.run("init")
        for name in ALL:
            self.jobs.start(name, self._hook(name))

    def play(self, moves: Iterator[Move]) -> Iterator[dict[str, Any]]:
        """The moves, one line each."""
        for move in moves:
            begun = time.monotonic()
            steps = {}
            for step in (self._work, self._leave, self._move, self._arrive, self._settle):
                before = time.monotonic()
                step(move)
                steps[step.__name__.strip("_")] = round(time.monotonic() - before, 1)
            yield {
                "move": move.number,
                "to": move.to,
                "loss": move.loss,
                "faults": list(move.faults),
                "produced": len(self.estate.produced),
                "jobs": self._count(move),
                "seconds": round(time.monotonic() - begun, 1),
                "steps": steps,
            }

    def finish(self) -> dict[str, Any]:
        """Everything is delivered everywhere: each job has processed every record that was produced."""
        for cluster in OTHER:
            self.estate.delivered(cluster)
        self._drained(set(self.estate.produced))
        return {name: self._sum(name) for name in ALL}

    # ------------------------------------------------------------ before the move

    def _work(self, move: Move) -> None:
        """Producers write and jobs read on the cluster that will be left."""
        estate, mirror = self.estate, self.estate.mirrors[self.estate.active]
        if Fault.PARTITION_ADDED in move.faults:
            estate.add_partition()
        before = {name: self.jobs.processed(name).total() for name in ALL}
        estate.produce(move.records // 2)
        self._await("work", lambda: all(self.jobs.processed(name).total() > before[name] for name in ALL))
        if Fault.MIRROR_KILLED in move.faults:
            estate.restart_mirror(estate.active)
        if Fault.MIRROR_HALTED in move.faults:
            mirror.process.pause()
        if Fault.DRIVER_KILLED in move.faults:
            self.jobs.kill_driver()
            for name in IN_SPARK:
                self.jobs.start(name, self._hook(name))
        estate.produce(move.records - move.records // 2)
        if Fault.MIRROR_HALTED in move.faults and move.loss is Loss.PLANNED:
            mirror.process.resume()

    def _leave(self, move: Move) -> None:
        estate = self.estate
        if move.loss is Loss.PLANNED:
            self._drained(estate.held(estate.active))
            estate.delivered(estate.active)
        elif move.loss is Loss.KILLED:
            time.sleep(2 * move.delay)
            estate.brokers[estate.active].kill()
        self.jobs.stop_all()
        if move.loss is not Loss.KILLED:
            estate.run("track", "--job", GROUP, "--once")

    def _move(self, move: Move) -> None:
        words = ("move", "--to", move.to, "--yes")
        if Fault.MOVE_KILLED in move.faults:
            self.estate.killed(move.delay * USUAL_MOVE_S, *words)
        self.estate.run(*words)
        if Fault.CANCELLED in move.faults:
            self.estate.run("move", "--cancel", "--yes")
            self.estate.run(*words)
        if Fault.MOVED_TWICE in move.faults:
            self.estate.run(*words, codes=(0, 5))
        if Fault.BROKER_RESTARTED in move.faults:
            self.estate.brokers[move.to].kill()
            self.estate.brokers[move.to].start()

    def _arrive(self, move: Move) -> None:
        """Each job's hook, two at a time, and its start."""
        victim = ALL[move.victim % len(ALL)]
        if Fault.HOOK_KILLED in move.faults:
            self.estate.killed(move.delay * USUAL_HOOK_S, *self._hook_words(victim))
        if Fault.ROLLED_BACK in move.faults:
            self._hook(victim)
            self.estate.run("rollback", "--job", victim, "--yes")
            self.estate.run("move", "--to", move.to, "--job", victim, "--yes")
        with ThreadPoolExecutor(2) as pool:
            found = dict(zip(ALL, pool.map(self._hook, ALL), strict=True))
        for name, variables in found.items():
            self.jobs.start(name, variables)
        self.estate.active = move.to
        self.shown = {name: _again(variables) for name, variables in found.items()}

    def _hook_words(self, name: str) -> tuple[object, ...]:
        folder = self.estate.folder
        return ("hook", "--job", name, "--plans", folder / "plans", "--env-file", folder / f"{name}.env")

    def _hook(self, name: str) -> dict[str, str]:
        self.estate.run(*self._hook_words(name))
        text = (self.estate.folder / f"{name}.env").read_text()
        return dict(word.split("=", 1) for word in shlex.split(text))

    # ------------------------------------------------------------ after the move

    def _settle(self, move: Move) -> None:
        """What was down is up again; the jobs read all that their cluster holds."""
        estate, left = self.estate, OTHER[move.to]
        if move.loss is Loss.KILLED:
            estate.brokers[left].start()
            estate.restart_mirror(move.to)
        estate.mirrors[left].process.resume()
        estate.produce(30)
        self._drained(estate.held(move.to))

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + DRAINED_S
        while not condition():
            if time.monotonic() > until:
                raise SoakFailed(f"the jobs do not {what}")
            time.sleep(0.2)

    def _drained(self, ids: set[str]) -> None:
        """Wait until every job has processed these ids. Raises SoakFailed with what is missing."""
        until = time.monotonic() + DRAINED_S
        missing: dict[str, Any] = {}
        while time.monotonic() < until:
            missing = {name: lacking for name in ALL if (lacking := self._lacking(name, ids))}
            if not missing:
                return
            time.sleep(0.3)
        raise SoakFailed(f"not processed: {missing}")

    def _lacking(self, name: str, ids: set[str]) -> Any:
        found = self.jobs.processed(name)
        if name == "sums":
            return max(0, len(ids) - found.total())
        lacking = sorted(ids - found.keys())
        return (len(lacking), lacking[:5]) if lacking else None

    def _sum(self, name: str) -> dict[str, int]:
        found = self.jobs.processed(name)
        distinct = len(self.estate.produced) if name == "sums" else len(found)
        return {"processed": found.total(), "again": max(0, found.total() - distinct)}

    def _count(self, move: Move) -> dict[str, Any]:
        """What came again since the last count, beside what was shown. Raises SoakFailed if it is more."""
        result = {}
        for name in ALL:
            again = self._sum(name)["again"]
            came, self.seen[name] = again - self.seen[name], again
            result[name] = {"again": came, "shown": self.shown[name]}
            if came > self.shown[name]:
                raise SoakFailed(f"move {move.number}: {name} read {came} again, {self.shown[name]} were shown")
        return result


def _again(variables: Mapping[str, str]) -> int:
    """The records that a start's plan says come again at most."""
    if PLAN_VARIABLE not in variables:
        return 0
    plan = parse_plan(Path(variables[PLAN_VARIABLE]).read_text())
    return sum(row.replay_at_most or 0 for job in plan.starts.jobs for row in job.partitions)
