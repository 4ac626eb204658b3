"""Where a query keeps its checkpoint: one location for each stay of a job on a cluster.

A checkpoint holds offsets of the cluster that its query read, and a query that continues from it ignores
``startingOffsets``. So a stay gets a location of its own: ``base``, then ``base-2``, ``base-3``, …. The newest one is
used again as long as it belongs to this stay, which a note in its folder tells:

- the cluster is the same, by its id, or by the address of one of its brokers where the id was not known yet;
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
from hashlib import sha256

from reconciler.config.addresses import shared_brokers
from reconciler.core.errors import ConfigError, NotCreated
from reconciler.folder import Folder, open_folder
from reconciler.formats.json_fields import FieldError, Fields, json_value
from reconciler.formats.start import JobStart, Side
from reconciler.spark.handoff.arguments import checkpoint_base

NOTE = "_reconciler-start.json"
"""In the checkpoint's own folder. Spark opens only the files and folders there that it knows by name."""
FORMAT = "reconciler.stay/1"
_FIELDS = frozenset({"format", "cluster_id", "bootstrap_servers", "correction"})
_GROWN = frozenset({"id", "folder", "base"})

log = logging.getLogger("reconciler.handoff")


def location(base: str | os.PathLike[str], start: JobStart) -> str:
    """The checkpoint's location for this start. A new one is noted before it is returned: the next start gets it too.

    Raises ConfigError for a location without a name of its own, and for a note that cannot be read or is another
    folder's or base's; NeedsPerson where a sink of the start would drop the query's batches; Refused, Unreachable or
    OutcomeUnknown as the file system does.
    """
    base, parent, name = checkpoint_base(base)
    folder = open_folder(parent)
    newest, free = _newest(folder, base, name)
    if newest == 0:
        _refuse_by_sinks(start, None)
        return _begin(folder, base, name, 1, start)
    at = _numbered(name, newest)
    try:
        note = _noted(folder, base, at)
    except FileNotFoundError:
        if newest == 1 and start.side is Side.SOURCE:
            _refuse_by_sinks(start, base)
            return _begin(folder, base, name, 1, start)
        note = None
    if note is not None and note.folder not in (None, at):
        raise ConfigError(
            f"The checkpoint {at} beside {base} is a copy: its note names the folder {note.folder}.",
            hint=f'Move the copy away. If {note.folder} was renamed, write "folder": "{at}", "base": "{name}" into '
            f"{at}/{NOTE}.",
        )
    _refuse_of_another_base(note, base, at, name)
    if note is not None and _is_of(note, start):
        _refuse_by_sinks(start, _numbered(base, newest))
        return _numbered(base, newest)
    _refuse_by_sinks(start, None)
    log.warning(
        "job %s begins a new query in %s: %s holds the offsets of an earlier stay",
        start.job,
        _numbered(name, free),
        at,
    )
    return _begin(folder, base, name, free, start)


def _refuse_of_another_base(note: _Note | None, base: str, at: str, name: str) -> None:
    if note is not None and note.base not in (None, name):
        raise ConfigError(
            f"The checkpoint {at} beside {base} belongs to the base {note.base}, whose job goes on there.",
            hint=f"Choose another base for this job. If it is that job, give checkpoint() the base {note.base}.",
        )


def _refuse_by_sinks(start: JobStart, path: str | None) -> None:
    """Raise NeedsPerson where a sink would drop the query's batches. ``path``: its checkpoint, None for a new one."""
    if not start.sinks:
        return
    from reconciler.failover.sinks import refuse_start

    refuse_start(start.job, start.sinks, path, placed=bool(start.offsets) or start.store is not None)


def transaction_id(path: str, start: JobStart) -> str:
    """A name for the batches of the queries on this checkpoint: another one for each location, the same at a restart.

    A checkpoint that has no note, but a query, has that query's id. Raises as ``location`` does.
    """
    path, parent, name = checkpoint_base(path)
    folder = open_folder(parent)
    try:
        note = folder.read(f"{name}/{NOTE}")
    except FileNotFoundError:
        query = _query_of(path)
        if query is not None:
            return query
        _begin(folder, path, name, 1, start)
        note = folder.read(f"{name}/{NOTE}")
    of_older_release = sha256(f"{name}\n".encode() + note).hexdigest()[:32]
    return _read(note, f"{path}/{NOTE}").id or of_older_release


