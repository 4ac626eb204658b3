"""The life of a query under an operator who uses the commands, makes mistakes, and is killed in the middle."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from tests.lives.queries.clusters import OTHER, number_of
from tests.lives.queries.commands import Ended, in_memory, run_killed
from tests.lives.queries.product import Kind, Operated, StopLife
from tests.lives.queries.query import Query

__all__ = ["Kind", "Life"]

STOPS = ("lost", "missing", "unresolved", "behind")


class Life(Operated):
    """What happens to the query, and what each move is compared with."""

    def fail_over(self) -> bool:
        """Move the query. False: its life ends here."""
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
        copy = self.folder / str(self.moves)
        self.starts_by = (destination, original.files.path, copy)
        if self.draw.random() < 0.3:
            self.look()
        kept = original.files.content()
        self.events.append(f"--- {'planned' if is_planned else 'lost'}: from {source} to {destination}")
        ended = self._moved(original, is_planned)
        assert original.files.content() == kept, self.story("the original changed")
        if ended is None:
            if not is_planned or self.draw.random() < 0.5:
                return False
            self._stay(original)
            return True
        if not self._started(original, copy, ended):
            return False
        self.left[source] = {**self.left.get(source, {}), **original.at}
        self._go_on(original, copy, is_planned)
        return True

    def _moved(self, original: Query, is_planned: bool) -> Ended | None:
        """The end of the hook that has moved the query; None if it needs a decision."""
        self.has_accepted = False
        destination, store, copy = self.starts_by
        config = self.config(destination, store)
        checked = self.do("check", "-c", config, "--job", "q", "--format", "json")
        assert checked.code in (0, 3, 4), self.story(checked.text)
        rows = json.loads(checked.out)["jobs"][0]["partitions"]
        self.events.append(str([_short(row) for row in rows]))
        word: tuple[str, ...] = ("--to", "destination")
        if self.draw.random() < 0.3:
            word = ()
            started = self.do("failover", "start", "-c", config, "--job", "q")
            assert started.code == 0, self.story(started.text)
        if self.draw.random() < 0.3:
            self._by_hand(config, store, copy)
        for _ in range(self.draw.randrange(1, 4) if self.kind.kills and self.draw.random() < 0.5 else 0):
            step = self.draw.randrange(1, 90)
            with in_memory(self.clusters.logs, lambda: self.clusters.now_ms, self.folder):
                words = ("-c", config, "--job", "q", "--plans", self.plans, "--clone-to", copy, *word)
                code = run_killed(step, "hook", *words)
            self.events.append(f"killed at {step}: {code}")
            self.tally["killed"] += code < 0
            assert code in (-9, 0, 4), self.story(f"killed at {step}: {code}")
            if is_planned and self.draw.random() < 0.3:
                self._meanwhile(original, copy)
                word = ("--to", "destination")  # the mark may be gone
        ended = self.hook(*word)
        if ended.code == 4:
            assert checked.code == 4 or self.tally["meanwhile"], self.story(f"{checked.text}\n{ended.text}")
            assert len(ended.err.strip()) > 40, self.story(ended.text)
            found = {row["verdict"] for row in rows} & {*STOPS, "bounded", "remapped", "new"}
            self.tally[f"stopped: {' '.join(sorted(found))}"] += 1
            if not {row["verdict"] for row in rows} & {"lost", "missing"} or self.draw.random() < 0.4:
                return None
            ended = self.hook(*word, "--accept", "lost", "--accept", "missing", "--accept", "behind")
            self.has_accepted = ended.code == 0
            self.tally["accepted"] += self.has_accepted
            if self.sink is not None:
                self.sink.may_double = True
            if ended.code == 4:
                return None
        else:
            assert checked.code in (0, 3) or self.tally["meanwhile"], self.story(f"{checked.text}\n{ended.text}")
        assert ended.code == 0, self.story(ended.text)
        for row in rows:
            self.tally[row["verdict"]] += 1
            if row["verdict"] == "behind" and self.sink is not None:
                self.sink.may_double = True
        return ended

    def _meanwhile(self, original: Query, copy: Path | None) -> None:
        """Between a killed hook and the next one the source lives, and the operator may take the mark away."""
        assert copy is not None
        self.tally["meanwhile"] += 1
        if self.draw.random() < 0.5:
            self.end(*self.starts_by[:2])
            ended = self.hook()
            at = ended.variables.get("RECONCILER_CHECKPOINT")
            assert ended.code in (0, 4), self.story(ended.text)
            assert at in (None, str(copy if copy.exists() else original.files.path)), self.story(ended.text)
            assert at is not None or self.kind.one_name or copy.exists(), self.story(ended.text)
            return
        if self.kind.grows and self.draw.random() < 0.3:
            self.clusters.add_partition()
        self.clusters.produce()
        self.clusters.mirror(whole=True)

    def _by_hand(self, config: Path, store: Path, copy: Path | None) -> None:
        """A plan, and a copy by it, without the hook."""
        assert copy is not None
        self.plans.mkdir(mode=0o700, exist_ok=True)
        plan = self.plans / f"by-hand-{self.moves}.plan.json"
        planned = self.do("plan", "-c", config, "-o", plan, "--job", "q")
        assert planned.code in (0, 4), self.story(planned.text)
        made = self.do("checkpoint", "clone", store, copy, "--plan", plan, "-c", config, "--job", "q")
        assert made.code == planned.code, self.story(f"{planned.text}\n{made.text}")
        self.tally["by hand"] += made.code == 0

    def _started(self, original: Query, copy: Path, ended: Ended) -> bool:
        """Compare what was handed out with the story."""
        at = ended.variables["RECONCILER_CHECKPOINT"]
        assert at == str(copy), self.story(f"{at} was handed out")
        destination = self.starts_by[0]
        query = original.copied(copy, destination)
        for place in query.at:
            assert place in self.clusters.places(destination), self.story(f"{place} does not exist")
            log = self.clusters.log(destination, place)
            assert log.start <= query.at[place] <= log.end, self.story(f"{place} out of range")
        self._compare(original, query)
        state = query.state()
        assert state == query.read, self.story(f"state: {state - query.read} more, {query.read - state} less")
        made, anchors = query.files.content(), self.anchors()
        self.query = query
        for _ in range(self.draw.randrange(3)):
            again = self.hook()
            assert again.code == 0, self.story(again.text)
            assert again.variables["RECONCILER_CHECKPOINT"] == at, self.story(again.text)
        assert (query.files.content(), self.anchors()) == (made, anchors), self.story(
            "a second start changed something"
        )
        return True

    def _compare(self, original: Query, query: Query) -> None:
        front, behind = query.in_front_and_behind()
        left = set(self._numbers_at(original.side))  # what was removed there first was never to be read there
        ahead = left - set(behind) - set(query.read)
        skipped = (front & ahead) - self.given_up
        where = {str(place): offset for place, offset in query.at.items()}
        assert not skipped, self.story(f"skipped: {sorted(skipped)}, at {where}")
        if self.has_accepted:
            self.given_up |= ahead
        again = [each for each in behind if query.read[each] and each not in query.to_repeat]
        counted = [each for each in again if each not in self._processed_in_an_earlier_stay(query)]
        shown = self._shown()
        twice = Counter(self._numbers_read(original))
        if not twice or max(twice.values()) == 1:  # in a stretch that was sent again more may be read than is shown
            assert len(counted) <= shown, self.story(f"{shown} shown, and read again: {counted}, at {where}")
        query.to_repeat |= {each for each in again if each not in front}

    def _processed_in_an_earlier_stay(self, query: Query) -> set[int]:
        """What the query reads again there and no checkpoint tells of: a limit that the documents name."""
        stay = self.left.get(query.side, {})
        return {
            number_of(each)
            for place, at in query.at.items()
            for each in self.clusters.log(query.side, place).records
            if at <= each.offset < stay.get(place, 0)
        }

    def _numbers_at(self, side: str) -> list[int]:
        clusters = self.clusters
        return [number_of(each) for place in clusters.places(side) for each in clusters.log(side, place).records]

    def _numbers_read(self, query: Query) -> list[int]:
        places = [place for place in query.at if place in self.clusters.places(query.side)]
        logs = [(self.clusters.log(query.side, place), query.at[place]) for place in places]
        return [number_of(each) for log, at in logs for each in log.records if each.offset < at]

    def _shown(self) -> int:
        """The largest replay of any plan of this move."""
        found = [0]
        for file in self.plans.glob("*.plan.json"):
            plan = json.loads(file.read_text())
            job = plan["jobs"][0]
            if job["store"].endswith(f"/{self.starts_by[1].name}"):
                found.append(sum(_shown(row) for row in job["partitions"]))
        return max(found)

    # ------------------------------------------------------------ after a move

    def _stay(self, original: Query) -> None:
        """The failover is called off before the query ran anywhere: it goes on where it was."""
        destination, store, _ = self.starts_by
        self.end(destination, store)
        self.query = original.restarted()
        if self.kind.one_name or self.draw.random() < 0.7:
            self.starts_by = (destination, store, None)
        self.tally["called off"] += 1
        self.start_again()

    def _go_on(self, original: Query, copy: Path, is_planned: bool) -> None:
        destination, store, _ = self.starts_by
        for _ in range(self.draw.randrange(3)):
            self._live_unsettled(is_planned)
        if self.kind.undoes and self.draw.random() < 0.35:
            ways = [self._copy_deleted, *([self._undone] if is_planned else [])]
            if is_planned and self.sink is None:
                ways.append(self._mistaken)
            if self.draw.choice(ways)(original, copy):
                return
        if is_planned:
            self.clusters.mirror(whole=True)
        self.clusters.switch(is_lost=not is_planned)
        self.end(destination, store)
        self.start_again()
        way = self.draw.choice(["as it was", "forward", "back"])
        if way == "forward":
            self.starts_by = (destination, copy, None)
        elif way == "back":
            self.starts_by = (original.side, copy, None)
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

    def _copy_deleted(self, original: Query, copy: Path) -> bool:
        """The copy is deleted by hand, and the same command makes it again."""
        self.events.append("the copy is deleted")
        shutil.rmtree(copy)
        for file in self.plans.glob("*.plan.json"):
            file.unlink()
        ended = self.hook("--to", "destination")
        self.tally["deleted"] += 1
        if ended.code == 4:
            self.tally["stopped, deleted"] += 1
            raise StopLife
        assert ended.code == 0, self.story(ended.text)
        self._started(original, copy, ended)
        return False

    def _undone(self, original: Query, copy: Path) -> bool:
        """Back to the original, at the source, which stood still; the copy is removed, or left."""
        destination, store, _ = self.starts_by
        self.tally["undone"] += 1
        for plan in sorted(self.plans.glob("*.plan.json"))[-1:]:
            kept = self.query.files.content(), original.files.content(), self.anchors()
            ended = self.do("rollback", plan, "-c", self.config(destination, store), "--yes")
            assert ended.code in (2, 4, 5, 6), self.story(ended.text)
            assert (self.query.files.content(), original.files.content(), self.anchors()) == kept
        self.end(destination, store)
        if self.sink is not None:
            self.query, self.starts_by = original.restarted(), (destination, store, None)
            ended = self.hook() if not self.kind.one_name else self.hook("--to", "source")
            began = original.batch - (original.begun is None)
            assert ended.code == 4 or self.sink.last <= began, self.story(ended.text)
            self.tally["refused by its sink"] += ended.code == 4
            if ended.code == 4:
                raise StopLife
        is_removed = self.draw.random() < 0.5
        self.events.append(f"undone; the copy is removed: {is_removed}")
        if is_removed:
            shutil.rmtree(copy)
            self.query = original.restarted()
            self.start_again()
            self.starts_by = (destination, store, None)
            return True
        self.query = original.restarted()
        self.starts_by = (destination, store, None)
        self.start_again()
        return True

    def _mistaken(self, original: Query, copy: Path) -> bool:
        """The original is continued at the source, without the hook, though its copy may have run."""
        query, was = self.query, self.starts_by
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
        if self.draw.random() < 0.5:  # the original's work counts
            shutil.rmtree(copy)
            self.query = original
            self.starts_by = (was[0], was[1], None)
            self.end(was[0], was[1])
            self.start_again()
            return True
        self.starts_by = (was[0], copy, None)
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
            clusters.compact(self.draw.choice([*OTHER]))
        elif self.draw.random() < 0.5:
            upto = {place: min(offset, clusters.mirrored.get(place, 0)) for place, offset in self.query.at.items()}
            clusters.retain(active, upto)
        else:
            other = OTHER[active]
            clusters.retain(other, {place: clusters.log(other, place).end for place in clusters.places(other)})


def _short(row: dict[str, Any]) -> tuple[object, ...]:
    names = ("topic", "partition", "position", "verdict", "stored_offset", "resume_offset")
    return (*(row.get(name) for name in names), row["replay"]["at_most"])


def _shown(row: dict[str, Any]) -> int:
    counts = row["position"] != "end" or row["verdict"] in ("match", "moved")
    return (row["replay"]["at_most"] or 0) if counts else 0
