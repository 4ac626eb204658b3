"""The operator who moves the jobs, and the jobs' hooks: commands that end as they should, are killed, or disturbed."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from reconciler.state.locations import Phase
from tests.soak.choices import Fault, Move
from tests.soak.estate import Estate, SoakFailed
from tests.soak.jobs import ALL

ACCEPTED = ("lost", "early", "exact", "behind")
"""That records are gone, as after retention, or will not come; and that a sink gets again what was shown."""
FROZEN_S = 3.0
MOST_FREE = 256 * 1024
"""Bytes of a disk that is called full."""


class Server(Protocol):
    def pause(self) -> None: ...
    def resume(self) -> None: ...


@dataclass
class Operator:
    """Raises SoakFailed where a command ends otherwise than it should."""

    estate: Estate
    settings: Mapping[str, str]
    """Of each job, as ``Estate.configure`` takes them."""
    accepted: tuple[str, ...] = ()
    """The findings that are accepted in this move."""
    without_sink: list[str] = field(default_factory=list)
    """The jobs whose sink was left out in this move: it has a batch whose last records were never delivered."""
    missed: list[str] = field(default_factory=list)
    """The commands of this move that ended before they were killed, and faults that could not be made."""

    def begin(self) -> None:
        if self.without_sink:
            self.estate.configure(self.settings)
        self.accepted, self.without_sink, self.missed = (), [], []

    # ------------------------------------------------------------ the move

    def move(self, move: Move) -> None:
        """Record that all jobs move."""
        estate, faults, words = self.estate, move.faults, ("move", "--to", move.to, "--yes")
        if Fault.STATE_AWAY in faults:
            estate.state.kill()
            estate.run(*words, codes=(6,))
            estate.run(*self._hook_words(_victim(move)), codes=(6,))
            estate.state.start()
        if Fault.MOVE_KILLED in faults:
            self._killed(move, *words)
        if Fault.TWO_OPERATORS in faults:
            estate.at_once(words, words, codes=(0, 4, 5))
        self._decide(words)
        if Fault.CANCELLED in faults:
            estate.run("move", "--cancel", "--yes")
            self._decide(words)
        if Fault.MOVED_TWICE in faults:
            estate.run(*words, codes=(0, 5))
        if Fault.APPLY_KILLED in faults:
            self._apply(move)
        if Fault.BROKER_RESTARTED in faults:
            estate.brokers[move.to].kill()
            estate.brokers[move.to].start()

    def _decide(self, words: Sequence[object]) -> None:
        """Move all jobs; accept what stops them."""
        self.accepted = ()
        if self.estate.run(*words, codes=(0, 4)).code:
            self.accepted = ACCEPTED
            for name in ALL:
                self._decide_job(name, (*words, "--job", name, *self._decisions()))

    def _decide_job(self, name: str, words: Sequence[object]) -> None:
        ended = self.estate.run(*words, codes=(0, 4))
        if ended.code and "whose end is not proven" in ended.out + ended.err:
            self.without_sink.append(name)
            self.estate.configure(self.settings, self.without_sink)
            ended = self.estate.run(*words)
        if ended.code:
            raise SoakFailed(f"{name} is not moved: {ended.out}{ended.err}")

    def _decisions(self) -> list[str]:
        return [word for each in self.accepted for word in ("--accept", each)]

    def _killed(self, move: Move, *words: object) -> bool:
        """Kill a command amid its usual time; False if it was quicker."""
        if is_killed := self.estate.killed(move.delay, *words):
            return is_killed
        self.missed.append(str(words[0]))
        return False

    def _apply(self, move: Move) -> None:
        """Plan one job's move and apply the plan, which is killed, and for every other job run again."""
        plan = self.estate.disk.path / "applied.plan.json"
        job = ("--job", _victim(move), "--to", move.to)
        self.estate.run("plan", *job, "-o", plan, *self._decisions(), codes=(0, 3))
        words = ("apply", plan, "--yes")
        if self._killed(move, *words) and move.victim % 2:
            self.estate.run(*words, codes=(0, 5))

    # ------------------------------------------------------------ hooks

    def hook(self, name: str, *words: object) -> dict[str, str]:
        """Prepare a job's start; its variables."""
        self.estate.run(*self._hook_words(name, *words))
        text = (self.estate.folder / f"{name}.env").read_text()
        return dict(word.split("=", 1) for word in shlex.split(text))

    def _hook_words(self, name: str, *words: object, file: str = "") -> tuple[object, ...]:
        env, plans = self.estate.folder / (file or f"{name}.env"), self.estate.disk.path / "plans"
        return ("hook", "--job", name, "--plans", plans, "--env-file", env, *self._decisions(), *words)

    def disturb_hook(self, move: Move) -> None:
        """The hook of one job, before it runs to its end."""
        estate, faults, victim = self.estate, move.faults, _victim(move)
        words = self._hook_words(victim)
        if Fault.BROKER_FROZEN in faults:
            self._frozen(estate.brokers[move.to].process, move, words)
        if Fault.STATE_FROZEN in faults:
            self._frozen(estate.state, move, words)
        if Fault.DISK_FULL in faults:
            self._on_full_disk(move, words)
        if Fault.HOOK_KILLED in faults:
            self._killed(move, *words)
        if Fault.CANCELLED_AMID in faults and self._killed(move, *words):
            self._take_back(move)
        if Fault.TWO_HOOKS in faults:
            estate.at_once(words, self._hook_words(victim, file=f"{victim}-2.env"), codes=(0, 4, 5, 7))
        if Fault.ROLLED_BACK in faults:
            self.hook(victim)
            estate.run("rollback", "--job", victim, "--yes")
            self._again(move)

    def _on_full_disk(self, move: Move, words: Sequence[object]) -> None:
        disk = self.estate.disk
        if not disk.is_own:
            self.missed.append(Fault.DISK_FULL)
            return
        with disk.full(int(move.delay * MOST_FREE)):
            self.estate.run(*words, codes=(0, 6, 7))

    def _again(self, move: Move) -> None:
        self.estate.run("move", "--to", move.to, "--job", _victim(move), "--yes", *self._decisions())

    def _take_back(self, move: Move) -> None:
        """Cancel one job's move, and move it again if that was done: a group is given back on the cluster that it
        left, which may be dead.
        """
        victim = _victim(move)
        self.estate.run("move", "--cancel", "--job", victim, "--yes", codes=(0, 6))
        here = self.estate.state_of(victim).location()
        if here is not None and here.phase is Phase.LIVES and here.cluster != move.to:
            self._again(move)

    def _frozen(self, server: Server, move: Move, words: Sequence[object]) -> None:
        """Run a command while a server is frozen amid it."""
        running = self.estate.begin(*words)
        time.sleep(move.delay * self.estate.usual_s("hook"))
        server.pause()
        time.sleep(FROZEN_S)
        server.resume()
        self.estate.ended(running, codes=(0, 6, 7))


def _victim(move: Move) -> str:
    """The job that the faults of one job meet."""
    return ALL[move.victim % len(ALL)]
