"""A query on clusters in memory, and the product's commands as its operator uses them."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lives.queries.clusters import OTHER, Clusters, Place
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
    own_anchors: bool = True
    ends: bool = False
    """Track keeps anchors of a running batch's end, too."""
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
    starts_by: tuple[str, Path, Path | None] = ("b", Path(), None)
    """How the query's starts are: the destination of the configuration, its store, and the copy."""
    left: dict[str, dict[Place, int]] = field(default_factory=dict)
    """Where the query was at each cluster that it has left."""
    given_up: set[int] = field(default_factory=set)
    """Records that a person has accepted to skip; they may come back to a log that had lost them."""
    has_accepted: bool = False
    """A person has decided on the last move."""

    def __post_init__(self) -> None:
        here = ["o", "o2"][: self.kind.topics]
        names = {"a": here, "b": here if self.kind.one_name else ["p", "p2"][: self.kind.topics]}
        self.clusters = Clusters(self.draw, names, self.kind.disorder_ms, bare=self.kind.bare)
        sources = [[each] for each in range(len(here))] if self.kind.apart else [[*range(len(here))]]
        self.sink = FileSink(self.folder / "out") if self.kind.sink else None
        self.query = Query.first(self.clusters, self.draw, self.folder / "0", sources, self.sink)
        self.starts_by = ("b", self.query.files.path, None)

    # ------------------------------------------------------------ the product

    def config(self, destination: str, store: Path) -> Path:
        source, names = OTHER[destination], self.clusters.names
        pairs = "".join(f'"{a}@{source}" = "{b}"\n' for a, b in zip(names[source], names[destination], strict=True))
        topics = '[topics]\npolicy = "identity"\n' if self.kind.one_name else f"[topics.names.{destination}]\n{pairs}"
        anchors = f"anchors-{source}" if self.kind.own_anchors else "anchors"
        sink = "" if self.sink is None else f'sink = "files:{self.sink.folder}"\n'
        text = (
            f'[clusters.a]\nbootstrap_servers = "a:1"\n[clusters.b]\nbootstrap_servers = "b:1"\n{topics}'
            f'[anchors]\nstore = "sqlite:///{self.folder}/{anchors}.db"\n'
            f'[search]\nmax_disorder = "{self.kind.disorder_ms}ms"\n'
            f'[failover]\nstate = "{self.marks(destination)}"\n'
            f'[[jobs]]\nname = "q"\nhome = "{source}"\ngroup = "q"\n'
            f'topics = {json.dumps(names[source])}\noffsets = "checkpoint:{store}"\n'
            f"{sink}[jobs.identity]\n{self.kind.identity}\n"
        )
        if self.kind.ends:
            job = text[text.index("[[jobs]]") :].replace('"q"', '"q-end"')
            text += job.replace(f'{store}"', f'{store}?position=end"')
        path = self.folder / f"to-{destination}.toml"
        path.write_text(text)
        return path

    def marks(self, destination: str) -> Path:
        path = self.folder / f"marks-{destination}"
        path.mkdir(exist_ok=True)
        return path

    @property
    def plans(self) -> Path:
        return self.folder / "plans"

    def do(self, *words: object) -> Ended:
        with in_memory(self.clusters.logs, lambda: self.clusters.now_ms, self.folder):
            ended = run(*words)
        self.events.append(f"{' '.join(map(str, words))}: {ended.code}")
        assert ended.code != 1, self.story(ended.text)
        assert "Traceback" not in ended.err, self.story(ended.text)
        return ended

    def hook(self, *words: object) -> Ended:
        destination, store, copy = self.starts_by
        config = self.config(destination, store)
        more = () if copy is None else ("--clone-to", copy)
        return self.do("hook", "-c", config, "--job", "q", "--plans", self.plans, *more, *words)

    def track(self) -> None:
        if self.query.side != self.clusters.active:
            return
        ended = self.do("track", "-c", self.config(OTHER[self.query.side], self.query.files.path), "--once")
        allowed = (0, 4) if self.kind.own_anchors or not self.kind.one_name else (0, 2, 4, 6)
        assert ended.code in allowed, self.story(ended.text)

    def look(self) -> None:
        """Commands that must write nothing."""
        destination, store, _ = self.starts_by
        config = self.config(destination, store)
        before = self.everything()
        for words in (("check",), ("failover", "status"), ("check", "--format", "json")):
            ended = (
                self.do(*words[:1], *words[1:2], "-c", config, *words[2:])
                if words[0] == "failover"
                else self.do(words[0], "-c", config, *words[1:])
            )
            assert ended.code in (0, 3, 4), self.story(ended.text)
        assert self.everything() == before, self.story("a look wrote something")

    def everything(self) -> dict[str, bytes]:
        return {
            str(each): each.read_bytes()
            for each in sorted(self.folder.rglob("*"))
            if each.is_file() and not each.name.endswith(("-shm", "-wal"))
        }

    def anchors(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for file in sorted(self.folder.glob("anchors*.db")):
            db = sqlite3.connect(file)
            found += db.execute("SELECT * FROM reconciler_offsets").fetchall()
            db.close()
        return found

    # ------------------------------------------------------------ starts

    def start_again(self) -> None:
        """A start where the query is: it must change nothing, and hand out the query's own checkpoint."""
        kept, anchors = self.query.files.content(), self.anchors()
        ended = self.hook()
        at_source = self.starts_by[0] != self.query.side
        if ended.code == 4 and self.kind.one_name and at_source and "hook --to source" in ended.err:
            ended = self.hook("--to", "source")  # numbers without anchors, which could be of either cluster
        if ended.code == 4 and not at_source:
            self.tally["stopped where it is"] += 1
            raise StopLife
        assert ended.code == 0, self.story(ended.text)
        assert ended.variables["RECONCILER_CHECKPOINT"] == str(self.query.files.path), self.story(ended.text)
        assert (self.query.files.content(), self.anchors()) == (kept, anchors), self.story("a start changed something")

    def end(self, destination: str, store: Path) -> None:
        self.do("failover", "end", "-c", self.config(destination, store), "--job", "q")

    def story(self, end: str) -> str:
        return "\n".join([str(self.kind), *self.events, end])
