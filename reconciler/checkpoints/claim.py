"""Whose copy is at a path of an object store: the text of its barrier tells.

Of two processes that begin a copy there at once, one gets the path where the store creates files on condition (S3,
GCS); elsewhere both may write the barrier, and the one whose text stays goes on. A process that goes on with a copy
that was cut off shares its barrier with the process that began it, if that is still at work: the one that ends first
removes it.
"""

from __future__ import annotations

import posixpath
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from reconciler.checkpoints.files import BARRIER, Tree
from reconciler.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class CopyClaim:
    """The barrier of a copy, and its text. ``is_own``: this process has begun that copy, and may remove it."""

    barrier: str
    text: bytes
    is_own: bool

    def may_be_removed(self, target: Tree) -> bool:
        """False where another process copies, or a query may run."""
        return self.is_own and self.stands(target)

    def stands(self, target: Tree) -> bool:
        try:
            return target.read(self.barrier) == self.text
        except FileNotFoundError:
            return False

    def refuse_taken(self, target: Tree) -> None:
        """Raise ConfigError if another process has finished the copy, or begun another one."""
        if not self.stands(target):
            raise _taken(target)


def claim_copy(target: Tree, barrier: str, digest: str, original: str) -> CopyClaim:
    """Write the barrier of a new copy, or find that of one that was cut off.

    ``digest`` is of all that is copied, ``original`` its path for messages. Raises ConfigError if the path is taken.
    """
    of_this = BARRIER + digest.encode()
    found = target.unfinished()
    if found is not None:
        if not found.startswith(of_this):
            raise ConfigError(
                f"{target.shown} has an unfinished copy of something else, or of an earlier state of {original}.",
                hint="Remove it, or choose another NEW_PATH.",
            )
        return CopyClaim(barrier, found, is_own=False)
    claim = CopyClaim(barrier, of_this + f" {uuid4().hex}\n".encode(), is_own=True)
    if not target.is_empty():
        raise _taken(target)
    with suppress(FileExistsError):
        target.create(barrier, claim.text)
    claim.refuse_taken(target)
    if set(target.listing().files) != {barrier}:  # another process has finished a copy right before
        if target.creates:
            target.fs.rm_file(posixpath.join(target.root, barrier))
        raise _taken(target)
    return claim


def _taken(target: Tree) -> ConfigError:
    return ConfigError(
        f"Another process is copying to {target.shown}, or has: it is left as it is.",
        hint="Wait for it, and use its copy: see with reconciler checkpoint show. Or choose another NEW_PATH.",
    )
