"""The story of a soak: records, faults, a move, the hooks, and the count, move after move."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from tests.soak.choices import Fault, Loss, Move
from tests.soak.counting import Log, again, delivered_late, not_stored, shown
from tests.soak.estate import OTHER, Estate, SoakFailed
from tests.soak.jobs import ALL, AT_LEAST_ONCE, GROUP, IN_SPARK, Jobs
from tests.soak.operator import Operator

DRAINED_S = 600.0
WAIT_S = 60
"""How long hooks wait for a mirror that goes on."""
JUMP_S = 3500.0
"""Brokers refuse records that are an hour ahead."""
BATCH = 200
"""More than what a job processes before it stores its numbers."""


@dataclass
class Counted:
    """What was there at one moment: each job's ids, and a cluster's records."""

    processed: dict[str, Counter[str]]
    log: Log


@dataclass
class Soak:
    estate: Estate
    jobs: Jobs
    tracking: subprocess.Popen[str] | None = None
    last: Counted = field(default_factory=lambda: Counted({name: Counter() for name in ALL}, {}))
    """At the end of the last move, on the cluster that is active."""
    left: dict[str, Counter[str]] = field(default_factory=dict)
    """What each job had processed when it was stopped for this move."""
    then: Log = field(default_factory=dict)
    """The destination's records before the hooks planned."""
    plans: dict[str, int] = field(default_factory=dict)
    """By job, the number of its newest plan before this move."""
    operator: Operator = field(init=False)

    def __post_init__(self) -> None:
        self.operator = Operator(self.estate, self.jobs.settings())

    def begin(self) -> None:
        """Both clusters with a copy on the other one, the state store, and all jobs at home."""
        self.estate.start()
        self.estate.produce(30)
        self.estate.delivered(self.estate.active)
        self.jobs.prepare()
        self.estate.configure(self.jobs.settings())
        self.estate.run("init")
        self._start(ALL)
        self._track()

    def play(self, moves: Iterator[Move]) -> Iterator[dict[str, Any]]:
        """The moves, one line each."""
        for move in moves:
            begun = time.monotonic()
            steps = {}
            for step in (self._work, self._leave, self._over, self._settle):
                before = time.monotonic()
                try:
                    step(move)
                except SoakFailed as failed:
                    raise SoakFailed(f"{move}, {step.__name__.strip('_')}: {failed}") from failed
                steps[step.__name__.strip("_")] = round(time.monotonic() - before, 1)
            yield {
                "move": move.number,
                "policy": self.estate.policy,
                "mirror": self.estate.mirror,
                "to": move.to,
                "loss": move.loss,
                "faults": list(move.faults),
                "accepted": list(self.operator.accepted),
                "without_sink": self.operator.without_sink,
                "missed": self.operator.missed,
                "produced": len(self.estate.produced),
                "jobs": self._count(move),
                "seconds": round(time.monotonic() - begun, 1),
                "steps": steps,
            }

    def finish(self) -> dict[str, Any]:
        """Everything is delivered: each job has processed every record that its cluster holds.

        With default names, these are all that were produced, but for those that a mirror skipped. With one name,
        ``elsewhere`` are those that only the other cluster holds, or held: it was killed before they were delivered, or
        lost the end of its log.
        """
        estate = self.estate
        for cluster in estate.mirrors:
            estate.delivered(cluster)
        self._drained()
        log, result = estate.log(estate.active), {}
        for name in ALL:
            found, before = self.jobs.processed(name), self.last.processed[name]
            self._bounded(name, again(found) - again(before), self._sent_again(name, log), "at the end")
            unread = set(estate.produced) - found.keys()
            if unread - estate.gone - estate.skipped and not estate.one_name:
                raise SoakFailed(f"at the end: {name} has not read {len(unread)} records that were produced")
            result[name] = {"processed": found.total(), "again": again(found), "elsewhere": len(unread)}
        return result

    def close(self) -> None:
        self._end_tracking(kill=True)

    # ------------------------------------------------------------ before the move

    def _work(self, move: Move) -> None:
        """Producers write and jobs read on the cluster that will be left."""
        estate, faults = self.estate, move.faults
        self.operator.begin()
        before = {name: self.jobs.processed(name).total() for name in ALL}
        if Fault.PARTITION_ADDED in faults:
            estate.add_partition()
        estate.produce(move.records // 2)
        self._await("work", lambda: all(self.jobs.processed(name).total() > before[name] for name in ALL))
        if Fault.COPY_RECREATED in faults:
            estate.recreate_copy()
            estate.delivered(estate.active)
        if Fault.RETENTION in faults:
            self._pass_by_retention(move.to)
        if Fault.LOG_CUT_BACK in faults:
            estate.delivered(estate.active)
            estate.cut_copy_back(move.delay)
        if Fault.MIRROR_KILLED in faults:
            estate.restart_mirror(estate.active)
        if Fault.MIRROR_KILLED_TWICE in faults:
            estate.kill_mirror_twice(estate.active, move.records // 4)
        if Fault.MIRROR_SET_FORWARD in faults:
            estate.set_mirror_forward(move.records // 4)
        if Fault.MIRROR_HALTED in faults:
            estate.mirrors[estate.active].process.pause()
        if Fault.DRIVER_KILLED in faults:
            self.jobs.kill_driver()
            self._start(IN_SPARK)
        if Fault.CLOCK_JUMPS in faults:
            self._set_clock(JUMP_S if move.delay < 0.5 else -JUMP_S)
        if Fault.TRACK_KILLED in faults:
            self._end_tracking(kill=True)
            self._track()
        if Fault.STATE_AWAY in faults:
            estate.state.kill()
        link = estate.links[move.to]
        if Fault.LINK_CUT in faults:
            link.bytes_a_second = 50
        estate.produce(move.records - move.records // 2)
        if Fault.FOREIGN_RECORDS in faults:
            estate.produce_foreign()
        if Fault.LINK_CUT in faults:
            time.sleep(0.5 + move.delay)
            link.cut()
        if Fault.MIRROR_HALTED in faults and move.loss is Loss.PLANNED:
            estate.mirrors[estate.active].process.resume()

    def _pass_by_retention(self, cluster: str) -> None:
        for name in self.estate.mirrors:
            self.estate.delivered(name)
        self._drained()
        self.estate.delete_all(cluster)

    def _leave(self, move: Move) -> None:
        estate, mirror = self.estate, self.estate.mirrors[self.estate.active]
        is_away = Fault.STATE_AWAY in move.faults
        if move.loss is Loss.PLANNED:
            if is_away:
                estate.state.start()  # no range is read without it
            self._drained()
            estate.delivered(estate.active)
        elif move.loss is Loss.KILLED:
            time.sleep(2 * move.delay)
            estate.brokers[estate.active].kill()
        if is_away and move.loss is not Loss.PLANNED:
            estate.state.start()
        self.jobs.stop_all()
        self._end_tracking()
        if move.loss is not Loss.KILLED:
            estate.run("track", "--once")  # as the runbook has it
        if self._waits(move):
            mirror.process.resume()
        else:
            mirror.process.pause()
        self.left = {name: self.jobs.processed(name) for name in ALL}
        self.plans = {name: max(estate.state_of(name).plans(), default=0) for name in ALL}

    def _waits(self, move: Move) -> bool:
        return move.waits and move.loss is Loss.LEFT

    def _over(self, move: Move) -> None:
        """All jobs move, and start."""
        estate, operator = self.estate, self.operator
        lies = Fault.BROKER_LIES in move.faults
        with estate.lied_to(move.to, move.victim) if lies else contextlib.nullcontext():
            operator.move(move)
            self.then = estate.log(move.to)
            operator.disturb_hook(move)
            self._start(ALL, *(("--wait", WAIT_S) if self._waits(move) else ()))
        estate.active = move.to

    def _start(self, names: Sequence[str], *words: object) -> None:
        """Each job's hook, two at a time, then each job."""
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda name: self.operator.hook(name, *words), names))
        for name, variables in zip(names, found, strict=True):
            self.jobs.start(name, variables)

    # ------------------------------------------------------------ after the move

    def _settle(self, move: Move) -> None:
        """What was down is up again; the jobs read all that their cluster holds."""
        estate, left = self.estate, OTHER[move.to]
        if move.loss is Loss.KILLED:
            if estate.one_name:
                estate.mirrors[left].kill()
            estate.brokers[left].start()
            if not estate.one_name:
                estate.restart_mirror(move.to)
        with contextlib.suppress(ProcessLookupError):
            estate.mirrors[left].process.resume()
        if move.loss is not Loss.KILLED and estate.one_name:
            estate.delivered(left)
        estate.turn(move.to)
        if estate.clock_s:
            self._set_clock(0)
        else:
            self._track()
        estate.produce(30)
        self._drained()

    def _await(self, what: str, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + DRAINED_S
        while not condition():
            if time.monotonic() > until:
                raise SoakFailed(f"the jobs do not {what}")
            time.sleep(0.2)

    def _drained(self) -> None:
        """Wait until every job has processed all that the active cluster holds. Raises SoakFailed if it does not."""
        until = time.monotonic() + DRAINED_S
        ids = self.estate.log(self.estate.active).keys()
        missing = dict.fromkeys(ALL, ids - set())
        while missing:
            missing = {name: lacking for name in missing if (lacking := ids - self.jobs.processed(name).keys())}
            if missing and time.monotonic() > until:
                found = {name: (len(lacking), sorted(lacking)[:5]) for name, lacking in missing.items()}
                raise SoakFailed(f"not processed: {found}")
            time.sleep(0.3 if missing else 0)

    # ------------------------------------------------------------ what came again

    def _sent_again(self, name: str, log: Log) -> int:
        """The copies that mirrors have added since the last count."""
        return delivered_late(self.last.processed[name].keys(), self.last.log, log)

    def _count(self, move: Move) -> dict[str, Any]:
        """What came again since the last count, beside what was shown. Raises SoakFailed if it is more."""
        result, estate = {}, self.estate
        processed = {name: self.jobs.processed(name) for name in ALL}
        now, old = estate.log(move.to), estate.log(OTHER[move.to])
        for name in ALL:
            left, plans = self.left[name], estate.state_of(name).plans()
            before = again(left) - again(self.last.processed[name])
            killed = BATCH if Fault.DRIVER_KILLED in move.faults and name == "ranges" else 0
            self._bounded(name, before, self._sent_again(name, old) + killed, f"move {move.number}, before it")
            came, most = again(processed[name]) - again(left), shown(plans, self.plans[name])
            late = delivered_late(left.keys(), self.then, now)
            if name in AT_LEAST_ONCE:
                late += not_stored(left.keys(), plans, old, estate.names(OTHER[move.to]))
            self._bounded(name, came, most + late, f"move {move.number}")
            numbers = {"again": came, "shown": most, "late": late, "before": before}
            result[name] = {"processed": processed[name].total(), **numbers}
        self.last = Counted(processed, now)
        return result

    def _bounded(self, name: str, came: int, most: int, when: str) -> None:
        if came > most:
            raise SoakFailed(f"{when}: {name} read {came} again, at most {most} were to come")

    # ------------------------------------------------------------ track, and the clock

    def _set_clock(self, off_s: float) -> None:
        self.estate.clock_s = off_s
        self.jobs.set_clock(off_s)
        self._end_tracking()
        self._track()

    def _track(self) -> None:
        with (self.estate.folder / "track.log").open("a") as log:
            self.tracking = self.estate.begin("track", "--job", GROUP, "--every", 1, output=log)

    def _end_tracking(self, *, kill: bool = False) -> None:
        if self.tracking is not None:
            self.tracking.kill() if kill else self.tracking.terminate()
            self.tracking.wait(60)
            self.tracking = None
