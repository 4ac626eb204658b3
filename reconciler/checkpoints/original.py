"""Whether a checkpoint has run on since a copy was made of it: then the copy knows nothing of what was done there.

The copy's manifest says which batch its query runs first, and so where the original stood. An original on another file
system than its copy may be lost, and is not looked at.
"""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

from reconciler.core.errors import ReconcilerError
from reconciler.folder import open_folder
from reconciler.formats.checkpoint.manifest import MANIFEST
from reconciler.formats.json_fields import FieldError, integer, json_object
from reconciler.stores.checkpoint import read_checkpoint

log = logging.getLogger(__name__)


def run_since(path: str, copy: str) -> str | None:
    """The work of the original at ``path`` since it was copied to ``copy``, as the end of a sentence; None: none.

    None also where the original or the manifest cannot be read. Raises as ``open_folder`` does.
    """
    if _system(path) != _system(copy):
        return None
    try:
        made = json_object(open_folder(copy).read(MANIFEST).decode())
        first, repeats, query = integer(made, "batch", 0), made.get("repeats") is True, made.get("query_id")
        now = read_checkpoint(path)
    except (ReconcilerError, OSError, FieldError, UnicodeDecodeError) as error:
        log.debug("whether %s has run since its copy is not known: %s", path, error)
        return None
    if first is None or now.last is None:
        return None
    if isinstance(query, str) and now.query_id is not None and now.query_id != query:
        return f"it holds another query now, which has begun batch {now.last.batch}"
    begun, known = now.last.batch, first if repeats else first - 1
    if begun > known:
        return f"it has begun batch {begun}" if begun == known + 1 else f"it has begun batches {known + 1} to {begun}"
    if begun == known and repeats and now.committed:
        return f"it has finished batch {begun}, which the copy repeats"
    return None


def _system(path: str) -> tuple[str, str]:
    """The file system of a path or URL."""
    parts = urlsplit(path)
    return ("file", "") if parts.scheme in ("", "file", "local") else (parts.scheme, parts.netloc)
