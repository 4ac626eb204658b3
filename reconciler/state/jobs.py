"""One job's location, plans and journals, read from and appended to the state store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from reconciler.core.errors import Changed, OutcomeUnknown, Refused
from reconciler.core.json_fields import FieldError
from reconciler.core.text import command
from reconciler.state import journal as journals
from reconciler.state import locations, plans
from reconciler.state.journal import FULL_EVERY, KEPT, KEPT_DAYS
from reconciler.state.locations import Location
from reconciler.state.plans import Numbers
from reconciler.state.store import FIRST, Entry, StateStore, log_name

T = TypeVar("T")
_ALL = 10**9
RACES = 5
"""How often an append is repeated with the next number, if another recorder took the number."""


class JobState:
    """One job in the store. All methods raise as the store does, and Refused for a damaged entry.

    ``file``: its configuration's path, for commands that messages name.
    """

    def __init__(self, store: StateStore, job: str, file: Path | str | None = None) -> None:
        self.store = store
        self.job = job
        self.file = file

    def command(self, name: str, *words: object) -> str:
        """A command line about this job, to be copied into a shell."""
        config = () if self.file is None else ("-c", self.file)
        return command("reconciler", name, *config, *words, "--job", self.job)

    # ------------------------------------------------------------ where it lives

    def location(self) -> Location | None:
        """The newest entry; None for a job that has none."""
        found = self._read(log_name("location", self.job), locations.load, newest=1)
        return found[0] if found else None

    def history(self) -> list[Location]:
        """All entries, oldest first."""
        return self._read(log_name("location", self.job), locations.load, newest=_ALL)[::-1]

    def move_on(self, seen: Location | None, then: Location) -> Location:
        """Append ``then`` after the location that was read. Raises Changed if another entry was appended since."""
        number = FIRST if seen is None else seen.number + 1
        if not self.store.append(log_name("location", self.job), number, locations.dump(then)):
            raise Changed(
                f'Somebody else has moved the job "{self.job}" meanwhile; nothing was written.',
                hint=f"See: {self.command('status', '--history')}",
            )
        return locations.load(number, locations.dump(then))

    # ------------------------------------------------------------ plans

    def plan(self, number: int) -> Numbers:
        """The plan of that number. Raises Refused if the store has lost it."""
        found = self.plans().get(number)
        if found is None:
            raise Refused(
                f'The state store {self.store.shown} has lost plan {number} of the job "{self.job}".',
                hint="Restore it from a backup that is not older than the last move.",
            )
        return found

    def plans(self) -> dict[int, Numbers]:
        """All plans by number."""
        return {each.number: each for each in self._read(log_name("plan", self.job), plans.load, newest=_ALL)}

    def add_plan(self, plan: Numbers) -> int:
        """Append a plan, and return its number. Raises Changed if another one was added meanwhile."""
        newest = self._read(log_name("plan", self.job), plans.load, newest=1)
        number = newest[0].number + 1 if newest else FIRST
        if not self.store.append(log_name("plan", self.job), number, plans.dump(plan)):
            raise Changed(f'Somebody else is moving the job "{self.job}"; nothing was written.', hint="Run this again.")
        return number

    # ------------------------------------------------------------ out of a copy

    def restore_plan(self, plan: Numbers) -> None:
        """Append a plan under its number. Raises Changed if another one was appended since."""
        self._restore("plan", plan.number, plans.dump(plan))

    def restore_location(self, location: Location) -> None:
        """Append an entry of the location under its number. Raises Changed if another one was appended since."""
        self._restore("location", location.number, locations.dump(location))

    def _restore(self, kind: str, number: int, fields: Mapping[str, Any]) -> None:
        if not self.store.append(log_name(kind, self.job), number, fields):
            raise Changed(f'Somebody else is moving the job "{self.job}".', hint="Run this again.")

    # ------------------------------------------------------------ journals

    def journal(self, stay: int) -> list[journals.Entry]:
        """All that is kept of a stay's journal, oldest first: the days, then the newest entries."""
        days = self._read(self._days(stay), journals.load, newest=KEPT_DAYS)
        return [*days[::-1], *self._read(self._journal(stay), journals.load, newest=KEPT)[::-1]]

    def newest(self, stay: int) -> list[journals.Entry]:
        """The entries in which every partition's newest number is, oldest first; empty if the stay has no journal."""
        return self._read(self._journal(stay), journals.load, newest=FULL_EVERY + 1)[::-1]  # and the closing one

    def append_journal(self, stay: int, number: int, entry: journals.Entry) -> bool:
        """Append an entry; False if another recorder has that number, or the stay is closed."""
        if not self.store.append(self._journal(stay), number, journals.dump(entry)):
            return False
        if entry.full:
            self._keep_day(stay, entry)
            self.store.prune(self._journal(stay), keep=KEPT)
        return True

    def close_journal(self, stay: int, location: int, run: str, at_ms: int) -> None:
        """End the stay's journal by the location's entry of that number, unless it has ended.

        Raises OutcomeUnknown if a recorder is quicker each time.
        """
        for _ in range(RACES):
            newest = self._read(self._journal(stay), journals.load, newest=1)
            if newest and newest[0].closed_by is not None:
                return
            number = newest[0].number + 1 if newest else FIRST
            if self.append_journal(stay, number, journals.closing(location, run, at_ms)):
                return
        raise OutcomeUnknown(
            f'The journal of job "{self.job}" grows, so its stay {stay} could not be ended: a driver records it.',
            hint="Stop that driver, then run this again: it continues from there.",
        )

    def _keep_day(self, stay: int, entry: journals.Entry) -> None:
        found = self._read(self._days(stay), journals.load, newest=1)
        newest = found[0] if found else None
        if journals.is_of_new_day(entry, newest):
            self.store.append(self._days(stay), (newest.number if newest else FIRST - 1) + 1, journals.dump(entry))
            self.store.prune(self._days(stay), keep=KEPT_DAYS)

    def _journal(self, stay: int) -> str:
        return log_name("journal", self.job, str(stay))

    def _days(self, stay: int) -> str:
        return log_name("days", self.job, str(stay))

    def _read(self, log: str, load: Callable[[int, Mapping[str, Any]], T], *, newest: int) -> list[T]:
        return [self._loaded(log, each, load) for each in self.store.read(log, newest=newest)]

    def _loaded(self, log: str, entry: Entry, load: Callable[[int, Mapping[str, Any]], T]) -> T:
        try:
            return load(entry.number, entry.fields)
        except FieldError as error:
            raise Refused(
                f"Entry {entry.number} of {log} in {self.store.shown} cannot be read: {error.sentence}.",
                hint="Use the version of this product that wrote it, or restore the store.",
            ) from error
