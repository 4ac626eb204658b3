"""Where a query keeps its checkpoint: one location for each stay of a job on a cluster.

A checkpoint holds offsets of the cluster that its query read, and a query that continues from it ignores
``startingOffsets``. So a stay gets a location of its own: ``base``, then ``base-2``, ``base-3``, …. The newest one is
used again as long as it belongs to this stay, which a note in its folder tells:

- the cluster is the same: by its id, or by the address of one of its brokers where the id was not known yet or the side
  is another (two clusters may report one id, and a failback's configuration exchanges the sides);
- no hook has corrected the job's offsets since, and no rollback has undone such a correction.

A first location without a note is a job's from before it asked for one. At the source it is continued.

Other folders may have such names, too, like a backup ``base-20261122``, whose offsets are old ones. So the note names
its own folder: a copy is never used. A number after a gap counts only if its note names it (older ones may have been
removed). The note names its base, too: ``base-2`` may be another job's first location, and is then passed over.

The note has an id of its own, too: a name for the batches of the queries in that location (``transaction_id``).
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
from dataclasses import dataclass

from reconciler.config.addresses import shared_brokers
from reconciler.core.errors import Changed, ConfigError, NotCreated
from reconciler.folder import Folder, open_folder
from reconciler.formats.json_fields import FieldError, Fields, json_value
from reconciler.formats.start import JobStart, Side
from reconciler.spark.handoff.age import AGAIN
from reconciler.spark.handoff.arguments import checkpoint_base

NOTE = "_reconciler-start.json"
"""In the checkpoint's own folder. Spark opens only the files and folders there that it knows by name."""
FORMAT = "reconciler.stay/1"
_FIELDS = frozenset({"format", "cluster_id", "bootstrap_servers", "correction", "id", "folder", "base", "side"})

log = logging.getLogger("reconciler.handoff")


def location(base: str | os.PathLike[str], start: JobStart, *, old: str = "") -> str:
    """The checkpoint's location for this start. A new one is noted before it is returned: the next start gets it too.

    ``old``: why the start's offsets may be old. Raises Changed for those, unless a query has begun a batch there.
    Raises ConfigError for a location without a name of its own, and for a note that cannot be read or is another
    folder's or base's; NeedsPerson where a sink of the start would drop the query's batches; Refused, Unreachable or
    OutcomeUnknown as the file system does.
    """
    own = _Base.at(base)
    found = own.find()
    if found.newest == 0:
        _refuse(start, None, old)
        return own.begin(1, start)
    folder, path = own.folder_of(found.newest), own.path_of(found.newest)
    try:
        note = own.note_in(folder)
    except FileNotFoundError:
        if found.newest == 1 and start.side is Side.SOURCE:
            _refuse(start, path, old)
            return own.begin(1, start)
        note = None
    if note is not None and note.folder != folder:
        raise ConfigError(
            f"The checkpoint {folder} beside {own.path} is a copy: its note names the folder {note.folder}.",
            hint=f'Move the copy away. If {note.folder} was renamed, write "folder": "{folder}", "base": "{own.name}" '
            f"into {folder}/{NOTE}.",
        )
    own.refuse_another(note, folder)
    if note is not None and _is_of(note, start):
        _refuse(start, path, old)
        return path
    _refuse(start, None, old)
    log.warning(
        "job %s begins a new query in %s: %s holds the offsets of an earlier stay",
        start.job,
        own.folder_of(found.free),
        folder,
    )
    return own.begin(found.free, start)


def _refuse(start: JobStart, path: str | None, old: str) -> None:
    """Raise Changed for a new query at old offsets, NeedsPerson where a sink would drop the query's batches.

    ``path``: its checkpoint, None for a new one.
    """
    if old and (path is None or not _has_begun(path)):
        raise Changed(f"No query of job {start.job} has begun yet, and its start is old: {old}.", hint=AGAIN)
    if not start.sinks:
        return
    from reconciler.failover.sinks import refuse_start

    refuse_start(start.job, start.sinks, path, placed=bool(start.offsets) or start.store is not None)


def transaction_id(path: str, start: JobStart) -> str:
    """A name for the batches of the queries on this checkpoint: another one for each location, the same at a restart.

    A checkpoint that has no note, but a query, has that query's id. Raises as ``location`` does.
    """
    own = _Base.at(path)
    try:
        note = own.parent.read(f"{own.name}/{NOTE}")
    except FileNotFoundError:
        query = _query_of(own.path)
        if query is not None:
            return query
        own.begin(1, start)
        note = own.parent.read(f"{own.name}/{NOTE}")
    return _read(note, f"{own.path}/{NOTE}").id


def _has_begun(path: str) -> bool:
    """True if a batch is planned in the checkpoint. Spark goes on there, whatever the start says."""
    return any(name.isdigit() for name in open_folder(path).names("offsets"))


def _query_of(path: str) -> str | None:
    from reconciler.checkpoints.reading import read_checkpoint

    try:
        return read_checkpoint(path).query_id
    except NotCreated:
        return None


