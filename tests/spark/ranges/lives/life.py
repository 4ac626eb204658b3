"""A life of a job, chosen by a seed: runs that are killed, fail and overlap; failovers; what the output holds then."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.core.errors import Changed, NeedsPerson, OutcomeUnknown, ReconcilerError, Unreachable
from reconciler.spark.ranges.planning import Caps
from tests.spark.ranges.lives.actors import Actor, Killed, Way
from tests.spark.ranges.lives.world import World

ORDINARY = (Changed, Unreachable, OutcomeUnknown)
"""Errors after which a run is started again. A run whose files another run removes fails with Spark's own."""


@dataclass(frozen=True)
class Kind:
    """What may happen in a life. ``rivals``: runs may overlap; ``across``: also with runs at the other cluster."""

    store: str = "memory"
    rivals: bool = False
    moves: bool = False
    across: bool = False


@dataclass
class Tally:
    """``faults``: promises that were broken. ``asked``: how often a person had to decide, and why."""

    lives: int = 0
    steps: int = 0
    kills: int = 0
    moves: int = 0
    faults: list[str] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)


class Life:
    def __init__(self, seed: int, kind: Kind, folder: Path, tally: Tally) -> None:
        self.seed, self.kind, self.tally = seed, kind, tally
        self.rng = random.Random(f"{kind} {seed}")
        self.world = World(folder, kind.store, self.rng, identity=self.rng.random() < 0.4)
        self.actors: list[Actor] = []
        self.sides: dict[str, str] = {}
        self.events: list[str] = []
        self.trace = self.has_moved = False

    def live(self) -> None:
        self.tally.lives += 1
        with self.world.patched():
            try:
                self._live()
            except Exception:  # noqa: BLE001  # a fault of the product, as any other
                self.fault(traceback.format_exc())
            finally:
                for actor in self.actors:
                    actor.kill()

    def _live(self) -> None:
        self.world.produce(self.rng.randrange(1, 8))
        for _ in range(self.rng.randrange(2, 7)):
            self.chapter()
        self.end()

    def chapter(self) -> None:
        rng = self.rng
        most = rng.choice([1, 2, 2, 3]) if self.kind.rivals else 1
        runs_left = rng.randrange(1, most + 2)
        kill_at = rng.choice([None, rng.randrange(1, 20), rng.randrange(1, 40), rng.randrange(1, 90)])
        fail_at = rng.choice([None, None, rng.randrange(1, 90)])
        ticks = 0
        while (runs_left or self.actors) and ticks < 600:
            ticks += 1
            if runs_left and len(self.actors) < most and (not self.actors or rng.random() < 0.05):
                runs_left -= 1
                self.start()
            if not self.actors:
                continue
            if rng.random() < 0.03:
                self.world.produce(rng.randrange(1, 4))
            actor = rng.choice(self.actors)
            if ticks == kill_at:
                self.kill(actor)
            elif ticks == fail_at:
                self.go(actor, rng.choice([Way.FAIL, Way.LOSE_ANSWER]), 1)
            else:
                self.go(actor, Way.GO, 1 if rng.random() < 0.6 else rng.randrange(1, 25))
            if self.kind.across and rng.random() < 0.01:
                self.move()
        if self.kind.rivals and rng.random() < 0.4 and self.actors:
            pass  # they are left as they are
        else:
            for actor in list(self.actors):
                self.kill(actor)
        if self.kind.moves and (self.kind.across or not self.actors) and rng.random() < 0.5:
            self.move()
        self.world.produce(rng.randrange(0, 6))

    def start(self, unfinished: str = "stop") -> Actor:
        caps = self.rng.choice([Caps(), Caps(per_run=3), Caps(per_partition=2)])
        side = self.world.side
        name = f"run {len(self.sides) + 1} at {side}"
        if side == "b" and not self.world.identity:
            self.world.mirror()
        actor = Actor(name, self.world.job(side, caps, unfinished))
        self.sides[name] = side
        self.actors.append(actor)
        return actor

    def go(self, actor: Actor, way: Way, steps: int) -> None:
        for _ in range(steps):
            self.events.append(f"{actor.name}: {actor.at}{'' if way is Way.GO else f' ({way.value})'}")
            actor.go_on(way)
            self.tally.steps += 1
            if actor.has_ended:
                self.ended(actor)
                return

    def kill(self, actor: Actor) -> None:
        self.events.append(f"{actor.name}: killed before {actor.at}")
        self.tally.kills += 1
        actor.kill()
        self.ended(actor)

    def ended(self, actor: Actor) -> None:
        self.actors.remove(actor)
        error = actor.error
        self.events.append(f"{actor.name}: ended with {error!r}")
        self.tally.ended[type(error).__name__] += 1
        if error is None or isinstance(error, (Killed, *ORDINARY)):
            return
        if isinstance(error, NeedsPerson):
            self.asked(error)
            return
        self.fault("".join(traceback.format_exception(error)))

    def asked(self, error: NeedsPerson) -> None:
        """A limit: a batch whose rows a rollback removed."""
        is_unfinished = "was under way" in error.message
        self.tally.asked["unfinished" if is_unfinished else error.message[:60]] += 1
        if not self.kind.rivals and not (is_unfinished and self.has_moved):
            self.fault(f"a person is asked: {error.message}")

    def move(self) -> None:
        if self.world.writing:
            return  # a save that is under way is dated before what comes between: a limit that the reference names
        self.world.mirror()
        back = self.world.applied is not None and self.rng.random() < 0.3
        try:
            (self.world.move_back if back else self.world.move)()
        except ReconcilerError as error:
            self.events.append(f"not moved: {error!r}")
            if not back and not self.actors:
                self.fault(f"the job could not be moved: {error!r}")
            return
        self.events.append(f"{'moved back' if back else 'moved'} to {self.world.side}")
        self.tally.moves += 1
        self.has_moved = True

    def end(self) -> None:
        """Everything ends, and a last run reads all that is left."""
        for actor in list(self.actors):
            if self.rng.random() < 0.5:
                self.go(actor, Way.GO, 2_000)
            else:
                self.kill(actor)
        self.world.mirror()
        unfinished = "stop"
        for _ in range(12):
            actor = self.start(unfinished)
            self.go(actor, Way.GO, 5_000)
            if actor.error is None:
                break
            if isinstance(actor.error, NeedsPerson):
                if "was under way" not in actor.error.message:
                    return
                name = actor.error.message.split()[2]
                unfinished = "keep" if f"batch {name}" in self.world.saved else "drop"
        else:
            self.fault(f"the job comes to no end: {actor.error!r}")
            return
        counted, expected = self.world.counted(), set(range(self.world.produced))
        skipped = sorted(expected - set(counted))
        doubled = sorted(number for number, times in counted.items() if times > 1)
        if skipped or doubled:
            self.fault(f"skipped {skipped}, doubled {doubled}")
        left = [
            name
            for name in self.world.catalogue.files
            if ".begun" in name or not (name.endswith(".json") or self.kind.rivals)
        ]
        if left:
            self.fault(f"left in the catalogue: {left}")

    def fault(self, text: str) -> None:
        self.tally.faults.append(f"seed {self.seed} of {self.kind}: {text}")
        if self.trace:
            print("\n".join(self.events))
            print(text)


def main() -> None:
    import logging
    import sys
    import tempfile
    import time

    logging.disable()
    store, flags, first, count = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3]), int(sys.argv[4])
    kind = Kind(store, **{flag: True for flag in flags if flag})
    tally, began = Tally(), time.time()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            life = Life(seed, kind, Path(folder), tally)
            life.trace = count == 1
            life.live()
            if len(tally.faults) > 5:
                break
    for fault in tally.faults[:6]:
        print(fault[:1500])
    print(
        f"{time.time() - began:.1f} s",
        tally.lives,
        "lives",
        tally.steps,
        "steps",
        tally.kills,
        "kills",
        tally.moves,
        "moves",
    )
    print(dict(tally.asked), dict(tally.ended), len(tally.faults), "faults")


if __name__ == "__main__":
    main()
