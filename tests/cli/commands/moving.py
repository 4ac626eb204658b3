"""Jobs with a state store and two clusters in memory, each for another answer to ``move --to b``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reconciler.core.errors import OutcomeUnknown
from reconciler.places.sqlite.store import SqliteStore
from reconciler.state.start import Start, load
from tests.golden.corpus import HEAD, OFFSETS, deliver, job, stored
from tests.golden.world import Result, World

CONFIG = ("-c", "reconciler.toml")


class Moving:
    """``exact``, ``early``, ``behind``, ``bare`` (no anchor) and ``broken`` (its store is no database), each of a topic
    of its name, which has 20 records on a, and fewer on b."""

    def __init__(self, world: World) -> None:
        self.world = world
        jobs = ""
        for name, by, copied in (
            ("exact", "fingerprint", range(2, 20)),
            ("early", "time", range(2, 20)),
            ("behind", "fingerprint", range(2, 4)),
            ("bare", "nothing", range(2, 20)),
        ):
            deliver(world, name, range(20), log="source")
            deliver(world, f"a.{name}", copied)
            world.store(OFFSETS, name, {(name, 0): stored(6, base=0, by=by, topic=name)})
            jobs += job(name, [name], id="none")
        world.file("broken.db", "no database")
        settings = '[state]\nstore = "files:state"\n[policy]\nbehind = "wait"\n'
        world.file("reconciler.toml", HEAD + settings + jobs + job("broken", ["exact"], "sqlite:///broken.db", "none"))
        assert self.run("init").code == 0

    def run(self, command: str, *words: object) -> Result:
        """A command, a minute after the last one."""
        self.world.now_ms += 60_000
        return self.world.run(*command.split(), *CONFIG, *words)

    def hook(self, name: str = "exact", *words: object) -> Result:
        return self.run("hook", "--job", name, "--plans", "plans", *words)

    def start(self, name: str = "exact") -> Start:
        """What the hook hands over now."""
        ended = self.hook(name)
        assert ended.code == 0, ended.err
        path = dict(line.split("=", 1) for line in ended.out.splitlines())["RECONCILER_START"]
        path = path.replace("<TMP>", str(self.world.folder))
        return load(Path(path).read_text(), path)

    def at_home(self, *names: str) -> None:
        """An operator has said that the jobs live at home."""
        for name in names or ("exact",):
            assert self.run("move --to a --yes", "--job", name).code == 0

    def cut_off(self, monkeypatch: pytest.MonkeyPatch, name: str = "exact") -> None:
        """The hook of a job that moves ends while it writes; nothing was written."""

        def lost(*_: Any, **__: Any) -> None:
            raise OutcomeUnknown("The answer to the write was lost.", hint="Run it again.")

        with monkeypatch.context() as patch:
            patch.setattr(SqliteStore, "write", lost)
            assert self.hook(name).code == 7

    def status(self, name: str = "exact") -> str:
        """A job's line of ``status``, with single spaces."""
        ended = self.run("status", "--job", name)
        assert ended.code == 0, ended.err
        return " ".join(ended.out.splitlines()[1].split())


@pytest.fixture
def moving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Moving:
    return Moving(World(tmp_path, monkeypatch))