@dataclass(frozen=True, slots=True)
class _Numbers:
    """The number of the newest location there is, 0 for none, and the next one that is free."""

    newest: int
    free: int


@dataclass(frozen=True, slots=True)
class _Base:
    """The first location of a query: its ``path``, and its ``name`` in the folder ``parent`` that holds all of them."""

    parent: Folder
    path: str
    name: str

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> _Base:
        """Raises ConfigError as ``checkpoint_base`` does."""
        whole, parent, name = checkpoint_base(path)
        return cls(open_folder(parent), whole, name)

    def path_of(self, number: int) -> str:
        """The location with this number."""
        return _numbered(self.path, number)

    def folder_of(self, number: int) -> str:
        """Its folder's name within ``parent``."""
        return _numbered(self.name, number)

    def note_in(self, folder: str) -> _Note:
        """Raises FileNotFoundError if there is none: nothing was begun there."""
        return _read(self.parent.read(f"{folder}/{NOTE}"), f"{self.path}: {folder}/{NOTE}")

    def find(self) -> _Numbers:
        """Raises ConfigError for a note that cannot be read."""
        pattern = re.compile(rf"{re.escape(self.name)}(?:-([2-9]|[1-9]\d+))?")
        numbers = {int(found[1] or 1) for each in self.parent.names() if (found := pattern.fullmatch(each))}
        last = 0
        while last + 1 in numbers:
            last += 1
        newest = next((each for each in range(last, 1, -1) if not self._is_of_another(each)), min(last, 1))
        taken = set(range(1, last + 1))
        for number in sorted(each for each in numbers if each > last):
            folder = self.folder_of(number)
            try:
                note = self.note_in(folder)
            except FileNotFoundError:
                continue
            taken.add(number)
            if note.is_of_another_base(folder, self.name):
                continue
            if note.folder == folder:
                newest = number
            else:
                log.warning("the checkpoint %s is not used: it is a copy of %s", folder, note.folder)
        free = newest + 1
        while free in taken:
            free += 1
        return _Numbers(newest, free)

    def _is_of_another(self, number: int) -> bool:
        folder = self.folder_of(number)
        try:
            return self.note_in(folder).is_of_another_base(folder, self.name)
        except FileNotFoundError:
            return False

    def begin(self, number: int, start: JobStart) -> str:
        """Write the note of a new location, and return the location's path."""
        folder = self.folder_of(number)
        note = {
            "format": FORMAT,
            "cluster_id": start.cluster_id,
            "bootstrap_servers": start.bootstrap_servers,
            "correction": start.correction,
            "id": secrets.token_hex(16),
            "folder": folder,
            "base": self.name,
            "side": start.side.value,
        }
        try:
            self.parent.publish(f"{folder}/{NOTE}", json.dumps(note).encode() + b"\n")
        except FileExistsError:
            log.debug("another query of job %s has begun %s at the same moment", start.job, folder)
            self.refuse_another(self.note_in(folder), folder)
        return self.path_of(number)

    def refuse_another(self, note: _Note | None, folder: str) -> None:
        """Raise ConfigError if the note names another base."""
        if note is not None and note.base != self.name:
            raise ConfigError(
                f"The checkpoint {folder} beside {self.path} belongs to the base {note.base}, whose job goes on there.",
                hint=f"Choose another base for this job. If it is that job, give checkpoint() the base {note.base}.",
            )


def _numbered(path: str, number: int) -> str:
    return path if number == 1 else f"{path}-{number}"


@dataclass(frozen=True, slots=True)
class _Note:
    """What a location's note holds."""

    cluster_id: str | None
    bootstrap_servers: str
    correction: str
    id: str
    folder: str
    base: str
    side: str

    def is_of_another_base(self, at: str, name: str) -> bool:
        """True if the folder ``at`` is a location of another base than ``name``. A copy's note does not tell."""
        return self.base != name and self.folder == at


def _read(note: bytes, place: str) -> _Note:
    try:
        fields = Fields(json_value(note.decode()), "", _FIELDS)
        if fields.text("format") != FORMAT:
            raise FieldError("format", f"is not {FORMAT}")
        return _Note(
            fields.text_or_null("cluster_id"),
            fields.text("bootstrap_servers"),
            fields.any_text("correction"),
            fields.text("id"),
            fields.text("folder"),
            fields.text("base"),
            fields.text("side"),
        )
    except (FieldError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{place} cannot be read: {error}.", hint="Restore it, or move that checkpoint away."
        ) from error


def _is_of(note: _Note, start: JobStart) -> bool:
    """True if the location was begun in this stay."""
    # Only a larger one ends the stay: another machine's folder of plans may hold an older one, or none.
    if start.correction > note.correction:
        return False
    if note.cluster_id is None or start.cluster_id is None or note.side != start.side.value:
        return bool(shared_brokers(note.bootstrap_servers, start.bootstrap_servers))
    return note.cluster_id == start.cluster_id