def _query_of(path: str) -> str | None:
    from reconciler.stores.checkpoint import read_checkpoint

    try:
        return read_checkpoint(path).query_id
    except NotCreated:
        return None


def _newest(folder: Folder, base: str, name: str) -> tuple[int, int]:
    """The number of the newest location there is, 0 for none, and the next one that is free.

    Raises ConfigError where a note does not show it.
    """
    pattern = re.compile(rf"{re.escape(name)}(?:-([2-9]|[1-9]\d+))?")
    numbers = {int(found[1] or 1) for each in folder.names() if (found := pattern.fullmatch(each))}
    last = 0
    while last + 1 in numbers:
        last += 1
    newest = next((each for each in range(last, 1, -1) if not _of_another_base(folder, base, name, each)), min(last, 1))
    taken = set(range(1, last + 1))
    for number in sorted(each for each in numbers if each > last):
        at = _numbered(name, number)
        try:
            note = _noted(folder, base, at)
        except FileNotFoundError:  # nothing was begun there
            continue
        taken.add(number)
        if note.is_of_another_base(at, name):
            continue
        if note.folder is None:
            raise ConfigError(
                f"{at} beside {base} is a backup or the newest checkpoint: its note, of an older release, does not "
                "say which.",
                hint=f'Give a backup another name, such as backup-of-{at}. If the query runs in it, write "folder": '
                f'"{at}" into {at}/{NOTE}.',
            )
        if note.folder == at:
            newest = number
        else:
            log.warning("the checkpoint %s is not used: it is a copy of %s", at, note.folder)
    free = newest + 1
    while free in taken:
        free += 1
    return newest, free


def _of_another_base(folder: Folder, base: str, name: str, number: int) -> bool:
    at = _numbered(name, number)
    try:
        return _noted(folder, base, at).is_of_another_base(at, name)
    except FileNotFoundError:  # nothing was begun there
        return False


def _noted(folder: Folder, base: str, at: str) -> _Note:
    return _read(folder.read(f"{at}/{NOTE}"), f"{base}: {at}/{NOTE}")


def _numbered(path: str, number: int) -> str:
    return path if number == 1 else f"{path}-{number}"


def _begin(folder: Folder, base: str, name: str, number: int, start: JobStart) -> str:
    at = _numbered(name, number)
    note = {
        "format": FORMAT,
        "cluster_id": start.cluster_id,
        "bootstrap_servers": start.bootstrap_servers,
        "correction": start.correction,
        "id": secrets.token_hex(16),
        "folder": at,
        "base": name,
    }
    try:
        folder.publish(f"{at}/{NOTE}", json.dumps(note).encode() + b"\n")
    except FileExistsError:
        log.debug("another query of job %s has begun %s at the same moment", start.job, at)
        _refuse_of_another_base(_noted(folder, base, at), base, at, name)
    return _numbered(base, number)


@dataclass(frozen=True, slots=True)
class _Note:
    """What a location's note holds; ``id``, ``folder`` or ``base`` None: an older release wrote it."""

    cluster_id: str | None
    bootstrap_servers: str
    correction: str
    id: str | None
    folder: str | None
    base: str | None

    def is_of_another_base(self, at: str, name: str) -> bool:
        """True if the folder ``at`` is a location of another base than ``name``. A copy's note does not tell."""
        return self.base not in (None, name) and self.folder == at


def _read(note: bytes, place: str) -> _Note:
    try:
        fields = Fields(json_value(note.decode()), "", _FIELDS, _GROWN)
        if fields.text("format") != FORMAT:
            raise FieldError("format", f"is not {FORMAT}")
        return _Note(
            fields.text_or_null("cluster_id"),
            fields.text("bootstrap_servers"),
            fields.any_text("correction"),
            fields.text_or_null("id"),
            fields.text_or_null("folder"),
            fields.text_or_null("base"),
        )
    except (FieldError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{place} cannot be read: {error}.", hint="Restore it, or move that checkpoint away."
        ) from error


def _is_of(note: _Note, start: JobStart) -> bool:
    """True if the location was begun in this stay."""
    if start.correction > note.correction:  # an older one, or none, is what another machine's folder of plans holds
        return False
    if note.cluster_id is None or start.cluster_id is None:
        return bool(shared_brokers(note.bootstrap_servers, start.bootstrap_servers))
    return note.cluster_id == start.cluster_id
