"""The start that a hook hands over, in a world of commands."""

from __future__ import annotations

from pathlib import Path

from reconciler.state.start import Start, load
from tests.golden.world import World


def started(world: World, *words: str) -> Start:
    """What the hook of the only job hands over now. Its plans are in the folder ``plans``."""
    ended = world.run("hook", "-c", "reconciler.toml", "--plans", "plans", *words)
    assert ended.code == 0, ended.err
    path = dict(line.split("=", 1) for line in ended.out.splitlines())["RECONCILER_START"]
    path = path.replace("<TMP>", str(world.folder))
    return load(Path(path).read_text(), path)
