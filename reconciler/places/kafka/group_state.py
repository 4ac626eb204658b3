"""A group as its cluster describes it: its commits, its members, and what this user may do. Loads no client."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset. To a broker, no metadata and empty metadata are the same."""

    offset: int
    metadata: str

    @property
    def version(self) -> str:
        """Changes with the offset or the metadata, not with a second commit of the same."""
        return hashlib.blake2b(f"{self.offset} {self.metadata}".encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic's partitions by number, and whether this user has Read on it, which a commit needs."""

    numbers: frozenset[int]
    may_read: bool = True


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group's state by the broker's name for it, its members' ``client id (host)``, and this user's permissions."""

    state: str
    members: tuple[str, ...] = ()
    may_commit: bool = True

    @property
    def live(self) -> bool:
        """True unless the broker says that the group has no members, or does not exist."""
        return self.state not in ("EMPTY", "DEAD") or bool(self.members)
