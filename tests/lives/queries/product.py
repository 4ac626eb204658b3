"""A query on clusters in memory, and the product's commands as its operator uses them."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.state.jobs import JobState
from reconciler.state.locations import Phase
from reconciler.state.store import open_state
from tests.lives.clusters import OTHER, Clusters, Habits
from tests.lives.queries.commands import Ended, in_memory, run
from tests.lives.queries.query import Query
from tests.lives.queries.sink import FileSink


class StopLife(Exception):
    """The life ends here."""


@dataclass(frozen=True)
class Kind:
    """What a life may have in it. ``one_name``: the topics have one name on both sides."""

    one_name: bool = False
    topics: int = 2
    apart: bool = False
    """One source for each topic."""
    grows: bool = True
    removes: bool = True
    kills: bool = True
    undoes: bool = True
    identity: str = ""
    disorder_ms: int = 0
    bare: bool = False
    sink: bool = False
    """A sink drops batches whose numbers it has. Nothing is sent again, and no query is continued without the hook."""


@dataclass
class Operated:
    """A query, its clusters and the commands. ``events`` is the story so far, for a message."""

    folder: Path
    draw: random.Random
    kind: Kind
    events: list[str] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)
    moves: int = 0
    given_up: set[int] = field(default_factory=set)
    """Records that a person has accepted to skip; they may come back to a log that had lost them."""
    has_accepted: bool = False
    """A person has decided on the last move."""

    def __post_init__(self) -> None:
        here = ["o", "o2"][: self.kind.topics]
        names = {"a": here, "b": here if self.kind.one_name else ["p", "p2"][: self.kind.topics]}
        habits = Habits(self.kind.disorder_ms, alike=float(self.kind.bare))
        self.clusters = Clusters(self.draw, names, habits)
        sources = [[each] for each in range(len(here))] if self.kind.apart else [[*range(len(here))]]
        self.sink = FileSink(self.folder / "out") if self.kind.sink else None
        self.query = Query.first(self.clusters, self.draw, self.folder / "0", sources, self.sink)
        self._configure()
        self.state = JobState(open_state(f"sqlite:///{self.folder}/state.db"), "q")

    # ------------------------------------------------------------ the product

    @property
    def config(self) -> Path:
        """The one configuration of the whole life, for both directions."""
        return self.folder / "reconciler.toml"

    def _configure(self) -> None:
        names = self.clusters.names
        pairs = "".join(f'"{a}@a" = "{b}"\n' for a, b in zip(names["a"], names["b"], strict=True))
        topics = '[topics]\npolicy = "identity"\n' if self.kind.one_name else f"[topics.names.b]\n{pairs}"
        sink = "" if self.sink is None else f'sink = "files:{self.sink.folder}"\n'
        self.config.write_text(
            f'[clusters.a]\nbootstrap_servers = "a:1"\n[clusters.b]\nbootstrap_servers = "b:1"\n{topics}'
            f'[state]\nstore = "sqlite:///{self.folder}/state.db"\n'
            f'[search]\nmax_disorder = "{self.kind.disorder_ms}ms"\n'
            f'[[jobs]]\nname = "q"\nhome = "a"\ngroup = "q"\n'
            f'topics = {json.dumps(names["a"])}\noffsets = "checkpoint:{self.query.files.path}"\n'
            f"{sink}[jobs.identity]\n{self.kind.identity}\n"
        )

    def begin(self) -> None:
        """The query has run at home before the product knew it: once, its operator says so."""
        assert self.do("init").code == 0
        unknown = self.hook()
        assert unknown.code == 4, self.story(unknown.text)
        assert "move" in unknown.err, self.story(unknown.text)
        said = self.do("move", "--to", "a", "--yes")
        assert said.code == 0, self.story(said.text)
        self.start_again()

    @property
    def plans(self) -> Path:
        return self.folder / "plans"

    def do(self, *words: object) -> Ended:
        """``reconciler WORDS``, with the life's one configuration."""
        with in_memory(self.clusters.logs, lambda: self.clusters.now_ms, self.folder):
            ended = run(*words, "-c", self.config)
        self.events.append(f"{' '.join(map(str, words))}: {ended.code}")
        assert ended.code != 1, self.story(ended.text)
        assert "Traceback" not in ended.err, self.story(ended.text)
        return ended

    @property
    def hook_words(self) -> tuple[object, ...]:
        return ("hook", "--job", "q", "--plans", self.plans)

    def hook(self, *words: object) -> Ended:
        self.clusters.now_ms += 1  # two starts of one process have no plan of the same millisecond
        return self.do(*self.hook_words, *words)

    @property
    def phase(self) -> Phase:
        location = self.state.location()
        assert location is not None
        return location.phase

    def track(self) -> None:
        if self.query.side != self.clusters.active:
            return
        ended = self.do("track", "--once")
        assert ended.code in (0, 4), self.story(ended.text)

    def look(self) -> None:
        """Commands that must write nothing."""
        before = self.everything()
        for words in (("plan",), ("status",), ("status", "--history"), ("plan", "--to", OTHER[self.query.side])):
            ended = self.do(*words)
            assert ended.code in (0, 3, 4), self.story(ended.text)
        assert self.everything() == before, self.story("a look wrote something")

    def everything(self) -> dict[str, bytes]:
        return {
            str(each): each.read_bytes()
            for each in sorted(self.folder.rglob("*"))
            if each.is_file() and not each.name.endswith(("-shm", "-wal"))
        }

    # ------------------------------------------------------------ starts

    def start_again(self) -> None:
        """A start where the query is: it must change nothing, and hand out the query's own checkpoint."""
        kept = self.query.files.content()
        ended = self.hook()
        location = self.state.location()
        assert location is not None
        if ended.code == 4 and location.plan is not None:
            self.tally["stopped where it is"] += 1
            raise StopLife
        assert ended.code == 0, self.story(ended.text)
        assert ended.variables["RECONCILER_CHECKPOINT"] == str(self.query.files.path), self.story(ended.text)
        assert self.query.files.content() == kept, self.story("a start changed something")

    def story(self, end: str) -> str:
        return "\n".join([str(self.kind), *self.events, end])
