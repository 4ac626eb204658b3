"""Where a job lives, in a state store in memory or in a file, and starts by its location."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from reconciler.config.file import Config, Job, load_config
from reconciler.jobs.hook.start import Start
from reconciler.jobs.hook.where import place_of
from reconciler.state import locations
from reconciler.state.jobs import JobState
from reconciler.state.locations import Location, Phase, Stamp
from reconciler.state.memory import MemoryState
from reconciler.state.plans import Numbers
from reconciler.state.store import StateStore, open_state

WHO = Stamp("ops@here", lambda: 1_800_000_000_000)
_nonces = count()


def state_in_memory(job: Job) -> JobState:
    """A job of which a new state store knows nothing."""
    store = StateStore(MemoryState("memory:"), new_nonce=lambda: f"n{next(_nonces)}")
    store.create()
    return JobState(store, job.name)


def placed(state: JobState, cluster: str, *, to: str | None = None) -> JobState:
    """The job lives on ``cluster``; with ``to`` it is moving there. Nothing is said twice."""
    here = state.location() or state.move_on(None, locations.first(cluster, WHO))
    if to is not None and here.phase is Phase.LIVES and here.cluster != to:
        state.move_on(here, locations.moving(here, to, WHO))
    return state


def moved(state: JobState, home: str, to: str, *, checkpoint: str | None = None) -> Location:
    """The job lives on ``to``, by a plan that moved it there."""
    here = placed(state, home, to=to).location()
    assert here is not None
    here = state.move_on(here, locations.writing(here, state.add_plan(Numbers(home, here.stay, to, {})), WHO))
    return state.move_on(here, locations.lives(here, checkpoint, WHO))


def start_of(config: Config, folder: Path, *, to: str | None = "b", state: JobState | None = None) -> Start:
    """A start of the configuration's first job: of one that is moving to ``to``, or lives at home."""
    job = config.jobs[0]
    state = placed(state or state_in_memory(job), job.home, to=to)
    place = place_of(config, job, state.location())
    return Start.of(place, job, state, plans=folder / "plans", stamp=WHO)


def with_state(path: Path, *, to: str | None = None, lives: str | None = None) -> Path:
    """Give a configuration's file a state store beside it, where all its jobs live at home, or are moving to ``to``.

    ``lives``: where they live instead, by no plan.
    """
    for job in load_config(with_empty_state(path)).jobs:
        state_of(path, job.name, lives or job.home, to=to)
    return path


def with_empty_state(path: Path) -> Path:
    """Give a configuration's file a state store beside it, which knows no job."""
    address = f"sqlite:///{path.parent}/state.db"
    text = path.read_text(encoding="utf-8")
    if "[state]" not in text:
        path.write_text(f'[state]\nstore = "{address}"\n{text}', encoding="utf-8")
    open_state(address).create()
    return path


def state_of(path: Path, job: str, cluster: str, *, to: str | None = None) -> JobState:
    """The state of one job of such a file."""
    store = open_state(f"sqlite:///{path.parent}/state.db")
    store.create()
    return placed(JobState(store, job), cluster, to=to)
