"""The names most like one that is not there, for a sentence about a misspelt name. Few, and always the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

MOST_NAMES = 3
MOST_LISTED = 10
"""Up to this many names are listed; of more, only names like the wanted one."""
MOST_LOOKS = 20
"""Topics to look up names for: among 20,000 topics one takes about half a second."""
_ALIKE = 0.7
_OWN = ("__", "mm2-")
"""How the names of Kafka's and MirrorMaker's own topics begin; those of MirrorMaker may also end with ``.internal``."""


def near_names(wanted: str, names: Iterable[str], most: int = MOST_NAMES, alike: float = 0.6) -> list[str]:
    """The names most like ``wanted``, best first; ``alike`` is the least likeness, 1 for the same."""
    from difflib import get_close_matches  # noqa: PLC0415 - most commands meet no misspelt name

    return get_close_matches(wanted, sorted(set(names)), most, alike)


def known_names(wanted: str, names: Iterable[str]) -> str:
    """The end of a sentence that begins "It has": all names, if they are few; else those like it, or how many."""
    listed = list(names)
    if len(listed) <= MOST_LISTED:
        return ", ".join(listed) or "none"
    near = ", ".join(sorted(near_names(wanted, listed)))
    return near or f"{len(listed):,} others, none with a name like it"


def tables_like(wanted: str, tables: Iterable[tuple[str, str]]) -> str:
    """The front of a hint for a missing table, from each one that exists: its name and full name."""
    there = list(tables)
    near = near_names(wanted, (name for name, _ in there))
    full = sorted(each for name, each in there if name in near)[:MOST_NAMES]
    return f"Did you mean {' or '.join(full)}? " if full else ""


def near_topics(wanted: str, source: str, names: Iterable[str]) -> list[str]:
    """The topics that may be meant by ``wanted``, the destination's name of the source's topic ``source``; sorted.

    Those of the source's name under any prefix or with any suffix come first (``us-west.orders``, ``orders.copy``, and
    ``orders`` itself), then names like ``wanted``, then names that are like ``source`` but for a prefix.
    """
    there = [name for name in sorted(set(names)) if name != wanted and not _is_own(name)]
    under = [name for name in there if source in _tails(name) or source in _heads(name)]
    by_tail: dict[str, list[str]] = {}
    for name in there:
        for tail in _tails(name):
            by_tail.setdefault(tail, []).append(name)
    close = near_names(wanted, there, alike=_ALIKE)
    tails = [name for tail in near_names(source, by_tail, alike=_ALIKE) for name in by_tail[tail]]
    return sorted(list(dict.fromkeys([*under, *close, *tails]))[:MOST_NAMES])


def _tails(name: str) -> list[str]:
    """The name, and what follows each of its separators."""
    return [name, *(name[at + 1 :] for at, sign in enumerate(name[:-1]) if not sign.isalnum())]


def _heads(name: str) -> list[str]:
    """The part of the name before each of its separators."""
    return [name[:at] for at, sign in enumerate(name) if not sign.isalnum()]


def _is_own(name: str) -> bool:
    return name.startswith(_OWN) or name.endswith(".internal")


@dataclass(frozen=True, slots=True)
class NearTopics:
    """``near_topics`` among the topics that ``names`` lists at the first question; it answers for ``MOST_LOOKS``."""

    names: Callable[[], Iterable[str]]
    _listed: list[list[str]] = field(default_factory=list)
    _found: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def of(self, wanted: str, source: str) -> str:
        """Like ``"us-west.orders" and "orders.v2"``; empty if there is none."""
        if (wanted, source) not in self._found:
            if len(self._found) == MOST_LOOKS:
                return ""
            if not self._listed:
                self._listed.append(list(self.names()))
            self._found[wanted, source] = near_topics(wanted, source, self._listed[0])
        return " or ".join(f'"{name}"' for name in self._found[wanted, source])
