"""Lives of a job of range batches into files, chosen by seeds: whatever happens in them, each record counts once."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from reconciler.core.anchors import Anchor, StoredOffset
from reconciler.core.errors import Changed, NeedsPerson, OutcomeUnknown, Unreachable
from reconciler.ports import Change, TopicPartition
from reconciler.spark.batches import hashed_files
from reconciler.spark.batches.planning import Caps
from tests.sizes import sampled
from tests.spark.batches.lives.world import GROUP, OUT, PARTITIONS, Killed, World

EACH = 25
ORDINARY = (Killed, Changed, Unreachable, OutcomeUnknown, FileNotFoundError)
"""Ends of a run after which it is started again."""
KINDS = {
    "one run at a time": {},
    "failovers": {"moves": True},
    "another run meanwhile": {"rivals": True},
}


class Life:
    """``asked``: how often an operator had to decide."""

    def __init__(self, seed: int, folder: Path, *, moves: bool = False, rivals: bool = False) -> None:
        self.rng = random.Random(seed)
        self.moves, self.rivals = moves, rivals
        self.world = World(folder, self.rng, identity=self.rng.random() < 0.4)
        self.kills = self.asked = 0

    def live(self) -> None:
        for _ in range(self.rng.randrange(2, 8)):
            self.world.produce(self.rng.randrange(1, 8))
            self.run(self.rng.randrange(1, 40))
            if self.moves and self.rng.random() < 0.5:
                self.move()
        while self.run(None):
            pass
        self.world.mirror()
        self.run(None)
        counted, every = self.world.counted, Counter(range(self.world.produced))
        # Two runs in the same millisecond may both write: a file system has no lock. Nothing is skipped then either.
        assert set(counted) == set(every) if self.rivals else counted == every
        left = [name for name in self.world.disk if "/_" in name]
        assert not left or self.asked, "the next run clears away what a killed one leaves"

    def run(self, last: int | None) -> bool:
        """A run, up to its step of this number at most; whether it must be started again."""
        choice = self.rng.choice(["kill", "kill", "fail", "lose", "rival" if self.rivals else "kill"])
        caps = self.rng.choice([Caps(), Caps(per_run=3), Caps(per_partition=2)])

        def at(number: int, name: str) -> str | None:
            if number != last or choice != "rival":
                return choice if number == last else None
            self.world.produce(self.rng.randrange(3))
            self.run(self.rng.choice([None, self.rng.randrange(1, 40)]))
            return None

        try:
            self.world.run(at, caps)
        except ORDINARY as error:
            self.kills += isinstance(error, Killed)
        except NeedsPerson as error:
            if not self.moves or "was under way when its run ended" not in error.message:
                raise
            self.asked += 1
            self.world.decide()
        else:
            return False
        return True

    def move(self) -> None:
        self.world.mirror()
        self.world.move()


@pytest.mark.parametrize(
    ("kind", "block"),
    sampled([(kind, n) for kind in KINDS for n in range(12)], keep=0, always=lambda case: case[1] == 0),
)
def test_each_record_counts_once_whatever_happens(tmp_path: Path, kind: str, block: int) -> None:
    kills = 0
    for seed in range(block * EACH, (block + 1) * EACH):
        life = Life(seed, tmp_path, **KINDS[kind])
        life.live()
        kills += life.kills
    assert kills > 0


def test_a_broken_promise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashed_files, "is_saved", lambda begun, rows: True)
    lives = [Life(seed, tmp_path).live for seed in range(EACH)]
    with pytest.raises(AssertionError):
        [live() for live in lives]


@pytest.mark.parametrize("at", ["write /out/_begun", "rename", "write rows: batch"])
def test_a_run_that_stayed_at_the_source_saves_nothing_once_another_has_begun_at_the_destination(
    tmp_path: Path, at: str
) -> None:
    world = World(tmp_path, random.Random(1), identity=False)
    world.produce(10)
    world.run()
    world.produce(10)
    left = [at]

    def moves_meanwhile(number: int, name: str) -> None:
        if left and name.startswith(left[0]):
            left.clear()
            world.mirror()
            world.move()
            world.run()

    with pytest.raises((Changed, Unreachable)):
        world.run(moves_meanwhile)
    assert world.counted == Counter(range(20))


def test_an_operator_decides_where_the_rows_do_not_show_whether_a_batch_was_saved(tmp_path: Path) -> None:
    """As after a failover that had to step back."""
    world = World(tmp_path, random.Random(1), identity=False)
    world.produce(20)

    def killed(number: int, name: str) -> str | None:
        return "kill" if name.startswith("write rows: batch") else None

    with pytest.raises(Killed):
        world.run(killed)
    store = world.store()
    rows = [StoredOffset(3, Anchor(2, 1, None, "0" * 32, "a", None)) for _ in range(PARTITIONS)]
    changes = [Change(TopicPartition("events", number), None, row) for number, row in enumerate(rows)]
    assert not store.write(GROUP, changes, reason="by hand", now_ms=1).conflicts
    with pytest.raises(
        NeedsPerson, match=r"batch=[0-9a-f]{32} \(.*neither the ones before it nor the ones after it"
    ) as caught:
        world.run()
    assert f"remove only {OUT}/_begun.json" in str(caught.value.hint)
    world.decide()
    world.run()
    assert set(world.counted.values()) == {1}
