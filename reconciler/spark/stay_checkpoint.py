"""A checkpoint's location for each stay of a job whose offsets are stored elsewhere.

A checkpoint has offsets of one stay, and a query that continues from it ignores ``startingOffsets``. So stay 1 has the
location ``base``, stay 2 ``base-2``, and so on. A note in the folder names its state store, job and stay: a folder that
was copied, or that another job began, is never continued. In stay 1 a folder without a note is the checkpoint that the
job had before.

The note has an id: a name for the batches of the query there (``transaction_id``).
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import secrets
from collections.abc import Mapping
from typing import Any

from reconciler.core import json_fields
from reconciler.core.errors import ConfigError, NeedsPerson, NotCreated
from reconciler.core.json_fields import FieldError
from reconciler.places.folder import open_folder
from reconciler.state.start import Start

NOTE = "_reconciler-stay.json"
"""In the checkpoint's own folder. Spark opens only the files and folders there that it knows by name."""
FORMAT = "reconciler.stay/1"
_FIELDS = frozenset({"format", "store", "job", "stay", "folder", "id"})
_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):/(?!/)")
_SPARKS_LOCAL = re.compile(r"^(?:file:/+|dbfs:/+(?=Volumes/))")
_SPARKS_DBFS = re.compile(r"^dbfs:/+")
_DATABRICKS = "DATABRICKS_RUNTIME_VERSION"
_ROOT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*|file:")


def checkpoint_at(base: str | os.PathLike[str], start: Start) -> str:
    """The checkpoint's location for this stay. Its note is written first, so that the next start gets it too.

    Raises ConfigError for a base without a name of its own; NeedsPerson for another stay's folder, and if a sink of the
    start would drop the query's batches; Refused, Unreachable or OutcomeUnknown as the file system does.
    """
    from reconciler.failover.sinks.judging import refuse_start

    path, parent, name = location(base)
    if start.stay > 1:
        path, name = f"{path}-{start.stay}", f"{name}-{start.stay}"
    note = _note(parent, name)
    if note is not None and [note[key] for key in ("store", "job", "stay", "folder")] != _own(start, name):
        raise _not_own(path, f"its note is of stay {note['stay']} of job {note['job']}, in {note['folder']}")
    begun = bool(open_folder(path).names("offsets"))
    if note is None and begun and start.stay > 1:
        raise _not_own(path, "it has batches, and no note of this stay")
    if start.sinks:
        refuse_start(start.job, start.sinks, path if begun else None, placed=bool(start.offsets))
    if note is None:
        _begin(parent, name, start, secrets.token_hex(16))
    return path


def transaction_id(path: str, start: Start) -> str:
    """A name for the batches of the query on this checkpoint: the same at a restart and in a copy, else another one.

    Without a note it is the query's id, if the checkpoint has a query. Raises as ``checkpoint_at`` does.
    """
    from reconciler.places.checkpoint.reading import read_checkpoint

    path, parent, name = location(path)
    note = _note(parent, name)
    if note is not None:
        return str(note["id"])
    try:
        found = read_checkpoint(path).query_id
    except NotCreated:
        found = None
    if found is not None:
        return found
    _begin(parent, name, start, secrets.token_hex(16))
    return str((_note(parent, name) or {})["id"])


def location(base: str | os.PathLike[str]) -> tuple[str, str, str]:
    """A checkpoint's location without slashes at its end; the folder that it is in; and its name there.

    Raises ConfigError for a location without a name of its own, whose folder would not be the query's alone; and for
    ``~``, which Spark takes for a folder of this name.
    """
    text = os.fspath(base)
    if (found := _SCHEME.match(text)) and found["scheme"] != "file":
        raise ConfigError(
            f"The checkpoint's location {text} may be on another machine, or a folder here.",
            hint=f"Write {found['scheme']}://HOST/PATH, or ./{text}",
        )
    whole = text.rstrip("/")
    root = found[0] if (found := _ROOT.match(text)) else ""
    path = whole[len(root) :]
    if path.startswith("~"):
        raise ConfigError(
            f"The checkpoint's location {text} begins with ~, and Spark does not know ~ as a home folder.",
            hint=f"Write the whole path; or ./{path} for a folder of this name.",
        )
    parent, name = posixpath.split(path)
    if name in ("", ".", ".."):
        raise ConfigError(
            f"The checkpoint's location {text} is not a folder with a name of its own.",
            hint='Give one for each query, like "/checkpoints/clicks" or "s3://bucket/checkpoints/clicks".',
        )
    return whole, f"{root}{parent}" or ".", name


def as_opened(path: str) -> str:
    """Spark's path as this process opens it. Databricks mounts ``dbfs:/`` at ``/dbfs``, and volumes at ``/Volumes``."""
    return _SPARKS_DBFS.sub("/dbfs/", _SPARKS_LOCAL.sub("/", path))


def for_spark(path: str, environ: Mapping[str, str] = os.environ) -> str:
    """A checkpoint's path as Spark takes it: on Databricks a path without a scheme is one of DBFS.

    Raises ConfigError there for a path on the driver's own disk.
    """
    if _DATABRICKS not in environ or not path.startswith("/") or path.startswith("/Volumes/"):
        return path
    if path.startswith("/dbfs/"):
        return f"dbfs:/{path.removeprefix('/dbfs/')}"
    raise ConfigError(
        f"The checkpoint {path} is on the disk of this Databricks driver, which ends with the cluster.",
        hint="Write /Volumes/CATALOG/SCHEMA/VOLUME/PATH, /dbfs/PATH, or a URL such as s3://BUCKET/PATH.",
    )


def _own(start: Start, name: str) -> list[object]:
    return [start.store_id, start.job, start.stay, name]


def _begin(parent: str, name: str, start: Start, new_id: str) -> None:
    values = dict(zip(("store", "job", "stay", "folder"), _own(start, name), strict=True))
    try:
        open_folder(parent).publish(
            f"{name}/{NOTE}", json.dumps({"format": FORMAT, **values, "id": new_id}).encode() + b"\n"
        )
    except FileExistsError:
        if _note(parent, name) is None:  # pragma: no cover - it was removed meanwhile
            raise


def _note(parent: str, name: str) -> dict[str, Any] | None:
    """The note of a folder; None if it has none. Raises ConfigError for one that cannot be read."""
    try:
        text = open_folder(parent).read(f"{name}/{NOTE}")
    except FileNotFoundError:
        return None
    try:
        found = json_fields.json_object(text.decode())
        json_fields.require_format(found, FORMAT, _FIELDS)
        for key in ("store", "job", "folder", "id"):
            json_fields.required_text(found, key)
        json_fields.required(json_fields.integer(found, "stay", 1), "stay")
    except (FieldError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{name}/{NOTE} in {parent} cannot be read: {error}.", hint="Restore it, or move that checkpoint away."
        ) from error
    return found


def _not_own(path: str, why: str) -> NeedsPerson:
    return NeedsPerson(
        f"The checkpoint {path} is of another stay of the job: {why}.",
        hint="Move it away, or give the job another base.",
    )
