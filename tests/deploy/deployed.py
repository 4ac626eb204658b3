"""The examples of ``deploy/`` on this machine: their paths lie below a folder, their programs come first in PATH.

The tests change in them only what a user changes: the cluster's address, the topic, the group, the paths.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.core.anchors import StoredOffset
from reconciler.state.jobs import JobState
from reconciler.state.store import open_state
from tests.starting import placed
from tests.world import BASE, ROOT, World, environment

DEPLOY = ROOT / "deploy"
LAST = 3
"""The record that a job which may start has processed last."""
HERE = ("/etc/clicks", "/srv/clicks", "/var/lib/clicks", "/run/clicks", "/var/lib/node_exporter")
"""Where the examples for one machine keep things."""

RECONCILER = '#!/bin/sh\nexec "{python}" -m reconciler "$@"\n'
SPARK_SUBMIT = """#!/bin/sh
# Stands where spark-submit would: says that it was started, and what it finds.
set -eu
printf '%s\\n' "$*" >> "{folder}/started"
test -s "$RECONCILER_START"
cp "$RECONCILER_START" "{folder}/start"
"""
ENDS_WITH = "#!/bin/sh\nexit {code}\n"
"""Stands where the hook would, for the codes that no test can bring about at will."""


@dataclass
class Deployed:
    """A job, its store and the programs of an example. ``places`` are the absolute paths that are moved."""

    world: World
    places: Iterable[str] = HERE
    more: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bin.mkdir(parents=True)
        self.program("reconciler", RECONCILER.format(python=sys.executable))
        self.program("spark-submit", SPARK_SUBMIT.format(folder=self.world.folder))

    @property
    def bin(self) -> Path:
        return self.world.folder / "bin"

    def program(self, name: str, text: str) -> None:
        file = self.bin / name
        file.write_text(text)
        file.chmod(0o755)

    def path(self, place: str) -> Path:
        """Where an example's path is here."""
        return Path(self.moved(place))

    def moved(self, text: str) -> str:
        """A text of an example with its paths below the folder."""
        places = "|".join(map(re.escape, self.places))
        return re.sub(rf"(?<![\w.])(?=(?:{places})(?![\w.-]))", str(self.world.folder / "at"), text)

    def configure(self, text: str, file: Path) -> None:
        """Put an example's configuration where the example reads it, for this test's cluster, topic and group."""
        text = self.moved(text).replace("kafka-b:9092", self.world.cluster.bootstrap)
        text = text.replace('["events"]', json.dumps([self.world.topic]))
        text = text.replace('name = "clicks"', f'name = "clicks"\ngroup = {json.dumps(self.world.group)}')
        for old, new in self.more.items():
            text = text.replace(old, new)
        self.world.address = re.findall(r'^offsets = "(.*)"$', text, re.MULTILINE)[0]
        for folder in (file.parent, Path(self.world.address.removeprefix("sqlite:///")).parent):
            folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        self.moves(Path(re.findall(r'^store = "sqlite:///([^"]*)"', text, re.MULTILINE)[0]))

    def moves(self, state: Path, *, to: str | None = "b") -> None:
        """A new state store, in which the job is on its way to the second cluster; at home with ``to=None``."""
        state.unlink(missing_ok=True)
        store = open_state(f"sqlite:///{state}")
        store.create()
        placed(JobState(store, "clicks"), "a", to=to)

    @property
    def environment(self) -> dict[str, str]:
        before = environment(XDG_STATE_HOME=str(self.world.folder / "state"))
        return {**before, "PATH": f"{self.bin}:{before['PATH']}"}

    # ------------------------------------------------------------ what the job is in for

    def may_start(self) -> None:
        self.world.processed(LAST)

    def needs_a_person(self) -> None:
        """An offset without anchor: nothing can be proven."""
        self.world.save({0: StoredOffset(BASE + 4)})

    # ------------------------------------------------------------ what came of it

    @property
    def starts(self) -> list[str]:
        """The arguments of every start of the job."""
        file = self.world.folder / "started"
        return file.read_text().splitlines() if file.exists() else []

    @property
    def start(self) -> dict[str, Any]:
        """What the newest start of the job was given."""
        return dict(json.loads((self.world.folder / "start").read_text()))

    @property
    def started_at_the_right_offsets(self) -> bool:
        return self.start["offsets"] == {self.world.mirrored: {"0": self.world.offset_of(LAST) + 1}}
