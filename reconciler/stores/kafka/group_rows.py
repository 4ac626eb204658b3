"""A committed offset as a broker holds it. Without the client, which is slow to load."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset. No metadata and empty metadata are the same to a broker."""

    offset: int
    metadata: str

    @property
    def version(self) -> str:
        """Changes with the offset or the metadata. A commit of the very same does not show."""
        return hashlib.blake2b(f"{self.offset} {self.metadata}".encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic's partitions by number, and whether we may read it, which a commit takes."""

    partitions: frozenset[int]
    may_read: bool = True


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group's state by the broker's name for it, its members' ``client id (host)``, and what we may do with it."""

    state: str
    members: tuple[str, ...] = ()
    may_commit: bool = True
    may_delete: bool = True

    @property
    def live(self) -> bool:
        """True unless the broker says that the group has no members, or does not exist."""
        return self.state not in ("EMPTY", "DEAD") or bool(self.members)
