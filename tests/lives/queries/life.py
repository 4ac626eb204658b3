"""The life of a query under an operator who uses the commands, makes mistakes, and is killed in the middle."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from reconciler.state.locations import Phase
from tests.lives.clusters import OTHER, number_of
from tests.lives.queries.commands import Ended, in_memory, run_killed
from tests.lives.queries.product import Kind, Operated, StopLife
from tests.lives.queries.query import Query

__all__ = ["Kind", "Life"]

STOPS = ("lost", "unresolved", "behind")


class Life(Operated):
    """What happens to the query, and what each move is compared with."""

    def fail_over(self) -> bool:
        """Move the query to the other cluster, there or back. False: its life ends here."""
        is_planned, source = self.draw.random() < 0.5, self.query.side
        if self.draw.random() < 0.6:
            self.track()
        destination, original = OTHER[source], self.query
        if self.draw.random() < 0.4:
            original.plan_batch()
            if self.draw.random() < 0.7:
                self.track()
        if is_planned:
            self.clusters.mirror(whole=True)
        self.moves += 1
        if self.draw.random() < 0.3:
            self.look()
        kept = original.files.content()
        self.events.append(f"--- {'planned' if is_planned else 'lost'}: from {source} to {destination}")
        ended = self._moved(original, destination, is_planned)
        assert original.files.content() == kept, self.story("the original changed")
        if ended is None:
            if not is_planned or self.draw.random() < 0.5:
                return False
            self._stay(original)
            return True
        if not self._started(original, destination, ended):
            return False
        self._go_on(original, is_planned)
        return True

    def _moved(self, original: Query, destination: str, is_planned: bool) -> Ended | None:
        """The end of the hook that has moved the query; None if it needs a decision."""
        self.has_accepted = False
        checked = self.do("plan", "--to", destination, "--job", "q", "--format", "json")
        assert checked.code in (0, 3, 4), self.story(checked.text)
        rows = json.loads(checked.out)["jobs"][0]["partitions"]
        self.events.append(str([_short(row) for row in rows]))
        if self.draw.random() < 0.3:
            code = self._by_plan(destination)
        else:
            code = self._by_move(original, destination, is_planned)
        if code == 4:
            found = {row["finding"] for row in rows} & {*STOPS, "early", "new"}
            assert checked.code == 4 or self.tally["meanwhile"], self.story(checked.text)
            self.tally[f"stopped: {' '.join(sorted(found))}"] += 1
            accepts = {row["finding"] for row in rows} & {"lost", "unresolved"} and self.draw.random() < 0.6
            if not accepts or self.phase is Phase.WRITING:
                return None
            if self._by_plan(destination, "--accept", "lost", "--accept", "unresolved", "--accept", "behind") == 4:
                return None
            self.has_accepted = True
            self.tally["accepted"] += 1
            if self.sink is not None:
                self.sink.may_double = True
        else:
            assert checked.code in (0, 3) or self.tally["meanwhile"], self.story(checked.text)
        ended = self.hook()
        assert ended.code == 0, self.story(ended.text)
        for row in rows:
            self.tally[row["finding"]] += 1
            if row["finding"] == "behind" and self.sink is not None:
                self.sink.may_double = True
        return ended

    def _by_plan(self, destination: str, *decisions: str) -> int:
        """A plan that is applied: the code of what stopped."""
        self.plans.mkdir(mode=0o700, exist_ok=True)
        number = len([*self.plans.glob("by-hand-*")])
        plan = self.plans / f"by-hand-{number}.plan.json"
        planned = self.do("plan", "--to", destination, "-o", plan, "--job", "q", *decisions)
        assert planned.code in (0, 4), self.story(planned.text)
        applied = self.do("apply", plan, "--yes")
        assert applied.code == planned.code, self.story(f"{planned.text}\n{applied.text}")
        self.tally["by hand"] += applied.code == 0
        return applied.code

    def _by_move(self, original: Query, destination: str, is_planned: bool) -> int:
        """``move``, and the hook, which may be killed: the code of what stopped."""
        moved = self.do("move", "--to", destination, "--yes")
        if moved.code == 4:
            assert self.phase is Phase.LIVES, self.story(moved.text)
            return 4
        assert moved.code == 0, self.story(moved.text)
        for _ in range(self.draw.randrange(1, 4) if self.kind.kills and self.draw.random() < 0.5 else 0):
            step = self.draw.randrange(1, 90)
            with in_memory(self.clusters.logs, lambda: self.clusters.now_ms, self.folder):
                code = run_killed(step, *self.hook_words, "-c", self.config)
            self.events.append(f"killed at {step}: {code}, {self.phase}")
            self.tally["killed"] += code < 0
            assert code in (-9, 0, 4), self.story(f"killed at {step}: {code}")
            if is_planned and self.draw.random() < 0.3:
                self._meanwhile(original, destination)
        ended = self.hook()
        assert ended.code in (0, 4), self.story(ended.text)
        assert ended.code == 0 or len(ended.err.strip()) > 40, self.story(ended.text)
        return ended.code

    def _meanwhile(self, original: Query, destination: str) -> None:
        """Between a killed hook and the next one the source lives, and the operator may take the move back."""
        self.tally["meanwhile"] += 1
        if self.draw.random() < 0.5:
            phase = self.phase
            cancelled = self.do("move", "--cancel")
            assert cancelled.code == 0, self.story(cancelled.text)
            if phase is not Phase.LIVES:
                self.start_again()
                moved = self.do("move", "--to", destination, "--yes")
                assert moved.code == 0, self.story(moved.text)
                self.tally["cancelled"] += 1
            return
        if self.kind.grows and self.draw.random() < 0.3:
            self.clusters.add_partition()
        self.clusters.produce()
        self.clusters.mirror(whole=True)

    def _started(self, original: Query, destination: str, ended: Ended) -> bool:
        """Compare what was handed out with the story."""
        at, location = ended.variables["RECONCILER_CHECKPOINT"], self.state.location()
        assert location is not None
        assert (location.phase, location.cluster) == (Phase.LIVES, destination), self.story(str(location))
        assert at == location.checkpoint != str(original.files.path), self.story(f"{at} was handed out: {location}")
        copy = Path(at)
        query = original.copied(copy, destination)
        for place in query.at:
            assert place in self.clusters.places(destination), self.story(f"{place} does not exist")
            log = self.clusters.log(destination, place)
            assert log.start <= query.at[place] <= log.end, self.story(f"{place} out of range")
        self._compare(original, query)
        state = query.state()
        assert state == query.read, self.story(f"state: {state - query.read} more, {query.read - state} less")
        made = query.files.content()
        self.query = query
        for _ in range(self.draw.randrange(3)):
            again = self.hook()
            assert again.code == 0, self.story(again.text)
            assert again.variables["RECONCILER_CHECKPOINT"] == at, self.story(again.text)
        assert query.files.content() == made, self.story("a second start changed something")
        return True

    def _compare(self, original: Query, query: Query) -> None:
        front, behind = query.in_front_and_behind()
        left = set(self._numbers_at(original.side))  # what was removed there first was never to be read there
        ahead = left - set(behind) - set(query.read)
        skipped = (front & ahead) - self.given_up
        where = {str(place): offset for place, offset in query.at.items()}
        assert not skipped, self.story(f"skipped: {sorted(skipped)}, at {where}")
        self.given_up |= ahead if self.has_accepted else ahead & self.clusters.compacted[query.side]
        again = [each for each in behind if query.read[each] and each not in query.to_repeat]
        shown = self._shown(original)
        twice = Counter(self._numbers_read(original))
        if not twice or max(twice.values()) == 1:  # in a stretch that was sent again more may be read than is shown
            assert len(again) <= shown, self.story(f"{shown} shown, and read again: {again}, at {where}")
        query.to_repeat |= {each for each in again if each not in front}

    def _numbers_at(self, side: str) -> list[int]:
        clusters = self.clusters
        return [number_of(each) for place in clusters.places(side) for each in clusters.log(side, place).records]

    def _numbers_read(self, query: Query) -> list[int]:
        places = [place for place in query.at if place in self.clusters.places(query.side)]
        logs = [(self.clusters.log(query.side, place), query.at[place]) for place in places]
        return [number_of(each) for log, at in logs for each in log.records if each.offset < at]

    def _shown(self, original: Query) -> int:
        """The largest replay of any plan of this move."""
        found = [0]
        for file in self.plans.glob("*.plan.json"):
            plan = json.loads(file.read_text())
            job = plan["jobs"][0]
            if job["store"].endswith(f"/{original.files.path.name}"):
                found.append(sum(_shown(row) for row in job["partitions"]))
        return max(found)

    # ------------------------------------------------------------ after a move

    def _stay(self, original: Query) -> None:
        """The move is called off before the query ran anywhere: it goes on where it was."""
        cancelled = self.do("move", "--cancel")
        assert cancelled.code == 0, self.story(cancelled.text)
        self.query = original.restarted()
        self.tally["called off"] += 1
        self.start_again()

    def _go_on(self, original: Query, is_planned: bool) -> None:
        for _ in range(self.draw.randrange(3)):
            self._live_unsettled(is_planned)
        if self.kind.undoes and self.draw.random() < 0.35:
            ways = [self._copy_gone, *([self._undone] if is_planned else [])]
            if is_planned and self.sink is None:
                ways.append(self._mistaken)
            if self.draw.choice(ways)(original):
                return
        if is_planned:
            self.clusters.mirror(whole=True)
        self.clusters.switch(is_lost=not is_planned)
        self.start_again()

    def _live_unsettled(self, is_planned: bool) -> None:
        """Batches at the destination, while the producers are where they were."""
        self.clusters.now_ms += 1_000
        if is_planned:
            if self.draw.random() < 0.5:
                self.clusters.produce()
            self.clusters.mirror(whole=True)
        self.draw.choice([self.query.run, self.query.run, self.query.plan_batch])()
        self.events.append(f"{self.query.side} unsettled: {self.query.at} {self.query.begun}")

    def _copy_gone(self, original: Query) -> bool:
        """The copy is away: nothing else is continued in its place."""
        copy = self.query.files.path
        self.events.append("the copy is away")
        copy.rename(aside := copy.with_name("aside"))
        ended = self.hook()
        assert ended.code in (4, 6), self.story(ended.text)
        assert str(copy) in ended.err, self.story(ended.text)
        assert not copy.exists()
        aside.rename(copy)
        self.tally["copy gone"] += 1
        return False

    def _undone(self, original: Query) -> bool:
        """A rollback: back in the original, if nothing has run on the copy; else the way back is a move."""
        kept = self.query.files.content(), original.files.content()
        ended = self.do("rollback", "--job", "q", "--yes")
        assert (self.query.files.content(), original.files.content()) == kept
        has_run = self.query.batches_here or self.query.has_planned
        assert ended.code == (4 if has_run else 0), self.story(ended.text)
        self.tally["not rolled back" if has_run else "rolled back"] += 1
        if has_run:
            return False
        self.query = original.restarted()
        self.start_again()
        return True

    def _mistaken(self, original: Query) -> bool:
        """The original is continued at the source, without the hook, though its copy may have run."""
        query = self.query
        original.restarted()
        for _ in range(self.draw.randrange(1, 3)):
            self.clusters.produce()
            self.draw.choice([original.run, original.plan_batch])()
        self.clusters.mirror(whole=True)
        has_gone_on = original.batch > query.batch - query.batches_here or (original.begun and not query.begun)
        self.events.append(f"the original was continued: {original.at}")
        ended = self.hook()
        self.tally["mistaken"] += 1
        if ended.code == 0:
            assert original.batch == query.batch - query.batches_here, self.story(ended.text)
            return False
        assert ended.code == 4, self.story(ended.text)
        assert "was started on" in ended.err, self.story(ended.text)
        assert has_gone_on or original.begun, self.story(ended.text)
        original.files.path.rename(self.folder / f"aside-{self.moves}")  # the copy's work counts
        self.start_again()
        return False

    # ------------------------------------------------------------ a life

    def live(self) -> None:
        clusters, kind = self.clusters, self.kind
        acts = {
            self.produce: 4.0,
            self.mirror: 4,
            self.run: 4,
            self.track: self.draw.choice([0.5, 3, 5]),
            self.restart_mirror: 0.4,
            self.start_again: 0.4,
            self.look: 0.1,
        }
        if kind.sink:
            del acts[self.restart_mirror]
        if kind.grows:
            acts[self.grow] = 0.4
        if kind.removes:
            acts[self.remove] = self.draw.choice([0.0, 0.6])
        try:
            for act in self.draw.choices([self.produce, self.mirror, self.run], k=self.draw.randrange(4)):
                act()
            self.begin()
            for _ in range(self.draw.randrange(2, 5)):
                for act in self.draw.choices([*acts], [*acts.values()], k=self.draw.randrange(4, 16)):
                    clusters.now_ms += 1_000
                    act()
                    ends = {side: [clusters.log(side, place).end for place in clusters.places(side)] for side in OTHER}
                    self.events.append(f"{act.__name__}: {self.query.at}, ends {ends}, to {clusters.mirrored}")
                if not self.fail_over():
                    return
        except StopLife:
            return

    def produce(self) -> None:
        self.clusters.produce()

    def mirror(self) -> None:
        self.clusters.mirror()

    def restart_mirror(self) -> None:
        self.clusters.restart_mirror()

    def run(self) -> None:
        self.query.run()

    def grow(self) -> None:
        self.clusters.add_partition()

    def remove(self) -> None:
        """Retention at either cluster, or compaction of single records."""
        clusters, active = self.clusters, self.clusters.active
        if self.draw.random() < 0.4:
            clusters.compact(side := self.draw.choice([*OTHER]))
            if side == self.query.side:
                self.given_up |= clusters.compacted[side] - set(self.query.read)
        elif self.draw.random() < 0.5:
            upto = {place: min(offset, clusters.mirrored.get(place, 0)) for place, offset in self.query.at.items()}
            clusters.retain(active, upto)
        else:
            other = OTHER[active]
            clusters.retain(other, {place: clusters.log(other, place).end for place in clusters.places(other)})


def _short(row: dict[str, Any]) -> tuple[object, ...]:
    names = ("topic", "partition", "position", "finding", "stored_offset", "resume_offset")
    return (*(row.get(name) for name in names), row["replay"]["at_most"])


def _shown(row: dict[str, Any]) -> int:
    counts = row["position"] != "end" or row["finding"] == "exact"
    return (row["replay"]["at_most"] or 0) if counts else 0
